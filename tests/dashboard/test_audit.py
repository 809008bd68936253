"""The ledger of all jobs: audited when somebody asks, those in trouble first, one audit for all who ask at once."""

import re
import threading
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.audit import Report, audit
from cronsensus.dashboard import audits, dashboard
from cronsensus.triggers import every
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("fine", every("1m"), catch_up="all")
    cluster.declare("late", every("1m"), grace="1s", catch_up="all")
    for seconds in (70, 50):
        cluster.advance(seconds)
        cluster.run_once(9)
    return cluster


def test_nothing_is_audited_before_somebody_asks(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store))
    text = browser.get("/ledger").text
    assert "Nobody has audited it yet." in text
    assert 'href="/ledger?span=1d"' in text
    assert "data-live" not in text.partition("<body>")[0] or 'data-live=""' in text


def test_all_jobs_are_counted_and_those_in_trouble_stand_first(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store))
    text = browser.get("/ledger?span=1d").text
    assert "each nominal time has exactly one verdict" in text
    line = r'job=(\w+)"><b>\w+</b>.*?data-label="Succeeded">(?:<b>)?(\d+).*?data-label="Missed">(?:<b>)?(\d+)'
    assert re.findall(line, text) == [("late", "0", "2"), ("fine", "2", "0")]
    assert '<td class="num" data-label="Nominal times"><b>4</b>' in text
    assert "cronsensus audit --from 1d" in text
    assert "late" in browser.get("/ledger").text, "the last one is kept"
    assert browser.get("/ledger?span=nonsense").status_code == 200


def test_two_who_ask_get_one_audit(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(*args: Any, **more: Any) -> Report:
        made.append(1)
        return audit(*args, **more)

    monkeypatch.setattr(audits, "audit", counted)
    browser = Browser(dashboard(cluster.store))
    browser.get("/ledger?span=1d")
    browser.get("/ledger?span=1d")
    assert len(made) == 1
    browser.get("/ledger?span=7d")
    assert len(made) == 2


def test_who_asks_while_one_is_made_is_told_so(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "WAIT_SECONDS", 0.01)
    begun, may_end = threading.Event(), threading.Event()

    def slow(*args: Any, **more: Any) -> Report:
        begun.set()
        assert may_end.wait(20)
        return audit(*args, **more)

    monkeypatch.setattr(audits, "audit", slow)
    kept = audits.Audits()
    first = threading.Thread(target=kept.make_audit, args=(cluster.store, "1d"))
    first.start()
    assert begun.wait(20)
    assert kept.make_audit(cluster.store, "1d") is None
    may_end.set()
    first.join()
    assert kept.last is not None


def test_what_is_wrong_is_said(cluster: HandCluster) -> None:
    cluster.advance(600)
    cluster.store._space.jobs["fine"].watermark = cluster.store.now()
    text = Browser(dashboard(cluster.store)).get("/ledger?span=1d").text
    assert "findings</span>" in text
    assert "have no verdict" in text


def test_an_application_tells_the_audit_what_comes_after_what() -> None:
    scheduler = Scheduler("memory://")
    try:
        assert Browser(dashboard(scheduler)).get("/ledger?span=1h").status_code == 200
    finally:
        scheduler.stop()
