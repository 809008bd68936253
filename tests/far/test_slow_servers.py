"""A server that takes a second to connect, or whose first query is slow: late, and nothing worse."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cronsensus import Run, Scheduler
from cronsensus.model.occurrence import Item
from cronsensus.stores import Store, open_store
from tests.servers.proxy import Proxy

A_SECOND = 1.0
LEASE = 4.0
FIRST = {"postgresql": b"BEGIN", "mysql": b"START TRANSACTION", "redis": b"EVALSHA"}
"""What the first verb on a connection sends, by store."""


@pytest.fixture
def near(near_url: str) -> Iterator[Store]:
    """Return a handle beside the server."""
    store = open_store(near_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture(params=["slow to connect", "slow at first"])
def slow(request: pytest.FixtureRequest, near: Store, network: Proxy) -> Proxy:
    """Return the network to a server that is slow in one way or the other."""
    if request.param == "slow to connect":
        network.slow_set_up(A_SECOND)
    else:
        network.slow_first(A_SECOND, FIRST[near.capabilities.name])
    return network


def test_a_slow_start_loses_no_session_and_runs_nothing_twice(near: Store, slow: Proxy) -> None:
    began: list[str] = []
    done = threading.Event()
    nodes = []
    for name in ("a", "b"):
        nodes.append(Scheduler(slow.url, node=name, lease=f"{LEASE:g}s"))

        @nodes[-1].job(name="work")
        def work(run: Run, name: str = name) -> None:
            began.append(name)
            # Every connection is made anew in the middle of the run, a second late.
            slow.cut()
            assert not run.cancelled.wait(1.5 * LEASE)
            done.set()

    starting = [threading.Thread(target=node.start) for node in nodes]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    [created] = near.enqueue([Item(job="work", key="key")])
    near.notify()
    assert done.wait(60)
    until = time.monotonic() + 30
    while (seen := near.occurrence(created.id)) is not None and not seen.state.final:
        assert time.monotonic() < until, "its end was not recorded in time"
        threading.Event().wait(0.05)
    for node in nodes:
        node.stop()
    assert seen is not None
    assert (seen.state, seen.attempt, len(began)) == ("succeeded", 1, 1)
    assert [one.ended_why for one in near.sessions(ended=True) if one.state == "dead"] == []
