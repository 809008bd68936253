"""Pruning: what is deleted can still never run again."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import pytest

from cronsensus.errors import OccurrenceTooOld
from cronsensus.model.occurrence import LogLine, Note
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.planning import plan as plan_of
from cronsensus.testing.conformance.scene import DAY, HOUR, LEASE, MINUTE, SECOND, START, Scene, minute


class Pruning(Scene):
    """Hazards of pruning: the proof goes, and with it the knowledge that something ran."""

    def ran(self, *numbers: int, job: str = "job") -> None:
        """Fire these minutes of a job and see each succeed."""
        self.session("runner", lease=100 * DAY)
        self.fire(*(minute(number) for number in numbers), job=job)
        self.clock.advance(minute(max(numbers)) - self.clock.now())
        for _ in numbers:
            self.finish(self.take("runner", limit=1, functions=[job], lease=100 * DAY))
        self.store.close_session("runner")

    # --- what goes --------------------------------------------------------------------------------------------------

    def test_final_occurrences_go_with_their_runs_and_logs(self) -> None:
        self.queue()
        self.session()
        self.enqueue("key")
        claim = self.take()
        self.store.note([Note(claim.id, claim.token, None, (LogLine(START, "info", "x"),))])
        self.finish(claim)
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        assert self.store.occurrence(claim.id) is None
        assert not any([self.store.runs(claim.id), self.store.logs(claim.id), self.all()])

    def test_only_what_ended_before_the_given_time_goes(self) -> None:
        self.queue()
        self.session(lease=DAY)
        for _ in range(3):
            self.done(lease=DAY)
            self.clock.advance(MINUTE)
        assert 1 == self.store.prune(START + MINUTE)
        assert [minute(1), minute(2)] == [one.finished_at for one in self.all()]

    def test_when_it_ended_counts_and_not_when_it_was_made(self) -> None:
        self.queue()
        self.enqueue()
        self.clock.advance(DAY)
        self.session()
        self.finish(self.take())
        assert 0 == self.store.prune(START + HOUR)

    def test_what_is_not_final_stays_however_old(self) -> None:
        self.queue()
        self.session(lease=1000 * DAY)
        self.fill(2)
        self.take(limit=1, lease=1000 * DAY)
        self.clock.advance(100 * DAY)
        assert 0 == self.store.prune(self.store.now()) == self.store.prune()
        assert [State.RUNNING, State.PENDING] == [one.state for one in self.all()]

    def test_by_default_every_job_keeps_as_long_as_it_says(self) -> None:
        self.queue("short", keep="1d")
        self.queue("long", keep="3d")
        self.session(lease=10 * DAY)
        for name in ("short", "long"):
            self.done(job=name, lease=10 * DAY)
        assert 0 == self.store.prune()
        self.clock.advance(2 * DAY)
        assert 1 == self.store.prune()
        assert ["long"] == [one.job for one in self.all()]
        self.clock.advance(2 * DAY)
        assert 1 == self.store.prune()

    def test_what_had_to_stay_goes_when_its_time_has_come(self) -> None:
        """Whoever remembers when to look next must not forget what ends, or is old enough, sooner than that."""
        self.queue("short", keep="1m")
        self.session(lease=DAY)
        self.enqueue("slow", job="short")
        slow = self.take(limit=1, functions=["short"], lease=DAY)
        self.done(job="short", lease=DAY)
        self.clock.advance(MINUTE)
        assert 0 == self.store.prune()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune()
        self.finish(slow)
        self.clock.advance(MINUTE)
        assert 0 == self.store.prune()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune()

    def test_a_given_time_goes_over_what_jobs_say(self) -> None:
        self.queue(keep="300d")
        self.session()
        self.done()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())

    def test_verdicts_go_when_their_last_time_is_before_the_given_time(self) -> None:
        self.define()
        self.clock.advance(HOUR)
        ranges = [
            VerdictRange(minute(1), minute(2), State.SKIPPED, Reason.OVERLAP, 2),
            VerdictRange(minute(3), minute(9), State.MISSED, Reason.LATE, None),
        ]
        self.fire(verdicts=ranges)
        assert 1 == self.store.prune(minute(5))
        assert [ranges[1]] == [one.range for one in self.store.ranges("job")]
        assert minute(2) == self.view().horizon

    def test_no_call_deletes_more_than_its_limit(self) -> None:
        self.define(self.job(overlap="allow"))
        self.ran(*range(1, 8))
        self.clock.advance(HOUR)
        self.fire(verdicts=[VerdictRange(minute(8), minute(8), State.SKIPPED, Reason.OVERLAP, 1)])
        now = self.store.now()
        assert [3, 3, 2, 0] == [self.store.prune(now, limit=3) for _ in range(4)]
        assert not any([self.all(), self.store.ranges("job")])

    def test_retired_jobs_are_pruned_too_and_stay_known(self) -> None:
        self.define()
        self.ran(1)
        self.store.retire("job", by="ann", why="")
        self.clock.advance(100 * DAY)
        assert 1 == self.store.prune()
        assert (minute(1), minute(1)) == (self.view().watermark, self.view().horizon)

    def test_ended_sessions_go_after_a_day(self) -> None:
        self.session("old")
        self.store.close_session("old")
        self.clock.advance(DAY - HOUR)
        self.session("young", lease=10 * DAY)
        self.store.reclaim(["young"])
        self.session("lives", lease=10 * DAY)
        self.clock.advance(2 * HOUR)
        assert 0 == self.store.prune()
        assert {"young", "lives"} == {one.id for one in self.store.sessions(ended=True)}

    def test_runs_outlive_the_session_that_made_them(self) -> None:
        self.queue()
        self.session()
        done = self.done()
        self.store.close_session("s1")
        self.clock.advance(2 * DAY)
        self.store.prune()
        assert [] == self.store.sessions(ended=True)
        assert ("s1", "node of s1") == (self.look(done.id).session, self.runs(done.id)[0].node)

    # --- what can still never run again -----------------------------------------------------------------------------

    def test_the_horizon_rises_to_the_latest_nominal_time_deleted(self) -> None:
        self.define(self.job(overlap="allow"))
        assert self.view().horizon is None
        self.ran(1, 2, 3)
        self.clock.advance(SECOND)
        assert 2 == self.store.prune(self.store.now(), limit=2)
        horizon = self.view().horizon
        assert horizon in {minute(2), minute(3)}
        assert 1 == self.store.prune(self.store.now())
        assert minute(3) == self.view().horizon

    def test_the_horizon_never_sinks(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session("runner", lease=DAY)
        self.fire(minute(1), minute(2))
        self.clock.advance(2 * MINUTE)
        first, second = self.claim("runner", lease=DAY)
        self.finish(second)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        assert minute(2) == self.view().horizon
        self.finish(first)
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        assert minute(2) == self.view().horizon

    def test_work_without_a_nominal_time_raises_no_horizon(self) -> None:
        self.queue()
        self.session()
        self.done()
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        assert self.view("queue").horizon is None

    def test_the_watermark_stays_where_it_is(self) -> None:
        self.define()
        self.ran(1)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        assert (minute(1), minute(2)) == (self.view().watermark, self.view().next_due)

    def test_a_replica_that_slept_until_everything_was_pruned_repeats_nothing(self) -> None:
        self.define(self.job(overlap="allow"))
        self.clock.advance(MINUTE)
        glance = self.store.due()
        asleep = [plan_of(job, glance.now) for job in glance.jobs]
        self.ran(1)
        self.clock.advance(100 * DAY)
        assert 1 == self.store.prune()
        assert [False] == self.store.fire(asleep)
        assert [] == self.all()

    def test_what_was_pruned_cannot_be_acquired_or_backfilled(self) -> None:
        self.define()
        self.ran(1, 3)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        self.session("late", lease=HOUR)
        for time in (minute(1), minute(2), minute(3)):
            with pytest.raises(OccurrenceTooOld):
                self.store.acquire("late", "job", scheduled_for=time, lease=LEASE)
            with pytest.raises(OccurrenceTooOld):
                self.store.backfill("job", [time], by="ann")
        assert [] == self.all()

    def test_what_was_backfilled_ahead_of_its_time_does_not_run_again_after_pruning(self) -> None:
        self.define()
        self.session(lease=DAY)
        self.store.backfill("job", [minute(2)], by="ann")
        self.finish(self.take(lease=DAY))
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        self.clock.advance(HOUR)
        self.fire(minute(1), minute(2), minute(3))
        claims = [self.take(lease=DAY)]
        self.finish(claims[0])
        claims.append(self.take(lease=DAY))
        assert [minute(1), minute(3)] == [claim.scheduled_for for claim in claims]

    def test_ids_and_tokens_of_what_was_pruned_are_given_to_nobody_else(self) -> None:
        self.queue()
        self.session(lease=DAY)
        old = self.done()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        new = self.done()
        assert old.id < new.id
        assert old.token < new.token

    def test_a_result_for_what_was_pruned_is_refused(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.finish(claim)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        answer = self.finish(claim)
        assert (False, None) == (answer.accepted, answer.state)
