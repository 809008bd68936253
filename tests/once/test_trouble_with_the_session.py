"""The store says that the session is dead, gives no answer to a claim, or is away when a call ends."""

from itertools import count
from typing import Any

import pytest

from cronsensus import Scheduler, StoreUnavailable
from cronsensus.errors import LeaseLost
from cronsensus.membership.lease import SessionLease
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step
from cronsensus.outside import claims as outside_claims
from cronsensus.stores.memory import MemoryStore
from tests.once.test_reconciling import wait_for

_names = count()


@pytest.fixture
def scheduler():
    made = Scheduler(f"memory://trouble-{next(_names)}", lease="30s")
    yield made
    made._opened.close()


def failing_once(monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception, *, done: bool) -> list[Any]:
    """Let a verb fail the next time, before or after it is ``done``; return where each call is noted."""
    calls: list[Any] = []
    real = getattr(MemoryStore, verb)

    def fails(self: MemoryStore, *args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) > 1:
            return real(self, *args, **more)
        if done:
            real(self, *args, **more)
        raise error

    monkeypatch.setattr(MemoryStore, verb, fails)
    return calls


def test_call_with_a_session_declared_dead_begins_a_new_one(scheduler, monkeypatch):
    calls = failing_once(monkeypatch, "acquire", LeaseLost("taken for dead"), done=False)

    @scheduler.once("k", name="charge")
    def charge() -> str:
        return "done"

    assert charge() == "done"
    first, second = (args[0] for args in calls)
    assert first != second


def test_lost_answer_of_an_acquire_may_have_shortened_the_lease(scheduler, monkeypatch):
    shortened: list[float] = []
    shorten = SessionLease.shorten_trust

    def noted(self: SessionLease, *args: Any) -> None:
        shorten(self, *args)
        shortened.append(self.trusted_for)

    monkeypatch.setattr(SessionLease, "shorten_trust", noted)
    failing_once(monkeypatch, "acquire", StoreUnavailable("the answer is lost"), done=True)

    @scheduler.once("k", name="charge")
    def charge() -> str:
        return "done"

    try:
        assert charge() == "done"
    except StoreUnavailable:
        assert charge() == "done"
    # That of a session that holds nothing is ten minutes.
    assert len(shortened) == 1
    assert shortened[0] <= 30


def test_an_end_that_cannot_be_told_is_told_later_and_is_the_one_that_it_was(scheduler, monkeypatch):
    monkeypatch.setattr(outside_claims, "PATIENCE", 0.0)
    away = [True]
    real = MemoryStore.step

    def step(self: MemoryStore, session: str, step: Step) -> Done:
        if away[0] and step.ends:
            raise StoreUnavailable("away")
        return real(self, session, step)

    monkeypatch.setattr(MemoryStore, "step", step)
    ran = []

    @scheduler.once("k", name="charge")
    def charge() -> str:
        ran.append(1)
        return "done"

    with pytest.raises(StoreUnavailable):
        charge()
    [seen] = scheduler.store.occurrences(OccurrenceFilter(job="once:charge"))
    assert seen.state is State.RUNNING
    away[0] = False
    found = wait_for(scheduler, "once:charge", State.SUCCEEDED)
    assert (found.result, found.attempt) == ('"done"', 1)
    assert charge() == "done"
    assert ran == [1]
