"""``nodes`` and ``locks``: the nodes, and the locks with their holders."""

from datetime import timedelta
from typing import Any

from cronsensus import Scheduler


def test_nodes_are_listed_with_what_they_hold(cluster: Any) -> None:
    cluster.every("tick")
    cluster.join("node-1")
    cluster.join("node-2", release="r2", concurrency=4)
    cluster.advance(60)
    cluster.fire()
    cluster.claim("session-of-node-1")
    data = cluster("nodes", "list", "-o", "json").data
    assert [(one["node"], one["state"], one["runs"], one["concurrency"]) for one in data["nodes"]] == [
        ("node-2", "alive", 0, 4),
        ("node-1", "alive", 1, 20),
    ]
    assert "10h left" in cluster("nodes", "list").out


def test_the_version_of_tzdata_is_a_column_where_it_differs_and_always_in_the_data(cluster: Any) -> None:
    cluster.join("old", tzdata="2025b (package)", zones={"Europe/Paris": "a"})
    (node,) = cluster("nodes", "list", "-o", "json").data["nodes"]
    assert (node["tzdata"], node["zones"]) == ("2025b (package)", {"Europe/Paris": "a"})
    assert "tzdata" not in cluster("nodes", "list").out
    cluster.join("new", tzdata="2026f (package)", zones={"Europe/Paris": "b"})
    assert "2026f (package)" in cluster("nodes", "list").out


def test_ended_nodes_are_shown_when_asked_for(cluster: Any) -> None:
    cluster.join("node-1")
    cluster.join("node-2")
    cluster.store.reclaim(["session-of-node-1"])
    assert "node-1" not in cluster("nodes", "list").out
    assert "dead" in cluster("nodes", "list", "--ended").out


def test_a_node_past_its_lease_is_shown_as_overdue(cluster: Any) -> None:
    cluster.join("node-1")
    cluster.advance(11 * 3600)
    assert "overdue by 1h" in cluster("nodes", "list").out


def test_without_nodes_it_says_how_to_start_one(cluster: Any) -> None:
    assert "run MODULE:ATTR" in cluster("nodes", "list").err


def test_a_single_node_is_told_of_the_second(cluster: Any) -> None:
    cluster.join()
    assert "start another copy" in cluster("nodes", "list").err


def test_a_process_that_only_holds_locks_is_no_second_node(cluster: Any) -> None:
    cluster.join()
    cluster.join("locking", concurrency=0)
    answer = cluster("nodes", "list")
    assert answer.out.count("no node") == 1
    assert "start another copy" in answer.err


def test_draining_a_node_by_name_or_session(cluster: Any) -> None:
    cluster.join("node-1")
    cluster.join("node-2")
    assert "draining node-1" in cluster("nodes", "drain", "node-1", "--reason", "kernel").out
    assert cluster("nodes", "drain", "session-of-node-2", "-o", "json").data == {"draining": ["session-of-node-2"]}
    assert {one.state for one in cluster.store.sessions()} == {"draining"}


def test_the_trail_calls_a_drained_node_by_its_name(cluster: Any) -> None:
    session = cluster.join("web-1")
    cluster("nodes", "drain", "web-1", "--by", "ada")
    assert "web-1" in cluster("trail").out
    assert cluster("trail", "-o", "json").data["trail"][0]["target"] == session


def test_a_name_that_several_nodes_have_wants_a_decision(cluster: Any) -> None:
    cluster.join("web")
    spec = cluster.store.sessions()[0]
    cluster.join("web-2")
    cluster.store._space.sessions["session-of-web-2"].spec = _renamed(cluster, "session-of-web-2", "web")
    answer = cluster("nodes", "drain", "web")
    assert answer.code == 2
    assert "2 nodes are called 'web'" in answer.err
    assert spec.id in answer.err
    assert len(cluster("nodes", "drain", "web", "--all", "-o", "json").data["draining"]) == 2


def _renamed(cluster: Any, session: str, name: str) -> Any:
    import dataclasses

    return dataclasses.replace(cluster.store._space.sessions[session].spec, node=name)


def test_a_node_that_is_not_there_is_an_error(cluster: Any) -> None:
    cluster.join("node-1")
    answer = cluster("nodes", "drain", "node-9")
    assert answer.code == 2
    assert "no live node is called 'node-9'" in answer.err
    assert "alive are: node-1" in answer.err


def test_locks_are_listed_with_holder_and_token(cluster: Any) -> None:
    assert "no lock is held" in cluster("locks", "list").err
    grant = cluster.store.lock("reindex", "web-1:42", ttl=timedelta(seconds=30))
    cluster.advance(10)
    (lock,) = cluster("locks", "list", "-o", "json").data["locks"]
    shown = (lock["name"], lock["holder"], lock["token"], lock["expires_in"])
    assert shown == ("reindex", "web-1:42", grant.token, 20.0)
    assert "10s ago" in cluster("locks", "list").out


def test_a_lock_is_broken_with_a_reason(cluster: Any) -> None:
    assert cluster("locks", "break", "reindex").code == 2
    cluster.store.lock("reindex", "web-1:42", ttl=timedelta(seconds=30))
    assert "it was held by web-1:42" in cluster("locks", "break", "reindex", "--reason", "it hangs", "--by", "ann").out
    assert cluster.store.locks() == []
    (entry,) = cluster.store.trail(limit=1)
    assert (entry.action, entry.target, entry.by, entry.why) == ("break", "reindex", "ann", "it hangs")
    again = cluster("locks", "break", "reindex", "--reason", "it hangs")
    assert again.code == 2
    assert "no process holds a lock 'reindex'" in again.err


def test_health_and_doctor_agree_that_locks_need_no_node_until_there_is_a_job(cluster: Any) -> None:
    with Scheduler(cluster.store).lock("reindex"):
        assert "ok: the store answers, no node is alive, and locks need none" in cluster("health").out
        assert cluster("health").code == 0
        assert cluster("doctor").code == 0
        cluster.every("tick")
        assert cluster("health").code == 1
        assert cluster("doctor").code == 1
        assert "no node is alive, so nothing runs (1 job)" in cluster("doctor").text


def test_a_program_of_guarded_functions_needs_no_node(cluster: Any) -> None:
    Scheduler(cluster.store).once("k", name="charge")(lambda: 1)()
    answer = cluster("doctor")
    assert "no node is alive, and guarded functions need none" in answer.text
    assert "no node is alive, and guarded functions need none" in cluster("health").out
    assert cluster("health").code == 0
    assert answer.code == 0
