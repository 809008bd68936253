"""Nights in which nodes reserve far more than they begin soon, and are killed, frozen and cut off with it."""

from collections import Counter

import pytest

from cronsensus.model.occurrence import Item
from cronsensus.node import pace, reserving, round  # noqa: A004 - the module
from cronsensus.node.active_runs import ActiveRuns
from cronsensus.stores.memory import MemoryStore
from tests.simulation.ablations import on
from tests.simulation.cluster import simulate
from tests.simulation.cluster.people import People

AT_ONCE = 20
LONG = 5.0


@pytest.fixture
def happened(monkeypatch):
    """Let people ask for much at a time, and nodes reserve eight runs when slots are full; count what comes of it."""
    enqueue = People._enqueue

    def noted_enqueue(people, job):
        enqueue(people, job)
        people.do("enqueue", [Item(job=job) for _ in range(12)])

    monkeypatch.setattr(People, "_enqueue", noted_enqueue)
    monkeypatch.setattr(pace.Pace, "reserve_limit", 8)
    monkeypatch.setattr(reserving, "STALLED_AFTER", LONG)
    monkeypatch.setattr(round, "STALLED_AFTER", LONG)
    happened = Counter[str]()
    reserve, hand_back, begin = ActiveRuns.reserve_claims, ActiveRuns.release_waiting, ActiveRuns._start_reserved

    def noted_reserve(active_runs, claims, lease):
        happened["reserved"] += len(claims)
        reserve(active_runs, claims, lease)

    def noted_hand_back(active_runs, *, lost=False):
        happened["handed back"] += len(active_runs.reserved)
        hand_back(active_runs, lost=lost)

    def noted_begin(active_runs):
        begun = begin(active_runs)
        happened["begun"] += begun
        return begun

    monkeypatch.setattr(ActiveRuns, "reserve_claims", noted_reserve)
    monkeypatch.setattr(ActiveRuns, "release_waiting", noted_hand_back)
    monkeypatch.setattr(ActiveRuns, "_start_reserved", noted_begin)
    return happened


@pytest.mark.parametrize("first", [0, AT_ONCE])
def test_no_promise_is_broken_with_much_reserved(first, happened):
    for seed in range(first, first + AT_ONCE):
        result = simulate(seed)
        assert result.ok, (seed, result.violations[:6])
    assert min(happened["reserved"], happened["begun"], happened["handed back"]) > AT_ONCE, happened


class CountsWhatNeverBegan(MemoryStore):
    """Counts a crash for what was reserved on a node that is gone."""

    def _take_over(self, row, session, why, now, *, crashed):
        row.reserved = False
        return super()._take_over(row, session, why, now, crashed=crashed)


class ReservesAnything(MemoryStore):
    """Lets anything wait on a node."""

    @staticmethod
    def _may_be_reserved(_):
        return True


@pytest.mark.parametrize("store", [CountsWhatNeverBegan, ReservesAnything])
def test_a_store_that_reserves_without_care_is_found_out(store, happened):
    assert any(not simulate(seed, on(store)).ok for seed in range(200)), happened
