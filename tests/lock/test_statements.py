"""What a lock costs where each statement is a journey to the server and back."""

import threading
from collections.abc import Callable

import psycopg
import pytest

from cronsensus import Lock
from cronsensus.lock import opening


@pytest.fixture
def journeys(monkeypatch) -> Callable[[Callable[[], object]], int]:
    """Count what this thread waits for: each statement, and each BEGIN or COMMIT if there were any."""
    waits: list[int] = []
    wait = psycopg.Connection.wait

    def noted(self, *given, **named):
        waits.append(threading.get_ident())
        return wait(self, *given, **named)

    monkeypatch.setattr(psycopg.Connection, "wait", noted)

    def count(act: Callable[[], object]) -> int:
        waits.clear()
        act()
        return waits.count(threading.get_ident())

    return count


def test_a_lock_on_postgresql_takes_two_statements_each_way_at_most(postgres_url, journeys):
    lock = Lock(postgres_url, "name")
    with lock:  # makes the schema, opens a session
        pass
    try:
        assert journeys(lock.acquire) == 1
        assert journeys(lock.reacquire) == 1
        assert journeys(lock.release) == 2  # frees it, notifies waiters
    finally:
        opening.close_all()
