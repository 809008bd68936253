"""A standby takes over while jobs are in their ``run.transaction()``: each of them is done, and each effect once."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from cronsensus import Run, Scheduler, State
from cronsensus.audit import audit
from cronsensus.errors import StoreError
from cronsensus.stores import open_store
from tests.servers.forgetting import Forgetful, forgetful
from tests.servers.programs import ServiceMissing

PATIENCE = 60.0
SLOTS, ORDERS = 4, 8
DRIVERS = {"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}


@pytest.fixture(params=["postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path) -> Iterator[tuple[str, Forgetful]]:
    try:
        with forgetful(request.param, tmp_path) as found:
            yield request.param, found
    except ServiceMissing as missing:
        pytest.skip(str(missing))


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
        threading.Event().wait(0.05)


def test_a_failover_under_jobs_in_their_transactions_loses_no_occurrence_and_doubles_no_effect(place):
    kind, server = place
    engine = create_engine(make_url(server.url).set(drivername=DRIVERS[kind]), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bookings (name VARCHAR(99), attempt INTEGER)"))
    inside, go_on = threading.Semaphore(0), threading.Event()
    scheduler = Scheduler(server.url, node="a", lease="20s", concurrency=SLOTS)  # outlasts the failover

    @scheduler.job()
    def book(run: Run) -> str:
        with run.transaction() as conn:
            conn.execute(text("INSERT INTO bookings VALUES (:key, :attempt)"), {"key": run.key, "attempt": run.attempt})
            inside.release()
            assert go_on.wait(PATIENCE)
            conn.execute(text("SELECT 1"))
            return run.complete(run.key)

    beside = open_store(server.url)
    with scheduler:
        handles = [book.options(key=f"order:{number}").enqueue() for number in range(ORDERS)]
        for _ in range(SLOTS):
            assert inside.acquire(timeout=PATIENCE)
        server.remember()  # nothing is acknowledged from here on: all slots are in their blocks
        server.forget()
        go_on.set()

        def over() -> bool:
            try:
                found = [beside.occurrence(handle.id) for handle in handles]
            except StoreError:  # while the other server takes over
                return False
            return all(one is not None and one.state.final for one in found)

        until(over, "all orders are over")
    found = [beside.occurrence(handle.id) for handle in handles]
    assert [one.state for one in found if one is not None] == [State.SUCCEEDED] * ORDERS
    cut_off = [one for one in found if one is not None and one.attempt > 1]
    assert len(cut_off) >= SLOTS
    assert all(one.failures == 0 for one in found if one is not None)
    with engine.connect() as connection:
        booked = Counter(row.name for row in connection.execute(text("SELECT name FROM bookings")))
    assert booked == Counter(f"order:{number}" for number in range(ORDERS))
    assert audit(beside, tolerance=timedelta(seconds=PATIENCE)).findings == []
    beside.close()
    engine.dispose()
