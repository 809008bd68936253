"""The auditor finds what is wrong: each finding is provoked by a ledger that was damaged by hand."""

import contextlib
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.audit import Report, audit
from cronsensus.audit.report import MOST_LEFT_OPEN, Lateness
from cronsensus.errors import InvalidOption, UnknownJob
from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Parked
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Claim, Item, OccurrenceFilter, scheduled_key
from cronsensus.model.plan import VerdictRange
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import Origin, State
from cronsensus.planning import plan
from cronsensus.stores import open_store
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.state import OccurrenceRow
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, settle, take, win_named
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import Trigger, any_of, at, cron, every

START = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(seconds=10)
SECOND = timedelta(seconds=1)


class Ledger:
    """A store with a clock turned by hand, and a small crank that keeps it in good order."""

    def __init__(self, *specs: JobSpec, path: Path | None = None) -> None:
        self.clock = ManualClock(START)
        self.store: Any = MemoryStore(clock=self.clock)
        if path is not None:
            self.store = open_store(f"sqlite:///{path}", clock=self.clock)
            self.store.migrate()
        self.session = "s1"
        self.sessions = 1
        self.open("s1")
        self.store.define_jobs(specs, release="r1")

    def open(self, session: str) -> None:
        self.store.open_session(
            SessionSpec(
                id=session,
                node=f"node-{session}",
                host="h",
                pid=1,
                pid_started=1,
                release="r1",
                concurrency=10,
                version="0",
            ),
            lease=LEASE,
        )

    def keep(self) -> None:
        """Renew the session, or go on as a new one, as a node does."""
        if not self.store.renew(self.session, lease=LEASE).alive:
            self.sessions += 1
            self.session = f"next-{self.sessions}"
            self.open(self.session)

    def fire(self) -> None:
        """Decide everything that is due."""
        while jobs := self.store.look().jobs:
            carry_out(self.store, [plan(job, self.store.now()) for job in jobs])

    def claim(self, limit: int = 100) -> list[Claim]:
        self.keep()
        claims: list[Claim] = take(self.store, self.session, limit, {"tick", "other"}, lease=LEASE)
        return claims

    def finish(self, claims: list[Claim], state: State = State.SUCCEEDED) -> None:
        settle(self.store, [an_end(id=claim.id, token=claim.token, state=state) for claim in claims])

    def pass_seconds(self, seconds: int, *, run: bool = True) -> None:
        """Let time pass second by second, firing and running what comes up."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.keep()
            self.fire()
            if run:
                while claims := self.claim():
                    self.finish(claims)

    def audit(self, *names: str, **options: Any) -> Report:
        return audit(self.store, jobs=names, **options)

    # --- damage -----------------------------------------------------------------------------------------------------

    def job(self, name: str = "tick") -> Any:
        return self.store._space.jobs[name]

    def row(self, second: int, name: str = "tick") -> OccurrenceRow:
        row: OccurrenceRow = self.job(name).nominal[START + second * SECOND][0]
        return row

    def forget(self, second: int) -> None:
        self.store._space.delete_run(self.row(second))

    def double(self, second: int) -> OccurrenceRow:
        """Put a second occurrence of one nominal time into the ledger, as a store without a unique key would."""
        row = replace(self.row(second), id=self.store._world.next_number("occurrence"), key="other")
        inserted: OccurrenceRow = self.store._space.insert_row(row)
        return inserted

    def add_range(self, first: int, last: int, count: int | None, name: str = "tick") -> None:
        verdict = VerdictRange(START + first * SECOND, START + last * SECOND, State.MISSED, "late", count)
        self.job(name).ranges.append(
            LedgerRange(self.store._world.next_number("range"), name, verdict, self.store.now())
        )


def tick(trigger: Trigger | None = None, name: str = "tick", **policies: Any) -> JobSpec:
    given = {"overlap": "skip", "catch_up": "all", **policies}
    return JobSpec(name=name, function="tick", trigger=trigger or every("1s"), policies=Policies.read(given))


def kinds(report: Report) -> list[str]:
    return [finding.kind for finding in report.findings]


# --- nothing to find ------------------------------------------------------------------------------------------------


def test_an_empty_store_is_in_order():
    report = audit(MemoryStore())
    assert report.ok
    assert report.expected == report.jobs_audited == 0


def test_a_good_ledger_is_in_order_and_counted():
    ledger = Ledger(tick(), tick(cron("*/5 * * * * *"), name="other"))
    ledger.pass_seconds(60)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.succeeded) == (72, 72, 72)
    assert (report.missed, report.duplicates, report.takeovers, report.pending) == (0, 0, 0, 0)
    assert report.lateness.max == 0.0
    assert [(job.job, job.expected) for job in report.jobs] == [("other", 12), ("tick", 60)]


def test_one_job_and_a_stretch_can_be_asked_for():
    ledger = Ledger(tick(), tick(name="other"))
    ledger.pass_seconds(60)
    report = ledger.audit("tick", since=START + 10 * SECOND, until=START + 19 * SECOND)
    assert report.ok
    assert (report.jobs_audited, report.expected, report.ran, report.runs) == (1, 10, 10, 10)


def test_an_unknown_job_and_a_naive_time_are_refused():
    ledger = Ledger(tick())
    with pytest.raises(UnknownJob, match="jobs list"):
        ledger.audit("tock")
    with pytest.raises(InvalidOption):
        ledger.audit(since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_the_future_is_not_judged():
    ledger = Ledger(tick())
    ledger.pass_seconds(5)
    report = ledger.audit(until=START + timedelta(days=1))
    assert report.ok
    assert report.expected == 5


def test_waiting_and_running_occurrences_are_pending():
    ledger = Ledger(tick(overlap="queue"))
    ledger.pass_seconds(3, run=False)
    ledger.claim()
    report = ledger.audit()
    assert report.ok
    assert (report.expected, report.ran, report.pending) == (3, 1, 3)


def test_downtime_of_twelve_days_costs_no_walk(monkeypatch):
    ledger = Ledger(tick(catch_up="latest", catch_up_window="1h"))
    ledger.clock.advance(timedelta(days=12))
    ledger.pass_seconds(1)
    calls = 0
    step = type(every("1s")).next_after

    def counting(self, instant):
        nonlocal calls
        calls += 1
        return step(self, instant)

    monkeypatch.setattr(type(every("1s")), "next_after", counting)
    report = ledger.audit()
    assert report.findings == []
    assert report.expected == 12 * 86400 + 1
    assert (report.missed, report.skipped, report.ran) == (12 * 86400 + 1 - 3601, 3600, 1)
    assert calls < 1000


def test_two_long_ranges_side_by_side_and_cut_by_the_asked_stretch_are_no_duplicates():
    ledger = Ledger(tick(catch_up="none"))
    for _ in range(2):
        ledger.clock.advance(timedelta(hours=1))
        ledger.pass_seconds(1)
    assert ledger.audit().findings == []
    half = ledger.audit(since=START + 1800 * SECOND, until=START + 5400 * SECOND)
    assert half.findings == []
    assert half.expected == 3601


def test_audit_counts_a_pause_before_its_range_is_written():
    ledger = Ledger(tick())
    ledger.pass_seconds(5)
    ledger.clock.advance(0.5)
    ledger.store.pause("tick", by="me", why="test")
    ledger.clock.advance(100)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.skipped) == (105, 5, 100)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.store.resume("tick", by="me")
    ledger.pass_seconds(5)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.skipped) == (110, 10, 100)


def test_changed_and_retired_and_revived_jobs_are_judged_by_the_trigger_that_held():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    ledger.store.define_jobs([tick(every("2s"))], release="r1")
    ledger.pass_seconds(10)
    ledger.store.retire("tick", by="me", why="test")
    ledger.pass_seconds(100)
    ledger.store.define_jobs([tick(every("5s"))], release="r1")
    ledger.pass_seconds(10)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran) == (10 + 5 + 2, 17)


def test_backfills_and_retries_stand_beside_the_verdict():
    ledger = Ledger(tick(catch_up="none"))
    ledger.clock.advance(20)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.pass_seconds(1)
    ledger.store.backfill("tick", [START + 3 * SECOND], by="me")
    claims = ledger.claim()
    ledger.finish(claims, State.FAILED)
    ledger.store.retry(claims[0].id, by="me")
    ledger.finish(ledger.claim())
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.missed, report.by_hand) == (21, 1, 20, 2)


def test_a_backfill_ahead_of_its_time_is_the_verdict():
    ledger = Ledger(tick(overlap="allow"))
    ledger.store.backfill("tick", [START + 3 * SECOND], by="me")
    ledger.pass_seconds(5)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran) == (5, 5)


def test_audit_counts_acquired_times_of_a_job_timed_elsewhere():
    ledger = Ledger(JobSpec(name="tick", function="tick"))
    for second in range(5):
        win_named(ledger.store, "s1", "tick", scheduled_for=START + second * SECOND, lease=LEASE)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran) == (1, 1)  # the future is not judged
    ledger.clock.advance(9)
    assert ledger.audit().expected == 5


def test_enqueued_work_is_checked_but_not_expected():
    ledger = Ledger(tick())
    ledger.store.enqueue([Item(job="tick", key="a"), Item(job="tick", key="b")])
    ledger.finish(ledger.claim())
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.others, report.runs) == (0, 0, 2, 2)


def test_audit_leaves_pruned_times_out_and_says_so():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    ledger.store.prune(START + 10 * SECOND)
    report = ledger.audit()
    assert report.findings == []
    assert report.expected == report.ran
    assert 10 <= report.expected <= 11
    assert "pruned" in report.notes[0]


def test_a_takeover_is_counted_and_is_no_overlap():
    ledger = Ledger(tick(every("1h")))
    ledger.clock.advance(3600)
    ledger.open("s2")
    ledger.fire()
    ledger.session = "s2"
    ledger.claim()
    ledger.store.reclaim(["s2"])
    ledger.open("s3")
    ledger.session = "s3"
    ledger.clock.advance(1)
    ledger.finish(ledger.claim())
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.succeeded, report.takeovers, report.runs) == (1, 1, 1, 1, 2)


def test_releases_and_retries_are_no_stale_writes():
    ledger = Ledger(tick(every("1h"), retries=5, retry_delay="1s"))
    ledger.clock.advance(3600)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.fire()
    give_back(ledger.store, ledger.claim())
    for state in (State.PENDING, State.PENDING, State.SUCCEEDED):
        ledger.finish(ledger.claim(), state)
        ledger.clock.advance(2)
    report = ledger.audit()
    assert report.findings == []
    assert (report.succeeded, report.runs) == (1, 4)


def test_lateness_is_measured_from_the_due_time_with_jitter():
    ledger = Ledger(tick(every("10s", jitter="5s")))
    for _ in range(40):
        ledger.clock.advance(0.25)
        ledger.fire()
        ledger.finish(ledger.claim())
    for _ in range(24):
        ledger.clock.advance(0.25)
        ledger.fire()
        ledger.finish(ledger.claim())
    report = ledger.audit()
    assert report.findings == []
    assert report.ran == 1
    assert 0 <= report.lateness.max <= 0.25


def test_quantiles_of_lateness_are_right_to_one_percent():
    lateness = Lateness()
    for millis in range(1, 1001):
        lateness.add(millis / 1000)
    assert lateness.quantile(0.5) == pytest.approx(0.5, rel=0.011)
    assert lateness.quantile(0.99) == pytest.approx(0.99, rel=0.011)
    assert lateness.quantile(1.0) == lateness.max == 1.0
    assert Lateness().to_json() == {"p50": 0.0, "p99": 0.0, "max": 0.0}


# --- duplicates -----------------------------------------------------------------------------------------------------


def test_a_nominal_time_with_two_occurrences_is_a_duplicate():
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(20)
    ledger.double(7)
    report = ledger.audit()
    assert not report.ok
    assert kinds(report) == ["duplicate"]
    assert report.findings[0].scheduled_for == START + 7 * SECOND
    assert len(report.findings[0].occurrences) == 2
    assert (report.expected, report.ran, report.duplicates, report.missed) == (20, 20, 1, 0)


def test_a_nominal_time_with_an_occurrence_and_a_range_is_a_duplicate():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    ledger.add_range(7, 9, 3)
    report = ledger.audit()
    assert kinds(report) == ["duplicate"] * 3
    assert report.duplicates == 3


def test_two_ranges_over_one_nominal_time_are_a_duplicate():
    ledger = Ledger(tick(catch_up="none", grace="1s"))
    ledger.clock.advance(100)
    ledger.fire()
    ledger.add_range(50, 50, 1)
    report = ledger.audit()
    assert kinds(report) == ["duplicate"]
    assert "range" in report.findings[0].sentence


@pytest.mark.parametrize("first", [0, 2000])
def test_overlapping_long_ranges_and_what_lies_in_them_are_duplicates(first):
    ledger = Ledger(tick(catch_up="none"))
    ledger.clock.advance(10_000)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.pass_seconds(1)
    ledger.add_range(max(first, 1), first + 2999, 3000 - (first == 0))
    ledger.add_range(5000, 5001, 2)
    at_4000 = ledger.store._create_occurrence(
        ledger.job(), "x", Origin.SCHEDULE, ledger.store.now(), ledger.store.now(), scheduled_for=START + 4000 * SECOND
    )
    report = ledger.audit()
    assert kinds(report) == ["duplicate"] * 3
    assert report.duplicates == 3000 - (first == 0) + 2 + 1
    assert any(finding.occurrences == (at_4000.id,) for finding in report.findings)
    assert report.expected == 10_001


def test_an_occurrence_with_two_succeeded_runs_is_a_duplicate():
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(20)
    row = ledger.row(7)
    again = replace(row.runs[0], token=10_000, attempt=2, started_at=row.runs[0].started_at + SECOND)
    row.runs.append(again)
    report = ledger.audit()
    assert "duplicate" in kinds(report)
    assert report.duplicates == 1
    assert "succeeded 2 times" in report.findings[0].sentence


def test_a_backfill_of_what_had_succeeded_is_a_duplicate():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    now = ledger.store.now()
    ledger.store._create_occurrence(ledger.job(), "again", Origin.BACKFILL, now, now, scheduled_for=START + 5 * SECOND)
    report = ledger.audit()
    assert kinds(report) == ["duplicate"]
    assert "backfilled" in report.findings[0].sentence


def test_a_scheduler_that_runs_everything_twice_is_caught():
    """Jepsen's checker for Chronos would pass it."""
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(20)
    for second in range(1, 21):
        ledger.double(second)
    report = ledger.audit()
    assert report.duplicates == 20
    assert kinds(report) == ["duplicate"] * 20


# --- missing --------------------------------------------------------------------------------------------------------


def test_a_nominal_time_below_the_watermark_without_verdict_is_missing():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    for second in (7, 8, 12):
        ledger.forget(second)
    report = ledger.audit()
    assert [(finding.kind, finding.count) for finding in report.findings] == [("missing", 2), ("missing", 1)]
    assert (report.expected, report.ran, report.missed) == (20, 17, 3)


def test_the_last_nominal_time_below_the_watermark_is_not_forgotten():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    ledger.forget(20)
    assert kinds(ledger.audit()) == ["missing"]


def test_undecided_nominal_times_are_pending_at_first_and_missing_later():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    ledger.clock.advance(20)
    report = ledger.audit()
    assert report.ok
    assert (report.expected, report.pending, report.missed) == (30, 20, 0)
    ledger.clock.advance(3600)
    report = ledger.audit()
    assert kinds(report) == ["missing"]
    assert (report.expected, report.pending, report.missed) == (3630, 30, 3590)
    assert "does any node run?" in report.findings[0].sentence
    assert ledger.audit(until=START + 10 * SECOND).ok


def test_a_range_that_says_too_few_or_too_many_is_found():
    ledger = Ledger(tick(catch_up="none", grace="1s"))
    ledger.clock.advance(100)
    ledger.fire()
    ranges = ledger.job().ranges
    good = ranges[0]
    for wrong, kind in ((good.range.count - 1, "missing"), (good.range.count + 1, "stray")):
        ranges[0] = replace(good, range=replace(good.range, count=wrong))
        assert kinds(ledger.audit()) == [kind]


def test_audit_misses_no_time_that_is_pruned_while_it_reads(monkeypatch):
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    store, read = ledger.store, ledger.store.occurrences

    def prune_then_read(*args, **kwargs):
        monkeypatch.setattr(store, "occurrences", read)
        store.prune(START + 10 * SECOND)
        return read(*args, **kwargs)

    monkeypatch.setattr(store, "occurrences", prune_then_read)
    report = ledger.audit()
    assert report.findings == []
    assert report.missed == 0
    assert report.expected == report.ran


def test_audit_misses_no_time_that_is_decided_while_it_reads(monkeypatch):
    ledger = Ledger(tick(catch_up="latest"))
    ledger.clock.advance(100)
    store, read = ledger.store, ledger.store.history
    ledger.open("s2")
    ledger.session = "s2"

    def decide_then_read(*args, **kwargs):
        monkeypatch.setattr(store, "history", read)
        ledger.fire()
        return read(*args, **kwargs)

    monkeypatch.setattr(store, "history", decide_then_read)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.skipped, report.pending) == (100, 99, 1)


# --- strays ---------------------------------------------------------------------------------------------------------


def test_an_occurrence_of_no_nominal_time_is_a_stray():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    at_half = START + timedelta(seconds=7.5)
    now = ledger.store.now()
    ledger.store._create_occurrence(
        ledger.job(), scheduled_key(at_half), Origin.SCHEDULE, now, now, scheduled_for=at_half
    )
    report = ledger.audit()
    assert kinds(report) == ["stray"]
    assert (report.strays, report.expected) == (1, 20)


def test_a_range_from_no_nominal_time_is_a_stray():
    ledger = Ledger(tick(every("2s")))
    ledger.pass_seconds(20)
    ledger.add_range(7, 7, 1)
    assert kinds(ledger.audit()) == ["stray"]


def test_a_run_under_a_trigger_that_no_longer_held_is_a_stray():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    ledger.store.define_jobs([tick(every("2s"))], release="r1")
    ledger.pass_seconds(10)
    now = ledger.store.now()
    ledger.store._create_occurrence(ledger.job(), "x", Origin.SCHEDULE, now, now, scheduled_for=START + 13 * SECOND)
    assert kinds(ledger.audit()) == ["stray"]


def test_an_occurrence_of_a_retired_job_is_a_stray():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    ledger.store.retire("tick", by="me", why="test")
    ledger.pass_seconds(10)
    now = ledger.store.now()
    ledger.store._create_occurrence(ledger.job(), "x", Origin.SCHEDULE, now, now, scheduled_for=START + 13 * SECOND)
    assert kinds(ledger.audit()) == ["stray"]


def test_audit_finds_a_scheduled_occurrence_in_a_pause_as_stray():
    ledger = Ledger(tick())
    ledger.pass_seconds(5)
    ledger.clock.advance(0.5)
    ledger.store.pause("tick", by="me", why="test")
    ledger.clock.advance(3)
    now = ledger.store.now()
    at_7 = START + 7 * SECOND
    ledger.store._create_occurrence(ledger.job(), scheduled_key(at_7), Origin.SCHEDULE, now, now, scheduled_for=at_7)
    ledger.job().watermark = at_7
    report = ledger.audit()
    assert "stray" in kinds(report)
    assert "paused" in next(finding.sentence for finding in report.findings if finding.kind == "stray")


# --- runs -----------------------------------------------------------------------------------------------------------


def change_run(row: OccurrenceRow, index: int = 0, **changes: Any) -> None:
    row.runs[index] = replace(row.runs[index], **changes)


def test_a_run_before_its_time_is_early():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    change_run(ledger.row(7), started_at=START + timedelta(seconds=6.999))
    report = ledger.audit()
    assert kinds(report) == ["early"]
    assert (report.early, "1ms before" in report.findings[0].sentence) == (1, True)


@pytest.mark.parametrize("set_back", [False, True], ids=["a backfill ahead of its time", "a clock that was set back"])
def test_a_stretch_is_judged_whole_although_many_earlier_runs_were_made_after_it(monkeypatch, set_back):
    monkeypatch.setattr("cronsensus.audit.runs.PAGE", 2)
    ledger = Ledger(tick(every("1h")))
    if set_back:
        ledger.clock.advance(3500)
        ledger.keep()
        ledger.store.enqueue([Item(job="tick")])
        ledger.clock.step(-3400)
    else:
        ledger.store.backfill("tick", [START + 3600 * SECOND], by="me")
    [first] = ledger.store.occurrences(OccurrenceFilter(job="tick"))
    ledger.store._space.occurrences[first.id].state = State.SUCCEEDED  # and no run says so
    ledger.store.enqueue([Item(job="tick") for _ in range(5)])
    ledger.clock.advance(3600)
    assert kinds(ledger.audit(since=START + 1800 * SECOND)).count("stale_write") == 1


def test_enqueued_work_before_its_time_is_early():
    ledger = Ledger(tick(every("1d")))
    ledger.store.enqueue([Item(job="tick", key="a", delay=10 * SECOND)])
    ledger.pass_seconds(10)
    row = ledger.job().keys["a"]
    change_run(row, started_at=START + 9 * SECOND)
    assert kinds(ledger.audit()) == ["early"]


def test_two_runs_of_a_serial_job_at_a_time_are_an_overlap():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    change_run(ledger.row(7), finished_at=START + timedelta(seconds=8.5))
    report = ledger.audit()
    assert kinds(report) == ["overlap"]
    assert report.findings[0].occurrences == (ledger.row(7).id, ledger.row(8).id)


def test_a_serial_run_that_has_not_ended_overlaps_the_next():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    row = ledger.row(7)
    row.state = State.RUNNING
    change_run(row, finished_at=None, end=None)
    assert "overlap" in kinds(ledger.audit())


def test_overlap_is_no_finding_where_it_is_allowed_or_was_under_an_earlier_definition():
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(10)
    change_run(ledger.row(7), finished_at=START + timedelta(seconds=8.5))
    assert ledger.audit().ok
    ledger.store.define_jobs([tick(overlap="skip")], release="r1")
    ledger.pass_seconds(10)
    assert ledger.audit().ok


def test_two_attempts_of_one_occurrence_at_a_time_are_an_overlap():
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(10)
    row = ledger.row(7)
    first = row.runs[0]
    row.runs.insert(0, replace(first, token=0, attempt=0, end="crashed", finished_at=first.started_at + SECOND))
    report = ledger.audit()
    assert kinds(report) == ["overlap"]
    assert "two runs at a time" in report.findings[0].sentence


def test_runs_on_either_side_of_a_clock_that_was_set_back_are_not_compared():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    for second in (8, 9, 10):  # set back by two and a half seconds, in the middle of the run of second 7
        at = START + (second - 2.5) * SECOND
        change_run(ledger.row(second), started_at=at, finished_at=at)
    change_run(ledger.row(7), finished_at=START + timedelta(seconds=7.5))
    report = ledger.audit()
    assert "overlap" not in kinds(report)
    change_run(ledger.row(7), started_at=START + timedelta(seconds=5.2))  # claimed before them, and still running: real
    assert "overlap" in kinds(ledger.audit())


def test_an_overlap_within_what_came_twice_is_left_open():
    ledger = Ledger(tick(overlap="queue"))
    ledger.pass_seconds(6)
    ledger.clock.advance(1)
    ledger.fire()
    first = ledger.claim()
    ledger.clock.advance(1.5)
    ledger.fire()
    ledger.finish(first)
    ledger.clock.step(-0.4)
    second = ledger.claim()
    ended = ledger.row(7).runs[0].finished_at
    assert ended is not None
    assert second[0].claimed_at < ended
    ledger.finish(second)
    ledger.pass_seconds(5)
    report = ledger.audit()
    assert report.ok
    assert report.left_open == 1
    assert any("set back" in note and "ran twice at a time" in note for note in report.notes)
    change_run(ledger.row(11), finished_at=ledger.store.now())
    assert kinds(ledger.audit()) == ["overlap"]


def test_audit_leaves_an_occurrence_before_a_backdated_pause_open():
    ledger = Ledger(tick())
    ledger.pass_seconds(10)
    ledger.clock.step(-5)
    ledger.store.pause("tick", by="me", why="test")
    ledger.clock.advance(8)
    report = ledger.audit()
    assert report.ok
    assert report.left_open == 5
    assert all("while the job was paused" in note for note in report.notes)
    now = ledger.store.now()
    at_12 = START + 12 * SECOND
    ledger.store._create_occurrence(ledger.job(), scheduled_key(at_12), Origin.SCHEDULE, now, now, scheduled_for=at_12)
    ledger.job().watermark = at_12
    assert "stray" in kinds(ledger.audit())


def test_a_clock_that_was_set_back_step_by_step_leaves_open_what_lies_between():
    ledger = Ledger(tick())
    ledger.pass_seconds(20)
    for _ in range(3):
        ledger.clock.step(-6)
        ledger.keep()
    ledger.store.pause("tick", by="me", why="test")
    ledger.clock.advance(19)
    report = ledger.audit()
    assert report.ok
    assert report.left_open == 18


def test_audit_tells_a_part_of_what_a_clock_leaves_open():
    ledger = Ledger(tick())
    ledger.pass_seconds(40)
    ledger.clock.step(-35)
    ledger.store.pause("tick", by="me", why="test")
    ledger.clock.advance(36)
    report = ledger.audit()
    assert report.left_open == 35
    assert len(report.notes) == MOST_LEFT_OPEN + 1
    assert report.to_json()["left_open"] == 35


def test_a_result_under_an_old_token_is_a_stale_write():
    ledger = Ledger(tick(every("1h")))
    ledger.clock.advance(3600)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.fire()
    ledger.claim()
    ledger.store.reclaim(["s2"])
    ledger.open("s3")
    ledger.session = "s3"
    ledger.claim()
    row = ledger.job().nominal[START + timedelta(hours=1)][0]
    change_run(row, 0, end="succeeded")  # what a store would do that does not check tokens
    assert kinds(ledger.audit()) == ["stale_write"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(
            lambda row: change_run(row, 0, token=row.runs[1].token + 1), id="a smaller token for a later attempt"
        ),
        pytest.param(lambda row: change_run(row, 0, token=row.runs[1].token), id="one token twice"),
        pytest.param(lambda row: setattr(row, "token", row.runs[0].token), id="the token went back"),
        pytest.param(lambda row: setattr(row, "state", State.FAILED), id="another final state than the run's"),
        pytest.param(lambda row: row.runs.pop(), id="a result without a run"),
    ],
)
def test_audit_finds_a_result_under_an_old_token_as_stale_write(damage):
    ledger = Ledger(tick(every("1h"), retries=1, retry_delay="1s"))
    ledger.clock.advance(3600)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.fire()
    ledger.finish(ledger.claim(), State.PENDING)
    ledger.clock.advance(2)
    ledger.finish(ledger.claim())
    row = ledger.job().nominal[START + timedelta(hours=1)][0]
    assert ledger.audit().ok
    damage(row)
    assert "stale_write" in kinds(ledger.audit())


def test_a_result_that_arrives_while_the_audit_reads_is_no_stale_write(monkeypatch):
    ledger = Ledger(tick())
    ledger.pass_seconds(5)
    ledger.clock.advance(1)
    ledger.fire()
    claims = ledger.claim()
    store, read = ledger.store, ledger.store.runs

    def finish_then_read(*occurrences):
        if claims and occurrences == (claims[0].id,):
            ledger.finish(claims)
            claims.clear()
        return read(*occurrences)

    monkeypatch.setattr(store, "runs", finish_then_read)
    assert ledger.audit().findings == []


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_under_a_dead_session_is_stuck(ended):
    ledger = Ledger(tick(every("1h")))
    ledger.clock.advance(3600)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.fire()
    (claim,) = ledger.claim()
    if ended:
        session = ledger.store._space.open.pop("s2")
        session.ended_at, session.ended_as = ledger.store.now(), "dead"
    ledger.clock.advance(35)
    assert ("stuck" in kinds(ledger.audit())) is ended  # its lease ran out 25 seconds ago: not long enough
    ledger.clock.advance(10)
    report = ledger.audit()
    assert kinds(report) == ["stuck"]
    assert (report.stuck, report.findings[0].occurrences) == (1, (claim.id,))


def test_a_run_under_a_living_session_is_not_stuck():
    ledger = Ledger(tick(every("1h")))
    ledger.clock.advance(3600)
    ledger.open("s2")
    ledger.session = "s2"
    ledger.fire()
    ledger.claim()
    for _ in range(100):
        ledger.clock.advance(5)
        ledger.store.renew("s2", lease=LEASE)
    assert ledger.audit().ok


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_badly_damaged_ledger_is_counted_whole_and_told_in_part():
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(1200)
    for second in range(1, 1201):
        ledger.double(second)
    report = ledger.audit()
    assert (report.duplicates, report.found, len(report.findings)) == (1200, 1200, 1000)


def test_more_rows_than_a_window_holds_are_judged_in_halves(monkeypatch):
    monkeypatch.setattr("cronsensus.audit.verdicts.MOST_ROWS", 100)
    ledger = Ledger(tick(overlap="allow"))
    ledger.pass_seconds(30)
    for second in range(1, 31):
        for number in range(10):
            ledger.double(second).key = f"{second}-{number}"
    report = ledger.audit()
    assert (report.expected, report.ran, report.duplicates, report.missed) == (30, 30, 30, 0)


def test_a_report_is_plain_json():
    import json

    ledger = Ledger(tick())
    ledger.pass_seconds(5)
    ledger.forget(3)
    data = json.loads(json.dumps(ledger.audit(since=START).to_json()))
    assert {"expected", "ran", "duplicates", "missed", "takeovers", "lateness", "findings", "ok"} <= data.keys()
    assert data["ok"] is False
    assert data["from"] == "2026-03-01T00:00:00Z"
    assert data["findings"][0]["kind"] == "missing"
    assert data["jobs"][0]["job"] == "tick"


# --- a damaged file ----------------------------------------------------------------------------------------------

DAMAGE = {
    "missing": "DELETE FROM cronsensus_occurrences WHERE id = 7",
    "duplicate": """INSERT INTO cronsensus_occurrences SELECT 99, namespace, job_id, 'other', origin, state, serial,
        priority, level, scheduled_for, due_at, expires_at, attempt, crashes, failures, 99, session, node, created_at,
        started_at, finished_at, cancel_reason, retry_of, NULL, progress_done, progress_total, reason, payload, result,
        error, fingerprint, parent, listed, parked_on, note, reserved FROM cronsensus_occurrences WHERE id = 7;
        INSERT INTO cronsensus_runs SELECT 99, 99, attempt, session, node, started_at + 1, finished_at + 1, "end",
        reason, error FROM cronsensus_runs WHERE occurrence_id = 7""",
    "stray": "UPDATE cronsensus_occurrences SET scheduled_for = scheduled_for - 1 WHERE id = 7",
    "early": "UPDATE cronsensus_runs SET started_at = started_at - 1 WHERE occurrence_id = 7",
    "overlap": "UPDATE cronsensus_runs SET finished_at = finished_at + 1000001 WHERE occurrence_id = 7",
    "stale_write": "UPDATE cronsensus_occurrences SET token = token - 1 WHERE id = 7",
}


def test_a_good_file_is_in_order(tmp_path):
    ledger = Ledger(tick(), path=tmp_path / "ledger.db")
    ledger.pass_seconds(20)
    report = ledger.audit()
    assert report.findings == []
    assert (report.expected, report.ran, report.runs) == (20, 20, 20)
    ledger.store.close()


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_file_that_was_changed_by_hand_is_found_out(tmp_path, kind):
    path = tmp_path / "ledger.db"
    ledger = Ledger(tick(), path=path)
    ledger.pass_seconds(20)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.executescript(DAMAGE[kind])
    found = set(kinds(ledger.audit()))
    # A time that was moved is a stray where it is now, and missing where it was.
    assert found == ({"stray", "missing"} if kind == "stray" else {kind})
    ledger.store.close()


# --- any ledger that the planner writes -----------------------------------------------------------------------------

TRIGGERS = [
    every("1s"),
    every("7s", jitter="3s"),
    cron("*/3 * * * * *"),
    any_of(every("4s"), cron("*/10 * * * * *"), at(START + 33 * SECOND)),
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pass", "pass", "claim", "finish", "crash", "pause", "resume", "change", "retire", "trigger"]),
        st.integers(0, 90),
    ),
    max_size=30,
)


@given(
    steps=STEPS,
    trigger=st.sampled_from(TRIGGERS),
    overlap=st.sampled_from(["skip", "queue_one", "queue", "cancel_previous", "allow"]),
    catch_up=st.sampled_from(["none", "latest", "all"]),
    grace=st.sampled_from([None, "0s", "20s"]),
)
def test_the_planner_and_the_store_satisfy_the_auditor(steps, trigger, overlap, catch_up, grace):
    policies = {"overlap": overlap, "catch_up": catch_up, "grace": grace, "catch_up_window": "60s"}
    ledger = Ledger(tick(trigger, **policies))
    held: list[Claim] = []
    for number, (action, size) in enumerate(steps):
        match action:
            case "pass":
                ledger.clock.advance(size)
                ledger.store.reclaim()
                if ledger.session not in ledger.store._space.open:
                    ledger.session = f"n{number}"
                    ledger.open(ledger.session)
                    held.clear()
            case "claim":
                held += ledger.claim(1 + size % 5)
            case "finish":
                ledger.finish(held[:1], State.SUCCEEDED if size % 3 else State.FAILED)
                held = held[1:]
            case "crash":
                ledger.store.reclaim([ledger.session])
                ledger.session = f"n{number}"
                ledger.open(ledger.session)
                held.clear()
            case "pause" if ledger.job().retired_at is None:
                ledger.store.pause("tick", by="me", why="test")
            case "resume" if ledger.job().retired_at is None:
                ledger.store.resume("tick", by="me")
            case "change":
                ledger.store.define_jobs([tick(TRIGGERS[size % len(TRIGGERS)], **policies)], release="r1")
            case "retire":
                ledger.store.retire("tick", by="me", why="test")
            case "trigger" if ledger.job().retired_at is None:
                ledger.store.trigger("tick", by="me")
        if size % 2:
            ledger.fire()
    ledger.fire()
    report = ledger.audit(tolerance=SECOND)
    assert report.findings == []
    verdicts = report.succeeded + report.failed + report.cancelled + report.skipped + report.missed + report.pending
    assert verdicts == report.expected


@pytest.mark.parametrize("on_file", [False, True])
def test_runs_read_together_are_those_read_one_by_one(tmp_path, on_file):
    ledger = Ledger(tick(every("1h"), retries=5, overlap="allow"), path=tmp_path / "ledger.db" if on_file else None)
    ledger.clock.advance(3 * 3600)
    ledger.fire()
    for state in (State.PENDING, State.SUCCEEDED):
        ledger.clock.advance(10)
        ledger.finish(ledger.claim(2), state)
    ledger.clock.advance(10)
    ledger.claim(1)
    ids = [*range(1, 5), 987_654]
    alone = [ledger.store.runs(number) for number in ids]
    assert ledger.store.runs(*ids) == [run for runs in alone for run in runs]
    assert sorted(map(len, alone)) == [0, 0, 1, 2, 2]
    assert any(run.end is None for runs in alone for run in runs)
    ledger.store.close()


# --- batches ----------------------------------------------------------------------------------------------------------


def batch_of(ledger: Ledger, items: int) -> tuple[Claim, list[int]]:
    """Let a batch list items and sleep, its items succeed, and the batch too, a minute ago."""
    ledger.store.enqueue([Item(job="tick", key="batch", origin=Origin.BATCH)])
    [batch] = ledger.claim()
    made = [
        Item(job="tick", key=item_key(batch.id, str(n)), origin=Origin.BATCH, parent=batch.id) for n in range(items)
    ]
    numbers = [one.id for one in ledger.store.enqueue(made)]
    settle(ledger.store, [End.of(batch, Parked("items", items))])
    ledger.finish(ledger.claim())
    ledger.store.wake([batch.id])
    ledger.finish(ledger.claim())
    ledger.clock.advance(60)
    return batch, numbers


def test_a_batch_whose_items_are_all_done_is_in_order():
    ledger = Ledger(replace(tick(), trigger=None))
    batch, _ = batch_of(ledger, 5)
    assert ledger.store.occurrence(batch.id).state is State.SUCCEEDED
    assert ledger.audit().findings == []


def test_a_batch_that_succeeded_before_an_item_ended_is_found():
    ledger = Ledger(replace(tick(), trigger=None))
    batch, _ = batch_of(ledger, 5)
    late = Item(job="tick", key=item_key(batch.id, "late"), origin=Origin.BATCH, parent=batch.id)
    ledger.store.enqueue([late])
    [finding] = ledger.audit().findings
    assert (finding.kind, finding.occurrences) == ("stuck", (batch.id,))
    assert "is a batch that succeeded, and 1 of its items is open" in finding.sentence


def test_a_batch_that_succeeded_without_an_item_of_its_list_is_found():
    ledger = Ledger(replace(tick(), trigger=None))
    batch, numbers = batch_of(ledger, 5)
    ledger.store._space.delete_run(ledger.store._space.occurrences[numbers[2]])
    [finding] = ledger.audit().findings
    assert (finding.kind, finding.occurrences) == ("missing", (batch.id,))
    assert "of 5 items that succeeded, and has 4 of them" in finding.sentence


def test_an_item_without_its_batch_is_found_unless_that_may_have_been_pruned():
    ledger = Ledger(replace(tick(keep="1h"), trigger=None))
    batch, numbers = batch_of(ledger, 2)
    ledger.store._space.delete_run(ledger.store._space.occurrences[batch.id])
    report = ledger.audit()
    assert {(one.kind, one.occurrences[0]) for one in report.findings} == {("stray", number) for number in numbers}
    assert f"is an item of batch {batch.id}, which the store does not have" in report.findings[0].sentence
    ledger.clock.advance(3600)
    assert ledger.audit().ok
