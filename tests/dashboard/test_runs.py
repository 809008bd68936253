"""The list of runs: found by an address that can be shared, chosen, and acted on after a look at what will happen."""

import re

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from tests.dashboard.browser import Browser, words_of
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("send_invoice")
    return cluster


@pytest.fixture
def browser(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store, by="ann@desk"))


def send(cluster: HandCluster, customer: int) -> int:
    item = Item(job="send_invoice", key=f"invoice-{customer}", kwargs={"customer": customer})
    return cluster.store.enqueue([item])[0].id


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r'<td class="lead"><a href="/runs/(\d+)"', text)]


def test_the_run_of_a_customer_is_found_on_the_page_and_by_the_api(cluster: HandCluster, browser: Browser) -> None:
    send(cluster, 7)
    one = send(cluster, 42)
    for query in ("text=customer=42", "key=invoice-42", "text=42&state=pending&order=oldest&since=1h"):
        assert numbers(browser.get(f"/runs?{query}").text) == [one]
        assert [run["id"] for run in browser.get(f"/api/runs?{query}").json()["runs"]] == [one]


def test_what_the_address_cannot_mean_is_said(browser: Browser) -> None:
    for query in ("state=asleep", "since=soon", "order=best", "origin=mars"):
        page = browser.get(f"/runs?{query}")
        assert page.status_code == 400
        assert query.partition("=")[0] + "=" in words_of(page.text)
        assert browser.get(f"/api/runs?{query}").status_code == 400


def test_now_leads_to_what_runs_the_longest_first(cluster: HandCluster, browser: Browser) -> None:
    first = send(cluster, 1)
    cluster.claim()
    cluster.advance(60)
    second = send(cluster, 2)
    cluster.claim()
    (link,) = set(re.findall(r'class="tile" href="(/runs[^"]*)"', browser.get("/").text))
    assert numbers(browser.get(link.replace("&amp;", "&")).text) == [first, second]


def test_chosen_runs_are_cancelled_after_a_look_at_each(cluster: HandCluster, browser: Browser) -> None:
    runs = send(cluster, 1)
    (claim,) = cluster.claim()
    waits, ended = send(cluster, 2), send(cluster, 3)
    cluster.store.cancel(ended, by="ben", why="twice")
    path = f"/do/cancel-runs?runs={runs}&runs={waits}&runs={ended}&list=state%3Dpending%26x%3D1"
    shown = words_of(browser.get(path).text)
    assert "Cancel 2 runs" in shown
    assert "waits: it will not run" in shown
    assert "runs: it is asked to stop" in shown
    assert "has ended, cancelled: left alone" in shown
    answer = browser.fill(path, reason="a wrong list")
    assert answer.headers["location"] == "/runs?state=pending&did=cancel-runs"
    assert cluster.store.occurrence(waits).state is State.CANCELLED  # type: ignore[union-attr]
    assert cluster.store.occurrence(claim.id).cancel_requested  # type: ignore[union-attr]
    assert [act.why for act in cluster.store.trail(target="send_invoice")][:2] == ["a wrong list"] * 2


def test_chosen_runs_are_run_again_once_and_what_succeeded_is_left_alone(
    cluster: HandCluster, browser: Browser
) -> None:
    bad, good = send(cluster, 1), send(cluster, 2)
    for claim in cluster.claim():
        if claim.id == bad:
            cluster.fail(claim)
        else:
            cluster.finish(claim)
    path = f"/do/retry-runs?runs={bad}&runs={good}"
    assert "has succeeded: left alone" in words_of(browser.get(path).text)
    assert browser.fill(path).status_code == 303
    again = cluster.store.occurrence(bad).retried_as  # type: ignore[union-attr]
    assert again is not None
    assert cluster.store.occurrence(good).retried_as is None  # type: ignore[union-attr]
    assert "None of them can be meant." in words_of(browser.get(path).text)


def test_a_form_whose_runs_have_changed_since_does_nothing(cluster: HandCluster, browser: Browser) -> None:
    waits = send(cluster, 1)
    page = browser.get(f"/do/cancel-runs?runs={waits}")
    cluster.claim()
    seen = re.search(r'name="seen" value="(\w+)"', page.text)
    assert seen is not None
    answer = browser.fill(f"/do/cancel-runs?runs={waits}", seen=seen[1], reason="x")
    assert answer.status_code == 409
    assert not cluster.store.occurrence(waits).cancel_requested  # type: ignore[union-attr]


def test_a_reader_has_nothing_to_choose(cluster: HandCluster) -> None:
    send(cluster, 1)
    page = Browser(dashboard(cluster.store, read_only=True)).get("/runs").text
    assert 'type="checkbox"' not in page
    assert "cancel-runs" not in page
