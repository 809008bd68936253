"""Firing: a plan is carried out whole and once, or not at all; and looking at what is due."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobState
from cronsensus.model.occurrence import OccurrenceFilter, scheduled_key
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Origin, Reason, State
from cronsensus.planning import plan as plan_of
from cronsensus.stores.values import Partition
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
from cronsensus.testing.conformance.steps import carry_out
from cronsensus.triggers import every

MICROSECOND = timedelta(microseconds=1)
SHORTLY = timedelta(milliseconds=20)
SKIPPED = VerdictRange(minute(1), minute(3), State.SKIPPED, Reason.OVERLAP, 3)


class Firing(StoreTest):
    """Hazards of firing: two nodes that decide the same nominal time, and one that comes an hour late."""

    # --- a plan that wins -------------------------------------------------------------------------------------------

    def test_a_plan_makes_its_occurrences(self) -> None:
        self.define(self.job(args=(1,), kwargs={"a": "b"}, priority=5))
        assert [True] == carry_out(self.store, [self.plan(minute(1), minute(2), delay=SECOND, expires_in=MINUTE)])
        first, second = self.all()
        assert (scheduled_key(minute(1)), scheduled_key(minute(2))) == (first.key, second.key)
        assert (minute(1), minute(1) + SECOND) == (first.scheduled_for, first.due_at)
        assert (State.PENDING, Origin.SCHEDULE, 5) == (first.state, first.origin, first.priority)
        assert ((1,), {"a": "b"}) == (first.args, first.kwargs)
        assert (0, 0, 0) == (first.attempt, first.crashes, first.failures)
        assert first.id < second.id
        assert START == first.created_at

    def test_a_plan_moves_the_watermark_and_the_next_due_time(self) -> None:
        self.define()
        self.fire(minute(1), minute(2))
        assert minute(2) == self.view().watermark
        assert minute(3) == self.view().next_due == self.store.look().next_job

    def test_a_plan_writes_its_verdicts(self) -> None:
        self.define()
        self.clock.advance(HOUR)
        uncounted = VerdictRange(minute(4), minute(50), State.MISSED, Reason.BEYOND_WINDOW, None)
        self.fire(verdicts=[SKIPPED, uncounted])
        first, second = self.store.ranges("job")
        assert [SKIPPED, uncounted] == [first.range, second.range]
        assert ("job", START + HOUR) == (first.job, first.decided_at)
        assert first.id < second.id
        assert minute(50) == self.view().watermark
        assert [] == self.all()

    def test_a_plan_may_end_the_schedule(self) -> None:
        self.define(self.job(trigger=every("1m", start=START, end=minute(1))))
        self.clock.advance(MINUTE)
        assert [True] == self.round()
        assert self.view().next_due is None
        self.clock.advance(DAY)
        assert () == self.store.look().jobs

    def test_nominal_times_keep_their_microseconds(self) -> None:
        odd = timedelta(microseconds=333_333)
        self.define(self.job(trigger=every(odd, start=START)))
        self.fire(START + odd, START + 2 * odd)
        assert [START + odd, START + 2 * odd] == self.nominal()
        assert START + 3 * odd == self.view().next_due

    def test_a_plan_may_have_as_many_occurrences_as_planning_makes(self) -> None:
        self.define(self.job(trigger=every("1s", start=START), catch_up="all", overlap="queue"))
        self.clock.advance(1500)
        assert [True] == self.round()
        assert 1000 == len(self.all())
        assert [True] == self.round()
        assert [START + number * SECOND for number in range(1, 1501)] == self.nominal()

    def test_many_plans_are_carried_out_in_one_call(self) -> None:
        names = [f"job {number:03}" for number in range(100)]
        self.define(*(self.job(name) for name in names))
        self.clock.advance(MINUTE)
        now = self.store.now()
        assert [True] * 100 == carry_out(self.store, [plan_of(self.planned(name), now) for name in names])
        assert 100 == len(self.all(scheduled_from=minute(1), scheduled_until=minute(1)))

    def test_a_plan_that_decides_nothing_only_says_when_to_look_again(self) -> None:
        self.define()
        plan = replace(self.plan(watermark=START), next_due=minute(5))
        assert [True] == carry_out(self.store, [plan])
        assert (START, minute(5)) == (self.view().watermark, self.view().next_due)
        assert minute(5) == self.store.look().next_job
        assert [] == self.all()

    def test_firing_nothing_is_nothing(self) -> None:
        assert [] == carry_out(self.store, [])

    # --- a plan that loses ------------------------------------------------------------------------------------------

    def test_the_same_plan_wins_once(self) -> None:
        self.define()
        plan = self.plan(minute(4), verdicts=[SKIPPED])
        assert [True] == carry_out(self.store, [plan])
        before = self.snapshot()
        assert [False] == carry_out(self.sibling(), [plan])
        assert [False] == carry_out(self.store, [plan])
        assert before == self.snapshot()

    def test_a_plan_made_on_an_older_watermark_loses_whole(self) -> None:
        self.define(self.job(overlap="cancel_previous"))
        stale = self.plan(minute(1), minute(2), verdicts=[SKIPPED], cancel_previous=True)
        self.fire(minute(1))
        stale = replace(stale, active_seen=1)
        before = self.snapshot()
        assert [False] == carry_out(self.store, [stale])
        assert before == self.snapshot()

    def test_a_plan_that_reaches_beyond_the_watermark_still_loses_on_an_older_one(self) -> None:
        self.define(self.job(overlap="allow"))
        slow = self.plan(minute(1), minute(2), minute(3))
        self.fire(minute(1), minute(2))
        assert [False] == carry_out(self.store, [slow])
        assert [minute(1), minute(2)] == self.nominal()

    def test_a_plan_made_on_an_older_revision_loses_whole(self) -> None:
        self.define()
        stale = self.plan(minute(4), verdicts=[SKIPPED])
        self.define(self.job(trigger=every("1h", start=START)))
        before = self.snapshot()
        assert [False] == carry_out(self.store, [stale])
        assert before == self.snapshot()

    def test_a_plan_made_on_another_definition_of_the_same_revision_loses_whole(self) -> None:
        # A store that forgot a revision gives its number again, to another definition.
        self.define()
        planned = self.plan(minute(4), verdicts=[SKIPPED])
        lost = replace(planned, definition=self.planned().definition + "x")
        before = self.snapshot()
        assert [False] == carry_out(self.store, [lost])
        assert before == self.snapshot()
        assert [True] == carry_out(self.store, [replace(lost, definition=self.planned().definition)])

    def test_the_definition_that_a_plan_rests_on_is_another_one_after_each_change(self) -> None:
        self.define()
        seen = [self.planned().definition]
        hourly = self.job(trigger=every("1h", start=START))
        for spec in (hourly, self.job(), hourly):
            self.clock.advance(1)
            self.define(spec)
            seen.append(self.planned().definition)
        assert len(set(seen)) == len(seen)

    def test_a_plan_that_saw_another_number_of_active_occurrences_loses_whole(self) -> None:
        self.define()
        stale = self.plan(minute(4), verdicts=[SKIPPED])
        self.store.trigger("job", by="ann")
        before = self.snapshot()
        assert [False] == carry_out(self.store, [stale])
        assert before == self.snapshot()
        assert [True] == carry_out(self.store, [replace(stale, active_seen=1)])

    def test_a_plan_for_a_paused_job_loses_whole(self) -> None:
        self.define()
        stale = self.plan(minute(4), verdicts=[SKIPPED])
        self.store.pause("job", by="ann", why="")
        before = self.snapshot()
        assert [False] == carry_out(self.store, [stale])
        assert before == self.snapshot()

    def test_a_plan_for_a_retired_job_loses_whole(self) -> None:
        self.define()
        stale = self.plan(minute(4), verdicts=[SKIPPED])
        self.store.retire("job", by="ann", why="")
        before = self.snapshot()
        assert [False] == carry_out(self.store, [replace(stale, revision=self.view().revision)])
        assert before == self.snapshot()

    def test_a_plan_for_a_job_that_is_not_there_is_lost(self) -> None:
        self.define()
        assert [False] == carry_out(self.store, [replace(self.plan(minute(1)), job_id=987_654)])
        assert [] == self.all()

    def test_a_plan_that_would_move_the_watermark_back_loses_whole(self) -> None:
        self.define()
        self.fire(minute(1), minute(2))
        before = self.snapshot()
        back = self.plan(watermark=minute(1))
        assert back.watermark < back.watermark_seen
        assert [False] == carry_out(self.store, [back])
        assert before == self.snapshot()
        assert [True] == carry_out(self.store, [replace(back, watermark=back.watermark_seen)])

    def test_plans_win_and_lose_each_for_itself(self) -> None:
        self.define(self.job("a"), self.job("b"), self.job("c"))
        plans = [self.plan(minute(1), job=name) for name in ("a", "b", "c")]
        self.store.pause("b", by="ann", why="")
        assert [True, False, True] == carry_out(self.store, plans)
        assert ["a", "c"] == [one.job for one in self.all()]

    def test_of_two_plans_for_one_job_in_one_call_the_first_wins(self) -> None:
        self.define(self.job(overlap="allow"))
        assert [True, False] == carry_out(self.store, [self.plan(minute(1)), self.plan(minute(1), minute(2))])
        assert [minute(1)] == self.nominal()

    def test_a_replica_that_slept_for_an_hour_repeats_nothing(self) -> None:
        self.define(self.job(overlap="allow"))
        self.clock.advance(MINUTE)
        asleep = [plan_of(job, self.store.look().now) for job in self.store.look().jobs]
        for _ in range(60):
            self.round()
            self.clock.advance(MINUTE)
        before = self.snapshot()
        assert [False] == carry_out(self.store, asleep)
        assert before == self.snapshot()
        assert [minute(number) for number in range(1, 61)] == self.nominal()

    # --- occurrences that stand already -----------------------------------------------------------------------------

    def test_an_occurrence_backfilled_ahead_of_its_time_is_not_fired_again(self) -> None:
        self.define()
        self.session()
        self.store.backfill("job", [minute(1)], by="ann")
        self.take()
        self.fire(minute(1), minute(2))
        assert [minute(1), minute(2)] == self.nominal()
        assert [State.RUNNING, State.PENDING] == [one.state for one in self.all()]

    # --- cancel_previous --------------------------------------------------------------------------------------------

    def test_a_plan_may_cancel_the_earlier_ones(self) -> None:
        self.define(self.job(overlap="cancel_previous"))
        self.session()
        self.fire(minute(1), minute(2))
        self.clock.advance(2 * MINUTE)
        self.session("s2")
        running = self.take("s2")
        self.fire(minute(3), cancel_previous=True)
        first, second, third = self.all()
        assert (State.RUNNING, True) == (first.state, first.cancel_requested)
        assert (State.CANCELLED, Reason.REPLACED) == (second.state, second.reason)
        assert second.finished_at == START + 2 * MINUTE
        assert (State.PENDING, False) == (third.state, third.cancel_requested)
        assert {running.id: Reason.REPLACED} == self.store.renew("s2", lease=LEASE).cancel

    def test_cancelling_the_earlier_ones_leaves_enqueued_work(self) -> None:
        self.define(self.job(overlap="cancel_previous"))
        self.session()
        queued = self.enqueue(job="job")
        self.fire(minute(1), cancel_previous=True)
        assert State.PENDING is self.look(queued).state

    # --- the clock --------------------------------------------------------------------------------------------------

    def test_a_clock_that_steps_back_repeats_nothing(self) -> None:
        self.define(self.job(overlap="allow"))
        for _ in range(3):
            self.clock.advance(MINUTE)
            self.round()
        self.clock.step(-2 * MINUTE)
        for _ in range(2):
            assert [] == self.round()
            self.clock.advance(MINUTE)
        assert [minute(1), minute(2), minute(3)] == self.nominal()
        self.clock.advance(MINUTE)
        self.round()
        assert [minute(1), minute(2), minute(3), minute(4)] == self.nominal()

    def test_a_clock_that_steps_ahead_is_a_downtime(self) -> None:
        self.define()
        self.clock.step(3 * MINUTE)
        assert [True] == self.round()
        assert [minute(3)] == self.nominal()
        assert [VerdictRange(minute(1), minute(2), State.SKIPPED, Reason.COALESCED, 2)] == [
            ledger_range.range for ledger_range in self.store.ranges("job")
        ]


class Looking(StoreTest):
    """Hazards of looking: a node that sleeps through something because ``due`` did not tell."""

    def test_an_empty_store_shows_nothing(self) -> None:
        view = self.store.look()
        assert START == view.now
        assert ((), False, None) == (view.jobs, view.more, view.next_job)
        assert (False, None) == (view.backlog, view.next_pending)
        assert ((), ()) == (view.holders, view.sessions)

    def test_looking_writes_nothing(self) -> None:
        self.define()
        self.queue()
        self.enqueue(expires_in=SECOND)
        self.session()
        self.clock.advance(HOUR)
        before = self.snapshot()
        assert self.store.look() == self.sibling().look()
        assert before == self.snapshot()

    def test_a_job_is_due_from_its_next_due_time_on(self) -> None:
        self.define()
        self.clock.advance(MINUTE - timedelta(microseconds=1))
        assert () == self.store.look().jobs
        assert minute(1) == self.store.look().next_job
        self.clock.advance(timedelta(microseconds=1))
        assert ["job"] == [job.spec.name for job in self.store.look().jobs]

    def test_a_due_job_is_shown_as_planning_needs_it(self) -> None:
        self.define(self.job(args=(1,), overlap="queue"))
        self.store.trigger("job", by="ann")
        self.clock.advance(MINUTE)
        self.define(self.job(args=(2,), overlap="queue"))
        self.store.pause("job", by="ann", why="")
        self.clock.advance(SECOND)
        self.store.resume("job", by="ann")
        shown = self.store.look().jobs[0]
        assert self.planned() == shown
        assert isinstance(shown, JobState)
        assert (START, 1, (2,)) == (shown.watermark, shown.active, shown.spec.args)
        assert [EVERY_MINUTE, EVERY_MINUTE] == [era.trigger for era in shown.eras]
        assert [(minute(1), minute(1) + SECOND)] == [(pause.start, pause.end) for pause in shown.pauses]

    def test_the_most_overdue_job_comes_first(self) -> None:
        for name, start in (("third", 3), ("first", 1), ("second", 2)):
            self.define(self.job(name, trigger=every("1h", start=minute(start))))
        self.clock.advance(10 * MINUTE)
        assert ["first", "second", "third"] == [job.spec.name for job in self.store.look().jobs]

    def test_more_jobs_than_asked_for_are_announced(self) -> None:
        for number in range(5):
            self.define(self.job(str(number)))
        self.clock.advance(MINUTE)
        for limit, more in ((4, True), (5, False), (6, False)):
            view = self.store.look(limit=limit)
            assert (min(limit, 5), more) == (len(view.jobs), more)
            assert more == view.more

    def test_jobs_that_came_due_last_do_not_wait_for_all_before_them(self) -> None:
        names = [f"{number:02}" for number in range(20)]
        for number, name in enumerate(names):
            self.define(self.job(name, trigger=every("1h", start=minute(number + 1))))
        self.clock.advance(20 * MINUTE)
        for limit, newest in ((3, 0), (4, 1), (8, 2), (19, 4)):
            seen = [job.spec.name for job in self.store.look(limit=limit).jobs]
            assert [*names[: limit - newest], *names[20 - newest :]] == seen
        assert names == [job.spec.name for job in self.store.look(limit=20).jobs]

    def test_each_due_job_is_in_one_partition(self) -> None:
        for number in range(40):
            self.define(self.job(str(number)))
        self.clock.advance(MINUTE)
        every_one = {job.spec.name for job in self.store.look(limit=40).jobs}
        assert 40 == len(every_one)
        for of in (1, 2, 3, 4):
            looks = [self.store.look(limit=40, partition=Partition(place, of)) for place in range(of)]
            assert not any(look.more for look in looks)
            partitions = [{job.spec.name for job in look.jobs} for look in looks]
            assert 40 == sum(map(len, partitions))
            assert every_one == set().union(*partitions)
            assert min(map(len, partitions)) >= 40 // of // 2, "partitions of very different size"
            for place, mine in enumerate(partitions):
                fewer = self.store.look(limit=4, partition=Partition(place, of))
                assert fewer.more
                assert 4 == len({job.spec.name for job in fewer.jobs} & mine)

    def test_a_job_stays_in_its_partition(self) -> None:
        for number in range(9):
            self.define(self.job(str(number)))
        self.clock.advance(MINUTE)
        before = [
            {job.spec.name for job in self.store.look(limit=9, partition=Partition(place, 3)).jobs}
            for place in range(3)
        ]
        gone = self.store.look(limit=9, partition=Partition(0, 3)).jobs[0]
        assert [True] == carry_out(self.store, [plan_of(gone, self.store.now())])
        after = [
            {job.spec.name for job in self.store.look(limit=9, partition=Partition(place, 3)).jobs}
            for place in range(3)
        ]
        assert [mine - {gone.spec.name} for mine in before] == after

    def test_a_partition_hides_only_the_due_jobs_of_others(self) -> None:
        self.define(
            self.job("due"), self.job("later", trigger=every("10m", start=START)), self.job("queue", trigger=None)
        )
        self.enqueue(job="queue")
        self.session()
        self.clock.advance(MINUTE)
        looks = [self.store.look(limit=100, partition=Partition(place, 2)) for place in range(2)]
        assert [0, 1] == sorted(len(look.jobs) for look in looks)
        assert [self.store.look()] * 2 == [replace(look, jobs=self.store.look().jobs) for look in looks]

    def test_the_next_job_is_the_earliest_still_to_come(self) -> None:
        self.define(self.job("due"), self.job("late", trigger=every("1h", start=START)))
        self.define(self.job("soon", trigger=every("10m", start=START)))
        self.clock.advance(MINUTE)
        assert minute(10) == self.store.look().next_job

    def test_the_next_job_comes_later_than_the_look_goes_ahead_also_where_more_come_than_it_shows(self) -> None:
        self.define(*(self.job(f"{number}", trigger=every("1h", start=minute(number))) for number in range(1, 7)))
        self.clock.advance(2 * MINUTE)
        for limit in (1, 3, 4, 5, 40):
            for ahead in (2 * MINUTE, 3 * MINUTE - MICROSECOND):
                view = self.store.look(limit=limit, ahead=ahead)
                assert (minute(5), limit < 4) == (view.next_job, view.more)
            assert minute(6) == self.store.look(limit=limit, ahead=3 * MINUTE).next_job
            assert self.store.look(limit=limit, ahead=4 * MINUTE).next_job is None

    def test_a_look_shows_what_is_due_soon_and_the_next_job_however_many_come(self) -> None:
        self.define(*(self.job(f"{number}", trigger=every("1h", start=minute(number))) for number in range(1, 21)))
        for passed, then in ((0, 15), (0, 16), (0, 17), (0, 20), (1, 0), (1, 9), (1, 15), (15, 1), (16, 0), (20, 0)):
            self.clock.advance(minute(passed) - self.clock.now())
            view = self.store.look(ahead=then * MINUTE)
            assert [f"{number}" for number in range(1, passed + then + 1)] == [job.spec.name for job in view.jobs]
            assert (minute(passed + then + 1) if passed + then < 20 else None, False) == (view.next_job, view.more)
        assert (16, True) == (len(self.store.look(limit=16).jobs), self.store.look(limit=16).more)

    def test_jobs_are_seen_before_they_are_due(self) -> None:
        self.define(self.job("second", trigger=every("1h", start=minute(2))), self.job("first"))
        self.define(self.job("paused"), self.job("none", trigger=None))
        self.store.pause("paused", by="ann", why="")
        assert [] == self.ahead(minute(1) - timedelta(microseconds=1))
        assert ["first"] == [job.spec.name for job in self.ahead(minute(1))]
        assert ["first", "second"] == [job.spec.name for job in self.ahead(minute(2))]
        assert ["first"] == [job.spec.name for job in self.store.look(limit=1, ahead=2 * MINUTE).jobs]
        assert () == self.store.look().jobs
        self.clock.advance(MINUTE)
        view = self.store.look(ahead=MINUTE)
        assert ["first", "second"] == [job.spec.name for job in view.jobs]
        assert [minute(1), minute(2)] == [job.due_at for job in view.jobs]
        assert ["first"] == [job.spec.name for job in view.due]
        assert view.next_job is None
        with pytest.raises(InvalidOption, match="a look goes forward"):
            self.store.look(ahead=-MINUTE)

    def test_of_many_due_jobs_a_look_ahead_shows_the_last_that_are_due_and_not_the_next(self) -> None:
        for number in range(1, 9):
            self.define(self.job(f"due {number}", trigger=every("1h", start=minute(number))))
        self.define(self.job("next", trigger=every("1h", start=minute(10))))
        self.clock.advance(9 * MINUTE)
        seen = [job.spec.name for job in self.store.look(limit=4, ahead=HOUR).jobs]
        assert ["due 1", "due 2", "due 3", "due 8"] == seen

    def test_a_plan_made_ahead_is_the_plan_made_in_time(self) -> None:
        self.define()
        ahead = plan_of(self.ahead(minute(1))[0], minute(1))
        self.clock.advance(MINUTE)
        assert plan_of(self.store.look().jobs[0], minute(1)) == ahead
        assert [True] == carry_out(self.store, [ahead])
        assert [False] == carry_out(self.store, [ahead])

    def test_a_plan_made_ahead_is_lost_before_its_time(self) -> None:
        self.define()
        ahead = replace(plan_of(self.ahead(minute(1))[0], minute(1)), not_before=minute(1))
        self.clock.advance(MINUTE - timedelta(microseconds=1))
        assert [False] == carry_out(self.store, [ahead])
        assert START == self.planned().watermark
        assert [] == self.store.occurrences(OccurrenceFilter())
        self.clock.advance(timedelta(microseconds=1))
        assert [True] == carry_out(self.store, [ahead])

    def test_paused_and_retired_jobs_are_not_waited_for(self) -> None:
        self.define(self.job("paused"), self.job("retired"))
        self.store.pause("paused", by="ann", why="")
        self.store.retire("retired", by="ann", why="")
        assert self.store.look().next_job is None
        self.clock.advance(HOUR)
        assert () == self.store.look().jobs

    def test_a_backlog_is_what_is_pending_and_due(self) -> None:
        self.queue()
        self.enqueue(delay=MINUTE)
        assert (False, minute(1)) == (self.store.look().backlog, self.store.look().next_pending)
        self.clock.advance(MINUTE)
        assert (True, None) == (self.store.look().backlog, self.store.look().next_pending)

    def test_a_backlog_shows_whether_or_not_it_can_be_claimed(self) -> None:
        self.queue(concurrency=1)
        self.session()
        self.fill(2)
        self.take()
        assert self.store.look().backlog

    def test_the_next_pending_is_the_earliest_still_to_come_whatever_its_priority(self) -> None:
        self.queue()
        for priority, minutes in ((0, 0), (9, 3), (-9, 2), (0, 5)):
            self.enqueue(priority=priority, delay=minutes * MINUTE)
        assert minute(2) == self.store.look().next_pending
        assert self.store.look().backlog

    def test_running_and_ended_occurrences_are_no_backlog(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        assert not self.store.look().backlog
        self.finish(claim, State.FAILED)
        assert not self.store.look().backlog

    def test_holders_are_the_sessions_that_hold_runs_also_overdue_ones(self) -> None:
        self.queue()
        self.fill(2)
        for name in ("s1", "s2", "idle"):
            self.session(name)
        self.take("s1", limit=1)
        claim = self.take("s2", limit=1)
        assert {"s1", "s2"} == {holder.id for holder in self.store.look().holders}
        self.lease_out()
        holders = {holder.id: holder for holder in self.store.look().holders}
        assert {"s1", "s2"} == set(holders)
        assert (4711, 99, "host") == (holders["s1"].pid, holders["s1"].pid_started, holders["s1"].host)
        assert holders["s1"].expires_in <= timedelta(0)
        self.finish(claim)
        assert ["s1"] == [holder.id for holder in self.store.look().holders]
        self.store.reclaim()
        assert () == self.store.look().holders

    def test_a_session_that_holds_only_a_lock_is_no_holder_of_runs(self) -> None:
        self.session()
        self.store.lock("name", "holder", ttl=LEASE, session="s1")
        assert () == self.store.look().holders

    def test_live_sessions_are_shown_sorted_and_bounded(self) -> None:
        for number in range(70):
            self.session(f"s{(number * 37) % 70:02}")
        assert tuple(f"s{number:02}" for number in range(64)) == self.store.look().sessions

    def test_overdue_and_ended_sessions_are_not_shown_as_live(self) -> None:
        self.session("overdue")
        self.lease_out()
        self.session("closed")
        self.store.close_session("closed")
        self.session("lives")
        assert ("lives",) == self.store.look().sessions
