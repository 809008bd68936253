"""``why``, ``ledger`` and ``audit`` on the verdicts of a guarded APScheduler."""

import time
from datetime import UTC, datetime, timedelta
from threading import Event
from types import SimpleNamespace

import pytest
from apscheduler.executors.base import MaxInstancesReachedError
from apscheduler.schedulers.background import BackgroundScheduler

from cronsensus.integrations.apscheduler import guard
from cronsensus.model.occurrence import OccurrenceFilter
from tests.scratch import copy_migrated_sqlite

JOB = "apscheduler:report"
NOW = datetime.now(UTC).replace(microsecond=0)
LATE, NEVER, RAN, FULL = (NOW - timedelta(seconds=ago) for ago in (7200, 1800, 4, 3))
PATIENCE = 30.0


@pytest.fixture
def kept(command, tmp_path):
    """A job that was named too late, in time, while it ran, and while it was paused; and the commands on its store."""
    copy_migrated_sqlite(tmp_path / "kept.db")
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, url)
    scheduler.start()
    over, begun = Event(), Event()

    def report():
        begun.set()
        over.wait(PATIENCE)

    job = scheduler.add_job(report, "cron", year=2099, id="report", misfire_grace_time=3600)
    executor, store = scheduler._executors["default"], scheduler._cronsensus._ours.store

    def decided(count):
        until = time.monotonic() + PATIENCE
        while sum(one.finished_at is not None for one in store.occurrences(OccurrenceFilter(job=JOB), limit=9)) < count:
            assert time.monotonic() < until
            store.wait(0.02)

    def ask(*words):
        return command(*words, "--url", url)

    try:
        executor.submit_job(job, [LATE])
        decided(1)
        executor.submit_job(job, [RAN])
        assert begun.wait(PATIENCE)
        with pytest.raises(MaxInstancesReachedError):
            executor.submit_job(job, [FULL])
        decided(2)
        over.set()
        decided(3)
        assert ask("jobs", "pause", JOB, "--reason", "an audit").code == 0
        paused = datetime.now(UTC)
        executor.submit_job(job, [paused])
        decided(4)
        yield SimpleNamespace(ask=ask, why=lambda at: ask("why", JOB, at.isoformat()).text, paused=paused)
    finally:
        over.set()
        scheduler.shutdown()


def test_why_says_what_became_of_each_time_that_was_named(kept):
    late = kept.why(LATE)
    assert ": missed" in late
    assert "No: APScheduler named it" in late
    assert "after its time, which is too late" in late
    assert "Yes: it ran and succeeded" in kept.why(RAN)
    full = kept.why(FULL)
    assert ": skipped" in full
    assert "No: when APScheduler named it, as many runs were active as it may have at a time: 1." in full
    paused = kept.why(kept.paused)
    assert ": skipped" in paused
    assert "because: an audit" in paused
    never = kept.why(NEVER)
    assert "APScheduler keeps its times, and no process has named this one" in never
    for said in (late, full, paused, never):
        assert "cronsensus run" not in said, "a node would not help"


def test_ledger_has_a_line_for_each_time_that_was_named(kept):
    lines = kept.ask("ledger", JOB, "-o", "json").data["lines"]
    assert [(line["verdict"], line["reason"]) for line in lines] == [
        ("missed", "late"),
        ("succeeded", None),
        ("skipped", "overlap"),
        ("skipped", "paused"),
    ]


def test_audit_counts_refused_times_as_decided_once(kept):
    answer = kept.ask("audit", "-o", "json")
    assert answer.code == 0, answer
    names = ("expected", "succeeded", "skipped", "missed", "duplicates", "strays", "ok")
    assert [answer.data[name] for name in names] == [4, 1, 2, 1, 0, 0, True]
