"""Operator verbs: trigger, pause, resume, cancel, retry, backfill, and the trail that each leaves."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from cronsensus.errors import InvalidOption, InvalidPayload, InvalidTransition, OccurrenceTooOld, UnknownJob
from cronsensus.model.acquiring import Ask
from cronsensus.model.job import Stretch
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Origin, Reason, State
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, MINUTE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import give_back


class Operating(StoreTest):
    """Hazards of operating: an act that is not recorded, and one that is undone."""

    # --- trigger ----------------------------------------------------------------------------------------------------

    def test_a_triggered_job_runs_now(self) -> None:
        self.define(self.job(args=(1,), kwargs={"a": 2}, priority=3))
        self.session()
        made = self.store.trigger("job", by="ann")
        found = self.look(made)
        assert (True, State.PENDING, "job") == (made.created, made.state, made.job)
        assert (Origin.MANUAL, START, None, 3) == (found.origin, found.due_at, found.scheduled_for, found.priority)
        assert ((1,), {"a": 2}) == (found.args, found.kwargs)
        assert made.id == self.take().id

    def test_a_job_is_triggered_with_other_arguments(self) -> None:
        self.define(self.job(args=(1,), kwargs={"a": 2}))
        made = self.store.trigger("job", by="ann", why="try", arguments=([3], {"b": "é"}))
        none = self.store.trigger("job", by="ann", arguments=((), {}))
        assert ((3,), {"b": "é"}) == (self.look(made).args, self.look(made).kwargs)
        assert ((), {}) == (self.look(none).args, self.look(none).kwargs)
        assert [("trigger", "ann", none.id), ("trigger", "ann", made.id)] == [
            (one.action, one.by, one.details["occurrence"]) for one in self.store.trail(target="job", limit=2)
        ]
        with pytest.raises(InvalidPayload):
            self.store.trigger("job", by="ann", arguments=([object()], {}))

    def test_a_trigger_with_a_key_makes_one_run(self) -> None:
        self.define(self.job(overlap="allow"), self.job("after", overlap="allow"))
        self.session()
        made = self.store.trigger("job", by="ann", key="sent once", downstream=["after"])
        assert (True, "sent once") == (made.created, made.key)
        for state in (State.PENDING, State.SUCCEEDED):
            if state.final:
                for claim in self.claim():
                    self.finish(claim)
            before = self.snapshot()
            again = self.store.trigger("job", by="bob", key="sent once", downstream=["after"])
            assert (made.id, "job", "sent once", False, state) == (
                again.id, again.job, again.key, again.created, again.state,
            )  # fmt: skip
            assert before == self.snapshot()
        assert self.store.trigger("job", by="ann", key="sent anew").created
        assert self.store.trigger("after", by="ann", key="sent once").created
        with pytest.raises(InvalidOption):
            self.store.trigger("job", by="ann", key="@2026-11-20T12:00:00Z")

    def test_a_chain_has_one_nominal_time_that_no_schedule_gives(self) -> None:
        self.define(self.job(args=(1,)), self.job("load", args=(2,)), self.job("check", priority=3))
        before = [self.view(name) for name in ("job", "load", "check")]
        made = self.store.trigger("job", by="ann", why="now", arguments=((7,), {}), downstream=["load", "check"])
        [first], [load], [check] = (self.all(job=name) for name in ("job", "load", "check"))
        assert (made.id, Origin.MANUAL, Origin.MANUAL) == (first.id, load.origin, check.origin)
        assert {first.scheduled_for} == {load.scheduled_for, check.scheduled_for}
        assert first.scheduled_for is not None
        assert timedelta(0) <= self.store.now() - first.scheduled_for < SECOND
        assert first.scheduled_for.microsecond % 1000
        assert first.id < load.id < check.id
        assert ((7,), (2,), 3) == (first.args, load.args, check.priority)
        assert [(one.watermark, one.next_due) for one in before] == [
            (one.watermark, one.next_due) for one in (self.view(name) for name in ("job", "load", "check"))
        ]
        [act] = self.store.trail(target="job", limit=1)
        assert ("trigger", "now", first.id, [load.id, check.id]) == (
            act.action, act.why, act.details["occurrence"], act.details["downstream"],
        )  # fmt: skip

    def test_a_chain_is_made_whole_or_not_at_all(self) -> None:
        self.define(self.job(), self.job("gone"))
        self.store.retire("gone", by="ann", why="")
        before = self.snapshot()
        for missing in ("gone", "nobody"):
            with pytest.raises(UnknownJob):
                self.store.trigger("job", by="ann", downstream=[missing])
        assert before == self.snapshot()

    def test_a_triggered_run_is_beside_the_schedule(self) -> None:
        self.define()
        before = self.view()
        self.store.trigger("job", by="ann")
        assert (before.watermark, before.next_due) == (self.view().watermark, self.view().next_due)

    def test_each_trigger_is_a_run_of_its_own(self) -> None:
        self.define()
        made = [self.store.trigger("job", by="ann") for _ in range(3)]
        assert 3 == len({one.id for one in made}) == len({one.key for one in made})

    def test_operator_verbs_on_a_job_that_does_not_exist_raise(self) -> None:
        self.define()
        self.store.retire("job", by="ann", why="")
        before = self.snapshot()
        for name in ("job", "nobody"):
            for verb in (self.store.trigger, self.store.pause, self.store.resume):
                with pytest.raises(UnknownJob):
                    verb(name, by="ann", why="")
            with pytest.raises(UnknownJob):
                self.store.backfill(name, [minute(1)], by="ann")
        assert before == self.snapshot()

    def test_what_only_other_programs_run_is_made_by_nobody_else(self) -> None:
        self.session()
        names = ("apscheduler:tick", "once:charge")
        self.define(*(self.job(name, trigger=None, source="runtime") for name in names), self.job())
        [[claim]] = self.store.acquire("s1", [Ask(names[0], (START,))], lease=LEASE)
        assert isinstance(claim, Claim)
        self.finish(claim, state=State.FAILED)
        before = self.snapshot()
        for name in names:
            for make in (
                lambda job: self.store.trigger(job, by="ann"),
                lambda job: self.store.trigger("job", by="ann", downstream=[job]),
                lambda job: self.store.enqueue([Item(job="job"), Item(job=job, key="key")]),
                lambda job: self.store.backfill(job, [minute(1)], by="ann"),
            ):
                with pytest.raises(InvalidOption, match=name):
                    make(name)
        with pytest.raises(InvalidOption, match="modify_job"):
            self.store.retry(claim.id, by="ann")
        assert before == self.snapshot()
        self.define(self.job(names[0], trigger=None))
        assert self.store.trigger(names[0], by="ann").created

    # --- pause and resume -------------------------------------------------------------------------------------------

    def test_a_paused_job_does_not_fire(self) -> None:
        self.define()
        assert self.store.pause("job", by="ann", why="migration")
        self.clock.advance(HOUR)
        assert () == self.store.look().jobs
        assert self.firing() is None
        view = self.view()
        assert (START, "ann", "migration") == (view.paused_at, view.paused_by, view.paused_why)
        assert START == view.watermark

    def test_pausing_twice_changes_nothing(self) -> None:
        self.define()
        self.store.pause("job", by="ann", why="one")
        before = self.snapshot()
        self.clock.advance(MINUTE)
        assert not self.store.pause("job", by="bob", why="two")
        assert before == self.snapshot()

    def test_resuming_what_is_not_paused_changes_nothing(self) -> None:
        self.define()
        before = self.snapshot()
        assert not self.store.resume("job", by="ann")
        assert before == self.snapshot()

    def test_a_resumed_job_fires_again(self) -> None:
        self.define()
        self.store.pause("job", by="ann", why="")
        self.clock.advance(90)
        assert self.store.resume("job", by="bob")
        view = self.view()
        assert (None, None, None) == (view.paused_at, view.paused_by, view.paused_why)
        assert (Stretch(START, START + 90 * SECOND),) == self.store.history("job").pauses
        assert minute(1) == view.next_due

    def test_the_round_after_a_pause_writes_it_into_the_ledger(self) -> None:
        self.define(self.job(catch_up="all"))
        self.clock.advance(90)
        self.store.pause("job", by="ann", why="")
        self.clock.advance(3 * MINUTE)
        self.store.resume("job", by="ann")
        self.clock.advance(MINUTE)
        assert [True] == self.round()
        assert [VerdictRange(minute(2), minute(4), State.SKIPPED, Reason.PAUSED, 3)] == [
            ledger_range.range for ledger_range in self.store.ranges("job")
        ]
        assert [minute(1), minute(5)] == self.nominal()

    def test_every_pause_is_remembered(self) -> None:
        self.define()
        for _ in range(3):
            self.store.pause("job", by="ann", why="")
            self.clock.advance(SECOND)
            self.store.resume("job", by="ann")
            self.clock.advance(SECOND)
        self.store.pause("job", by="ann", why="")
        times = [START + number * SECOND for number in range(7)]
        assert (
            Stretch(times[0], times[1]),
            Stretch(times[2], times[3]),
            Stretch(times[4], times[5]),
            Stretch(times[6], None),
        ) == self.store.history("job").pauses

    def test_planning_sees_the_pauses_that_end_after_the_watermark(self) -> None:
        self.define()
        self.store.pause("job", by="ann", why="")
        self.clock.advance(SECOND)
        self.store.resume("job", by="ann")
        assert (Stretch(START, START + SECOND),) == self.planned().pauses
        self.fire(minute(1))
        assert () == self.planned().pauses
        assert 1 == len(self.store.history("job").pauses)

    def test_a_pause_never_ends_before_it_began(self) -> None:
        self.define()
        self.store.pause("job", by="ann", why="")
        self.clock.step(-HOUR)
        self.store.resume("job", by="ann")
        pause = self.store.history("job").pauses[0]
        assert pause.end is not None
        assert pause.start <= pause.end

    def test_the_queue_of_a_paused_job_goes_on(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        self.store.pause("queue", by="ann", why="")
        self.enqueue()
        assert 2 == len(self.claim())

    # --- cancel -----------------------------------------------------------------------------------------------------

    def test_a_pending_occurrence_is_cancelled_at_once(self) -> None:
        self.queue()
        self.session()
        made = self.enqueue()
        assert State.CANCELLED is self.store.cancel(made.id, by="ann", why="wrong customer")
        found = self.look(made)
        assert (State.CANCELLED, START) == (found.state, found.finished_at)
        assert Reason.OPERATOR == (found.reason or "").split(":")[0]
        assert "wrong customer" in (found.reason or "")
        assert [] == self.claim()
        assert [] == self.runs(made)

    def test_a_running_occurrence_is_asked_to_stop(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        assert State.RUNNING is self.store.cancel(claim.id, by="ann", why="enough")
        assert (State.RUNNING, True) == (self.look(claim).state, self.look(claim).cancel_requested)
        told = self.store.renew("s1", lease=LEASE).cancel
        assert [claim.id] == list(told)
        assert (Reason.OPERATOR, True) == (told[claim.id].split(":")[0], "enough" in told[claim.id])

    def test_asking_twice_is_asking(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.store.cancel(claim.id, by="ann", why="enough")
        assert State.RUNNING is self.store.cancel(claim.id, by="bob", why="now")
        assert [claim.id] == list(self.store.renew("s1", lease=LEASE).cancel)

    def test_a_run_that_was_asked_to_stop_may_still_succeed(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.store.cancel(claim.id, by="ann", why="enough")
        assert (True, State.SUCCEEDED) == (self.finish(claim).accepted, self.look(claim).state)

    def test_a_run_that_was_asked_to_stop_does_not_run_again(self) -> None:
        self.queue()
        self.session(lease=DAY)
        self.fill(2)
        retried, released = self.claim(lease=DAY)
        for claim in (retried, released):
            self.store.cancel(claim.id, by="ann", why="enough")
        answer = self.finish(retried, State.PENDING, retry_in=SECOND)
        assert (True, State.CANCELLED) == (answer.accepted, answer.state)
        assert answer == self.finish(retried, State.PENDING)
        assert [True] == give_back(self.store, [released])
        for claim in (retried, released):
            assert State.CANCELLED is self.look(claim).state
            assert "enough" in (self.look(claim).reason or "")
        self.clock.advance(HOUR)
        assert [] == self.claim()

    def test_a_final_or_missing_occurrence_cannot_be_cancelled(self) -> None:
        self.queue()
        self.session()
        before_all = [self.done().id, self.enqueue().id]
        self.store.cancel(before_all[1], by="ann", why="")
        before = self.snapshot()
        for final in before_all:
            with pytest.raises(InvalidTransition):
                self.store.cancel(final, by="ann", why="")
        with pytest.raises(LookupError):
            self.store.cancel(987_654, by="ann", why="")
        assert before == self.snapshot()

    # --- retry ------------------------------------------------------------------------------------------------------

    def test_a_retry_is_a_new_occurrence_linked_to_the_old_one(self) -> None:
        self.define(self.job(args=(1,), kwargs={"a": 2}))
        self.session(lease=HOUR)
        self.fire(minute(1))
        self.clock.advance(MINUTE)
        old = self.take()
        self.finish(old, State.FAILED)
        before = self.look(old)
        made = self.store.retry(old.id, by="ann")
        found = self.look(made)
        assert (True, State.PENDING) == (made.created, made.state)
        assert (old.id, minute(1), (1,), {"a": 2}) == (
            found.retry_of,
            found.scheduled_for,
            found.args,
            found.kwargs,
        )
        assert (0, 0, 0, None) == (found.attempt, found.crashes, found.failures, found.error)
        assert old.id != made.id
        assert old.key != made.key
        assert replace(before, retried_as=made.id) == self.look(old)
        assert [old.id, made.id] == [one.id for one in self.all(scheduled_from=minute(1), scheduled_until=minute(1))]
        assert minute(1) == self.view().watermark
        assert made.id == self.take().id

    def test_every_final_occurrence_can_be_retried(self) -> None:
        self.queue()
        self.session()
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED):
            made = self.enqueue(str(state), args=(str(state),))
            self.finish(self.take(), state)
            again = self.store.retry(made.id, by="ann", again=True)
            claim = self.take()
            assert (again.id, (str(state),)) == (claim.id, claim.args)
            self.finish(claim)

    def test_what_was_retried_already_returns_its_newest_retry(self) -> None:
        self.queue()
        self.session()
        made = self.enqueue()
        self.finish(self.take(), State.FAILED)
        first = self.store.retry(made.id, by="ann")
        assert (first.id, None) == (self.look(made).retried_as, self.look(first).retried_as)
        for state in (State.PENDING, State.RUNNING, State.FAILED):
            if state is State.RUNNING:
                claim = self.take()
            elif state.final:
                self.finish(claim, state)
            before = self.snapshot()
            for again in (False, True):
                second = self.store.retry(made.id, by="bob", again=again)
                assert (first.id, first.job, first.key, False, state) == (
                    second.id,
                    second.job,
                    second.key,
                    second.created,
                    second.state,
                )
            assert before == self.snapshot()
        third = self.store.retry(first.id, by="ann")
        assert (True, first.id) == (third.created, self.look(third).retry_of)
        for earlier in (made, first):
            assert (third.id, False) == (
                self.store.retry(earlier.id, by="ann").id,
                self.store.retry(earlier.id, by="ann").created,
            )
        assert 3 == len(self.all())

    def test_what_succeeded_is_retried_only_for_who_says_again(self) -> None:
        self.queue()
        self.session()
        done = self.done()
        before = self.snapshot()
        with pytest.raises(InvalidTransition, match="again=True"):
            self.store.retry(done.id, by="ann")
        assert before == self.snapshot()
        assert self.store.retry(done.id, by="ann", again=True).created
        assert not self.store.retry(done.id, by="ann").created

    def test_a_retry_that_is_no_longer_kept_does_not_count(self) -> None:
        self.queue()
        self.session()
        made = self.enqueue()
        self.finish(self.take(), State.FAILED)
        first = self.store.retry(made.id, by="ann")
        self.store.forget("queue", first.key, by="ann")
        second = self.store.retry(made.id, by="ann")
        assert (True, second.id) == (second.created, self.look(made).retried_as)

    def test_a_retry_keeps_the_key_of_the_old_one(self) -> None:
        self.queue()
        self.session()
        old = self.done("key")
        self.store.retry(old.id, by="ann", again=True)
        assert (old.id, False) == (self.enqueue("key").id, self.enqueue("key").created)

    def test_the_longest_key_can_be_retried(self) -> None:
        self.queue()
        self.session()
        old = self.done("🧨" * 400)
        assert self.store.retry(old.id, by="ann", again=True).created

    def test_an_active_or_missing_occurrence_cannot_be_retried(self) -> None:
        self.queue()
        self.session()
        ids = self.fill(2)
        self.take(limit=1)
        before = self.snapshot()
        for active in ids:
            with pytest.raises(InvalidTransition):
                self.store.retry(active, by="ann")
        with pytest.raises(LookupError):
            self.store.retry(987_654, by="ann")
        assert before == self.snapshot()

    # --- backfill ---------------------------------------------------------------------------------------------------

    def test_a_backfill_makes_occurrences_for_nominal_times(self) -> None:
        self.define(self.job(args=(1,)))
        self.clock.advance(HOUR)
        made = self.store.backfill("job", [minute(2), minute(1)], by="ann")
        assert [True, True] == [one.created for one in made]
        assert [minute(2), minute(1)] == [self.look(one).scheduled_for for one in made]
        found = self.look(made[0])
        assert (Origin.BACKFILL, State.PENDING, START + HOUR, (1,)) == (
            found.origin,
            found.state,
            found.due_at,
            found.args,
        )

    def test_a_backfill_leaves_the_schedule_alone(self) -> None:
        self.define()
        before = self.view()
        self.store.backfill("job", [START], by="ann")
        assert (before.watermark, before.next_due) == (self.view().watermark, self.view().next_due)

    def test_a_time_that_has_an_active_or_succeeded_occurrence_returns_it(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session(lease=HOUR)
        self.fire(minute(1), minute(2), minute(3))
        self.clock.advance(2 * MINUTE)
        succeeded, running = self.claim(lease=HOUR)
        self.finish(succeeded)
        pending = self.all()[2]
        made = self.store.backfill("job", [minute(1), minute(2), minute(3)], by="ann")
        assert [
            (succeeded.id, False, State.SUCCEEDED),
            (running.id, False, State.RUNNING),
            (pending.id, False, State.PENDING),
        ] == [(one.id, one.created, one.state) for one in made]
        assert 3 == len(self.all())

    def test_a_time_whose_occurrence_came_to_nothing_gets_another(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session(lease=HOUR)
        self.fire(minute(1), minute(2), minute(3))
        self.clock.advance(3 * MINUTE)
        for claim, state in zip(self.claim(), (State.FAILED, State.CANCELLED, State.SKIPPED), strict=True):
            self.finish(claim, state)
        made = self.store.backfill("job", [minute(1), minute(2), minute(3)], by="ann")
        assert [True, True, True] == [one.created for one in made]
        assert 6 == len(self.all()) == len({one.key for one in self.all()})

    def test_a_retry_that_succeeded_counts_too(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fire(minute(1))
        self.clock.advance(MINUTE)
        failed = self.take(lease=HOUR)
        self.finish(failed, State.FAILED)
        retried = self.store.retry(failed.id, by="ann")
        self.finish(self.take())
        assert [(retried.id, False)] == [
            (one.id, one.created) for one in self.store.backfill("job", [minute(1)], by="ann")
        ]

    def test_backfilling_again_makes_nothing(self) -> None:
        self.define()
        times = [minute(number) for number in range(-3, 0)]
        first = self.store.backfill("job", times, by="ann")
        again = self.store.backfill("job", [*times, times[0]], by="ann")
        assert [True] * 3 == [one.created for one in first]
        assert [(one.id, False) for one in [*first, first[0]]] == [(one.id, one.created) for one in again]

    def test_a_time_repeated_in_one_call_is_made_once(self) -> None:
        self.define()
        paris = START.astimezone(ZoneInfo("Europe/Paris"))
        first, second = self.store.backfill("job", [START, paris], by="ann")
        assert (first.id, True, False) == (second.id, first.created, second.created)

    def test_many_times_are_backfilled_in_one_call(self) -> None:
        self.define()
        times = [START - number * MINUTE for number in range(1000)]
        made = self.store.backfill("job", times, by="ann")
        assert times == self.nominal()
        assert [one.id for one in made] == [one.id for one in self.store.backfill("job", times, by="ann")]

    def test_times_without_a_zone_are_refused(self) -> None:
        self.define()
        with pytest.raises(InvalidOption):
            self.store.backfill("job", [minute(1), minute(2).replace(tzinfo=None)], by="ann")
        assert [] == self.all()

    def test_backfill_at_or_below_the_pruned_horizon_is_refused(self) -> None:
        self.define()
        self.session(lease=DAY)
        self.fire(minute(1), minute(2))
        self.clock.advance(10 * MINUTE)
        self.finish(self.take(lease=DAY))
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        before = self.snapshot()
        with pytest.raises(OccurrenceTooOld):
            self.store.backfill("job", [minute(5), minute(1)], by="ann")
        assert before == self.snapshot()
        above = minute(1) + timedelta(microseconds=1)
        assert self.store.backfill("job", [above], by="ann")[0].created

    # --- the trail --------------------------------------------------------------------------------------------------

    def test_every_act_leaves_operator_action_and_reason(self) -> None:
        self.define()
        self.queue()
        self.session()
        done = self.done()
        pending = self.enqueue()
        acts: list[tuple[str, str, Callable[[], object]]] = [
            ("pause", "job", lambda: self.store.pause("job", by="ann", why="1")),
            ("resume", "job", lambda: self.store.resume("job", by="ann", why="2")),
            ("trigger", "job", lambda: self.store.trigger("job", by="ann", why="3")),
            ("cancel", "queue", lambda: self.store.cancel(pending.id, by="ann", why="4")),
            ("retry", "queue", lambda: self.store.retry(done.id, by="ann", why="5", again=True)),
            ("backfill", "job", lambda: self.store.backfill("job", [START], by="ann", why="6")),
            ("drain", "s1", lambda: self.store.drain("s1", by="ann", why="7")),
            ("retire", "job", lambda: self.store.retire("job", by="ann", why="8")),
        ]
        for number, (action, target, act) in enumerate(acts, start=1):
            self.clock.advance(0.001)
            act()
            entry = self.store.trail(limit=1)[0]
            assert (action, target, "ann", str(number)) == (entry.action, entry.target, entry.by, entry.why)
            assert self.store.now() == entry.at
        assert len(acts) == len(self.store.trail())
        cancelled = next(entry for entry in self.store.trail() if entry.action == "cancel")
        assert pending.id == cancelled.details["occurrence"]

    def test_any_text_of_an_operator_can_be_recorded(self) -> None:
        self.define()
        hostile = "before \0 \ud83d '; DROP TABLE x; -- after"
        assert self.store.pause("job", by=hostile, why=hostile)
        made = self.store.trigger("job", by=hostile, why=hostile)
        assert State.CANCELLED is self.store.cancel(made.id, by=hostile, why=hostile)
        texts = [text for entry in self.store.trail() for text in (entry.by, entry.why)]
        texts += [self.view().paused_by or "", self.view().paused_why or ""]
        assert 8 == len(texts)
        for text in texts:
            assert (True, True) == (text.startswith("before "), text.endswith("DROP TABLE x; -- after"))

    def test_definitions_put_by_an_operator_leave_a_trail(self) -> None:
        self.define(self.job("a", source="runtime"))
        assert [] == self.store.trail()
        self.define(self.job("a", source="runtime", args=(1,)), self.job("b", source="runtime"), by="ann")
        assert {("define", "a", "ann"), ("define", "b", "ann")} == {
            (entry.action, entry.target, entry.by) for entry in self.store.trail()
        }

    def test_what_a_release_changes_stands_in_the_trail_with_the_values_before_and_after(self) -> None:
        self.define(self.job("a", retries=1), release="1", by="node")
        changed = self.job("a", retries=3, timeout=timedelta(minutes=10))
        self.define(changed, release="2", by="node")
        self.define(changed, release="3", by="node")
        entry, created = self.store.trail(target="a")
        changes = {"retries": [1, 3], "timeout": [None, 600_000_000]}
        assert {"did": "changed", "release": "2", "changes": changes} == entry.details
        assert {"did": "created", "release": "1"} == created.details

    def test_an_act_without_effect_leaves_no_trail(self) -> None:
        self.define()
        self.store.resume("job", by="ann")
        self.store.retire("nobody", by="ann", why="")
        self.store.drain("nobody", by="ann", why="")
        for verb in (self.store.cancel, self.store.retry):
            with pytest.raises(LookupError):
                verb(987_654, by="ann", why="")
        assert [] == self.store.trail()

    def test_the_trail_is_read_newest_first_by_target_and_in_pages(self) -> None:
        self.define(self.job("a"), self.job("b"))
        for number in range(6):
            self.store.trigger("ab"[number % 2], by="ann", why=str(number))
        assert ["5", "4", "3", "2", "1", "0"] == [entry.why for entry in self.store.trail()]
        assert ["4", "2", "0"] == [entry.why for entry in self.store.trail(target="a")]
        page = self.store.trail(limit=2)
        assert ["3", "2"] == [entry.why for entry in self.store.trail(after=page[-1].id, limit=2)]
        page = self.store.trail(target="b", limit=1)
        assert ["3", "1"] == [entry.why for entry in self.store.trail(target="b", after=page[-1].id)]
        assert [] == self.store.trail(target="'; DROP TABLE x; --")
