"""A store loses its last moment under a node that lives: what it forgot to be over is set right, on each server."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cronsensus import Run, Scheduler, every
from cronsensus.audit import audit
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import Store, open_store
from tests.servers.forgetting import KINDS, Forgetful, forgetful
from tests.servers.programs import ServiceMissing

PATIENCE = 60.0


# A database file that is replaced under a process is refused by the store, which is told elsewhere.
@pytest.fixture(params=[kind for kind in KINDS if kind != "sqlite-replaced"])
def place(request: pytest.FixtureRequest, tmp_path) -> Iterator[Forgetful]:
    try:
        with forgetful(request.param, tmp_path) as found:
            yield found
    except ServiceMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def beside(place) -> Iterator[Store]:
    """A handle beside the node's, for looking."""
    store = open_store(place.url)
    store.migrate()
    yield store
    store.close()


def until(holds, what: str) -> None:
    """Wait for something that comes at once unless it never comes."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
        threading.Event().wait(0.05)


def test_what_the_store_forgot_to_be_over_is_recorded_and_the_schedule_goes_on(place, beside):
    scheduler = Scheduler(place.url, node="a", lease="20s")  # outlasts the restart of a server on a busy machine
    ticks: list[str] = []
    charges: list[int] = []
    begun, go_on = threading.Semaphore(0), threading.Event()

    @scheduler.job(every("1s"))
    def tick(run: Run) -> None:
        ticks.append(run.key)
        if not go_on.is_set():
            begun.release()
            go_on.wait(PATIENCE)

    @scheduler.job(on_crash="fail")
    def charge(run: Run) -> str:
        charges.append(run.token)
        begun.release()
        go_on.wait(PATIENCE)
        return "charged"

    scheduler.start()
    try:
        charged = charge.options(key="order:1").enqueue()
        for _ in range(2):
            assert begun.acquire(timeout=PATIENCE)
        waiting = ticks[0]
        place.remember()
        go_on.set()
        assert charged.result("60s") == "charged"
        until(lambda: len(ticks) >= 2, "the schedule goes on")
        before = len(ticks)
        place.forget()

        def settled() -> bool:
            (first,) = beside.occurrences(OccurrenceFilter(job="charge", key="order:1"))
            return first.state is State.SUCCEEDED

        until(lambda: _quietly(settled), "the forgotten end of the at-most-once run is recorded")
        until(lambda: len(ticks) >= before + 3, "the schedule goes on after the store forgot")
    finally:
        scheduler.stop("10s")
    assert len(charges) == 1
    (charge_row,) = beside.occurrences(OccurrenceFilter(job="charge"))
    assert (charge_row.state, charge_row.attempt, charge_row.result) == (State.SUCCEEDED, 1, '"charged"')
    (first,) = beside.occurrences(OccurrenceFilter(job="tick", key=waiting))
    assert first.state is State.SUCCEEDED
    assert ticks.count(waiting) == 1
    assert beside.occurrences(OccurrenceFilter(states=(State.RUNNING,))) == []
    assert audit(beside, tolerance=timedelta(seconds=PATIENCE)).findings == []


def _quietly(ask) -> bool:
    """While a server comes back, it does not answer."""
    from cronsensus.errors import StoreError

    try:
        return bool(ask())
    except StoreError:
        return False
