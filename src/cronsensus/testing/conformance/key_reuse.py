"""Key reuse: a key is free again after its time, or once it is forgotten; fingerprints tell payloads apart."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import pytest

from cronsensus.errors import InvalidOption, InvalidTransition
from cronsensus.model.occurrence import Claim, LogLine, Note, scheduled_key
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import give_back, say, win_named


class KeyReuse(StoreTest):
    """Hazards of keys: what is forgotten too early is done twice, and what is never forgotten is never done again."""

    def keyed(self, key: str = "key", *, fingerprint: str | None = None, session: str = "s1") -> Claim:
        """Acquire a key of the job ``queue``, which must be won."""
        claim = self.acquire(session, "queue", key=key, lease=LEASE, fingerprint=fingerprint)
        assert claim is not None
        return claim

    # --- kept for as long as the job says ---------------------------------------------------------------------------

    def test_a_key_that_was_kept_long_enough_is_acquired_anew_without_a_prune(self) -> None:
        self.queue(keep="1h")
        self.session(lease=DAY)
        first = self.keyed()
        say(self.store, [Note(first.id, first.token, None, (LogLine(START, "info", "x"),))])
        self.finish(first, result="1")
        self.clock.advance(HOUR + SECOND)
        self.session("s2", lease=DAY)
        second = self.keyed(session="s2")
        assert second.id != first.id
        assert (1, True) == (second.attempt, second.token > first.token)
        assert (None, [], []) == (self.store.occurrence(first.id), self.runs(first.id), self.store.logs(first.id))
        assert [(second.id, State.RUNNING, None)] == [(one.id, one.state, one.result) for one in self.all()]
        assert self.finish(second).accepted
        assert not self.finish(first, result="1").accepted

    def test_a_key_is_not_acquired_again_before_it_was_kept_long_enough(self) -> None:
        self.queue(keep="1h")
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
            self.session(f"of {state}", lease=DAY)
            claim = self.keyed(str(state), session=f"of {state}")
            self.finish(claim, state)
        self.clock.advance(HOUR)
        self.session("later", lease=DAY)
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
            assert self.acquire("later", "queue", key=str(state), lease=LEASE) is None
        self.clock.advance(0.001)
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
            assert self.acquire("later", "queue", key=str(state), lease=LEASE) is not None

    def test_a_nominal_time_is_not_acquired_anew_however_long_ago_it_ended(self) -> None:
        self.queue(keep="1h")
        self.session(lease=10 * DAY)
        claim = self.acquire("s1", "queue", scheduled_for=minute(1), lease=10 * DAY)
        assert claim is not None
        self.finish(claim)
        self.clock.advance(DAY)
        assert self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE) is None

    def test_a_key_that_was_kept_long_enough_is_won_by_one_of_many(self) -> None:
        self.queue(keep="1h")
        self.session(lease=DAY)
        self.finish(self.keyed())
        self.clock.advance(2 * HOUR)
        for number in range(8):
            self.session(f"racer {number}")
        won = self.race(lambda store, number: _acquire(store, f"racer {number}"), threads=8)
        assert 1 == len([one for one in won if one is not None])
        assert 1 == len(self.all())

    # --- forgotten on purpose ---------------------------------------------------------------------------------------

    def test_forget_deletes_an_ended_occurrence_with_runs_and_logs_and_is_recorded(self) -> None:
        self.queue()
        self.session()
        claim = self.keyed()
        say(self.store, [Note(claim.id, claim.token, None, (LogLine(START, "info", "x"),))])
        self.finish(claim, State.FAILED)
        assert State.FAILED is self.store.forget("queue", "key", by="ann", why="wrong amount")
        assert not any([self.all(), self.runs(claim.id), self.store.logs(claim.id)])
        entry = self.store.trail(limit=1)[0]
        assert ("forget", "queue", "ann", "wrong amount") == (entry.action, entry.target, entry.by, entry.why)
        assert {"occurrence": claim.id, "key": "key", "state": "failed"} == entry.details
        again = self.keyed()
        assert (1, State.RUNNING) == (again.attempt, self.look(again).state)

    def test_forget_deletes_a_pending_occurrence_which_never_runs(self) -> None:
        self.queue()
        self.session()
        self.enqueue("key")
        self.enqueue("other")
        assert State.PENDING is self.store.forget("queue", "key", by="ann")
        assert ["other"] == [claim.key for claim in self.claim()]
        assert ["other"] == [one.key for one in self.all()]

    def test_forget_deletes_a_running_occurrence_only_on_request(self) -> None:
        self.queue(concurrency=1)
        self.session()
        claim = self.keyed()
        with pytest.raises(InvalidTransition, match="is running under the key 'key'"):
            self.store.forget("queue", "key", by="ann")
        assert [State.RUNNING] == [one.state for one in self.all()]
        assert State.RUNNING is self.store.forget("queue", "key", by="ann", running=True)
        assert [] == self.all()
        assert not self.finish(claim).accepted
        assert [False] == give_back(self.store, [claim])
        assert 0 == self.store.counts().running
        assert self.keyed().id != claim.id
        self.enqueue("other")
        assert [] == self.claim()  # the one that runs now is counted

    def test_forget_without_an_occurrence_records_nothing(self) -> None:
        self.queue()
        assert self.store.forget("queue", "key", by="ann") is None
        assert self.store.forget("nobody", "key", by="ann") is None
        assert [] == self.store.trail()

    def test_another_occurrence_than_the_one_that_is_meant_is_not_forgotten(self) -> None:
        self.queue()
        self.session()
        self.finish(self.keyed(), State.FAILED)
        (seen,) = self.all()
        assert self.store.forget("queue", "key", by="ann", only=seen.id + 1) is None
        assert [seen] == self.all()
        assert State.FAILED is self.store.forget("queue", "key", by="ann", only=seen.id)
        assert [] == self.all()

    def test_nominal_times_are_not_forgotten(self) -> None:
        self.queue()
        self.session()
        assert self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE) is not None
        with pytest.raises(InvalidOption, match="decided once for ever"):
            self.store.forget("queue", scheduled_key(minute(1)), by="ann", running=True)
        assert 1 == len(self.all())

    def test_keys_of_one_namespace_are_not_forgotten_from_another(self) -> None:
        self.queue()
        self.enqueue("key")
        other = self.open("other")
        other.migrate()
        self.define(self.job("queue", trigger=None), store=other)
        assert other.forget("queue", "key", by="ann") is None
        assert 1 == len(self.all())

    # --- fingerprints -----------------------------------------------------------------------------------------------

    def test_a_fingerprint_stands_with_the_occurrence(self) -> None:
        self.queue()
        self.session()
        claim = self.keyed(fingerprint="a" * 1000)
        assert "a" * 1000 == claim.fingerprint == self.look(claim).fingerprint
        self.finish(claim)
        assert "a" * 1000 == self.look(claim).fingerprint
        assert self.look(self.keyed("without")).fingerprint is None

    def test_an_attempt_that_failed_leaves_no_fingerprint(self) -> None:
        self.queue()
        self.session()
        self.finish(self.keyed(fingerprint="a"), State.PENDING)
        claim = self.keyed(fingerprint="b")
        assert "b" == claim.fingerprint == self.look(claim).fingerprint
        self.finish(claim, State.PENDING)
        assert self.look(claim).fingerprint is None

    def test_an_attempt_that_was_cut_off_leaves_its_fingerprint(self) -> None:
        self.queue()
        self.session()
        self.keyed(fingerprint="a")
        self.lease_out()
        self.store.reclaim()
        self.session("s2")
        claim = self.keyed(fingerprint="b", session="s2")
        assert (2, "a", "a") == (claim.attempt, claim.fingerprint, self.look(claim).fingerprint)

    def test_an_attempt_that_never_began_leaves_no_fingerprint(self) -> None:
        self.queue()
        self.session()
        assert [True] == give_back(self.store, [self.keyed(fingerprint="a")])
        claim = self.keyed(fingerprint="b")
        assert (1, "b", "b") == (claim.attempt, claim.fingerprint, self.look(claim).fingerprint)


def _acquire(store: Store, session: str) -> Claim | None:
    return win_named(store, session, "queue", key="key", lease=LEASE)
