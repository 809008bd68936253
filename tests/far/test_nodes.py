"""Nodes whose store is far away: what they run ends, once, and no session is lost for the distance alone.

``CRONSENSUS_TEST_FAR_SECONDS=300`` is the long form of the test of a schedule.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from cronsensus import Run, Scheduler, every
from cronsensus.audit import audit
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import Store, open_store
from tests.servers.proxy import Proxy

SECONDS = float(os.environ.get("CRONSENSUS_TEST_FAR_SECONDS", "6"))
LEASE = 3.0
SECOND = timedelta(seconds=1)
Declare = Callable[[Scheduler, str], None]
Start = Callable[..., list[Scheduler]]


@pytest.fixture
def near(near_url: str) -> Iterator[Store]:
    """Return a handle beside the server, for the test's own looks."""
    store = open_store(near_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def start(near: Store) -> Iterator[Start]:
    """Return what starts nodes with the jobs that ``declare`` gives them; they are gone when the test is over."""
    made: list[Scheduler] = []

    def started(url: str, declare: Declare, count: int, lease: float = LEASE) -> list[Scheduler]:
        for number in range(count):
            name = f"node-{number}"
            made.append(Scheduler(url, node=name, lease=f"{lease:g}s"))
            declare(made[-1], name)
        for one in made:
            one.start()
        return made

    yield started
    for one in made:
        one.stop()


def require_no_session_lost(near: Store, count: int) -> None:
    opened = [one for one in near.sessions(ended=True) if one.is_node]
    assert [one.ended_why for one in opened if one.state == "dead"] == []
    assert len(opened) == count


@pytest.mark.parametrize("round_trip", [0.04, 0.1], ids=["40ms", "100ms"])
def test_a_job_of_three_leases_ends_once_however_far_the_server_is(
    near: Store, network: Proxy, start: Start, round_trip: float
) -> None:
    began: list[str] = []
    told = threading.Event()
    ended = threading.Event()

    def declare(scheduler: Scheduler, name: str) -> None:
        @scheduler.job(name="long")
        def long(run: Run) -> None:
            began.append(name)
            if run.cancelled.wait(3 * LEASE):
                told.set()
            ended.set()

    network.delay(round_trip / 2)
    start(network.url, declare, 2)
    [created] = near.enqueue([Item(job="long", key="key")])
    near.notify()
    assert ended.wait(60)
    assert not told.is_set()
    until(lambda: (seen := near.occurrence(created.id)) is not None and seen.state.final)
    occurrence = near.occurrence(created.id)
    assert occurrence is not None
    assert (occurrence.state, occurrence.attempt, len(began)) == (State.SUCCEEDED, 1, 1)
    require_no_session_lost(near, 2)


@pytest.mark.timeout(3 * SECONDS + 120)
def test_a_job_of_each_second_is_run_each_second_by_one_of_the_nodes_far_away(
    near: Store, network: Proxy, start: Start, round_trip: float
) -> None:
    """Nothing is skipped by overlap here: far from the server, deciding and recording take a good part of a second."""
    runs: list[datetime] = []

    def declare(scheduler: Scheduler, name: str) -> None:
        @scheduler.job(every("1s"), name="tick", overlap="allow", catch_up="all")
        def tick(run: Run) -> None:
            assert run.scheduled_for is not None
            runs.append(run.scheduled_for)

    network.delay(round_trip / 2)
    nodes = start(network.url, declare, 4, 10.0)
    until(lambda: len(runs) >= SECONDS, SECONDS * 3 + 30)
    for one in nodes:
        one.stop()
    times = sorted(set(runs))
    assert [time for time, count in Counter(runs).items() if count > 1] == []
    assert [earlier for earlier, later in pairwise(times) if later - earlier != SECOND] == []
    print(f"{len(runs)} runs in {SECONDS:g} s, {round_trip * 1000:g} ms away: 0 twice, 0 left out")
    states = Counter(one.state for one in near.occurrences(OccurrenceFilter(job="tick"), limit=1000))
    assert set(states) <= {State.SUCCEEDED, State.PENDING}
    report = audit(near, jobs=["tick"])
    assert report.ok, report
    require_no_session_lost(near, 4)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what comes about."""
    pause = threading.Event()
    for _ in range(round(seconds / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not come about in time")
