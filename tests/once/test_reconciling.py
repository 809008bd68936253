"""The store forgets how a call of a guarded function ended: it is recorded again, and no call waits for ever."""

import threading
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.snapshots import restore_snapshot, take_snapshot
from tests.servers.distance import patience

PATIENCE = patience(60.0)


@pytest.fixture
def scheduler():
    made = Scheduler("memory://forgotten-once", lease="3s")  # longer than the moment that is forgotten, however busy
    yield made
    made._opened.close()


def memory(scheduler: Scheduler) -> MemoryStore:
    store: Any = scheduler.store
    assert isinstance(store, MemoryStore)
    return store


def recorded(scheduler: Scheduler, job: str) -> Occurrence:
    (found,) = scheduler.store.occurrences(OccurrenceFilter(job=job))
    return found


def wait_for(scheduler: Scheduler, job: str, state: State) -> Occurrence:
    end = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if (found := recorded(scheduler, job)).state is state:
            return found
        end.wait(0.02)
    raise AssertionError(f"{job} is {recorded(scheduler, job).state} after {PATIENCE:g} s, and had to be {state}")


def test_an_end_that_the_store_forgot_is_told_again(scheduler):
    ran, before = [], []

    @scheduler.once("k", name="charge")
    def charge() -> int:
        ran.append(1)
        before.append(take_snapshot(memory(scheduler)))
        return len(ran)

    assert charge() == 1
    restore_snapshot(memory(scheduler), before[0])
    assert recorded(scheduler, "once:charge").state is State.RUNNING
    found = wait_for(scheduler, "once:charge", State.SUCCEEDED)
    assert (found.result, found.attempt) == ("1", 1)
    assert charge() == 1
    assert ran == [1]


def test_a_call_that_still_runs_is_left_alone(scheduler):
    go_on, begun, answers = threading.Event(), threading.Event(), []

    @scheduler.once("k", name="slow")
    def slow() -> str:
        begun.set()
        go_on.wait(PATIENCE)
        return "done"

    caller = threading.Thread(target=lambda: answers.append(slow()))
    caller.start()
    assert begun.wait(PATIENCE)
    held = recorded(scheduler, "once:slow").token
    threading.Event().wait(3.5)  # several renewals
    assert (recorded(scheduler, "once:slow").state, recorded(scheduler, "once:slow").token) == (State.RUNNING, held)
    go_on.set()
    caller.join(PATIENCE)
    assert answers == ["done"]
