"""Herds: several jobs are due at once, and one step decides and claims them."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.stores.values import NO_DELAY
from cronsensus.testing.conformance.fixtures import HOUR, LEASE, MINUTE, SECOND, StoreTest, minute


class Herds(StoreTest):
    """Hazards of a short way for what is usual: what is not goes it too, or one of many stops the others."""

    def decide_and_claim(self, *plans: Plan, limit: int = 100, ahead: timedelta = NO_DELAY, but: str = "") -> Done:
        """Carry plans out, and claim what can be claimed, ``but`` not of one function."""
        functions = tuple(name for name in self._functions if name != but)
        want = Want(limit=limit, functions=functions, lease=LEASE, ahead=ahead)
        return self.store.step("s1", Step(plans=plans, want=want))

    def herd(self, *names: str, expires_in: timedelta | None = None, **policies: Any) -> tuple[Plan, ...]:
        """Let jobs be due at once for a session that has claimed before; plan them. Policies are of the last one."""
        self.define(*(self.job(name, overlap="allow") for name in names[:-1]), self.job(names[-1], **policies))
        self.session(lease=HOUR)
        assert [] == self.claim()
        self.clock.advance(MINUTE)
        plans = [self.plan(minute(1), job=name) for name in names[:-1]]
        return (*plans, self.plan(minute(1), job=names[-1], expires_in=expires_in))

    def claimed(self, done: Done) -> list[str]:
        """Return of which jobs claims are; each is of the first minute, and running, under a token of its own."""
        assert {(minute(1), minute(1), 1)} >= {
            (claim.scheduled_for, claim.due_at, claim.attempt) for claim in done.claims
        }
        assert (
            len(done.claims) == len({claim.token for claim in done.claims}) == len({claim.id for claim in done.claims})
        )
        assert all(State.RUNNING is self.look(claim).state for claim in done.claims)
        return [claim.job for claim in done.claims]

    def test_of_a_herd_the_highest_priority_is_claimed_first(self) -> None:
        done = self.decide_and_claim(*self.herd("a", "b", "c", priority=5))
        assert ((True, True, True), ["c", "a", "b"]) == (done.carried_out, self.claimed(done))
        assert [3] == [session.holds for session in self.store.sessions()]
        assert [] == list(self.store.look().jobs)

    def test_of_a_herd_the_earliest_due_is_claimed_first(self) -> None:
        a, b, c = self.herd("a", "b", "c")
        later = replace(a.occurrences[0], due_at=minute(1) + SECOND)
        done = self.decide_and_claim(replace(a, occurrences=(later,)), b, c, ahead=SECOND)
        assert ["b", "c", "a"] == [claim.job for claim in done.claims]
        a_row = self.look(done.claims[-1])
        assert (minute(1) + SECOND, minute(1) + SECOND) == (a_row.due_at, a_row.started_at)

    def test_of_a_herd_what_is_due_later_waits(self) -> None:
        a, b = self.herd("a", "b")
        later = replace(a.occurrences[0], due_at=minute(1) + SECOND)
        done = self.decide_and_claim(replace(a, occurrences=(later,)), b)
        assert ((True, True), ["b"]) == (done.carried_out, self.claimed(done))
        self.clock.advance(1)
        assert ["a"] == [one.job for one in self.claim()]

    def test_of_a_herd_no_more_is_claimed_than_asked_for(self) -> None:
        done = self.decide_and_claim(*self.herd("a", "b", "c", priority=5), limit=2)
        assert ((True, True, True), ["c", "a"]) == (done.carried_out, self.claimed(done))
        assert ["b"] == [one.job for one in self.claim()]

    def test_of_a_herd_the_plans_that_hold_are_carried_out_once(self) -> None:
        plans = self.herd("a", "b", "c")
        self.store.pause("b", by="ann", why="")
        done = self.decide_and_claim(*plans)
        assert ((True, False, True), ["a", "c"]) == (done.carried_out, self.claimed(done))
        done = self.decide_and_claim(*plans)
        assert ((False, False, False), []) == (done.carried_out, self.claimed(done))

    def test_of_two_plans_of_one_job_in_a_herd_the_first_wins(self) -> None:
        a, b = self.herd("a", "b")
        done = self.decide_and_claim(a, b, a)
        assert ((True, True, False), ["a", "b"]) == (done.carried_out, self.claimed(done))

    def test_of_a_herd_no_occurrence_is_made_twice(self) -> None:
        a, b = self.herd("a", "b", overlap="allow")
        self.store.backfill("b", [minute(1)], by="ann")
        self.finish(self.take())
        done = self.decide_and_claim(a, b)
        assert ((True, True), ["a"]) == (done.carried_out, self.claimed(done))
        assert ["b", "a"] == [one.job for one in self.all()]

    def test_of_a_herd_what_is_not_for_this_node_waits(self) -> None:
        plans = self.herd("a", "b")
        done = self.decide_and_claim(*plans, but="b")
        assert ((True, True), ["a"]) == (done.carried_out, self.claimed(done))
        assert ["b"] == [one.job for one in self.claim()]

    def test_in_a_herd_the_limit_of_a_job_holds(self) -> None:
        a, b = self.herd("a", "b", overlap="allow", concurrency=1)
        self.enqueue(job="b")
        assert ["b"] == [one.job for one in self.claim()]
        done = self.decide_and_claim(a, b)
        assert ((True, True), ["a"]) == (done.carried_out, self.claimed(done))

    def test_of_a_herd_what_comes_too_late_is_missed(self) -> None:
        plans = self.herd("a", "b", expires_in=SECOND)
        self.clock.advance(2)
        done = self.decide_and_claim(*plans)
        assert ((True, True), ["a"]) == (done.carried_out, self.claimed(done))
        assert [State.RUNNING, State.MISSED] == [one.state for one in self.all()]
