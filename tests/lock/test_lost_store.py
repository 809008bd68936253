"""A server that goes away while a lock is held."""

# ruff: noqa: PT012 - what raises is the end of the block

import threading
from typing import Any

import pytest

from cronsensus import LeaseLost, Lock, StoreUnavailable
from cronsensus.lock import lease as lease_module
from cronsensus.lock import opening
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer

PATIENCE = 60.0


@pytest.fixture
def server():
    try:
        made = RedisServer(durable=False).start()
    except ServiceMissing as missing:
        pytest.skip(f"service missing: {missing}")
    yield made
    opening.close_all()
    made.end()


def test_lease_is_lost_when_the_store_is_gone(server):
    lock = Lock(server.url, "name", ttl="1s")
    lease = lock.__enter__()
    server.kill9()
    assert lease.lost.wait(PATIENCE)
    with pytest.raises(LeaseLost, match="could not be renewed in time; another process may hold it"):
        lease.check()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        lock.release()
    assert not lock.owned()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        lock.acquire()


def test_block_ends_with_an_error_after_a_long_store_outage(server):
    with pytest.raises((LeaseLost, StoreUnavailable)), Lock(server.url, "name", ttl="1s") as lease:
        server.kill9()
        assert lease.lost.wait(PATIENCE)


def test_an_outage_shorter_than_the_ttl_costs_nothing(server, monkeypatch):
    monkeypatch.setattr(lease_module, "RENEWALS", 60)  # twice in a second, and there is a minute to spare
    lock, other = Lock(server.url, "name", ttl="30s"), Lock(server.url, "name", blocking=False)
    backend, asked, answered = lock._backend(), threading.Semaphore(0), threading.Semaphore(0)
    extend = backend.extend_lock

    def watched(*args: Any, **options: Any) -> bool:
        asked.release()
        done = extend(*args, **options)
        answered.release()
        return done

    monkeypatch.setattr(backend, "extend_lock", watched)
    with lock as lease:
        server.pause()
        assert asked.acquire(timeout=PATIENCE)  # a renewal falls into it
        while answered.acquire(blocking=False):
            pass
        server.resume()
        assert answered.acquire(timeout=PATIENCE)
        assert answered.acquire(timeout=PATIENCE)
        assert lease.owned()
        took: list[bool] = []
        thread = threading.Thread(target=lambda: took.append(other.acquire()))
        thread.start()
        thread.join(PATIENCE)
        assert took == [False]
