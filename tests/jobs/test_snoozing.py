"""What a job that waits leaves behind: a ledger in order, and a sentence that says what it waits for."""

from datetime import timedelta

from cronsensus.audit import audit
from cronsensus.insight.why import explain_time
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from tests.hand_cluster import HandCluster


def snooze(cluster: HandCluster, seconds: float = 30) -> None:
    (claim,) = cluster.claim()
    cluster.finish(claim, State.PENDING, reason="no file", retry_in=timedelta(seconds=seconds), waiting=True)


def test_a_scheduled_run_that_waited_is_in_order_and_says_so() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    time = cluster.advance(60)
    cluster.fire()
    snooze(cluster)
    view = cluster.store.job("tick")
    assert view is not None
    sentences = [str(one) for one in explain_time(cluster.store, view, time).sentences]
    assert any("It looks again in 30s: no file." in text for text in sentences), sentences
    cluster.advance(30)
    snooze(cluster)
    cluster.advance(90)
    cluster.fire()
    (claim,) = cluster.claim()
    assert (claim.scheduled_for, claim.attempt) == (time, 1)
    cluster.finish(claim)
    report = audit(cluster.store)
    assert report.ok, report


def test_an_enqueued_run_that_waited_did_not_begin_early() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("queue")
    cluster.store.enqueue([Item(job="queue")])
    snooze(cluster)
    cluster.advance(31)
    (claim,) = cluster.claim()
    cluster.finish(claim)
    assert audit(cluster.store).ok
