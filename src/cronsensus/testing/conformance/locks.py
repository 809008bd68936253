"""Locks: one holder per name, and only that holder's token opens it."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from cronsensus.errors import InvalidOption, LeaseLost
from cronsensus.model.session import LockGrant
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.testing.conformance.fixtures import DAY, HOSTILE, HOUR, LEASE, SECOND, START, StoreTest
from cronsensus.timing.instants import to_micros


class Locks(StoreTest):
    """Hazards of locks: one that outlives its holder, and one that another holder freed."""

    def lock(self, name: str = "name", holder: str = "a", *, session: str | None = None) -> LockGrant:
        """Take a lock that must be free."""
        grant = self.store.lock(name, holder, ttl=LEASE, session=session)
        assert grant is not None
        return grant

    # --- taking -----------------------------------------------------------------------------------------------------

    def test_a_free_lock_is_granted(self) -> None:
        grant = self.lock()
        assert ("name", "a") == (grant.name, grant.holder)
        assert grant.token > 0

    def test_held_lock_is_not_granted_again(self) -> None:
        self.lock()
        assert self.sibling().lock("name", "b", ttl=LEASE) is None
        assert self.store.lock("name", "a", ttl=LEASE) is None

    def test_a_refusal_leaves_the_lock_as_it_is(self) -> None:
        self.lock()
        before = self.snapshot()
        self.store.lock("name", "b", ttl=HOUR)
        assert before == self.snapshot()

    def test_names_are_locked_each_for_itself(self) -> None:
        grants = [self.lock(name) for name in HOSTILE]
        assert len(HOSTILE) == len({grant.token for grant in grants})
        assert sorted(HOSTILE) == [view.name for view in self.store.locks()]
        assert self.store.unlock(grants[3])
        assert len(HOSTILE) - 1 == len(self.store.locks())

    def test_names_that_are_none_are_not_locked(self) -> None:
        for name in ("", "a\0b", "x" * 201):
            with pytest.raises(InvalidOption):
                self.store.lock(name, "a", ttl=LEASE)
        assert [] == self.store.locks()

    def test_an_overdue_lock_is_granted_to_the_next(self) -> None:
        old = self.lock()
        self.lease_out()
        new = self.lock(holder="b")
        assert old.token < new.token
        assert not self.store.extend(old, ttl=HOUR)
        assert not self.store.unlock(old)
        assert ["b"] == [view.holder for view in self.store.locks()]

    def test_the_token_grows_with_every_grant(self) -> None:
        tokens = []
        for number in range(12):
            grant = self.lock(holder=f"h{number % 2}")
            tokens.append(grant.token)
            if number % 3 == 0:
                self.lease_out()
            else:
                assert self.store.unlock(grant)
        assert sorted(set(tokens)) == tokens

    def test_locks_expire_by_the_clock_that_judges_leases(self) -> None:
        grant = self.lock()
        self.clock.step(HOUR)
        on_monotonic = self.store.capabilities.lease_clock == "monotonic"
        assert on_monotonic == (self.store.lock("name", "b", ttl=LEASE) is None)
        assert on_monotonic == self.store.extend(grant, ttl=LEASE)

    # --- extending --------------------------------------------------------------------------------------------------

    def test_a_lock_lasts_as_long_as_it_is_extended(self) -> None:
        grant = self.lock()
        for _ in range(5):
            self.clock.advance(9)
            assert self.store.extend(grant, ttl=LEASE)
        assert self.store.lock("name", "b", ttl=LEASE) is None
        self.lease_out()
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_overdue_lock_is_lost_although_it_was_not_taken(self) -> None:
        grant = self.lock()
        self.lease_out()
        assert not self.store.extend(grant, ttl=HOUR)
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_only_the_current_token_extends(self) -> None:
        old = self.lock()
        self.lease_out()
        new = self.lock(holder="a")
        self.clock.advance(9)
        assert not self.store.extend(old, ttl=HOUR)
        assert not self.store.extend(replace(new, token=new.token + 1), ttl=HOUR)
        assert not self.store.extend(replace(new, name="other"), ttl=HOUR)
        self.clock.advance(2)
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_an_unlocked_lock_cannot_be_extended(self) -> None:
        grant = self.lock()
        self.store.unlock(grant)
        assert not self.store.extend(grant, ttl=HOUR)
        assert [] == self.store.locks()

    # --- unlocking --------------------------------------------------------------------------------------------------

    def test_the_holder_frees_its_lock_once(self) -> None:
        grant = self.lock()
        assert self.sibling().unlock(grant)
        assert not self.store.unlock(grant)
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_a_late_unlock_does_not_free_the_lock_of_the_next_holder(self) -> None:
        old = self.lock()
        self.lease_out()
        self.lock(holder="a")
        before = self.snapshot()
        assert not self.store.unlock(old)
        assert before == self.snapshot()
        assert self.store.lock("name", "b", ttl=LEASE) is None

    def test_no_other_token_frees_a_lock(self) -> None:
        grant = self.lock()
        for token in (0, -1, grant.token - 1, grant.token + 1, 2**62):
            assert not self.store.unlock(replace(grant, token=token))
        assert not self.store.unlock(replace(grant, name="other"))
        assert self.store.lock("name", "b", ttl=LEASE) is None

    def test_a_token_is_not_below_the_clock(self) -> None:
        first = self.lock()
        assert first.token >= to_micros(self.clock.now())
        self.clock.advance(HOUR.total_seconds())
        assert self.lock(holder="b").token >= to_micros(self.clock.now())

    def test_under_the_right_token_another_holder_or_session_moves_nothing(self) -> None:
        # Such a token was given twice: by a server that forgot, and whose clock lags behind.
        self.session()
        for grant in (self.lock("with", session="s1"), self.lock("without")):
            for other in (replace(grant, holder="other"), replace(grant, session="other")):
                assert not self.store.extend(other, ttl=HOUR)
                assert not self.store.unlock(other)
            assert self.store.extend(grant, ttl=LEASE)
            assert self.store.unlock(grant)

    # --- breaking ---------------------------------------------------------------------------------------------------

    def test_broken_lock_is_lost_by_its_holder_and_the_trail_names_the_operator(self) -> None:
        self.session()
        grants = [self.place("a", session="s1"), self.place("b")]
        other = self.lock("other")
        assert grants == self.store.break_lock("name", by="ann", why="it hangs")
        entry = self.store.trail(limit=1)[0]
        assert ("break", "name", "ann", "it hangs") == (entry.action, entry.target, entry.by, entry.why)
        for grant in grants:
            assert grant is not None
            assert not self.store.extend(grant, ttl=HOUR)
            assert not self.store.unlock(grant)
        assert ["other"] == [view.name for view in self.store.locks()]
        new = self.lock()
        assert all(new.token > grant.token for grant in grants if grant is not None)
        assert self.store.unlock(other)

    def test_free_lock_is_not_broken(self) -> None:
        self.lock()
        self.lease_out()
        before = len(self.store.trail())
        assert [] == self.store.break_lock("name", by="ann", why="")
        assert [] == self.store.break_lock("never", by="ann", why="")
        assert before == len(self.store.trail())

    # --- with a session ---------------------------------------------------------------------------------------------

    def test_a_lock_of_a_session_ends_when_the_session_closes(self) -> None:
        self.session()
        grant = self.lock(session="s1")
        self.store.close_session("s1")
        assert [] == self.store.locks()
        assert [0] == [view.holds for view in self.store.sessions(ended=True)], "its row is still there"
        assert not self.store.extend(grant, ttl=LEASE)
        assert not self.store.unlock(grant)
        assert grant.token < self.lock(holder="b").token

    def test_a_lock_of_a_session_ends_when_the_session_is_reclaimed(self) -> None:
        self.session()
        grant = self.store.lock("name", "a", ttl=DAY, session="s1")
        assert grant is not None
        self.lease_out()
        self.store.reclaim()
        assert [0] == [view.holds for view in self.store.sessions(ended=True)], "its row is still there"
        assert not self.store.extend(grant, ttl=LEASE)
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_lock_of_a_session_ends_with_its_lease_without_a_reclaim(self) -> None:
        self.session()
        grant = self.store.lock("name", "a", ttl=DAY, session="s1")
        assert grant is not None
        self.lease_out()
        assert not self.store.extend(grant, ttl=LEASE)
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_a_lock_of_a_session_ends_by_itself_too(self) -> None:
        self.session(lease=HOUR)
        self.lock(session="s1")
        self.lease_out()
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_the_end_of_a_session_frees_no_lock_that_others_hold_by_now(self) -> None:
        self.session(lease=HOUR)
        self.lock(session="s1")
        self.lease_out()
        other = self.lock(holder="b")
        self.store.close_session("s1")
        assert self.store.extend(other, ttl=LEASE)

    def test_a_lock_without_a_session_outlives_all_sessions(self) -> None:
        self.session()
        grant = self.lock()
        self.store.close_session("s1")
        self.store.reclaim()
        assert self.store.extend(grant, ttl=LEASE)

    def test_no_lock_is_granted_to_a_dead_session(self) -> None:
        self.session("overdue")
        self.lease_out()
        self.session("closed")
        self.store.close_session("closed")
        for name in ("closed", "overdue", "nobody"):
            with pytest.raises(LeaseLost):
                self.store.lock("name", "a", ttl=LEASE, session=name)
        assert [] == self.store.locks()

    # --- with several places ----------------------------------------------------------------------------------------

    def place(self, holder: str, limit: int = 3, *, session: str | None = None) -> LockGrant | None:
        """Take one of several places, if one is free."""
        return self.store.lock("name", holder, ttl=LEASE, session=session, limit=limit)

    def test_a_lock_for_several_has_that_many_holders(self) -> None:
        grants = [self.place(f"h{number}") for number in range(3)]
        assert [0, 1, 2] == sorted(grant.place for grant in grants if grant is not None)
        assert self.place("h3") is None
        assert ["h0", "h1", "h2"] == sorted(view.holder for view in self.store.locks())
        tokens = [grant.token for grant in grants if grant is not None]
        assert sorted(set(tokens)) == tokens

    def test_each_place_is_freed_for_itself(self) -> None:
        first, second, third = (self.place(f"h{number}") for number in range(3))
        assert second is not None
        assert self.store.unlock(second)
        assert not self.store.unlock(second)
        again = self.place("h3")
        assert again is not None
        assert again.place == second.place
        assert again.token > second.token
        assert not self.store.extend(second, ttl=HOUR)
        assert first is not None
        assert third is not None
        assert self.store.extend(first, ttl=HOUR)
        assert self.store.unlock(third)

    def test_each_place_ends_by_itself(self) -> None:
        first = self.place("h0")
        self.clock.advance(6)
        self.place("h1")
        self.place("h2")
        assert self.place("h3") is None
        self.clock.advance(6)
        assert first is not None
        assert not self.store.extend(first, ttl=HOUR)
        assert self.place("h3") is not None
        assert self.place("h4") is None

    def test_the_places_of_a_dead_session_are_free(self) -> None:
        self.session()
        for number in range(3):
            self.place(f"h{number}", session="s1")
        assert self.place("h3") is None
        self.store.close_session("s1")
        assert [0, 1, 2] == sorted(grant.place for _ in range(3) if (grant := self.place("h4")) is not None)
        assert self.place("h5") is None

    def test_with_different_limits_the_smallest_in_force_counts(self) -> None:
        alone = self.place("h0", limit=1)
        assert alone is not None
        assert self.place("h1", limit=3) is None
        assert self.store.unlock(alone)
        assert self.place("h2", limit=3) is not None
        assert self.place("h3", limit=1) is None
        assert self.place("h4", limit=2) is not None
        assert self.place("h5", limit=3) is None

    def test_an_exclusive_lock_is_refused_whichever_place_is_held(self) -> None:
        first, second = self.place("h0"), self.place("h1")
        assert first is not None
        assert second is not None
        assert self.store.unlock(first)
        assert self.place("alone", limit=1) is None
        again = self.place("h2")
        assert again is not None
        assert self.store.unlock(again)
        assert self.store.unlock(second)
        assert self.place("alone", limit=1) is not None
        assert ["alone"] == [view.holder for view in self.store.locks()]

    def test_limit_of_a_former_holder_is_not_in_force(self) -> None:
        self.session()
        self.place("h0", limit=1)
        self.lease_out()
        assert self.place("h1") is not None
        self.session("s2")
        assert self.place("h2", limit=2, session="s2") is not None
        assert self.place("h3") is None
        self.store.close_session("s2")
        assert [True, True, False] == [self.place(f"h{number}") is not None for number in (4, 5, 6)]

    def test_a_place_says_nothing_of_other_names(self) -> None:
        grant = self.place("h0", limit=2)
        assert grant is not None
        assert not self.store.unlock(replace(grant, place=1))
        assert not self.store.unlock(replace(grant, name="other"))
        assert self.store.unlock(grant)

    # --- wait queues --------------------------------------------------------------------------------------------------

    def wait_queues(self) -> WaitQueues:
        """Open a way to be told, closed after the test."""
        queues = self.sibling().wait_queues()
        self._wait_queues.append(queues)
        return queues

    def setup_method(self) -> None:
        super().setup_method()
        self._wait_queues: list[WaitQueues] = []

    def teardown_method(self) -> None:
        for queues in self._wait_queues:
            queues.close()
        super().teardown_method()

    @property
    def tells(self) -> bool:
        """Whether an unlock can be heard of."""
        return self.store.capabilities.notify or self.store.capabilities.clock == "process"

    def test_unlock_notifies_the_wait_queue(self) -> None:
        grant, queues = self.lock(), self.wait_queues()
        queues.join_queue("name")
        assert [] == queues.receive(0.01)
        assert self.store.unlock(grant)
        assert queues.receive(self.patience if self.tells else 0.01) == ["name"] * self.tells

    def test_unlock_does_not_notify_waiters_for_another_lock(self) -> None:
        grant, queues = self.lock(), self.wait_queues()
        queues.join_queue("other")
        assert self.store.unlock(grant)
        assert [] == queues.receive(0.05)

    def test_a_waiter_that_left_the_queue_is_not_notified(self) -> None:
        grant, queues = self.lock(), self.wait_queues()
        queues.join_queue("name")
        queues.leave_queue("name")
        assert self.store.unlock(grant)
        assert [] == queues.receive(0.05)

    def test_unlock_that_freed_nothing_notifies_no_waiter(self) -> None:
        grant, queues = self.lock(), self.wait_queues()
        self.lease_out()
        queues.join_queue("name")
        assert not self.store.unlock(grant)
        assert [] == queues.receive(0.05)

    def test_a_notified_waiter_may_join_the_queue_again(self) -> None:
        queues = self.wait_queues()
        for _ in range(3):
            grant = self.lock()
            queues.join_queue("name")
            queues.join_queue("name")
            assert self.store.unlock(grant)
            assert queues.receive(self.patience if self.tells else 0.01) == ["name"] * self.tells

    def test_every_unlock_notifies_a_waiter(self) -> None:
        waiting = [self.wait_queues() for _ in range(3)]
        for queues in waiting:
            queues.join_queue("name")
        told = 0
        for _ in waiting:
            grant = self.lock()
            assert self.store.unlock(grant)
            if self.tells:
                heard = self.who_receives(waiting)
                told += len(heard)
                for queues in heard[1:]:
                    queues.join_queue("name")
        assert told >= 3 * self.tells

    def who_receives(self, waiting: list[WaitQueues]) -> list[WaitQueues]:
        """Return the names of notified waiters, as soon as there is one."""
        for _ in range(round(self.patience / 0.05 / len(waiting))):
            if heard := [queues for queues in waiting if queues.receive(0.05)]:
                return heard
        raise AssertionError("no waiter was notified")

    def test_a_waiter_that_lost_the_race_can_notify_the_next(self) -> None:
        queues = self.wait_queues()
        queues.join_queue("name")
        self.store.wake_next("other")
        assert [] == queues.receive(0.01)
        self.store.wake_next("name")
        assert queues.receive(self.patience if self.tells else 0.01) == ["name"] * self.tells

    def test_lines_of_two_namespaces_are_two(self) -> None:
        self.lock()
        queues = self.open("elsewhere").wait_queues()
        self._wait_queues.append(queues)
        queues.join_queue("name")
        self.store.wake_next("name")
        assert [] == queues.receive(0.05)

    def test_hostile_names_have_lines_of_their_own(self) -> None:
        queues = self.wait_queues()
        for name in HOSTILE:
            queues.join_queue(name)
        for name in HOSTILE:
            self.store.wake_next(name)
        heard: set[str] = set()
        while self.tells and heard < set(HOSTILE):
            new = queues.receive(self.patience)
            assert new
            heard |= set(new)
        assert heard == (set(HOSTILE) if self.tells else set())

    def test_closing_a_line_ends_its_wait(self) -> None:
        self.lock()
        queues = self.wait_queues()
        queues.join_queue("name")
        thread = threading.Thread(target=queues.receive, args=(self.patience,), daemon=True)
        thread.start()
        queues.close()
        thread.join(30)
        assert not thread.is_alive()
        queues.close()
        assert self.store.unlock(self.lock("other"))

    # --- reading ----------------------------------------------------------------------------------------------------

    def test_held_locks_are_read_by_name(self) -> None:
        self.session(lease=HOUR)
        self.lock("b", "holder b")
        self.clock.advance(4)
        grant = self.lock("a", "holder a", session="s1")
        first, second = self.store.locks()
        assert ("a", "holder a", "s1", grant.token) == (first.name, first.holder, first.session, first.token)
        assert (START + 4 * SECOND, LEASE) == (first.acquired_at, first.expires_in)
        assert ("b", None, 6 * SECOND) == (second.name, second.session, second.expires_in)
        assert ["a"] == [view.name for view in self.store.locks(limit=1)]

    def test_the_places_of_one_lock_are_read_by_its_name(self) -> None:
        self.session(lease=HOUR)
        self.lock("a")
        self.place("h0", session="s1")
        self.place("h1")
        one, other = sorted(self.store.locks(name="name"), key=lambda view: view.holder)
        assert ("h0", "h1") == (one.holder, other.holder)
        assert [0, 1] == sorted([one.place, other.place])
        assert ("host", 4711, 99) == (one.host, one.pid, one.pid_started)
        assert (None, None, None) == (other.host, other.pid, other.pid_started)
        assert [] == self.store.locks(name="nam")
        assert 1 == len(self.store.locks(name="name", limit=1))
        assert ["a", "name", "name"] == [view.name for view in self.store.locks()]

    def test_overdue_locks_are_not_held(self) -> None:
        self.lock()
        self.lease_out()
        assert [] == self.store.locks()
