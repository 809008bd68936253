"""What waits: how much, since when, of which jobs, in pages."""

import re

import pytest

from cronsensus.dashboard import dashboard, queue
from cronsensus.model.batch import item_key
from cronsensus.model.occurrence import Item
from cronsensus.model.states import Origin
from tests.dashboard.browser import Browser, words_of
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("mail")
    cluster.declare("scan")
    return cluster


def test_what_waits_stands_by_job_and_the_longest_first(cluster: HandCluster) -> None:
    store = cluster.store
    store.enqueue([Item(job="scan", key="done")])
    cluster.run_once(2)
    store.enqueue([Item(job="scan", key="a")])
    cluster.advance(30)
    store.enqueue([Item(job="mail", key="b"), Item(job="mail", key="c")])
    cluster.advance(60)
    text = Browser(dashboard(store)).get("/queue").text
    assert "The oldest that could run was due 1m 30s ago." in words_of(text)
    assert re.findall(r'name lead"><a [^>]*><b>(\w+)</b>.*?data-label="Waiting">(\d+)<', text) == [
        ("scan", "1"),
        ("mail", "2"),
    ]
    page = queue.read_queue_page(store)
    assert [(line.job, line.ended) for line in page.jobs] == [("scan", 1), ("mail", 0)]
    assert (page.waiting, page.ended) == (3, 1)


def test_items_of_a_batch_are_one_line(cluster: HandCluster) -> None:
    store = cluster.store
    [batch] = store.enqueue([Item(job="scan", key="night", origin=Origin.BATCH)])
    store.enqueue(
        [Item(job="scan", key=item_key(batch.id, key), origin=Origin.BATCH, parent=batch.id) for key in "abc"]
    )
    store.enqueue([Item(job="mail", key="b")])
    text = Browser(dashboard(store)).get("/queue").text
    waiting = text[text.index('id="waiting-title"') :]
    assert f'<a href="/runs/{batch.id}/items?state=pending">3 items</a>' in waiting
    assert waiting.count('<td class="lead">') == 3  # the batch, its items, the mail


def test_the_list_goes_on_behind_a_number_and_an_empty_one_teaches(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(dashboard(cluster.store))
    assert ".enqueue(42)" in browser.get("/queue").text
    cluster.store.enqueue([Item(job="mail", key=key) for key in "abc"])
    monkeypatch.setattr(queue, "MOST_SHOWN", 2)
    more = re.findall(r"/queue\?after=\d+", browser.get("/queue").text)
    assert len(more) == 1
    rest = browser.get(more[0]).text
    assert len(re.findall(r'<td class="lead"><a href="/runs/', rest)) == 1
    assert "after=" not in rest.partition("<footer>")[2].replace(more[0], "")
    assert browser.get("/queue?after=x").status_code == 200
