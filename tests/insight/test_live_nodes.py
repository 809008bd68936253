"""Which nodes are alive, now and at a moment that has passed."""

from datetime import UTC

from cronsensus.insight.life import lives_of
from cronsensus.insight.live_nodes import live_nodes, needs_no_node, nodes_alive_at
from cronsensus.model.job import JobSpec
from tests.hand_cluster import START, HandCluster


def test_node_past_its_lease_is_not_alive(cluster: HandCluster) -> None:
    cluster.join("old")
    cluster.advance(11 * 3600)
    cluster.join("new")
    assert [one.node for one in live_nodes(cluster.store)] == ["new"]


def test_draining_node_is_alive(cluster: HandCluster) -> None:
    cluster.store.drain(cluster.join(), by="ada", why="")
    assert [one.state for one in live_nodes(cluster.store)] == ["draining"]


def test_process_that_only_locks_is_alive_and_no_node(cluster: HandCluster) -> None:
    cluster.join("locks", concurrency=0)
    assert live_nodes(cluster.store) == []
    assert [life.is_alive for life in lives_of(cluster.store, cluster.store.sessions()).values()] == [True]


def test_needs_no_node_tells_locks_from_guarded_functions_and_both_from_jobs(cluster: HandCluster) -> None:
    assert needs_no_node(cluster.store, []) is None
    cluster.join("locks", concurrency=0)
    assert needs_no_node(cluster.store, cluster.store.sessions()) == "locks need none"
    cluster.store.define_jobs([JobSpec(name="once:charge", function="once:charge", source="runtime")], release="r")
    assert needs_no_node(cluster.store, []) == "guarded functions need none"
    cluster.every("tick")
    assert needs_no_node(cluster.store, cluster.store.sessions()) is None


def test_nodes_alive_at_a_moment_between_two_names_both(cluster: HandCluster) -> None:
    cluster.join("first")
    moment = cluster.advance(60)
    cluster.store.close_session("session-of-first")
    between = cluster.advance(60)
    cluster.advance(60)
    cluster.join("second")
    assert [one.node for one in nodes_alive_at(cluster.store, moment).alive] == ["first"]
    found = nodes_alive_at(cluster.store, between)
    assert found.alive == ()
    assert str(found.sentence(UTC)).startswith("No node was alive then: first was ")
    assert str(found.sentence(UTC)).endswith("2026-11-20 12:01:00Z; second came 2026-11-20 12:03:00Z.")


def test_nodes_alive_at_does_not_take_a_process_that_only_locks_for_a_node(cluster: HandCluster) -> None:
    cluster.join("locks", concurrency=0)
    found = nodes_alive_at(cluster.store, START)
    assert found.alive == ()
    assert "No node is on record" in str(found.sentence(UTC))


def test_nodes_alive_at_says_nothing_where_one_was(cluster: HandCluster) -> None:
    cluster.join()
    assert nodes_alive_at(cluster.store, cluster.advance(60)).sentence(UTC) is None
