"""Each safeguard is there for a reason: without it the simulation finds a broken promise within a thousand seeds."""

import pytest

from tests.simulation.ablations import MADE_IN, STORES, on, place_of
from tests.simulation.cluster import Parts, simulate

MOST = 1000
SEEN_AT = {
    "AdoptsOnce": 442,
    "BelievesWhoeverReturns": 34,
    "CancelsWhatItInterrupts": 21,
    "ClaimsForTheDead": 31,
    "fires_and_forgets": 251,
    "ForgetsToCancel": 21,
    "GivesUpResults": 23,
    "HearsAnybody": 97,
    "LeasesOnTheWallClock": 23,
    "LocksOutliveSessions": 115,
    "NeverRenews": 18,
    "NoMostCrashes": 22,
    "RevivesTheDead": 21,
    "TellsNobody": 54,
    "TrustsForEver": 45,
    "WatchesNoClock": 34,
}
"""Where the rarer ones were found last, by ``seek_ablations.py``; looked at first, to save time."""
pytestmark = pytest.mark.timeout(600)  # while one of them is out of date, on a busy machine


def named(part):
    return part.__name__


def is_found(name, parts):
    seeds = dict.fromkeys([SEEN_AT.get(name, 0), *range(MOST)])
    return any(not simulate(seed, parts).ok for seed in seeds)


@pytest.mark.parametrize("store", STORES, ids=named)
def test_a_store_without_a_safeguard_is_found_out(store):
    assert is_found(named(store), on(store)), f"{store.__name__} passed {MOST} nights: {store.__doc__}"


@pytest.mark.parametrize(
    ("module", "part"),
    [pytest.param(module, part, id=named(part)) for module, parts in MADE_IN.items() for part in parts],
)
def test_a_node_without_a_safeguard_is_found_out(module, part, monkeypatch):
    monkeypatch.setattr(place_of(module, part), part)
    assert is_found(named(part), Parts()), f"{part.__name__} passed {MOST} nights: {part.__doc__}"
