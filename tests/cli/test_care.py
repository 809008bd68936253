"""``db``, ``doctor``, ``health`` and ``config``: set-up and care."""

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronsensus.model.batch import item_key
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import Origin
from cronsensus.stores import open_store
from cronsensus.testing.conformance.steps import carry_out
from cronsensus.triggers import every

Command = Callable[..., Any]


@pytest.fixture
def url(empty_folder: Path) -> str:
    """A fresh store in a file."""
    url = f"sqlite:///{empty_folder}/jobs.db"
    store = open_store(url)
    store.migrate()
    store.define_jobs([JobSpec(name="tick", function="tick", trigger=every("1h"))], release="r")
    store.close()
    return url


# --- db ---------------------------------------------------------------------------------------------------------------


def test_upgrade_makes_the_schema_and_does_it_once(command: Command) -> None:
    first = command("db", "upgrade", "--url", "sqlite:///new.db", "-o", "json")
    assert first.code == 0
    assert first.data["applied"]
    assert command("db", "upgrade", "--url", "sqlite:///new.db", "-o", "json").data == {"applied": []}
    assert "up to date" in command("db", "upgrade", "--url", "sqlite:///new.db").out


def test_check_says_what_the_store_is(command: Command, url: str) -> None:
    answer = command("db", "check", "--url", url)
    assert answer.code == 0
    assert "ok: the store can be used" in answer.out
    data = command("db", "check", "--url", url, "-o", "json").data
    assert data["ok"] is True
    assert data["store"]["store"] == "sqlite"


def test_check_refuses_a_newer_schema_and_says_what_to_install(command: Command, url: str, empty_folder: Path) -> None:
    with sqlite3.connect(empty_folder / "jobs.db") as connection:
        connection.execute("INSERT INTO cronsensus_schema (version, name, applied_at) VALUES (999, 'm0999_future', 0)")
    for arguments in (["db", "check"], ["db", "upgrade"], ["jobs", "list"], ["doctor"], ["health"]):
        answer = command(*arguments, "--url", url)
        assert answer.code == 3, answer
        assert "newer" in answer.text
        assert "upgrade" in answer.text


def test_read_only_store_ends_health_and_db_check_with_3(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cronsensus import errors
    from cronsensus.stores.memory import MemoryStore

    def fail(_: Any) -> None:
        raise errors.StoreReadOnly("the file can be read but not written; allow it: chmod u+w x.db")

    monkeypatch.setattr(MemoryStore, "check", fail)
    for arguments in (["health"], ["db", "check"]):
        answer = cluster(*arguments)
        assert answer.code == 3
        assert "error: the file can be read but not written" in answer.err
        assert " next: allow it: chmod u+w x.db" in answer.err


def test_store_that_can_only_be_read_is_shown_with_a_note(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cronsensus import errors
    from cronsensus.stores.memory import MemoryStore

    def fail(_: Any) -> None:
        raise errors.StoreReadOnly("the file can be read but not written; allow it: chmod u+w x.db")

    cluster.every("tick", "1m")
    monkeypatch.setattr(MemoryStore, "check", fail)
    for arguments in (["jobs", "list"], ["jobs", "show", "tick"], ["runs", "list"], ["audit"], ["nodes", "list"]):
        answer = cluster(*arguments)
        assert answer.code == 0
        assert "note: the file can be read but not written: it is only read" in answer.err


def test_prune_deletes_in_batches_what_is_old_enough(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cronsensus.cli import db

    monkeypatch.setattr(db, "_BATCH_SIZE", 2)
    cluster.every("tick", "1m")
    cluster.join()
    for _ in range(5):
        cluster.advance(60)
        cluster.run_once(seconds=0)
    assert cluster("db", "prune", "-o", "json").data == {"deleted": 0, "needed": 0, "before": None}
    cluster.advance(30)
    answer = cluster("db", "prune", "--before", "1m", "--yes", "-o", "json")
    assert answer.data == {"deleted": 4, "needed": 0, "before": "2026-11-20T12:04:30Z"}
    assert cluster("db", "prune", "--before", "now", "--yes").out == "deleted 1 from before 2026-11-20 12:05:30Z\n"


def test_prune_before_a_time_says_how_much_of_it_something_open_needs(cluster: Any) -> None:
    store = cluster.store
    store.define_jobs([JobSpec(name="list", function="list")], release="r")
    [batch] = store.enqueue([Item(job="list", origin=Origin.BATCH)])
    store.enqueue([Item(job="list", key=item_key(batch.id, "a"), origin=Origin.BATCH, parent=batch.id)])
    cluster.advance(1)
    store.cancel(batch.id, by="ann", why="")
    [item] = store.occurrences(OccurrenceFilter(parent=batch.id))
    store.cancel(item.id, by="ann", why="")
    store.retry(batch.id, by="ann")
    cluster.advance(1)
    answer = cluster("db", "prune", "--before", "now", "--yes")
    assert answer.out.startswith("deleted 2 from before")
    assert "2 of them may be needed by what is open" in answer.text
    assert "“upstream unknown: pruned”" in answer.text


def test_prune_before_a_time_asks_first(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.run_once(seconds=0)
    cluster.advance(10)
    answer = cluster("db", "prune", "--before", "10s")
    assert answer.code != 0
    assert "nothing was done" in answer.err
    assert "what ended before 2026-11-20 12:01:00Z is to be deleted, whatever each job's keep says" in answer.err
    assert "the same with --yes; or without --before, which goes by each job's keep" in answer.err
    monkeypatch.setattr("cronsensus.cli.asking._has_terminal", lambda: True)
    answer = cluster("db", "prune", "--before", "now", stdin="n\n")
    assert answer.code == 1
    assert "Delete all of namespace 'default' that ended before 2026-11-20 12:01:10Z" in answer.err
    assert len(cluster.store.occurrences(OccurrenceFilter())) == 1
    assert cluster("db", "prune", "--before", "now", stdin="y\n").out.startswith("deleted 1 ")


def test_prune_refuses_the_future(cluster: Any) -> None:
    answer = cluster("db", "prune", "--before", "2030-01-01")
    assert answer.code == 2
    assert "lies in the future" in answer.err


# --- doctor -----------------------------------------------------------------------------------------------------------


def levels(answer: Any) -> dict[str, str]:
    return {check["check"]: check["level"] for check in answer.data["checks"]}


def test_the_doctor_finds_a_store_without_nodes(command: Command, url: str) -> None:
    answer = command("doctor", "--url", url, "-o", "json")
    assert answer.code == 1
    found = levels(answer)
    assert found | {"speed": "ok"} == {
        "store": "ok", "schema": "ok", "identity": "ok", "speed": "ok", "clocks": "ok", "wake-ups": "ok",
        "durability": "ok",
        "disk": "ok", "nodes": "fail", "jobs": "ok",
    }  # fmt: skip
    assert answer.data["ok"] is False
    plain = command("doctor", "--url", url)
    assert "fail  nodes" in plain.out
    assert f"next: cronsensus --url {url} run MODULE:ATTR" in plain.out
    assert "1 failed, 0 to look at" in plain.out


def test_the_doctor_is_content_where_a_node_lives(command: Command, url: str) -> None:
    from cronsensus.model.session import SessionSpec

    store = open_store(url)
    spec = SessionSpec(
        id="s1", node="web-1", host="h", pid=1, pid_started=1, release="r", concurrency=1, version="1", functions=1
    )
    store.open_session(spec, lease=timedelta(minutes=5))
    try:
        answer = command("doctor", "--url", url)
    finally:
        store.close()
    assert answer.code == 0, answer
    assert "all is well" in answer.out
    assert "1 alive: web-1" in answer.out


def test_the_doctor_finds_jobs_that_fail_one_time_after_the_other(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    for number in range(4):
        cluster.advance(60)
        cluster.fire()
        (claim,) = cluster.claim()
        cluster.fail(claim) if number else cluster.finish(claim)
        assert ("tick failed the last" in cluster("doctor").out) == (number >= 3)
    said = cluster("doctor")
    assert "warn  failing" in said.out
    assert "tick failed the last 3 times in a row: OSError: no route to mail server" in said.out
    assert f"runs show {claim.id}" in said.out
    assert "all is well" not in said.out


def test_doctor_names_nodes_that_died_lately(cluster: Any) -> None:
    cluster.join("web-1")
    cluster.join("web-2")
    cluster.store.reclaim(["session-of-web-1"])
    cluster.advance(13)
    assert "web-1 died 13s ago" in cluster("doctor").out
    cluster.advance(3600)
    assert "died" not in cluster("doctor").out


def test_the_doctor_reports_a_store_that_cannot_be_used(command: Command) -> None:
    answer = command("doctor", "--url", "sqlite:///none.db")
    assert answer.code == 3
    assert "fail  store" in answer.out
    assert "db upgrade" in answer.out


def test_the_doctor_finds_what_is_overdue_and_what_waits(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.every("other", "1h")
    cluster.join()
    cluster.advance(3600)
    view = cluster.store.look()
    from cronsensus.planning import plan

    carry_out(cluster.store, [plan(job, view.now) for job in view.jobs if job.spec.name == "other"])
    cluster.advance(120)
    answer = cluster("doctor", "-o", "json")
    assert answer.code == 1
    texts = {check["check"]: check["text"] for check in answer.data["checks"]}
    assert "tick was due 1h 1m ago, and no node fired it" in texts["overdue"]
    assert "none of them has the function 'other'" in texts["waiting"]


def test_the_doctor_finds_a_node_past_its_lease_and_mixed_releases(cluster: Any) -> None:
    cluster.join("node-1")
    cluster.advance(11 * 3600)
    cluster.join("node-2")
    cluster.join("node-3", release="r2")
    answer = cluster("doctor")
    assert "node-1 (session session-of-node-1) is gone: 1h past its lease, last seen 11h ago; it holds no" in answer.out
    assert "live nodes are of more than one release: r1, r2" in answer.out
    assert answer.code == 0


def test_the_doctor_compares_the_clocks(cluster: Any) -> None:
    answer = cluster("doctor", "-o", "json")
    assert levels(answer)["clocks"] == "warn"


# --- health -----------------------------------------------------------------------------------------------------------


def test_health_is_0_where_a_node_lives(cluster: Any) -> None:
    cluster.join("web-1")
    assert cluster("health").code == 0
    assert cluster("health", "--node", "web-1").code == 0
    assert cluster("health", "-o", "json").data["nodes"][0]["node"] == "web-1"


def test_health_knows_a_node_by_its_host_alone(cluster: Any) -> None:
    cluster.join("pod-abc:17")
    assert cluster("health", "--node", "pod-abc").code == 0


def test_health_is_1_where_no_node_lives(cluster: Any) -> None:
    assert cluster("health").code == 1
    cluster.join("web-1")
    assert cluster("health", "--node", "web-2").code == 1
    cluster.advance(11 * 3600)
    answer = cluster("health", "-o", "json")
    assert answer.code == 1
    assert answer.data["ok"] is False


def test_health_is_3_without_a_store(command: Command) -> None:
    assert command("health", "--url", "sqlite:///none.db").code == 3


# --- config -----------------------------------------------------------------------------------------------------------


def test_config_names_the_source_of_each_value(
    command: Command, write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("pyproject.toml", '[tool.cronsensus]\nlease = "20s"\nnamespace = "shop"\n')
    monkeypatch.setenv("CRONSENSUS_CONCURRENCY", "7")
    monkeypatch.setenv("CRONSENSUS_NAMESPACE", "other")
    data = command("config", "--url", "sqlite:///x.db", "-o", "json").data["settings"]
    assert data["url"] == {"value": "sqlite:///x.db", "source": "flag"}
    assert data["concurrency"] == {"value": 7, "source": "CRONSENSUS_CONCURRENCY"}
    assert data["namespace"]["source"] == "CRONSENSUS_NAMESPACE"
    assert data["lease"]["value"] == 20.0
    assert data["lease"]["source"].endswith("pyproject.toml")
    assert data["keep"]["source"] == "default"


def test_config_knows_the_arguments_of_the_application(command: Command, write: Callable[..., Any]) -> None:
    write("jobs.py", 'from cronsensus import Scheduler\nscheduler = Scheduler("memory://", lease="7s")\n')
    answer = command("config")
    assert ["lease", "7s", "argument"] in [line.split() for line in answer.out.splitlines()]
    assert "settings of jobs:scheduler" in answer.err


def test_config_masks_secrets(command: Command) -> None:
    for output in ("table", "json"):
        answer = command("config", "--url", "postgresql://app:s3cret@db/x", "-o", output)
        assert "s3cret" not in answer.text
        assert "postgresql://app:***@db/x" in answer.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.cronsensus]\nlese = '1s'\n", "did you mean 'lease'?"),
        ("[tool.cronsensus]\nlease = 'x'\n", "cannot be read"),
        ("[tool.cronsensus\n", "is not TOML"),
    ],
)
def test_a_wrong_setting_names_the_file(command: Command, write: Callable[..., Any], text: str, said: str) -> None:
    write("pyproject.toml", text)
    answer = command("config")
    assert answer.code == 2
    assert said in answer.err
    assert "pyproject.toml" in answer.err


def test_a_wrong_variable_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONSENSUS_LEASE", "an hour or so")
    answer = command("config")
    assert answer.code == 2
    assert "CRONSENSUS_LEASE" in answer.err


def test_a_variable_that_is_nearly_a_setting_is_pointed_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONSENSUS_LEAS", "5s")
    answer = command("config")
    assert answer.code == 0
    assert "CRONSENSUS_LEAS is no setting; did you mean CRONSENSUS_LEASE?" in answer.err
