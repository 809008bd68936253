"""Numbers that people trust at a glance: what they leave out, and what they say when there is more."""

import re

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.insight import failures
from cronsensus.model.ends import End, Parked
from cronsensus.model.job import ALERT
from cronsensus.model.occurrence import Item
from cronsensus.model.states import Origin
from cronsensus.testing.conformance.steps import settle
from tests.dashboard.browser import Browser, words_of
from tests.hand_cluster import HandCluster


@pytest.fixture
def pages(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store))


def test_a_node_that_died_is_missed_until_one_of_its_name_comes_back(cluster: HandCluster, pages: Browser) -> None:
    for name in ("node-2", "node-3", "node-4"):
        cluster.join(name)
    cluster.store.reclaim(["session-of-node-2"])
    cluster.store.close_session("session-of-node-3")
    assert "2/3 Nodes alive" in words_of(pages.get("/").text).replace("2/3Nodes", "2/3 Nodes")
    nodes = words_of(pages.get("/nodes").text)
    assert "2 of 3 alive" in nodes
    assert "node-2 is gone since" in nodes
    assert "node-3 is gone since" not in nodes
    cluster.advance(24 * 3600 + 1)
    assert "node-2 is gone since" not in words_of(pages.get("/nodes").text)


def test_what_watches_for_alerts_is_not_counted_as_work(cluster: HandCluster, pages: Browser) -> None:
    cluster.declare(f"{ALERT}ops")
    cluster.declare(f"{ALERT}more")
    cluster.store.enqueue([Item(job=f"{ALERT}ops", key="a"), Item(job="tick", key="b"), Item(job="tick", key="c")])
    cluster.claim()
    cluster.store.enqueue([Item(job=f"{ALERT}more", key="d"), Item(job="tick", key="e")])
    for path in ("/", "/queue"):
        text = words_of(pages.get(path).text)
        assert "2Running" in text, path
        assert "1Waiting" in text, path
        assert ALERT not in text


def test_a_count_that_stopped_says_so(cluster: HandCluster, pages: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_FAILURES", 3)
    monkeypatch.setattr("cronsensus.dashboard.now.MOST_FAILURES", 3)
    cluster.store.enqueue([Item(job="tick", key=str(number)) for number in range(4)])
    for one in cluster.claim():
        cluster.fail(one)
    assert "3+Failed, 24 h" in words_of(pages.get("/").text)


def test_all_is_well_only_where_somebody_looks_after_it(cluster: HandCluster, pages: Browser) -> None:
    assert "All is well" in pages.get("/").text
    cluster.store.close_session("session-of-node-1")
    text = pages.get("/").text
    assert "No node is alive" in text
    assert "All is well" not in text
    assert "All is well" not in Browser(dashboard(HandCluster().store)).get("/").text


def test_a_batch_that_waits_for_its_items_is_not_due_in_seven_thousand_years(
    cluster: HandCluster, pages: Browser
) -> None:
    cluster.store.enqueue([Item(job="tick", key="all", origin=Origin.BATCH)])
    (claim,) = cluster.claim()
    cluster.store.enqueue([Item(job="tick", key=f"{claim.id}/a", origin=Origin.BATCH, parent=claim.id)])
    settle(cluster.store, [End.of(claim, Parked("items", 1, "waiting: for its items"))])
    for path in ("/", "/jobs", "/queue", f"/runs/{claim.id}"):
        assert not re.search(r"\b\d{4,}d\b", words_of(pages.get(path).text)), path
