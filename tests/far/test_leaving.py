"""Leaving while the server stands still: a node is gone a few seconds after its drain, whatever its store does."""

from __future__ import annotations

import threading
import time

import pytest

from cronsensus import Run, Scheduler
from cronsensus.lock import opening
from cronsensus.membership.leaving import LEAVING_SECONDS, ended_within
from cronsensus.membership.session_host import LEAVE_WITHIN
from cronsensus.model.occurrence import Item
from cronsensus.stores import open_store
from tests.servers.proxy import Proxy

DRAIN = 0.5
BUSY = 4.0
"""Seconds that a busy machine may add. A verb waits for a silent server for ten and more."""


def test_a_node_whose_server_stands_still_leaves_soon_after_its_drain(network: Proxy, near_url: str) -> None:
    scheduler = Scheduler(network.url, lease="30s")
    running = threading.Event()

    @scheduler.job(name="long")
    def long(run: Run) -> None:
        running.set()
        run.cancelled.wait(60)

    scheduler.start()
    near = open_store(near_url)
    near.enqueue([Item(job="long")])
    near.notify()
    assert running.wait(60)
    network.freeze()
    begun = time.monotonic()
    assert not scheduler.stop(DRAIN)
    assert time.monotonic() - begun < DRAIN + LEAVING_SECONDS + BUSY
    near.close()


def test_a_lock_whose_server_stands_still_is_left_to_its_lease(network: Proxy) -> None:
    scheduler = Scheduler(network.url)
    lock = scheduler.lock("lock", ttl="30s")
    assert lock.acquire()
    network.freeze()
    begun = time.monotonic()
    opening.close_all()
    scheduler._opened.close()
    assert time.monotonic() - begun < LEAVE_WITHIN + BUSY


def test_what_hangs_is_left_behind_and_what_raises_raises() -> None:
    never = threading.Event()
    assert not ended_within(0.05, lambda: never.wait(30))
    never.set()
    assert ended_within(30, lambda: None)
    with pytest.raises(ZeroDivisionError):
        ended_within(30, lambda: 1 // 0)
