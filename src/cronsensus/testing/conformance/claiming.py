"""Claiming: which session may run which occurrence now. Never the same to two, and nothing for a dead session."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from datetime import timedelta

import pytest

from cronsensus.errors import LeaseLost
from cronsensus.model.states import Origin, Reason, State
from cronsensus.testing.conformance.fixtures import (
    DAY,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    START,
    StoreTest,
    minute,
)
from cronsensus.testing.conformance.steps import give_back
from cronsensus.timing.instants import to_micros


class Claiming(StoreTest):
    """Hazards of claiming: two holders of one occurrence, and a claim without a live holder."""

    # --- what a claim is --------------------------------------------------------------------------------------------

    def test_a_claimed_occurrence_is_running(self) -> None:
        self.queue()
        self.session()
        made = self.enqueue()
        self.clock.advance(SECOND)
        claim = self.take()
        found = self.look(made)
        assert (State.RUNNING, 1, claim.token) == (found.state, found.attempt, found.token)
        assert ("s1", "node of s1") == (found.session, found.node)
        assert START + SECOND == found.started_at == claim.claimed_at
        assert found.finished_at is None

    def test_a_claim_says_all_that_a_node_must_know(self) -> None:
        self.define(self.job(function="module.function", args=(1, [2]), kwargs={"a": {"b": None}}, timeout="5s"))
        self.session(lease=HOUR)
        self.fire(minute(1), delay=SECOND)
        self.clock.advance(MINUTE + SECOND)
        claim = self.take()
        found = self.all()[0]
        assert (found.id, found.key, "job", "s1") == (claim.id, claim.key, claim.job, claim.session)
        assert (minute(1), minute(1) + SECOND) == (claim.scheduled_for, claim.due_at)
        assert (Origin.SCHEDULE, 1, 0, 0) == (claim.origin, claim.attempt, claim.crashes, claim.failures)
        assert ((1, [2]), {"a": {"b": None}}) == (claim.args, claim.kwargs)
        assert self.view().spec == claim.spec

    def test_a_running_attempt_has_an_open_run_record(self) -> None:
        self.queue()
        self.session()
        self.enqueue("key")
        claim = self.take()
        run = self.runs(claim)[0]
        assert (claim.id, "queue", "key", 1, claim.token) == (
            run.occurrence,
            run.job,
            run.key,
            run.attempt,
            run.token,
        )
        assert ("s1", "node of s1", START) == (run.session, run.node, run.started_at)
        assert (None, None) == (run.end, run.finished_at)

    def test_a_claimed_occurrence_is_not_claimed_again(self) -> None:
        self.queue()
        self.session("s1")
        self.session("s2")
        self.fill(3)
        assert 3 == len(self.claim("s1"))
        assert [] == self.claim("s1")
        assert [] == self.claim("s2", store=self.sibling())

    def test_two_sessions_share_a_backlog_without_a_remainder(self) -> None:
        self.queue()
        self.session("s1")
        self.session("s2")
        ids = self.fill(10)
        first, second = self.claim("s1", 4), self.claim("s2", 100)
        assert (4, 6) == (len(first), len(second))
        assert sorted(ids) == sorted(claim.id for claim in first + second)

    def test_a_claim_takes_no_more_than_its_limit(self) -> None:
        self.queue()
        self.session()
        self.fill(3)
        assert [0, 1, 2, 0] == [len(self.claim(limit=limit)) for limit in (0, 1, 5, 5)]

    def test_a_large_backlog_is_claimed_finished_and_released_in_one_call(self) -> None:
        self.queue()
        self.session()
        ids = self.fill(2000)
        claims = self.claim(limit=5000)
        assert ids == [claim.id for claim in claims]
        assert 2000 == len({claim.token for claim in claims})
        assert [True] * 2000 == give_back(self.store, claims)
        assert ids == [claim.id for claim in self.claim(limit=2000)]

    # --- which ------------------------------------------------------------------------------------------------------

    def test_nothing_is_claimed_before_it_is_due(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        made = [self.enqueue(delay=number * MINUTE).id for number in (1, 2)]
        for one in made:
            self.clock.advance(MINUTE - timedelta(microseconds=1))
            assert [] == self.claim()
            self.clock.advance(timedelta(microseconds=1))
            assert [one] == [claim.id for claim in self.claim(lease=HOUR)]

    def test_jitter_delays_a_claim(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fire(minute(1), delay=10 * SECOND)
        self.clock.advance(MINUTE + 9 * SECOND)
        assert [] == self.claim()
        self.clock.advance(SECOND)
        assert minute(1) == self.take().scheduled_for

    def test_work_enqueued_before_the_clock_was_set_back_is_not_due_yet(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        self.clock.step(-HOUR)
        assert [] == self.claim()
        self.clock.step(HOUR)
        assert 1 == len(self.claim())

    def test_only_functions_that_the_node_has_are_claimed(self) -> None:
        self.define(self.job("a", trigger=None, function="f"), self.job("b", trigger=None, function="g"))
        self.session()
        for name in ("b", "a", "b", "a"):
            self.enqueue(job=name)
        assert ["a", "a"] == [claim.job for claim in self.claim(functions=["f", "elsewhere"])]
        assert [] == self.claim(functions=[])
        assert [] == self.claim(functions=["b"])
        assert ["b", "b"] == [claim.job for claim in self.claim(functions={"g"})]

    def test_many_functions_may_be_named(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        assert 1 == len(self.claim(functions=[*(f"function {number}" for number in range(2000)), "queue"]))

    def test_the_highest_priority_comes_first_then_the_earliest_due_then_the_oldest(self) -> None:
        self.queue(priority=1)
        self.session(lease=HOUR)
        fifth = self.enqueue(priority=-1)
        third = self.enqueue(delay=2 * SECOND)
        fourth = self.enqueue(delay=2 * SECOND)
        second = self.enqueue(delay=SECOND)
        first = self.enqueue(priority=2, delay=3 * SECOND)
        self.clock.advance(10)
        wanted = [first.id, second.id, third.id, fourth.id, fifth.id]
        assert wanted == [claim.id for claim in self.claim()]

    def test_the_order_holds_across_claims_and_jobs(self) -> None:
        self.queue("a")
        self.queue("b", priority=1)
        self.session()
        low, high = self.fill(2, "a"), self.fill(2, "b")
        assert [*high, *low] == [self.take(limit=1).id for _ in range(4)]

    def test_work_that_is_not_due_holds_nothing_back(self) -> None:
        self.queue()
        self.session()
        self.enqueue(priority=9, delay=HOUR)
        made = self.enqueue()
        assert made.id == self.take().id

    def test_paused_jobs_finish_what_they_have(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        self.store.pause("queue", by="ann", why="")
        assert self.finish(self.take()).accepted

    # --- tokens -----------------------------------------------------------------------------------------------------

    def test_every_holder_of_an_occurrence_has_a_greater_token(self) -> None:
        self.queue(max_crashes=100)
        made = self.enqueue()
        tokens = [self.look(made).token]
        for number in range(9):
            self.session(f"s{number}")
            claim = self.take(f"s{number}")
            tokens.append(claim.token)
            if number % 3 == 0:
                give_back(self.store, [claim])
            elif number % 3 == 1:
                self.finish(claim, State.PENDING)
            else:
                self.lease_out()
                self.store.reclaim()
        assert sorted(set(tokens)) == tokens

    def test_a_token_is_not_below_the_clock_so_none_is_given_again_by_a_store_that_forgot_its_last_ones(self) -> None:
        self.queue()
        self.session()
        self.enqueue("first")
        [first] = self.claim()
        assert first.token >= to_micros(self.clock.now())
        self.clock.advance(HOUR.total_seconds())
        self.session("s2")
        self.fill(3)
        claims = self.claim("s2", limit=3)
        assert [claim.token for claim in claims] == sorted({claim.token for claim in claims})
        assert claims[0].token >= to_micros(self.clock.now())
        assert claims[0].token > first.token
        assert claims[-1].token < 2**53  # a number in JSON keeps no more

    def test_tokens_grow_although_the_clock_is_set_back(self) -> None:
        self.queue()
        self.session()
        self.enqueue("first")
        [first] = self.claim()
        self.clock.step(-HOUR)
        self.session("s2")
        self.enqueue("other")
        [second] = self.claim("s2")
        assert first.token < second.token

    def test_tokens_of_different_occurrences_differ(self) -> None:
        self.queue()
        self.session()
        self.fill(50)
        claims = self.claim()
        assert 50 == len({claim.token for claim in claims})
        assert all(claim.token > 0 for claim in claims)

    # --- only for the living ----------------------------------------------------------------------------------------

    def test_a_session_that_was_never_opened_gets_nothing(self) -> None:
        self.queue()
        made = self.enqueue()
        with pytest.raises(LeaseLost):
            self.claim("nobody")
        assert State.PENDING is self.look(made).state

    def test_session_with_an_expired_lease_claims_nothing_before_a_reclaim(self) -> None:
        self.queue()
        self.session()
        made = self.enqueue()
        self.lease_out()
        with pytest.raises(LeaseLost):
            self.claim()
        assert State.PENDING is self.look(made).state
        assert [] == self.runs(made)

    def test_a_session_whose_lease_ran_out_is_told_so_also_when_there_is_nothing_to_claim(self) -> None:
        self.queue()
        self.session()
        self.lease_out()
        with pytest.raises(LeaseLost):
            self.claim()

    def test_an_ended_session_gets_nothing(self) -> None:
        self.queue()
        made = self.enqueue()
        self.session("closed")
        self.session("dead")
        self.store.close_session("closed")
        self.store.reclaim(["dead"])
        for name in ("closed", "dead"):
            with pytest.raises(LeaseLost):
                self.claim(name)
        assert State.PENDING is self.look(made).state

    def test_a_claim_that_takes_something_renews_the_lease(self) -> None:
        self.queue()
        self.session()
        for _ in range(5):
            self.enqueue()
            self.clock.advance(9)
            self.take()
        assert self.store.renew("s1", lease=LEASE).alive

    def test_a_claim_that_takes_something_shortens_a_long_lease(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        self.enqueue()
        self.take(lease=LEASE)
        self.lease_out()
        assert not self.store.renew("s1", lease=LEASE).alive

    def test_a_claim_that_takes_nothing_leaves_the_lease(self) -> None:
        self.queue()
        self.session("long", lease=HOUR)
        self.session("short")
        self.clock.advance(9)
        assert [] == self.claim("long") == self.claim("short")
        self.clock.advance(2)
        assert self.store.renew("long", lease=LEASE).alive
        assert not self.store.renew("short", lease=LEASE).alive

    def test_a_claim_that_dies_before_its_first_renewal_is_reclaimed_like_any_other(self) -> None:
        self.queue()
        self.enqueue()
        claim = self.abandoned()
        assert [(claim.id, claim.token)] == [(taken.id, taken.token) for taken in self.store.reclaim()]
        self.session("s2")
        assert claim.id == self.take("s2").id

    # --- expiry -----------------------------------------------------------------------------------------------------

    def test_an_expired_occurrence_that_never_started_is_missed(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fire(minute(1), expires_in=MINUTE)
        self.clock.advance(2 * MINUTE + SECOND)
        assert [] == self.claim()
        found = self.all()[0]
        assert (State.MISSED, Reason.LATE) == (found.state, found.reason)
        assert START + 2 * MINUTE + SECOND == found.finished_at
        assert (0, None) == (found.attempt, found.started_at)
        assert [] == self.runs(found.id)

    def test_an_occurrence_at_its_expiry_is_claimed(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fire(minute(1), expires_in=MINUTE)
        self.clock.advance(2 * MINUTE)
        assert minute(1) == self.take().scheduled_for

    def test_enqueued_work_may_expire_too(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        expiring = self.enqueue(delay=MINUTE, expires_in=MINUTE)
        lasting = self.enqueue(delay=MINUTE)
        self.clock.advance(3 * MINUTE)
        assert [lasting.id] == [claim.id for claim in self.claim()]
        assert (State.MISSED, Reason.LATE) == (self.look(expiring).state, self.look(expiring).reason)

    def test_expired_work_is_not_claimed_even_if_it_is_more_than_one_claim_closes(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        expired = self.fill(1_001, expires_in=SECOND)
        self.clock.advance(MINUTE)
        for _ in range(2):
            assert [] == self.claim(limit=3)
        assert expired == [one.id for one in self.all(states=(State.MISSED,))]

    def test_an_occurrence_that_started_once_does_not_expire(self) -> None:
        self.queue(retries=1)
        self.session(lease=HOUR)
        crashed, failed = self.fill(2, expires_in=SECOND)
        self.session("dies")
        assert crashed == self.take("dies", limit=1).id
        self.finish(self.take(limit=1, lease=HOUR), State.PENDING)
        self.clock.advance(MINUTE)
        self.store.reclaim()
        assert {crashed, failed} == {claim.id for claim in self.claim(lease=HOUR)}

    def test_an_expired_occurrence_does_not_hold_back_the_next(self) -> None:
        self.define(self.job(overlap="queue"))
        self.session(lease=DAY)
        self.fire(minute(1), expires_in=SECOND)
        self.fire(minute(2))
        self.clock.advance(HOUR)
        self.claim(limit=0)
        assert minute(2) == self.take().scheduled_for
