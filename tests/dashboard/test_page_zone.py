"""A page shows its times in one zone: the browser's, or the one that was chosen."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.language import Words
from cronsensus.dashboard.page_zone import CHOSEN, VIEWERS
from cronsensus.triggers import cron
from tests.dashboard.browser import Browser, words_of
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    """Return a cluster whose job ran at 08:00 in New York, which is 13:00 UTC and 14:00 in Berlin."""
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("open_shop", cron("0 8 * * *", tz="America/New_York"))
    cluster.advance(3600)
    cluster.run_once()
    return cluster


@pytest.fixture
def browser(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store))


def test_times_are_in_the_zone_of_the_browser(browser: Browser) -> None:
    assert "2026-11-20 13:00:00Z" in words_of(browser.get("/runs").text)
    browser.cookies.set(VIEWERS, "Europe/Berlin")
    for path in ("/runs", "/jobs", "/job?name=open_shop", "/runs/1"):
        text = re.sub(r"@\S+Z", "", words_of(browser.get(path).text))  # a key is no time
        assert re.search(r"2026-11-2[01] 14:00:00 ?", text), path
        assert not re.search(r"\d:\d\dZ|-05:00|08:00:00", text.split("The same in a shell")[0]), path


def test_another_zone_is_chosen_and_kept(browser: Browser) -> None:
    browser.cookies.set(VIEWERS, "Europe/Berlin")
    assert "13:00:00Z" in browser.get("/runs/1?zone=utc").text
    assert "13:00:00Z" in browser.get("/runs").text
    assert "2026-11-20 08:00:00" in words_of(browser.get("/runs/1?zone=job").text)
    # A list of many jobs has no zone of one job.
    assert "2026-11-20 14:00:00" in words_of(browser.get("/runs").text)
    assert browser.cookies[CHOSEN] == "job"
    assert "2026-11-20 14:00:00" in words_of(browser.get("/runs?zone=viewer").text)


def test_what_is_typed_is_of_the_zone_of_the_page(browser: Browser) -> None:
    browser.cookies.set(VIEWERS, "Europe/Berlin")
    assert "ran and succeeded" in words_of(browser.get("/ledger?job=open_shop&at=2026-11-20+14:00").text)
    assert 'href="/runs/1"' in browser.get("/runs?since=2026-11-20+13:59&until=2026-11-20+14:01").text


def test_a_backfill_reads_and_shows_times_in_the_zone_of_the_page(browser: Browser) -> None:
    browser.cookies.set(VIEWERS, "Europe/Berlin")
    page, _, shell = words_of(
        browser.get("/do/backfill?job=open_shop&from=2026-11-20+13:59&to=2026-11-20+14:00").text
    ).partition("The same in a shell")
    assert "2026-11-20 14:00:00" in page
    # Typed there, it means the same: a shell reads in the job's zone.
    assert "--from '2026-11-20 12:59:00Z' --to '2026-11-20 13:00:00Z'" in shell
    assert "--from 2h --to now" in words_of(browser.get("/do/backfill?job=open_shop&from=2h").text)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../../etc/passwd", "x" * 500, "localtime"])
def test_a_zone_that_there_is_not_is_utc(browser: Browser, name: str) -> None:
    browser.cookies.set(VIEWERS, name)
    assert "2026-11-20 13:00:00Z" in words_of(browser.get("/runs").text)


def test_two_who_look_from_two_zones_are_not_told_the_same(browser: Browser) -> None:
    utc = browser.get("/live?of=/runs").text
    browser.cookies.set(VIEWERS, "Europe/Berlin")
    assert "14:00:00" in browser.get("/live?of=/runs").text
    assert "13:00:00Z" in utc


def test_a_date_stands_where_it_is_not_today_and_an_offset_where_an_hour_comes_twice() -> None:
    berlin, now = ZoneInfo("Europe/Berlin"), datetime(2026, 10, 25, 12, tzinfo=UTC)
    t = Words("en", now, berlin)
    assert t.clock(now) == "13:00:00.000"
    assert t.clock(now - timedelta(days=1)) == "10-24 14:00:00.000"
    assert t.minute(datetime(2026, 10, 25, 0, 30, tzinfo=UTC)) == "2026-10-25 02:30:00 +02:00"
    assert t.minute(datetime(2026, 10, 25, 1, 30, tzinfo=UTC)) == "2026-10-25 02:30:00 +01:00"
    assert t.minute(datetime(2026, 10, 25, 2, 30, tzinfo=UTC)) == "2026-10-25 03:30:00"


def test_a_duration_is_said_in_the_language_of_the_page(browser: Browser) -> None:
    text = words_of(browser.get("/runs?lang=zh").text)
    assert "2 秒" in text
    assert not re.search(r"\b\d+[smh]\b", text.split("命令行")[0])


def test_a_recorded_reason_is_said_in_the_language_of_the_page() -> None:
    t = Words("zh")
    assert t.reason("crashed: process gone") == "节点终止\uff1a进程已结束"
    assert t.reason("upstream failed: extract") == "上游失败\uff1aextract"
    assert t.reason("the disk is full: late") == "the disk is full: late"
    assert Words("en").reason("late") == "late"
