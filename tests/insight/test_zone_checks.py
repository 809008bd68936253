"""Zone rules of nodes: they tell them when they start, and ``doctor`` says where they differ."""

from pathlib import Path

from cronsensus import Scheduler, cron
from cronsensus.insight.doctor import examine_store
from cronsensus.triggers.zone_rules import zone_rules_of
from tests.hand_cluster import HandCluster

OLDER, NEWER = "2025b (/usr/share/zoneinfo)", "2026f (package)"


def told(cluster: HandCluster) -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in examine_store(cluster.store) if one.name == "zone rules"]


def join(cluster: HandCluster, node: str, tzdata: str, **zones: str) -> None:
    cluster.join(node, tzdata=tzdata, zones={f"Europe/{city}": digest for city, digest in zones.items()})


def test_a_node_tells_the_zone_rules_of_its_jobs(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'db'}")
    trigger = cron("0 3 1 1 *", tz="Europe/Paris")
    scheduler.job(trigger)(print)
    with scheduler:
        (session,) = scheduler.store.sessions()
    rules = zone_rules_of([trigger])
    assert (session.tzdata, session.zones) == (rules.version, rules.digests)


def test_examine_names_the_nodes_whose_rules_differ_and_what_to_type(cluster: HandCluster) -> None:
    join(cluster, "old", OLDER, Paris="a", Minsk="c")
    join(cluster, "new", NEWER, Paris="b", Minsk="c")
    ((level, text),) = told(cluster)
    assert level == "warn"
    assert text.endswith(f"tzdata {OLDER}: old; tzdata {NEWER}: new")
    assert "on Europe/Paris, so" in text
    (check,) = [one for one in examine_store(cluster.store) if one.name == "zone rules"]
    assert "pip install --upgrade tzdata" in check.then


def test_examine_is_content_with_two_versions_that_agree_on_the_zones_of_jobs(cluster: HandCluster) -> None:
    join(cluster, "old", OLDER, Paris="a")
    join(cluster, "new", NEWER, Paris="a", Rome="b")
    cluster.join("without zones", tzdata="none")
    assert told(cluster) == [("ok", f"the same on all nodes (tzdata {OLDER}, {NEWER})")]


def test_examine_warns_of_rules_older_than_a_year(cluster: HandCluster) -> None:
    for version in ("2024b", "2025a", "unknown"):
        join(cluster, f"of {version}", f"{version} (package)", Paris="a")
    ((level, text),) = told(cluster)[1:]
    assert (level, text) == ("warn", "older than a year: tzdata 2024b (package): of 2024b")
