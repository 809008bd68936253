"""Nights in which the store now and then loses what it acknowledged in its last moment, while nodes live on it."""

import os
from collections import Counter

import pytest

from cronsensus.node.active_runs import ActiveRuns
from cronsensus.node.claiming import Claiming
from cronsensus.node.reconciling import Reconciling
from cronsensus.stores.memory import MemoryStore
from tests.simulation.cluster import Parts, Simulation, simulate
from tests.simulation.test_simulation import told

SEEDS = int(os.environ.get("CRONSENSUS_TEST_FORGETS", "100"))
AT_ONCE = 25
FORGETFUL = Parts(forgets=True)
MOST = 1000
SEEN_AT = {"AdoptsWhatEnded": 12, "StopsNothing": 373}
"""Where they were found last, by ``seek_ablations.py``; looked at first, to save time."""


def night(seed: int) -> Simulation:
    return simulate(seed, FORGETFUL)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nodes_come_to_agree_again_with_a_store_that_forgot(first):
    for seed in range(first, first + AT_ONCE):
        result = night(seed)
        assert result.ok, f"{told(result)} ARGS=--forgets"


def test_enough_is_forgotten_to_prove_something():
    happened = Counter[str]()
    for seed in range(25):
        last = ""
        for line in night(seed).trace.lines():
            _, _, what, *_ = line.split(maxsplit=3)
            happened[what] += 1
            happened[f"{last} {what}"] += 1
            last = what
    assert happened["FORGETS"] > 30
    assert happened["FORGETS"] * 5 < happened["step"]


def test_the_same_seed_gives_the_same_trace():
    assert [night(seed).trace.digest() for seed in range(5)] == [night(seed).trace.digest() for seed in range(5)]


# --- each safeguard, removed: the simulation notices -----------------------------------------------------------------


class NeverCompares(Reconciling):
    """Believes that the store knows what it knew."""

    def correct_differences(self, lease):
        self._news = None


class SaysNothingTwice(ActiveRuns):
    """Runs again what the store forgot to be over."""

    def send_again(self, key):
        return False


class StopsNothing(Reconciling):
    """Goes on with a run that the store gives to others."""

    def _stop_run(self, key):
        pass


class AdoptsWhatEnded(Claiming):
    """Takes every run that it does not hold for one whose claim's answer was lost."""

    def adopt_lost(self, lease):
        said, self._active_runs.accepted_ends._ends = self._active_runs.accepted_ends._ends, {}
        try:
            super().adopt_lost(lease)
        finally:
            self._active_runs.accepted_ends._ends = said


ABLATIONS = (NeverCompares, SaysNothingTwice, StopsNothing, AdoptsWhatEnded)


def place_of(part):
    return f"cronsensus.node.round.{part.__base__.__name__}"


@pytest.mark.parametrize("part", ABLATIONS, ids=lambda part: part.__name__)
def test_a_node_that_does_not_compare_in_full_is_found_out(part, monkeypatch):
    monkeypatch.setattr(place_of(part), part)
    first = SEEN_AT.get(part.__name__, 0)
    seeds = [*range(first, MOST), *range(first)]
    assert any(not night(seed).ok for seed in seeds), f"{part.__name__} passed {MOST} nights: {part.__doc__}"


class TokensFall(MemoryStore):
    """Gives a token again that it forgot to have given."""

    def _start_run(self, row, session, now, *, at):
        if self._world.counters.get("token", 0) > 5 and self._world.next_number("fall") % 7 == 0:
            self._world.counters["token"] -= 3
        return super()._start_run(row, session, now, at=at)


def test_a_store_whose_tokens_fall_is_found_out():
    parts = Parts(store=lambda clock: TokensFall(clock=clock), forgets=True)
    assert any(not simulate(seed, parts).ok for seed in range(MOST))
