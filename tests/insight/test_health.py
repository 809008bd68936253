"""The answer to a probe, as data and in words."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.insight.health import quick_health, read_health
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item
from tests.hand_cluster import HandCluster


def test_health_counts_live_nodes_and_not_what_only_locks(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join("locks", concurrency=0)
    found = read_health(cluster.store)
    assert (found.ok, found.sentence) == (False, "fail: the store answers, but no node is alive")
    cluster.join("web-1")
    found = read_health(cluster.store)
    assert (found.ok, found.sentence) == (True, "ok: the store answers, 1 live node")


@pytest.mark.parametrize("name", ["pod-abc:17", "pod-abc", "session-of-pod-abc:17"])
def test_health_of_a_node_goes_by_name_host_or_session(cluster: HandCluster, name: str) -> None:
    cluster.join("pod-abc:17")
    assert read_health(cluster.store, node=name).ok
    assert read_health(cluster.store, node="pod").sentence == "fail: the store answers, but node 'pod' is not alive"


def test_health_of_a_process_that_only_locks_is_asked_for_by_name(cluster: HandCluster) -> None:
    cluster.join("locks", concurrency=0)
    assert read_health(cluster.store, node="locks").ok


def test_health_without_nodes_is_ok_where_none_is_needed_unless_one_is_named(cluster: HandCluster) -> None:
    spec = JobSpec(name="once:charge", function="once:charge", source="runtime")
    cluster.store.define_jobs([spec], release="r")
    found = read_health(cluster.store)
    assert (found.ok, found.nodes) == (True, ())
    assert found.sentence == "ok: the store answers, no node is alive, and guarded functions need none"
    assert not read_health(cluster.store, node="web-1").ok


def test_quick_health_has_no_answer_for_a_store_without_sql(cluster: HandCluster) -> None:
    assert quick_health(cluster.url, "default") is None


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ({"policies": Policies(timeout=timedelta(seconds=30), concurrency=1), "slow": timedelta(hours=1)}, 30),
        ({"slow": timedelta(seconds=10)}, 10),
        ({}, None),
    ],
    ids=["timeout", "slow", "neither"],
)
def test_a_node_is_stuck_a_minute_after_the_runs_in_all_its_slots_are_over_their_time(
    cluster: HandCluster, said: dict[str, Any], limit: int | None
) -> None:
    cluster.join("web-1", concurrency=2)
    names = ["hangs", "hangs-too"]
    cluster.store.define_jobs([JobSpec(name=name, function=name, **said) for name in names], release="r1")
    cluster.store.enqueue([Item(job="hangs")])
    cluster.claim("session-of-web-1")
    cluster.advance(3600)
    assert read_health(cluster.store, node="web-1").ok, "a slot is free"
    cluster.store.enqueue([Item(job="hangs-too")])
    cluster.claim("session-of-web-1")
    cluster.advance(59 + (limit or 3600))
    assert read_health(cluster.store, node="web-1").ok
    cluster.advance(1)
    found = read_health(cluster.store, node="web-1")
    assert found.ok is (limit is None)
    if limit is not None:
        assert "each of its slots is held by a run that is over its timeout= or slow=, hangs by 1h" in found.sentence
    assert read_health(cluster.store).ok, "somebody else may be free"


def test_the_quick_probe_leaves_a_node_that_is_full_to_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    scheduler, go_on = Scheduler(url, node="web-1", concurrency=1), threading.Event()
    runs = threading.Event()

    @scheduler.job()
    def hangs() -> None:
        runs.set()
        go_on.wait(30)

    with scheduler:
        quick = quick_health(url, "default", node="web-1")
        assert quick is not None
        assert quick.ok
        hangs.enqueue()
        assert runs.wait(20)
        assert quick_health(url, "default", node="web-1") is None
        assert quick_health(url, "default") is not None
        go_on.set()
