"""The ledger of a job: the audit's sentence, its lines, and why a time was so."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.language import read_moment
from cronsensus.triggers import every
from tests.dashboard.browser import Browser
from tests.dashboard.test_pages import BAD
from tests.hand_cluster import START, HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("tick", every("1m"), grace="1s", catch_up="all")
    cluster.advance(60)
    cluster.run_once()
    cluster.advance(148)
    cluster.fire()
    return cluster


def test_the_ledger_has_a_line_for_each_time_newest_first_and_the_audits_sentence(cluster: HandCluster) -> None:
    text = Browser(dashboard(cluster.store)).get("/ledger?job=tick").text
    assert "each nominal time has exactly one verdict" in text
    times = re.findall(r"lead\">2026-11-20 (12:0\d):00Z", text)
    assert times[0] > times[-1] == "12:01"
    assert "is-miss" in text
    assert 'href="/runs/1">1</a>' in text
    assert "账本" in Browser(dashboard(cluster.store)).get("/ledger?job=tick&lang=zh").text


def test_why_is_asked_for_a_time_by_a_form_that_changes_nothing(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store))
    assert "it ran and succeeded" in browser.get("/ledger?job=tick&at=12:01").text
    assert "grace is 1s" in browser.get("/ledger?job=tick&at=2026-11-20+12:02").text
    wrong = browser.get(f"/ledger?job=tick&at={BAD}").text
    assert "This is no time: &lt;script" in wrong
    assert "<script>" not in wrong
    assert browser.ask("POST", "/ledger?job=tick").status_code == 405
    assert browser.get("/ledger?job=nobody").status_code == 404


def test_a_long_ledger_comes_in_pages_that_lose_no_time() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    for _ in range(70):
        cluster.advance(60)
        cluster.run_once(0)
    browser, path, found = Browser(dashboard(cluster.store)), "/ledger?job=tick", list[str]()
    while path:
        text = browser.get(path).text
        found += re.findall(r"lead\">(2026-11-20 \d\d:\d\d):00Z", text)
        more = re.search(r'href="(/ledger\?[^"]+until[^"]+)"', text)
        path = more[1].replace("&amp;", "&") if more else ""
    assert len(found) == len(set(found)) == 70
    assert found == sorted(found, reverse=True)


def test_a_gap_in_the_record_is_a_finding(cluster: HandCluster) -> None:
    cluster.store._space.jobs["tick"].ranges.clear()
    text = Browser(dashboard(cluster.store)).get("/ledger?job=tick").text
    assert "is-fail boxed" in text
    assert "no verdict" in text


def test_a_time_without_an_offset_is_one_of_the_jobs_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert read_moment("09:15", START, berlin) == datetime(2026, 11, 20, 8, 15, tzinfo=UTC)
    assert read_moment("2026-07-01 09:15", START, berlin) == datetime(2026, 7, 1, 7, 15, tzinfo=UTC)
    assert read_moment("2026-07-01T09:15Z", START, berlin) == datetime(2026, 7, 1, 9, 15, tzinfo=UTC)
    assert read_moment("soon", START, berlin) is None
