"""Lead time: occurrences that come due within a moment are fired and claimed early, and start when they are due."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.model.ends import End, Parked
from cronsensus.model.occurrence import Claim, scheduled_key
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.planning import plan as plan_of
from cronsensus.stores.values import MOST_AHEAD, NO_DELAY
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, MINUTE, START, StoreTest, minute
from cronsensus.testing.conformance.steps import give_back, settle

MICROSECOND = timedelta(microseconds=1)
SHORTLY = timedelta(milliseconds=20)


class LeadTime(StoreTest):
    """Hazards of deciding before the due time: a run that starts early, or that waits for no reason."""

    def carry_out_and_take(
        self, *plans: Plan, session: str = "s1", limit: int = 10, ahead: timedelta = NO_DELAY
    ) -> tuple[list[bool], list[Claim]]:
        """Carry out and take as a node does at a due time, or ``ahead`` of it."""
        want = Want(limit=limit, functions=tuple(self._functions), lease=LEASE, ahead=ahead)
        done = self.store.step(session, Step(plans=plans, want=want))
        return list(done.carried_out), list(done.claims)

    def test_no_more_is_claimed_than_asked_for_of_what_was_fired(self) -> None:
        self.define(self.job(overlap="allow"))
        self.clock.advance(minute(3) - START)
        self.session()
        won, claims = self.carry_out_and_take(self.plan(minute(1), minute(2), minute(3)), limit=2)
        assert [True] == won
        assert [minute(1), minute(2)] == [claim.scheduled_for for claim in claims]
        assert [minute(1), minute(2), minute(3)] == self.nominal()

    def test_earlier_waiting_work_is_claimed_before_newly_fired_work(self) -> None:
        self.define(self.job(overlap="allow"))
        self.fire(minute(1))
        self.clock.advance(minute(2) - START)
        self.session()
        _, claims = self.carry_out_and_take(self.plan(minute(2)), limit=1)
        assert [minute(1)] == [claim.scheduled_for for claim in claims]

    def before(self, time: datetime, by: timedelta = SHORTLY) -> None:
        """Open a session, and let the clock come ``by`` before ``time``."""
        self.session(lease=HOUR)
        self.clock.advance(time - by - self.clock.now())

    def plan_ahead(self, time: datetime) -> Plan:
        """Plan a job for ``time``, as a node does before it."""
        return replace(plan_of(self.ahead(time)[0], time), not_before=time)

    def test_a_job_due_within_the_lead_time_is_fired_and_claimed_ahead(self) -> None:
        self.define()
        self.before(minute(1))
        won, [claim] = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert [True] == won
        assert (minute(1), minute(1)) == (claim.scheduled_for, claim.due_at)
        assert minute(1) == self.view().watermark
        assert [State.RUNNING] == [one.state for one in self.all()]

    def test_a_run_claimed_ahead_starts_when_due_and_records_when_it_was_claimed(self) -> None:
        self.define()
        self.before(minute(1))
        _, [claim] = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert self.clock.now() == claim.claimed_at == minute(1) - SHORTLY
        [one] = self.all()
        [run] = self.store.runs(one.id)
        assert (minute(1), minute(1)) == (one.started_at, run.started_at)

    def test_a_time_that_was_backfilled_and_has_run_is_fired_without_another_run(self) -> None:
        self.define(self.job(overlap="allow"))
        self.before(minute(1))
        self.store.backfill("job", [minute(1)], by="ann")
        self.finish(self.take())
        won, claims = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert ([True], []) == (won, claims)
        assert minute(1) == self.view().watermark
        [one] = self.all()
        assert (minute(1), None) == (one.scheduled_for, self.store.occurrence(one.id + 1))
        self.clock.advance(MINUTE + SHORTLY)
        won, [claim] = self.carry_out_and_take(self.plan(minute(2)), session=self.session("s2"))
        assert ([True], minute(2)) == (won, claim.scheduled_for)
        assert [minute(1), minute(2)] == self.nominal()

    def test_nothing_is_fired_or_claimed_further_ahead_than_asked(self) -> None:
        self.define()
        self.before(minute(1), SHORTLY + MICROSECOND)
        assert ([False], []) == self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert [] == self.all()
        self.clock.advance(MICROSECOND)
        won, claims = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert ([True], 1) == (won, len(claims))

    def test_what_sleeps_since_before_its_time_is_not_due_before_it_when_it_is_woken(self) -> None:
        self.define()
        self.before(minute(1))
        _, [claim] = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert settle(self.store, [End.of(claim, Parked("upstreams"))])[0].accepted
        assert self.store.wake([claim.id]) == 1
        [one] = self.all()
        assert minute(1) == one.due_at
        assert [] == self.claim()
        self.clock.advance(SHORTLY)
        assert [minute(1)] == [claim.scheduled_for for claim in self.claim()]

    def test_an_occurrence_fired_ahead_and_not_claimed_waits_until_it_is_due(self) -> None:
        self.define(self.job(overlap="allow"))
        self.before(minute(1))
        self.enqueue(key="by hand", job="job", priority=1)
        won, [claim] = self.carry_out_and_take(self.plan_ahead(minute(1)), limit=1, ahead=SHORTLY)
        assert ([True], "by hand") == (won, claim.key)
        assert [] == self.claim()
        self.clock.advance(SHORTLY)
        assert [minute(1)] == [claim.scheduled_for for claim in self.claim()]

    def test_pending_work_due_within_the_lead_time_is_claimed_too(self) -> None:
        self.define(self.job(overlap="allow"))
        self.before(minute(1))
        self.enqueue(key="in time", job="job", delay=SHORTLY)
        self.enqueue(key="later", job="job", delay=SHORTLY + MICROSECOND)
        _, claims = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert {"in time", scheduled_key(minute(1))} == {claim.key for claim in claims}

    def test_a_run_claimed_ahead_can_be_given_back_before_it_is_due(self) -> None:
        self.define()
        self.before(minute(1))
        _, claims = self.carry_out_and_take(self.plan_ahead(minute(1)), ahead=SHORTLY)
        assert [True] == give_back(self.store, claims)
        [one] = self.all()
        assert (State.PENDING, 0) == (one.state, one.attempt)

    def test_a_run_claimed_ahead_and_given_back_is_not_claimed_early(self) -> None:
        self.define(self.job("released"), self.job("taken over"))
        self.before(minute(1))
        plans = [replace(plan_of(job, minute(1)), not_before=minute(1)) for job in self.ahead(minute(1))]
        _, claims = self.carry_out_and_take(*plans, ahead=SHORTLY)
        give_back(self.store, [claim for claim in claims if claim.job == "released"])
        self.store.reclaim(["s1"])
        self.session("s2")
        assert [] == self.claim("s2")
        self.clock.advance(SHORTLY)
        assert [minute(1), minute(1)] == [claim.due_at for claim in self.claim("s2")]

    def test_a_run_given_back_after_the_clock_was_set_back_is_due_within_a_second(self) -> None:
        self.define(self.job("released"), self.job("taken over"))
        self.clock.advance(MINUTE)
        self.session(lease=DAY)
        self.fire(minute(1), job="released")
        self.fire(minute(1), job="taken over")
        claims = self.claim()
        self.clock.step(-HOUR.total_seconds())
        give_back(self.store, [claim for claim in claims if claim.job == "released"])
        self.store.reclaim(["s1"])
        self.session("s2", lease=DAY)
        self.clock.advance(MOST_AHEAD)
        assert {"released", "taken over"} == {claim.job for claim in self.claim("s2")}
