"""Open pages in a real browser: what somebody reads, has chosen or stands on is not taken from under their hands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from cronsensus.dashboard import live
from cronsensus.dashboard.serving import Server
from cronsensus.model.occurrence import Claim, Item
from tests.dashboard.chromium import chromium, tab
from tests.hand_cluster import HandCluster


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> HandCluster:
    monkeypatch.setattr(live, "CURRENT_SECONDS", 0.1)
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.every("tock", "1h")
    return cluster


@pytest.fixture
def page(browser: Browser, cluster: HandCluster) -> Iterator[Page]:
    server = Server(cluster.store, port=0)
    with server.beside(), tab(browser, server.link) as found:
        yield found


def logging_run(cluster: HandCluster, lines: int) -> Claim:
    cluster.store.enqueue([Item(job="tock", key="long")])
    (claim,) = cluster.claim()
    cluster.log(claim, *(f"line {number}" for number in range(lines)))
    return claim


def test_a_row_with_the_focus_waits_and_is_current_once_it_is_left(page: Page, cluster: HandCluster) -> None:
    page.goto("/jobs")
    page.keyboard.press("j")
    row = page.locator("tbody tr a:focus")
    expect(row).to_have_count(1)
    cluster.store.pause("tick", by="ann", why="disks move")
    expect(page.locator("#age")).to_contain_text("but for the part that you are in")
    expect(row).to_have_count(1)
    assert "disks move" not in page.locator("main").inner_text()
    page.evaluate("document.activeElement.blur()")
    expect(page.locator("main")).to_contain_text("disks move")
    expect(page.locator("#age")).to_have_text("Current")


def test_text_that_is_chosen_stays_chosen(page: Page, cluster: HandCluster) -> None:
    page.goto("/jobs")
    page.locator("tbody tr td").first.select_text()
    cluster.store.pause("tick", by="ann", why="disks move")
    expect(page.locator("#age")).to_contain_text("but for the part that you are in")
    assert page.evaluate("getSelection().toString()").strip()
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator("main")).to_contain_text("disks move")


def test_a_log_follows_its_end_until_somebody_reads_further_up(page: Page, cluster: HandCluster) -> None:
    claim = logging_run(cluster, 150)
    page.goto(f"/runs/{claim.id}")
    log = page.locator(".log")
    page.evaluate("document.querySelector('.log').mark = 'the same element'")
    at_end = "one => one.scrollTop + one.clientHeight >= one.scrollHeight - 4"
    assert log.evaluate(at_end)
    cluster.log(claim, "the newest")
    expect(log).to_contain_text("the newest")
    assert log.evaluate(at_end)
    log.evaluate("one => { one.scrollTop = 300; }")
    cluster.log(claim, *(f"more {number}" for number in range(100)))
    expect(log).to_contain_text("more 99")
    assert log.evaluate("one => [one.scrollTop, one.mark]") == [300, "the same element"]
    expect(log.locator("[data-line]")).to_have_count(251)
    cluster.log(claim, *(f"burst {number}" for number in range(300)))
    expect(log).to_contain_text("lines that came in between are not shown here")


def test_times_count_on_where_nothing_else_has_changed(page: Page, cluster: HandCluster) -> None:
    page.goto("/")
    expect(page.locator(".facts")).to_contain_text("in 1m")
    page.evaluate("document.querySelector('.facts').mark = 1")
    cluster.advance(14)
    expect(page.locator(".facts")).to_contain_text("in 46s")
    assert page.evaluate("document.querySelector('.facts').mark") == 1
    expect(page.locator("#age")).to_have_text("Current")


def test_each_part_of_now_becomes_what_it_is_now_and_stands_there_once(page: Page, cluster: HandCluster) -> None:
    page.goto("/")
    titles = page.locator("main h2").all_inner_texts()
    claim = logging_run(cluster, 1)
    expect(page.locator("#running")).to_contain_text("tock")
    cluster.fail(claim, "disk is full")
    expect(page.locator("#attention")).to_contain_text("disk is full")
    expect(page.locator("h1")).to_have_text("one job needs you")
    assert page.locator("main h2").all_inner_texts() == titles
