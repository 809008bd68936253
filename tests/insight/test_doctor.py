"""The examination of a store, its nodes and its jobs, asked without the command line."""

import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from cronsensus.insight import store_checks
from cronsensus.insight.doctor import examine_store
from cronsensus.membership import liveness
from cronsensus.model.job import JobSpec
from tests.hand_cluster import HandCluster


def found(cluster: HandCluster) -> dict[str, str]:
    return {one.name: one.level for one in examine_store(cluster.store)}


def test_examine_fails_where_jobs_have_no_node_and_is_content_where_they_have(cluster: HandCluster) -> None:
    cluster.every("tick")
    assert found(cluster)["nodes"] == "fail"
    cluster.join()
    assert found(cluster)["nodes"] == "ok"


@pytest.mark.parametrize(("holds", "level"), [(False, "ok"), (True, "fail")])
def test_examine_minds_a_process_with_guarded_functions_that_is_gone_only_if_it_held_something(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch, *, holds: bool, level: str
) -> None:
    cluster.store.define_jobs([JobSpec(name="once:charge", function="once:charge", source="runtime")], release="r1")
    session = cluster.join("consumer", concurrency=0)
    if holds:
        cluster.store.lock("till", "consumer", session=session, ttl=timedelta(hours=1))
    monkeypatch.setattr(liveness, "process_state", lambda *_: "gone")
    levels = [one.level for one in examine_store(cluster.store) if one.name == "nodes"]
    assert max(levels, key=["ok", "warn", "fail"].index) == level
    cluster.advance(11 * 3600)
    cluster.store.reclaim([session])
    assert found(cluster)["nodes"] == "ok"


def test_examine_fails_where_a_node_declares_none_of_the_jobs(cluster: HandCluster) -> None:
    cluster.join("shop", functions=0)
    assert found(cluster)["nodes"] == "ok"
    cluster.every("tick")
    (told,) = [one for one in examine_store(cluster.store) if one.name == "nodes" and one.level == "fail"]
    assert told.text == "shop declares no job, and can run none of those in the store"


def test_examine_fails_where_work_waits_that_is_of_no_living_nodes_jobs(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join("of another release")
    cluster.advance(60)
    cluster.fire()  # by another process; no node claims it
    cluster.advance(90)
    (told,) = [one for one in examine_store(cluster.store) if one.name == "waiting"]
    assert told.level == "fail"
    assert "Most likely none of them has the function 'tick'" in told.text


def test_examine_says_what_is_overdue_and_what_to_type(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(300)
    (overdue,) = [one for one in examine_store(cluster.store) if one.name == "overdue"]
    assert overdue.text == "tick was due 4m ago, and no node fired it"
    assert overdue.then == "cronsensus why 'tick' '2026-11-20 12:01:00Z'"


def test_examine_warns_of_live_nodes_of_two_releases(cluster: HandCluster) -> None:
    cluster.join("web-1")
    cluster.join("web-2", release="r2")
    assert found(cluster)["releases"] == "warn"


@pytest.mark.parametrize(
    ("described", "level", "name"),
    [
        ({"synchronous": "full"}, "ok", "durability"),
        ({"synchronous": "normal"}, "warn", "durability"),
        ({"synchronous": "off"}, "fail", "durability"),
        ({"journal_mode": "delete"}, "warn", "journal"),
        ({"file_system": "nfs4"}, "warn", "file system"),
    ],
)
def test_check_durability_judges_settings(described: dict[str, str], level: str, name: str) -> None:
    (found,) = store_checks.check_durability(described)
    assert (found.name, found.level) == (name, level)


@pytest.mark.parametrize(
    ("standbys", "names", "commit", "level", "words"),
    [
        (0, "none", "on", "ok", "no standby is seen"),
        (2, "none", "on", "warn", "2 standbys, .*what the next primary did not have yet, now 4,096 bytes"),
        (2, "pg1", "local", "warn", "no commit waits"),
        (1, "pg1", "on", "ok", "1 standby, and each commit waits for pg1: .*loses nothing"),
        (0, "pg1", "on", "warn", "0 standbys"),
    ],
)
def test_what_a_failover_may_lose_is_said_of_a_postgresql(
    standbys: int, names: str, commit: str, level: str, words: str
) -> None:
    described = {"standbys": standbys, "synchronous_standbys": names, "synchronous_commit": commit}
    (found,) = store_checks.check_failover(described | {"standby_behind_bytes": 4096 if standbys else None})
    assert (found.name, found.level) == ("failover", level)
    assert re.search(words, found.text)


@pytest.mark.parametrize(
    ("servers", "state", "refused", "level", "words"),
    [
        (3, "Synced", 0, "ok", "3 servers: a failover loses nothing, while all nodes are led to one"),
        (3, "Synced", 7, "warn", "7 transactions were refused .* another server was written to"),
        (2, "Synced", 0, "warn", "2 servers: when one is gone"),
        (3, "Donor/Desynced", 0, "warn", "is Donor/Desynced, not Synced"),
    ],
)
def test_what_a_failover_may_lose_is_said_of_a_galera_cluster(
    servers: int, state: str, refused: int, level: str, words: str
) -> None:
    described = {"galera_servers": servers, "galera_state": state, "galera_refused": refused}
    (found,) = store_checks.check_galera(described)
    assert (found.name, found.level) == ("failover", level)
    assert re.search(words, found.text)


@pytest.mark.parametrize(("free", "level"), [(10 * 2**20, "fail"), (100 * 2**20, "warn"), (10 * 2**30, "ok")])
def test_check_space_fails_where_little_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, level: str
) -> None:
    class Usage:
        pass

    usage = Usage()
    usage.free = free  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (found,) = store_checks.check_space({"file": str(tmp_path / "x.db")})
    assert found.level == level


def test_check_wake_ups_warns_when_no_hint_arrives(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from cronsensus.stores.memory import MemoryStore

    monkeypatch.setattr(store_checks, "WAKE_UP_SECONDS", 0.05)
    monkeypatch.setattr(MemoryStore, "notify", lambda _: None)
    assert store_checks.check_wake_ups(cluster.store, {}).level == "warn"
