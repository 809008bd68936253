"""A batch on the pages: how far it is, its items, and lists that these do not fill."""

import re
from datetime import timedelta

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Parked
from cronsensus.model.occurrence import Claim, Item, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.testing.conformance.steps import an_end, settle, take
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster

ITEMS = 60


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1h")
    cluster.every("close_day", "1h", concurrency=200)
    cluster.advance(3600)
    cluster.fire()
    return cluster


@pytest.fixture
def batch(cluster: HandCluster) -> Claim:
    """Return a batch that sleeps: of its 60 items 42 are done, 7 failed, 3 run, 8 wait."""
    claims = {claim.job: claim for claim in cluster.claim()}
    cluster.advance(1)
    cluster.finish(claims["tick"])
    batch = claims["close_day"]
    cluster.store.enqueue(
        [
            Item(job="close_day", key=item_key(batch.id, f"<shop {n}>"), origin=Origin.BATCH, parent=batch.id)
            for n in range(ITEMS)
        ]
    )
    settle(cluster.store, [End.of(batch, Parked("items", ITEMS, "waits for its items"))])
    cluster.advance(9)
    items = _claimed(cluster, 52)
    for item in items[:42]:
        cluster.finish(item)
    for item in items[42:49]:
        cluster.fail(item, "till is open")
    cluster.advance(88)
    return batch


def _claimed(cluster: HandCluster, count: int) -> list[Claim]:
    claims = take(cluster.store, "session-of-node-1", count, {"close_day"}, lease=timedelta(hours=10))
    return sorted(claims, key=lambda one: one.id)


@pytest.fixture
def pages(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store))


def test_a_batch_says_how_far_it_is_where_it_runs_and_what_failed(pages: Browser, batch: Claim) -> None:
    text = pages.get(f"/runs/{batch.id}").text
    assert "49 of 60 items done" in text
    assert "node-1 \N{MULTIPLICATION SIGN} 3" in text
    assert re.search(r"<b>Due</b><span[^>]*>not yet", text)
    assert "0.5 items/s, about 22s left" in text
    failed = re.findall(r'href="/runs/(\d+)">(&lt;shop \d+&gt;)</a>', text)
    assert [key for _, key in failed] == [f"&lt;shop {n}&gt;" for n in range(42, 47)]
    assert f'href="/runs/{batch.id}/items?state=failed">and 2 more</a>' in text
    assert f'href="/runs/{batch.id}">item of batch {batch.id}</a>' in pages.get(f"/runs/{failed[0][0]}").text
    assert "已完成 49 / 60 项" in pages.get(f"/runs/{batch.id}?lang=zh").text


def test_items_are_listed_by_state_page_by_page(pages: Browser, batch: Claim) -> None:
    assert pages.get(f"/runs/{batch.id}/items?state=failed").text.count("till is open") == 7
    first = pages.get(f"/runs/{batch.id}/items").text
    more = re.search(rf'href="(/runs/{batch.id}/items\?after=\d+)"', first)
    assert more is not None
    both = first + pages.get(more[1]).text
    assert re.findall(r'data-label="Item">&lt;shop (\d+)&gt;<', both) == [str(n) for n in range(ITEMS)]
    assert pages.get("/runs/999999/items").status_code == 404


def test_lists_show_a_batch_as_one_thing(pages: Browser, cluster: HandCluster, batch: Claim) -> None:
    jobs = pages.get("/jobs").text
    row = jobs[jobs.index("<b>close_day</b>") :]
    assert 'aria-label="Last 1, newest right"' in row[: row.index("</tr>")]
    now = pages.get("/").text
    listed = pages.get("/?by=list").text
    lately = listed[listed.index('id="lately"') : listed.index('id="running"')]
    assert f'href="/runs/{batch.id}"' in lately
    assert "tick" in lately
    assert "shop" not in lately
    assert "close_day</a> failed" not in now


def test_a_batch_took_the_time_of_its_items(pages: Browser, cluster: HandCluster, batch: Claim) -> None:
    for item in _claimed(cluster, 8):
        cluster.finish(item)
    for one in cluster.store.occurrences(OccurrenceFilter(parent=batch.id, states=(State.RUNNING,))):
        settle(cluster.store, [an_end(id=one.id, token=one.token, state=State.SUCCEEDED)])
    cluster.store.wake([batch.id])
    [again] = _claimed(cluster, 1)
    cluster.advance(2)
    cluster.finish(again)
    assert "p50 1m 40s" in pages.get("/job?name=close_day").text


def test_a_batch_as_data(pages: Browser, batch: Claim) -> None:
    found = pages.get(f"/api/run?id={batch.id}").json()["batch"]
    assert (found["total"], found["done"], found["succeeded"], found["failed"]) == (60, 49, 42, 7)
    assert found["nodes"] == {"node-1": 3}
    items = pages.get(f"/api/runs?batch={batch.id}&state=failed").json()["runs"]
    assert {one["parent"] for one in items} == {batch.id}
    assert len(items) == 7


def test_cancelling_a_batch_asks_what_runs_of_it_to_stop(cluster: HandCluster, batch: Claim) -> None:
    browser = Browser(dashboard(cluster.store))
    said = browser.get(f"/do/cancel?run={batch.id}").text
    assert "Its items: 8 that wait are cancelled, 3 that run are asked to stop." in said
    browser.do(f"/do/cancel?run={batch.id}", reason="wrong night")
    assert "only those run that have not succeeded" in browser.get(f"/do/retry?run={batch.id}").text
    running = cluster.store.occurrences(OccurrenceFilter(parent=batch.id, states=(State.RUNNING,)))
    assert running
    assert all(one.cancel_requested for one in running)


def test_the_first_page_says_that_items_have_failed_while_the_batch_goes_on(pages: Browser, batch: Claim) -> None:
    text = pages.get("/").text
    assert "7 items have failed" in text
    assert f'href="/runs/{batch.id}/items?state=failed"' in text
