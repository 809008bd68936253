"""What a pending occurrence waits for, as a cause for programs and as sentences for people."""

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.insight.waiting import Cause, Wait, why_it_waits
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.hand_cluster import HandCluster


def waits(cluster: HandCluster) -> Wait:
    newest = cluster.store.occurrences(OccurrenceFilter())[0]
    assert newest.state is State.PENDING
    return why_it_waits(cluster.store, cluster.job(), newest, cluster.store.now())


def fired(cluster: HandCluster, seconds: float = 60) -> None:
    cluster.advance(seconds)
    cluster.fire()


def test_wait_without_nodes_is_for_a_node(cluster: HandCluster) -> None:
    cluster.every("tick")
    fired(cluster)
    found = waits(cluster)
    assert found.cause is Cause.NODE
    assert found.text == "No node is alive: start one with cronsensus run MODULE:ATTR."


def test_wait_where_all_nodes_drain_is_for_another(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.store.drain(cluster.join(), by="ada", why="")
    fired(cluster)
    found = waits(cluster)
    assert found.cause is Cause.NODE_WITHOUT_DRAIN
    assert "take nothing new (node-1): start another" in found.text


@pytest.mark.parametrize(
    ("policies", "cause", "text"),
    [
        (
            {"overlap": "allow", "concurrency": 1},
            Cause.CONCURRENCY,
            "No more than 1 of tick may run at a time (concurrency), and there are: run 1 on node-1.",
        ),
        ({"overlap": "queue"}, Cause.OVERLAP, "It waits for run 1, which is running (overlap=queue)."),
    ],
)
def test_wait_behind_a_running_one_names_the_policy(
    cluster: HandCluster, policies: dict[str, Any], cause: Cause, text: str
) -> None:
    cluster.every("tick", **policies)
    cluster.join()
    fired(cluster)
    cluster.claim()
    fired(cluster)
    found = waits(cluster)
    assert (found.cause, found.text) == (cause, text)


def test_wait_on_full_nodes_is_for_a_slot(cluster: HandCluster) -> None:
    cluster.every("tick", overlap="allow")
    cluster.join(concurrency=1)
    fired(cluster)
    cluster.claim()
    fired(cluster)
    found = waits(cluster)
    assert found.cause is Cause.SLOT
    assert "Every node is full" in found.text


def test_wait_for_a_retry_is_for_its_due_time(cluster: HandCluster) -> None:
    cluster.every("tick", "1h", retries=1)
    cluster.join()
    fired(cluster, 3600)
    (claim,) = cluster.claim()
    cluster.finish(claim, State.PENDING, retry_in=timedelta(seconds=30))
    found = waits(cluster)
    assert (found.cause, found.text) == (Cause.DUE_TIME, "It is due in 30s after 1 failed attempt.")


def test_wait_on_nodes_with_room_is_first_for_their_look_then_for_the_function(cluster: HandCluster) -> None:
    cluster.every("tick", "1h")
    cluster.join()
    fired(cluster, 3600)
    found = waits(cluster)
    assert found.cause is Cause.LOOK
    assert "a node will take it within moments" in found.text
    cluster.advance(60)
    found = waits(cluster)
    assert found.cause is Cause.FUNCTION
    assert "none of them has the function 'tick'" in found.text
    assert "node-1 (release r1)" in found.text
    assert len(found.sentences) == 2
