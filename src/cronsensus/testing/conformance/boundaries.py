"""Boundaries: the microsecond in which something ends, and namespaces in which all things have the same names."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from datetime import timedelta

import pytest

from cronsensus.errors import LeaseLost
from cronsensus.model.occurrence import Claim, Item, Note
from cronsensus.model.session import LockGrant
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, MINUTE, SECOND, StoreTest, minute
from cronsensus.testing.conformance.steps import an_end, give_back, say, settle

MICROSECOND = timedelta(microseconds=1)


class Boundaries(StoreTest):
    """Hazards of comparisons: a condition that is off by one, or that another one seems to make superfluous."""

    # --- the very moment ----------------------------------------------------------------------------------------------

    def test_a_session_lives_until_the_microsecond_before_its_lease_ends_and_is_dead_in_that_one(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        assert self.store.lock("of the session", "a", ttl=HOUR, session="s1")
        self.clock.advance(LEASE - MICROSECOND)
        assert ("s1",) == self.store.look().sessions
        assert [] == self.store.reclaim()
        assert ["of the session"] == [lock.name for lock in self.store.locks()]
        self.clock.advance(MICROSECOND)
        assert () == self.store.look().sessions
        assert not self.store.renew("s1", lease=LEASE).alive
        assert not self.store.drain("s1", by="ann", why="")
        with pytest.raises(LeaseLost):
            self.claim()
        with pytest.raises(LeaseLost):
            self.store.lock("another", "a", ttl=HOUR, session="s1")
        assert [] == self.store.locks()
        assert self.store.lock("of the session", "b", ttl=HOUR)
        assert [claim.id] == [taken.id for taken in self.store.reclaim()]

    def test_a_lock_is_held_until_the_microsecond_before_its_time_ends_and_is_free_in_that_one(self) -> None:
        grant = self.store.lock("name", "a", ttl=LEASE)
        assert grant is not None
        self.clock.advance(LEASE - MICROSECOND)
        assert self.store.lock("name", "b", ttl=LEASE) is None
        self.clock.advance(MICROSECOND)
        assert [] == self.store.locks()
        assert not self.store.extend(grant, ttl=LEASE)
        assert not self.store.unlock(grant)
        assert self.store.lock("name", "b", ttl=LEASE)

    def test_a_run_counts_against_concurrency_until_the_microsecond_its_lease_ends(self) -> None:
        self.queue(concurrency=1)
        self.fill(2)
        self.session("dies")
        self.session("lives", lease=HOUR)
        self.take("dies")
        self.clock.advance(LEASE - MICROSECOND)
        assert [] == self.claim("lives", lease=HOUR)
        self.clock.advance(MICROSECOND)
        assert 1 == len(self.claim("lives", lease=HOUR))

    def test_work_is_claimed_in_the_microsecond_of_its_expiry_and_missed_in_the_next(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        for late, claimed in ((timedelta(0), 1), (MICROSECOND, 0)):
            made = self.enqueue(expires_in=SECOND)
            self.clock.advance(SECOND + late)
            assert claimed == len(self.claim(lease=HOUR))
            assert (State.RUNNING if claimed else State.MISSED) is self.look(made).state

    def test_an_occurrence_that_ended_in_the_microsecond_of_the_prune_bound_stays(self) -> None:
        self.queue()
        self.session(lease=DAY)
        made = self.done(lease=DAY)
        bound = self.store.now()
        self.clock.advance(HOUR)
        assert 0 == self.store.prune(bound)
        assert 1 == self.store.prune(bound + MICROSECOND)
        assert self.store.occurrence(made.id) is None

    def test_a_run_beyond_a_lowered_max_crashes_survives_an_orderly_close(self) -> None:
        self.queue(max_crashes=3)
        self.enqueue()
        claim = self.abandoned()
        self.store.reclaim()
        self.session("s2")
        assert claim.id == self.take("s2").id
        self.queue(max_crashes=1)
        assert [State.PENDING] == [taken.became for taken in self.store.close_session("s2")]
        assert 1 == self.look(claim).crashes

    def test_the_first_reason_to_cancel_a_run_stays(self) -> None:
        self.define(self.job(overlap="cancel_previous"))
        self.session(lease=HOUR)
        self.fire(minute(1))
        self.clock.advance(MINUTE)
        claim = self.take(lease=HOUR)
        self.store.cancel(claim.id, by="ann", why="enough")
        asked = self.store.renew("s1", lease=HOUR).cancel[claim.id]
        assert "enough" in asked
        self.fire(minute(2), cancel_previous=True)
        assert {claim.id: asked} == self.store.renew("s1", lease=HOUR).cancel

    def test_a_plan_that_cancels_the_earlier_ones_cancels_none_of_another_job(self) -> None:
        self.define(*(self.job(name, overlap="cancel_previous") for name in ("job", "runs", "waits")))
        self.session(lease=HOUR)
        self.fire(minute(1), job="runs")
        self.clock.advance(MINUTE)
        claim = self.take(lease=HOUR)
        self.fire(minute(1), job="waits")
        self.fire(minute(2), cancel_previous=True)
        assert [State.PENDING] == [one.state for one in self.all(job="waits")]
        assert State.RUNNING is self.look(claim).state
        assert {} == self.store.renew("s1", lease=HOUR).cancel

    def test_a_job_that_was_paused_when_it_was_retired_is_not_counted_as_paused(self) -> None:
        self.define()
        self.store.pause("job", by="ann", why="")
        assert 1 == self.store.counts().paused
        self.store.retire("job", by="ann", why="")
        assert 0 == self.store.counts().paused

    # --- the same names -----------------------------------------------------------------------------------------------

    def twins(self) -> tuple[Store, Store, Claim, Claim, LockGrant, LockGrant]:
        """Let a session of one name hold a run of one job and a lock of one name in each of two namespaces."""
        found: list[tuple[Claim, LockGrant]] = []
        self.store.check()
        other = self.open("other")
        # Ids and tokens need not differ between namespaces: here they do.
        assert other.lock("first", "holder", ttl=HOUR)
        for store in (self.store, other):
            self.define(self.job("queue", trigger=None, concurrency=1), store=store)
            self.session(store=store)
            store.enqueue([Item(job="queue", key="one"), Item(job="queue", key="two")])
            grant = store.lock("name", "holder", ttl=HOUR, session="s1")
            assert grant is not None
            found.append((self.take(store=store), grant))
        (ours, our_lock), (theirs, their_lock) = found
        return self.store, other, ours, theirs, our_lock, their_lock

    def test_sessions_of_one_name_in_two_namespaces_are_told_of_their_own_runs_only(self) -> None:
        store, other, ours, theirs, _, _ = self.twins()
        assert other.cancel(theirs.id, by="ann", why="enough")
        assert other.drain("s1", by="ann", why="")
        for one, claim, asked in ((store, ours, False), (other, theirs, True)):
            renewal = one.renew("s1", lease=LEASE)
            assert ((claim.id, claim.token),) == renewal.held
            assert (asked, asked) == (bool(renewal.cancel), renewal.drain)
            assert [2] == [session.holds for session in one.sessions()]  # the lock too

    def test_runs_of_a_session_of_the_same_name_in_another_namespace_are_not_touched(self) -> None:
        _, other, ours, _, our_lock, _ = self.twins()
        outcome = an_end(id=ours.id, token=ours.token, state=State.FAILED, session="s1")
        assert not settle(other, [outcome])[0].accepted
        assert [False] == say(other, [Note(ours.id, ours.token, session="s1", progress=(1, 2))])
        for cut in (None, "stopped", "crashed"):
            assert [False] == give_back(other, [ours], cut=cut)
        assert other.unlock(our_lock) is False
        assert not other.extend(our_lock, ttl=DAY)
        found = self.look(ours)
        assert (State.RUNNING, 0) == (found.state, found.crashes)
        assert ["name"] == [lock.name for lock in self.store.locks()]

    def test_how_a_run_ended_is_told_again_in_its_own_namespace_only(self) -> None:
        store, other, ours, _, _, _ = self.twins()
        outcome = an_end(id=ours.id, token=ours.token, state=State.SUCCEEDED, session="s1")
        assert [True, True] == [settle(store, [outcome])[0].accepted for _ in range(2)]
        answer = settle(other, [outcome])[0]
        assert (False, True) == (answer.accepted, answer.state is not State.SUCCEEDED)

    @pytest.mark.parametrize("end", ["closed", "overdue", "presumed"])
    def test_the_end_of_a_session_ends_none_of_the_same_name_in_another_namespace(self, end: str) -> None:
        store, other, ours, theirs, our_lock, _ = self.twins()
        if end == "overdue":
            self.clock.advance(LEASE - SECOND)
            assert store.renew("s1", lease=LEASE).alive
            self.clock.advance(SECOND)
        taken = other.close_session("s1") if end == "closed" else other.reclaim(["s1"] if end == "presumed" else ())
        assert [theirs.id] == [one.id for one in taken]
        assert ["first"] == [lock.name for lock in other.locks()]
        assert State.RUNNING is self.look(ours).state
        assert [] == self.claim()  # there is room for one, and it runs
        assert store.extend(our_lock, ttl=HOUR)
        assert store.renew("s1", lease=LEASE).alive
        self.lease_out()
        assert [ours.id] == [one.id for one in store.reclaim()]

    def test_a_session_that_is_dead_in_one_namespace_lends_no_life_to_one_of_its_name(self) -> None:
        store, other, ours, _, _, _ = self.twins()
        assert other.renew("s1", lease=HOUR).alive
        self.clock.advance(LEASE)
        assert [] == store.locks()
        assert [] == other.reclaim()
        self.session("s2", lease=HOUR)
        assert ["two"] == [claim.key for claim in self.claim("s2", lease=HOUR)]
        assert store.lock("name", "b", ttl=HOUR)
        assert [ours.id] == [one.id for one in store.reclaim()]
        assert ["first", "name"] == [lock.name for lock in other.locks()]
