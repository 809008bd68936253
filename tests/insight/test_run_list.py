"""Runs are found by what is known of them, and a page says what was not looked through."""

from datetime import timedelta

import pytest

from cronsensus.insight.run_list import RunSearch, list_runs
from cronsensus.model.occurrence import Item
from cronsensus.model.states import Origin, State
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("send_invoice")
    cluster.every("tick", "1m")
    return cluster


def send(cluster: HandCluster, customer: int, **more: object) -> int:
    item = Item(job="send_invoice", key=f"invoice-{customer}", kwargs={"customer": customer, **more})
    (made,) = cluster.store.enqueue([item])
    return made.id


def ids(
    cluster: HandCluster, after: int | None = None, most: int = 1000, limit: int = 50, **search: object
) -> list[int]:
    page = list_runs(cluster.store, RunSearch(**search), after=after, limit=limit, most_read=most)  # type: ignore[arg-type]
    return [one.id for one in page.runs]


def test_the_run_of_a_customer_is_found_by_its_key_or_its_argument(cluster: HandCluster) -> None:
    one, two = send(cluster, 42), send(cluster, 421)
    for words in (("42",), ("customer=42",), ("invoice-42", "send")):
        assert one in ids(cluster, words=words)
    assert ids(cluster, words=("42",)) == ids(cluster, words=("customer=42",)) == [one]
    assert ids(cluster, key="invoice-421") == ids(cluster, job="send_invoice", key="invoice-421") == [two]
    assert ids(cluster, words=("customer=4",)) == []


def test_a_secret_is_not_found_by_its_value(cluster: HandCluster) -> None:
    one = send(cluster, 1, password="hunter2")
    assert ids(cluster, words=("hunter2",)) == ids(cluster, words=("password=hunter2",)) == []
    assert ids(cluster, words=("password",)) == [one]


def test_state_origin_node_and_time_narrow_together(cluster: HandCluster) -> None:
    waits = send(cluster, 1)
    cluster.advance(60)
    cluster.fire()
    tick, sent = sorted(cluster.claim(), key=lambda claim: claim.job, reverse=True)
    cluster.fail(tick)
    assert sent.id == waits
    assert ids(cluster, states=(State.FAILED,), origin=Origin.SCHEDULE, node="node-1") == [tick.id]
    assert ids(cluster, states=(State.FAILED,), origin=Origin.ENQUEUE) == []
    assert ids(cluster, node="node-2") == []
    middle = cluster.store.now() - timedelta(seconds=30)
    assert ids(cluster, since=middle) == [tick.id]
    assert ids(cluster, until=middle) == ids(cluster, until=middle, order="oldest") == [waits]


def test_a_time_long_ago_is_reached_without_reading_what_came_since(cluster: HandCluster) -> None:
    for _ in range(40):
        cluster.advance(600)
        cluster.run_once()
    begin = cluster.store.now() - timedelta(minutes=305)
    end = begin + timedelta(minutes=20)
    page = list_runs(cluster.store, RunSearch(since=begin, until=end), most_read=10)
    assert len(page.runs) == 2
    assert not page.stopped
    same = list_runs(cluster.store, RunSearch(since=begin, until=end, order="oldest"), most_read=10)
    assert [one.id for one in same.runs] == [one.id for one in reversed(page.runs)]


def test_pages_follow_each_other_by_id_and_say_where_they_stopped(cluster: HandCluster) -> None:
    made = [send(cluster, number) for number in range(9)]
    for order, wanted in (("newest", made[::-1]), ("oldest", made)):
        found, after = [], None
        while True:
            page = list_runs(cluster.store, RunSearch(order=order), after=after, limit=4)  # type: ignore[arg-type]
            found += [one.id for one in page.runs]
            if (after := page.after) is None:
                break
        assert found == wanted
    page = list_runs(cluster.store, RunSearch(words=("customer=0",)), most_read=5)
    assert (page.runs, page.stopped, page.read) == ((), True, 5)
    assert ids(cluster, page.after, words=("customer=0",)) == [made[0]]


def test_what_runs_longest_stands_first(cluster: HandCluster) -> None:
    first = send(cluster, 1)
    cluster.claim()
    cluster.advance(30)
    second = send(cluster, 2)
    cluster.claim()
    cluster.advance(1)
    assert ids(cluster, states=(State.RUNNING,), order="longest") == [first, second]
