"""The inbox of what failed: one thing or many, and run again in one act."""

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from tests.dashboard.browser import Browser, Form
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    """Return a cluster in which three runs failed, two of them alike."""
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    for message in ("order 1 <b>", "no route", "order 2 <b>"):
        cluster.advance(60)
        cluster.fire()
        (claim,) = cluster.claim()
        cluster.fail(claim, message)
    return cluster


def again(cluster: HandCluster) -> list[Occurrence]:
    return [one for one in cluster.store.occurrences(OccurrenceFilter(), limit=100) if one.retry_of is not None]


def test_failures_stand_in_groups_and_a_group_is_run_again_oldest_first(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store, by="ann"))
    text = browser.get("/failed").text
    assert "3 runs, 2 kinds of error" in text
    assert "order 2 &lt;b&gt;" in text
    form = text.partition('href="/do/retry-failed')[2].partition('"')[0].replace("&amp;", "&")
    page = browser.get(f"/do/retry-failed{form}").text
    assert "Run 2 failed runs again" in page
    text = browser.do(f"/do/retry-failed{form}", reason="mended").text
    assert "They are tried again." in text
    assert "one run</span>" in text
    made = sorted(again(cluster), key=lambda one: one.id)
    assert [one.retry_of for one in made] == sorted(one.retry_of or 0 for one in made)
    assert len(made) == 2
    assert "tried again" in browser.get(f"/runs/{made[0].retry_of}").text


def test_what_fails_while_somebody_looks_is_not_meant(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store))
    form = Form(browser.get("/do/retry-failed").text)
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.fail(claim, "new")
    answer = browser.ask("POST", str(form.action), form.fields)
    assert answer.status_code == 409
    assert "Run 4 failed runs again" in answer.text
    assert again(cluster) == []


def test_an_empty_inbox_says_so_and_a_bad_span_too(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store))
    cluster.advance(60)
    assert "Nothing that failed is left" in browser.get("/failed?since=1s").text
    text = browser.get("/failed?since=soon").text
    assert "soon" in text
    assert "3 runs" in text
