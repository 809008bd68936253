"""What ended in the last day is kept from page to page, and true."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from cronsensus.dashboard.recent import MOST_ENDED, Recent
from cronsensus.model.glance import Glance
from cronsensus.model.states import State
from cronsensus.timing.clock import ManualClock
from tests.hand_cluster import START, HandCluster

DAY = timedelta(days=1)


class Counted:
    """A store that notes how many rows it gave."""

    def __init__(self, cluster: HandCluster) -> None:
        self._store = cluster.store
        self.given: list[int] = []

    def ran_since(self, since: datetime, *, limit: int) -> list[Glance]:
        found = self._store.ran_since(since, limit=limit)
        self.given.append(len(found))
        return found


@pytest.fixture
def store(cluster: HandCluster) -> Any:
    return Counted(cluster)


def ids(cluster: HandCluster, store: Any, recent: Recent) -> list[tuple[int, str]]:
    now = cluster.store.now()
    return [(one.id, str(one.state)) for one in recent.read_ran(store, now, now - DAY).glances]


def test_what_was_read_is_not_read_again_and_what_ended_since_is_seen(cluster: HandCluster, store: Any) -> None:
    recent = Recent(ManualClock(START))
    for _ in range(20):
        cluster.advance(60)
        cluster.run_once()
    first = ids(cluster, store, recent)
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    assert ids(cluster, store, recent) == [(claim.id, "running"), *first]
    cluster.finish(claim, State.FAILED)
    assert ids(cluster, store, recent) == [(claim.id, "failed"), *first]
    assert store.given[0] == 20
    assert max(store.given[1:]) <= 3
    assert len(first) == 20 < MOST_ENDED


def test_what_is_gone_from_the_store_is_gone_within_a_minute(cluster: HandCluster, store: Any) -> None:
    clock = ManualClock(START)
    recent = Recent(clock)
    cluster.advance(60)
    cluster.run_once()
    assert len(ids(cluster, store, recent)) == 1
    cluster.store.prune(cluster.store.now() + DAY)
    clock.advance(60)
    assert ids(cluster, store, recent) == []


def test_what_ended_a_day_ago_is_left_out(cluster: HandCluster, store: Any) -> None:
    recent = Recent(ManualClock(START))
    cluster.advance(60)
    cluster.run_once()
    assert len(ids(cluster, store, recent)) == 1
    cluster.advance(DAY.total_seconds() + 1)
    assert ids(cluster, store, recent) == []
