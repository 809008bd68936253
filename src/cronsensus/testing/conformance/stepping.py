"""Steps: what ended is recorded, what is owed is fired, and what is due is claimed, in one."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from cronsensus.errors import InvalidOption, InvalidTransition
from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim, LogLine, Note, Settled
from cronsensus.model.plan import Plan
from cronsensus.model.states import Reason, State
from cronsensus.model.step import Done, GiveBack, Step, Want
from cronsensus.planning import plan as plan_of
from cronsensus.stores.base import Store
from cronsensus.stores.values import MOST_AHEAD, NO_DELAY
from cronsensus.testing.conformance.fixtures import HOUR, LEASE, MINUTE, SECOND, THREADS, StoreTest, minute
from cronsensus.testing.conformance.steps import an_end, carry_out

MICROSECOND = timedelta(microseconds=1)
SHORTLY = timedelta(milliseconds=20)


def outcome(claim: Claim, state: State = State.SUCCEEDED, **more: Any) -> End:
    """Return how a claim ended."""
    return an_end(id=claim.id, token=claim.token, session=claim.session, state=state, **more)


class Stepping(StoreTest):
    """Hazards of a step: a part of it is undone with another, or sees too late what the one before it did."""

    def wish(self, limit: int = 100, *, ahead: timedelta = NO_DELAY, lease: timedelta = LEASE) -> Want:
        """Return a wish for work of all functions that the test defined."""
        return Want(limit=limit, functions=tuple(self._functions), lease=lease, ahead=ahead)

    def step(self, session: str = "s1", *, store: Store | None = None, **step: Any) -> Done:
        """Do one step."""
        return (store or self.store).step(session, Step(**step))

    def under_way(self, count: int = 1, **policies: Any) -> list[Claim]:
        """Define a queue, open a session, and let it run that many occurrences."""
        self.queue(**policies)
        self.session()
        self.fill(count)
        return self.claim()

    def note(self, claim: Claim, text: str) -> Note:
        """Return a line that a run says, and that it is half done."""
        return Note(claim.id, claim.token, (1.0, 2.0), (LogLine(self.clock.now(), "INFO", text),))

    def lines(self, claim: Claim) -> list[str]:
        """Return what a run has said."""
        return [line.text for _, _, line in self.store.logs(claim.id)]

    # --- one part sees what the one before it did -------------------------------------------------------------------

    def test_step_that_says_nothing_does_nothing(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        before = self.snapshot()
        assert Done() == self.step()
        assert before == self.snapshot()

    def test_step_with_result_claims_next_of_job_that_runs_one_at_a_time(self) -> None:
        self.queue(overlap="queue")
        self.session()
        first, second = (self.store.trigger("queue", by="ann") for _ in range(2))
        claim = self.take()
        assert first.id == claim.id
        assert () == self.step(want=self.wish()).claims
        done = self.step(ends=(outcome(claim),), want=self.wish())
        assert (Settled(claim.id, claim.token, accepted=True, state=State.SUCCEEDED),) == done.settled
        assert [second.id] == [one.id for one in done.claims]
        assert not done.lost

    def test_step_with_result_claims_into_the_room_it_made_under_a_limit(self) -> None:
        claim, *_ = self.under_way(3, concurrency=1)
        [taken] = self.step(ends=(outcome(claim),), want=self.wish()).claims
        assert claim.id != taken.id
        assert () == self.step(want=self.wish()).claims

    def test_step_with_retry_due_at_once_claims_it_again(self) -> None:
        [claim] = self.under_way(retries=3)
        failed = outcome(claim, State.PENDING, retry_in=NO_DELAY)
        [again] = self.step(ends=(failed,), want=self.wish()).claims
        assert (claim.id, 2, 1) == (again.id, again.attempt, again.failures)
        assert again.token > claim.token
        assert [("retry", claim.token)] == [(run.end, run.token) for run in self.runs(claim)[:1]]

    def test_step_with_retry_due_later_leaves_it_waiting(self) -> None:
        [claim] = self.under_way(retries=3)
        failed = outcome(claim, State.PENDING, retry_in=SECOND)
        assert () == self.step(ends=(failed,), want=self.wish()).claims
        self.clock.advance(1)
        assert [claim.id] == [one.id for one in self.step(want=self.wish()).claims]

    def test_step_with_claim_given_back_may_take_it_again(self) -> None:
        [claim] = self.under_way()
        done = self.step(give_back=(GiveBack(claim=claim),), want=self.wish())
        assert ((True,), [(claim.id, 1)]) == (done.returned, [(one.id, one.attempt) for one in done.claims])

    def test_step_with_plan_claims_what_it_makes(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.clock.advance(MINUTE)
        [job] = self.store.look().jobs
        done = self.step(plans=(plan_of(job, self.clock.now()),), want=self.wish())
        assert (True,) == done.carried_out
        assert [minute(1)] == [claim.scheduled_for for claim in done.claims]
        assert self.clock.now() == done.claims[0].claimed_at
        [session] = self.store.sessions()
        assert LEASE == session.expires_in

    def test_step_with_plan_without_wish_carries_it_out(self) -> None:
        self.define()
        self.session()
        done = self.step(plans=(self.plan(minute(1)),))
        assert ((True,), (), False) == (done.carried_out, done.claims, done.lost)
        assert [minute(1)] == self.nominal()

    def test_step_whose_plan_loses_claims_what_waits(self) -> None:
        self.queue()
        self.define()
        self.session(lease=HOUR)
        self.fill(2)
        self.clock.advance(MINUTE)
        stale = self.plan(minute(1))
        assert [True] == carry_out(self.store, [stale])
        done = self.step(plans=(stale,), want=self.wish())
        assert (False,) == done.carried_out
        assert 3 == len(done.claims)

    def test_step_with_several_plans_carries_out_those_that_hold(self) -> None:
        self.define(self.job("a"), self.job("b"), self.job("c"))
        self.session()
        plans = tuple(self.plan(minute(1), job=name) for name in ("a", "b", "c"))
        self.store.pause("b", by="ann", why="")
        assert (True, False, True) == self.step(plans=plans).carried_out
        assert ["a", "c"] == [one.job for one in self.all()]

    def test_step_claims_no_more_than_its_limit_and_highest_priority_first(self) -> None:
        self.under_way(0)
        self.fill(2)
        high = self.enqueue(priority=5)
        assert [high.id] == [claim.id for claim in self.step(want=self.wish(1)).claims]

    def test_step_that_wants_nothing_claims_nothing(self) -> None:
        self.under_way(0)
        self.enqueue()
        assert Done() == self.step(want=self.wish(0))
        assert State.PENDING is self.all()[0].state

    def test_step_closes_what_expired_while_it_waited(self) -> None:
        self.under_way(0)
        late = self.enqueue(expires_in=SECOND)
        self.clock.advance(2)
        made = self.enqueue()
        assert [made.id] == [claim.id for claim in self.step(want=self.wish()).claims]
        assert (State.MISSED, Reason.LATE) == (self.look(late).state, self.look(late).reason)

    def test_step_closes_what_its_own_plan_made_too_late(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.clock.advance(2 * MINUTE)
        done = self.step(plans=(self.plan(minute(1), expires_in=SECOND),), want=self.wish())
        assert ((True,), ()) == (done.carried_out, done.claims)
        assert [State.MISSED] == [one.state for one in self.all()]

    # --- plans rest on what is active after the results -------------------------------------------------------------

    def overlapping(self, **policies: Any) -> tuple[Claim, Plan]:
        """Let a job run that skips what overlaps, and plan its next time while it does."""
        self.define(self.job(overlap="skip", **policies))
        self.session(lease=HOUR)
        self.fire(minute(1))
        self.clock.advance(2 * MINUTE)
        claim = self.take(lease=HOUR)
        seen = self.plan(minute(2))
        assert 1 == seen.active_seen
        return claim, seen

    def test_step_with_plan_compares_what_is_active_after_its_own_outcome(self) -> None:
        claim, seen = self.overlapping()
        plan = replace(seen, active_seen=0)
        done = self.step(ends=(outcome(claim),), plans=(plan,), want=self.wish(lease=HOUR))
        assert (True,) == done.carried_out
        assert [minute(2)] == [one.scheduled_for for one in done.claims]

    def test_step_with_plan_that_counts_what_its_own_outcome_ended_loses_the_plan(self) -> None:
        claim, seen = self.overlapping()
        done = self.step(ends=(outcome(claim),), plans=(seen,))
        assert ((False,), True) == (done.carried_out, done.settled[0].accepted)

    def test_step_with_plan_still_counts_what_its_own_outcome_put_back(self) -> None:
        claim, seen = self.overlapping()
        failed = outcome(claim, State.PENDING, retry_in=HOUR)
        assert (True,) == self.step(ends=(failed,), plans=(seen,)).carried_out

    def test_step_with_plan_compares_what_is_active_after_the_run_it_cut_off(self) -> None:
        claim, seen = self.overlapping(on_crash="fail")
        back = GiveBack(claim=claim, cut="crashed")
        done = self.step(give_back=(back,), plans=(replace(seen, active_seen=0),))
        assert ((True,), (True,)) == (done.returned, done.carried_out)

    def test_step_with_plan_that_cancels_the_run_it_ends_leaves_the_result(self) -> None:
        claim, seen = self.overlapping()
        plan = replace(seen, active_seen=0, cancel_previous=True)
        assert (True,) == self.step(ends=(outcome(claim),), plans=(plan,)).carried_out
        assert State.SUCCEEDED is self.look(claim).state

    # --- ahead of the due time --------------------------------------------------------------------------------------

    def test_step_ahead_carries_out_and_claims_what_comes_due_within_it(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.clock.advance(MINUTE - SHORTLY)
        [job] = self.store.look(ahead=SECOND).jobs
        plan = replace(plan_of(job, minute(1)), not_before=minute(1))
        short = self.step(plans=(plan,), want=self.wish(ahead=SHORTLY - MICROSECOND))
        assert ((False,), ()) == (short.carried_out, short.claims)
        done = self.step(plans=(plan,), want=self.wish(ahead=SHORTLY))
        assert ((True,), [minute(1)]) == (done.carried_out, [claim.due_at for claim in done.claims])
        assert self.clock.now() == done.claims[0].claimed_at
        assert minute(1) == self.look(done.claims[0]).started_at

    def test_step_ahead_without_plans_claims_what_comes_due_within_it(self) -> None:
        self.under_way(0)
        soon = self.enqueue(delay=SHORTLY)
        self.enqueue(delay=SHORTLY + MICROSECOND)
        assert [soon.id] == [claim.id for claim in self.step(want=self.wish(ahead=SHORTLY)).claims]

    @pytest.mark.parametrize("ahead", [-MICROSECOND, MOST_AHEAD + MICROSECOND])
    def test_step_too_far_ahead_is_refused_before_anything_is_written(self, ahead: timedelta) -> None:
        [claim] = self.under_way()
        before = self.snapshot()
        with pytest.raises(InvalidOption, match="at most 1 s before its due time"):
            self.step(ends=(outcome(claim),), want=self.wish(ahead=ahead))
        assert before == self.snapshot()

    # --- each part by its token -------------------------------------------------------------------------------------

    def test_step_of_lost_session_records_what_its_runs_say_and_gets_nothing(self) -> None:
        self.define()
        ended, given, kept = self.under_way(3)
        self.fill(1)
        self.lease_out()
        done = self.step(
            notes=(self.note(kept, "still here"),),
            ends=(outcome(ended),),
            give_back=(GiveBack(claim=given, cut="stopped"),),
            plans=(self.plan(minute(1)),),
            want=self.wish(),
        )
        assert (True, (False,), ()) == (done.lost, done.carried_out, done.claims)
        assert ((True,), True, (True,)) == (done.noted, done.settled[0].accepted, done.returned)
        found = [self.look(claim).state for claim in (ended, given, kept)]
        assert [State.SUCCEEDED, State.PENDING, State.RUNNING] == found
        assert ["still here"] == self.lines(kept)
        assert [] == self.nominal()

    def test_step_of_lost_session_without_wish_carries_out_no_plan(self) -> None:
        self.define()
        self.session()
        plan = self.plan(minute(1))
        self.lease_out()
        before = self.snapshot()
        assert Done(carried_out=(False,), lost=True) == self.step(plans=(plan,))
        assert before == self.snapshot()

    def test_step_of_unknown_session_is_lost(self) -> None:
        self.queue()
        self.enqueue()
        assert Done(lost=True) == self.step("never opened", want=self.wish())

    def test_step_of_results_alone_does_not_ask_whether_its_session_is_lost(self) -> None:
        [claim] = self.under_way()
        self.lease_out()
        done = self.step(ends=(outcome(claim),))
        assert (False, True) == (done.lost, done.settled[0].accepted)

    def test_step_after_takeover_is_refused_for_what_was_taken_over(self) -> None:
        claims = self.under_way(3)
        self.lease_out()
        self.store.reclaim()
        first, second, third = claims
        before = self.snapshot()
        done = self.step(notes=(self.note(first, "late"),), ends=(outcome(second),), give_back=(GiveBack(claim=third),))
        assert ((False,), False, (False,)) == (done.noted, done.settled[0].accepted, done.returned)
        assert before == self.snapshot()

    def test_step_with_stale_tokens_beside_good_ones_takes_the_good_ones(self) -> None:
        claims = self.under_way(6)
        stale, good = [structs.replace(one, token=one.token - 100) for one in claims[:3]], claims[3:]
        done = self.step(
            notes=(self.note(stale[0], "stale"), self.note(good[0], "good")),
            ends=(outcome(stale[1]), outcome(good[1])),
            give_back=(GiveBack(claim=stale[2]), GiveBack(claim=good[2])),
            want=self.wish(0),
        )
        assert ((False, True), (False, True)) == (done.noted, done.returned)
        assert [False, True] == [one.accepted for one in done.settled]
        running = [self.look(claim).state for claim in claims]
        assert [State.RUNNING] * 4 + [State.SUCCEEDED, State.PENDING] == running
        assert ([], ["good"]) == (self.lines(claims[0]), self.lines(good[0]))

    def test_step_with_outcome_and_give_back_of_one_claim_keeps_the_outcome(self) -> None:
        [claim] = self.under_way()
        done = self.step(ends=(outcome(claim),), give_back=(GiveBack(claim=claim),))
        assert (True, (False,)) == (done.settled[0].accepted, done.returned)
        assert State.SUCCEEDED is self.look(claim).state

    def test_step_with_notes_of_a_run_that_it_ends_keeps_them(self) -> None:
        [claim] = self.under_way()
        done = self.step(notes=(self.note(claim, "the last"),), ends=(outcome(claim),))
        assert ((True,), True) == (done.noted, done.settled[0].accepted)
        assert ["the last"] == self.lines(claim)

    def test_step_with_claims_given_back_counts_each_as_it_says(self) -> None:
        unbegun, stopped, crashed = self.under_way(3)
        back = (
            GiveBack(claim=stopped, cut="stopped"),
            GiveBack(claim=unbegun),
            GiveBack(claim=crashed, cut="crashed"),
            GiveBack(claim=unbegun),
        )
        assert (True, True, True, False) == self.step(give_back=back).returned
        found = [self.look(one) for one in (unbegun, stopped, crashed)]
        assert [State.PENDING] * 3 == [one.state for one in found]
        assert [(0, 0), (1, 0), (1, 1)] == [(one.attempt, one.crashes) for one in found]

    def test_step_with_retry_of_a_run_that_is_to_stop_cancels_it(self) -> None:
        [claim] = self.under_way()
        self.store.cancel(claim.id, by="ann", why="")
        [settled] = self.step(ends=(outcome(claim, State.PENDING, retry_in=NO_DELAY),), want=self.wish()).settled
        assert State.CANCELLED is settled.state is self.look(claim).state

    def test_step_with_a_state_that_no_run_ends_in_is_refused_before_anything_is_written(self) -> None:
        claims = self.under_way(2)
        before = self.snapshot()
        with pytest.raises(InvalidTransition):
            self.step(ends=(outcome(claims[0]), outcome(claims[1], State.MISSED)), want=self.wish())
        assert before == self.snapshot()

    # --- said again -------------------------------------------------------------------------------------------------

    def test_step_said_again_gives_results_their_first_answer_and_loses_plans(self) -> None:
        self.queue()
        self.define()
        self.session(lease=HOUR)
        self.enqueue()
        claim = self.take(lease=HOUR)
        self.clock.advance(MINUTE)
        step = Step(ends=(outcome(claim, result="1"),), plans=(self.plan(minute(1)),), want=self.wish(lease=HOUR))
        first, second = (self.store.step("s1", step) for _ in range(2))
        assert first.settled == second.settled
        assert ((True,), (False,)) == (first.carried_out, second.carried_out)
        assert (1, 0) == (len(first.claims), len(second.claims))
        assert 1 == len(self.runs(claim))
        assert [(first.claims[0].id, first.claims[0].token)] == list(self.store.renew("s1", lease=HOUR).held or ())

    def test_step_said_again_does_not_end_the_run_that_its_first_time_began(self) -> None:
        [claim] = self.under_way(retries=3)
        failed = outcome(claim, State.PENDING, retry_in=NO_DELAY)
        step = Step(ends=(failed,), give_back=(GiveBack(claim=claim),), want=self.wish())
        [again] = self.store.step("s1", step).claims
        done = self.store.step("s1", step)
        assert ((State.PENDING, True), (False,), ()) == (
            (done.settled[0].state, done.settled[0].accepted),
            done.returned,
            done.claims,
        )
        assert (State.RUNNING, again.token) == (self.look(claim).state, self.look(claim).token)

    # --- many at once -----------------------------------------------------------------------------------------------

    def test_steps_at_once_carry_each_plan_out_once_and_claim_each_occurrence_once(self) -> None:
        self.queue()
        self.define(self.job(overlap="allow"))
        for number in range(THREADS):
            self.session(f"s{number}", lease=HOUR)
        for number in range(1, 4):
            self.clock.advance(MINUTE)
            ids = self.fill(20)
            plan = self.plan(minute(number))

            def act(store: Store, thread: int, plan: Plan = plan) -> Done:
                return self.step(f"s{thread}", store=store, plans=(plan,), want=self.wish(5, lease=HOUR))

            done = self.race(act)
            assert 1 == sum(one.carried_out[0] for one in done)
            claims = [claim for one in done for claim in one.claims]
            assert len(claims) == len({claim.id for claim in claims}) == len({claim.token for claim in claims})
            rest = self.claim("s0", lease=HOUR)
            assert set(ids) < {claim.id for claim in (*claims, *rest)}

            def end(store: Store, thread: int, done: list[Done] = done) -> Done:
                return self.step(f"s{thread}", store=store, ends=tuple(map(outcome, done[thread].claims)))

            assert all(settled.accepted for one in self.race(end) for settled in one.settled)
            self.step("s0", ends=tuple(map(outcome, rest)))

    def test_steps_at_once_that_free_and_claim_keep_to_the_limit_of_a_job(self) -> None:
        self.queue(concurrency=2)
        for number in range(THREADS):
            self.session(f"s{number}", lease=HOUR)
        self.fill(12)
        held: dict[int, tuple[Claim, ...]] = dict.fromkeys(range(THREADS), ())

        def act(store: Store, thread: int) -> Done:
            ended = tuple(map(outcome, held[thread]))
            return self.step(f"s{thread}", store=store, ends=ended, want=self.wish(2, lease=HOUR))

        for _ in range(4):
            for thread, done in enumerate(self.race(act)):
                held[thread] = done.claims
                assert all(settled.accepted for settled in done.settled)
            assert len(self.all(states=(State.RUNNING,))) == sum(map(len, held.values())) <= 2
