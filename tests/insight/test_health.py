"""The answer to a probe, as data and in words."""

import pytest

from cronsensus.insight.health import health, quick_health
from cronsensus.model.job import JobSpec
from tests.hand_cluster import HandCluster


def test_health_counts_live_nodes_and_not_what_only_locks(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join("locks", concurrency=0)
    found = health(cluster.store)
    assert (found.ok, found.sentence) == (False, "fail: the store answers, but no node is alive")
    cluster.join("web-1")
    found = health(cluster.store)
    assert (found.ok, found.sentence) == (True, "ok: the store answers, 1 live node")


@pytest.mark.parametrize("name", ["pod-abc:17", "pod-abc", "session-of-pod-abc:17"])
def test_health_of_a_node_goes_by_name_host_or_session(cluster: HandCluster, name: str) -> None:
    cluster.join("pod-abc:17")
    assert health(cluster.store, node=name).ok
    assert health(cluster.store, node="pod").sentence == "fail: the store answers, but node 'pod' is not alive"


def test_health_of_a_process_that_only_locks_is_asked_for_by_name(cluster: HandCluster) -> None:
    cluster.join("locks", concurrency=0)
    assert health(cluster.store, node="locks").ok


def test_health_without_nodes_is_ok_where_none_is_needed_unless_one_is_named(cluster: HandCluster) -> None:
    spec = JobSpec(name="once:charge", function="once:charge", source="runtime")
    cluster.store.define_jobs([spec], release="r")
    found = health(cluster.store)
    assert (found.ok, found.nodes) == (True, ())
    assert found.sentence == "ok: the store answers, no node is alive, and guarded functions need none"
    assert not health(cluster.store, node="web-1").ok


def test_quick_health_has_no_answer_for_a_store_without_sql(cluster: HandCluster) -> None:
    assert quick_health(cluster.url, "default") is None
