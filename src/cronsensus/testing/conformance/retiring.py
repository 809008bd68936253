"""Retired and revived jobs: an end that is written down, and a beginning without debts."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import dataclasses
from datetime import timedelta

from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.testing.conformance.fixtures import (
    DAY,
    EVERY_MINUTE,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    START,
    StoreTest,
    minute,
)
from cronsensus.testing.conformance.steps import carry_out, give_back
from cronsensus.triggers import at, every


class Retiring(StoreTest):
    """Hazards of retiring: a job that goes without a word, and one that comes back for what it missed."""

    # --- retired and revived jobs -----------------------------------------------------------------------------------

    def test_pending_work_of_many_jobs_is_counted_at_once(self) -> None:
        self.define(self.job("none"), self.job("one"), self.job("many"), self.job("others"))
        self.session()
        for job, count in (("one", 1), ("many", 5), ("others", 2)):
            self.fill(count, job=job, priority=count)
        self.fill(1, job="many", priority=9)
        self.finish(self.take(limit=1))
        self.store.define_jobs([], release="r1", complete=True, retire_after=HOUR)
        assert {"one": 1, "many": 5} == self.store.pending_of(["none", "one", "many", "unknown"])
        assert {} == self.store.pending_of([])

    def test_a_retired_job_stops_for_good(self) -> None:
        self.define()
        plan = self.plan(minute(1))
        assert self.store.retire("job", by="ann", why="")
        self.clock.advance(HOUR)
        assert () == self.store.look().jobs
        assert self.store.look().next_job is None
        assert self.view().next_due is None
        assert START == self.view().retired_at
        assert self.firing() is None
        assert [False] == carry_out(self.store, [plan])
        assert [] == self.all()

    def test_retiring_twice_or_nothing_does_nothing(self) -> None:
        self.define()
        assert self.store.retire("job", by="ann", why="")
        before = self.snapshot()
        assert not self.store.retire("nobody", by="ann", why="")
        assert before == self.snapshot()
        view = self.view()
        assert not self.store.retire("job", by="ann", why="")
        assert view == self.view()

    def test_retiring_what_a_release_dropped_says_in_the_trail_that_it_is_meant(self) -> None:
        self.define()
        self.store.define_jobs([], release="r2", complete=True, by="node")
        assert not self.store.retire("job", by="ann", why="moved away")
        meant, dropped = self.store.trail(target="job")
        assert ("ann", "retire", "moved away") == (meant.by, meant.action, meant.why)
        assert ("define", "retired") == (dropped.action, dropped.details["did"])

    def test_retiring_a_job_cancels_pending_work_and_leaves_runs_going(self) -> None:
        self.queue()
        self.session()
        running, waiting = self.fill(2)
        claim = self.take(limit=1)
        self.store.retire("queue", by="ann", why="")
        assert (State.CANCELLED, Reason.RETIRED) == (self.look(waiting).state, self.look(waiting).reason)
        assert State.RUNNING is self.look(running).state
        assert not self.look(running).cancel_requested
        assert self.finish(claim).accepted

    def test_runs_of_a_retired_job_may_be_retried_and_taken_over(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.store.retire("queue", by="ann", why="")
        assert State.PENDING is self.finish(claim, State.PENDING).state
        again = self.take()
        self.lease_out()
        assert [State.PENDING] == [taken.became for taken in self.store.reclaim()]
        self.session("s2")
        assert again.id == self.take("s2").id

    # --- a release that lacks a job: what waits is kept for a while -------------------------------------------------

    def release_without_jobs(self, retire_after: timedelta) -> None:
        self.store.define_jobs([], release="r2", complete=True, retire_after=retire_after)

    def test_release_that_lacks_a_job_keeps_what_waits_until_prune_cancels_it(self) -> None:
        self.queue()
        waiting = self.enqueue()
        self.release_without_jobs(HOUR)
        assert START == self.view("queue").retired_at
        assert START + HOUR == self.view("queue").waiting_until
        assert State.PENDING is self.look(waiting).state
        self.clock.advance(HOUR - SECOND)
        self.store.prune()
        assert State.PENDING is self.look(waiting).state
        self.clock.advance(SECOND)
        self.store.prune()
        assert (State.CANCELLED, Reason.RETIRED) == (self.look(waiting).state, self.look(waiting).reason)
        assert self.view("queue").waiting_until is None

    def test_claim_given_back_after_its_job_went_is_kept_as_long_as_what_waited(self) -> None:
        self.queue()
        self.session(release="r2", lease=DAY)
        self.enqueue()
        claim = self.take(lease=DAY)
        self.release_without_jobs(HOUR)
        assert [True] == give_back(self.store, [claim])
        self.clock.advance(HOUR)
        self.store.prune()
        assert (State.CANCELLED, Reason.RETIRED) == (self.look(claim).state, self.look(claim).reason)

    def test_release_that_lacks_a_job_cancels_what_waits_at_once_if_it_is_kept_for_no_time(self) -> None:
        self.queue()
        waiting = self.enqueue()
        self.release_without_jobs(timedelta(0))
        assert State.CANCELLED is self.look(waiting).state
        assert self.view("queue").waiting_until is None

    def test_job_that_is_declared_again_has_its_waiting_work(self) -> None:
        self.queue()
        waiting = self.enqueue()
        self.release_without_jobs(HOUR)
        self.clock.advance(MINUTE)
        self.queue()
        assert self.view("queue").waiting_until is None
        self.clock.advance(HOUR)
        self.store.prune()
        self.session()
        assert waiting.id == self.take().id

    def test_node_that_has_the_function_may_claim_what_is_kept_of_a_retired_job(self) -> None:
        self.queue()
        waiting = self.enqueue()
        self.release_without_jobs(HOUR)
        self.session()
        assert waiting.id == self.take().id

    def test_retiring_a_retired_job_by_hand_cancels_what_is_kept(self) -> None:
        self.queue()
        waiting = self.enqueue()
        self.release_without_jobs(HOUR)
        assert self.store.retire("queue", by="ann", why="gone for good")
        assert (State.CANCELLED, Reason.RETIRED) == (self.look(waiting).state, self.look(waiting).reason)
        assert START == self.view("queue").retired_at

    def test_undecided_times_before_a_retirement_are_one_missed_range(self) -> None:
        self.define()
        self.clock.advance(MINUTE)
        self.fire(minute(1))
        self.clock.advance(3 * MINUTE + SECOND)
        self.store.retire("job", by="ann", why="")
        written = [ledger_range.range for ledger_range in self.store.ranges("job")]
        assert [VerdictRange(minute(2), minute(4), State.MISSED, Reason.RETIRED, 3)] == written
        assert minute(4) == self.view().watermark

    def test_a_retirement_that_owes_nothing_writes_no_range(self) -> None:
        self.define()
        self.clock.advance(59)
        self.store.retire("job", by="ann", why="")
        assert [] == self.store.ranges("job")
        assert START == self.view().watermark

    def test_undecided_times_across_a_changed_trigger_are_still_one_range(self) -> None:
        self.define()
        self.clock.advance(2 * MINUTE)
        self.define(self.job(trigger=every("30s", start=START)))
        self.clock.advance(MINUTE)
        self.store.retire("job", by="ann", why="")
        written = [ledger_range.range for ledger_range in self.store.ranges("job")]
        assert [VerdictRange(minute(1), minute(3), State.MISSED, Reason.RETIRED, 4)] == written

    def test_after_a_clock_that_was_set_back_a_retirement_leaves_nothing_undecided(self) -> None:
        self.define()
        self.clock.advance(5 * MINUTE)
        self.define(self.job(trigger=every("30s", start=START)))
        self.clock.step(-4 * MINUTE)
        self.store.retire("job", by="ann", why="")
        written = [ledger_range.range for ledger_range in self.store.ranges("job")]
        assert [VerdictRange(minute(1), minute(5), State.MISSED, Reason.RETIRED, 5)] == written
        assert minute(5) == self.view().watermark
        assert [START, minute(5), minute(5)] == [era.since for era in self.store.history("job").eras]
        self.clock.advance(2 * MINUTE)
        self.define()
        assert (minute(5), minute(6)) == (self.view().watermark, self.view().next_due)

    def test_the_era_of_a_retired_job_has_no_trigger(self) -> None:
        self.define()
        self.clock.advance(SECOND)
        self.store.retire("job", by="ann", why="")
        first, second = self.store.history("job").eras
        assert (EVERY_MINUTE, None) == (first.trigger, second.trigger)
        assert START + SECOND == second.since

    def test_a_job_that_is_defined_again_comes_back(self) -> None:
        self.define()
        self.store.retire("job", by="ann", why="")
        self.clock.advance(HOUR + SECOND)
        assert () == self.define().unchanged
        view = self.view()
        assert view.retired_at is None
        assert minute(61) == view.next_due
        assert ["job"] == [job.spec.name for job in self.store.jobs()]

    def test_times_while_a_job_was_retired_are_not_caught_up(self) -> None:
        self.define(self.job(catch_up="all"))
        self.store.retire("job", by="ann", why="")
        self.clock.advance(HOUR + SECOND)
        self.define(self.job(catch_up="all"))
        assert START + HOUR + SECOND == self.view().watermark
        assert () == self.store.look().jobs
        assert [EVERY_MINUTE, None, EVERY_MINUTE] == [era.trigger for era in self.store.history("job").eras]

    def test_coming_back_never_lowers_the_watermark(self) -> None:
        self.define()
        self.clock.advance(MINUTE)
        self.fire(minute(1))
        self.store.retire("job", by="ann", why="")
        self.clock.step(-HOUR)
        self.define()
        assert minute(1) == self.view().watermark
        assert minute(2) == self.view().next_due

    def test_a_one_off_that_comes_back_does_not_run_again(self) -> None:
        once = self.job(trigger=at(minute(1)))
        self.define(once)
        self.clock.advance(MINUTE)
        self.round()
        self.store.retire("job", by="ann", why="")
        self.define(dataclasses.replace(once, args=(1,)))
        assert self.view().next_due is None
        assert () == self.store.look().jobs

    def test_a_plan_made_before_a_job_went_and_came_back_is_lost(self) -> None:
        self.define()
        plan = self.plan(minute(1))
        self.store.retire("job", by="ann", why="")
        self.define()
        assert [False] == carry_out(self.store, [plan])
        assert [] == self.all()

    def test_a_retired_job_keeps_its_occurrences_and_ledger(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fire(minute(1), verdicts=[VerdictRange(minute(2), minute(3), State.SKIPPED, Reason.OVERLAP, 2)])
        self.clock.advance(MINUTE)
        claim = self.take()
        self.finish(claim)
        ranges = self.store.ranges("job")
        self.store.retire("job", by="ann", why="")
        assert State.SUCCEEDED is self.look(claim).state
        assert ranges == self.store.ranges("job")
        assert self.store.renew("s1", lease=LEASE).alive
