"""Locks: one holder per name, and only that holder's token opens it."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace

import pytest

from cronsensus.errors import InvalidOption, LeaseLost
from cronsensus.model.session import LockGrant
from cronsensus.testing.conformance.scene import DAY, HOSTILE, HOUR, LEASE, SECOND, START, Scene


class Locks(Scene):
    """Hazards of locks: one that outlives its holder, and one that somebody else opened."""

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

    def test_a_held_lock_is_granted_to_nobody(self) -> None:
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

    def test_an_overdue_lock_is_lost_although_nobody_took_it(self) -> None:
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

    # --- with a session ---------------------------------------------------------------------------------------------

    def test_a_lock_of_a_session_ends_when_the_session_closes(self) -> None:
        self.session()
        grant = self.lock(session="s1")
        self.store.close_session("s1")
        assert [] == self.store.locks()
        assert not self.store.extend(grant, ttl=LEASE)
        assert not self.store.unlock(grant)
        assert grant.token < self.lock(holder="b").token

    def test_a_lock_of_a_session_ends_when_the_session_is_reclaimed(self) -> None:
        self.session()
        grant = self.store.lock("name", "a", ttl=DAY, session="s1")
        assert grant is not None
        self.lease_out()
        self.store.reclaim()
        assert not self.store.extend(grant, ttl=LEASE)
        assert self.store.lock("name", "b", ttl=LEASE) is not None

    def test_a_lock_of_a_session_ends_with_its_lease_although_nobody_reclaimed_it(self) -> None:
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
        self.session("closed")
        self.store.close_session("closed")
        self.session("overdue")
        self.lease_out()
        for name in ("closed", "overdue", "nobody"):
            with pytest.raises(LeaseLost):
                self.store.lock("name", "a", ttl=LEASE, session=name)
        assert [] == self.store.locks()

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

    def test_overdue_locks_are_not_held(self) -> None:
        self.lock()
        self.lease_out()
        assert [] == self.store.locks()
