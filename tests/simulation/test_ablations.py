"""Each safeguard is there for a reason: without it the simulation finds a broken promise within a thousand seeds."""

import pytest

from tests.simulation.ablations import MADE_IN, STORES, on, place_of
from tests.simulation.cluster import Parts, simulate

MOST = 1000
SEEN_AT = {
    "AdoptsOnce": 781,
    "blind_while_full": 348,
    "ClaimsForTheDead": 22,
    "fires_and_forgets": 439,
    "HearsAnybody": 35,
    "LocksOutliveSessions": 199,
    "NoTokenCheck": 35,
    "PrunesAboveTheWatermark": 22,
    "WatchesNoClock": 268,
}
"""Where the rarer ones were found last; looked at first, to save time."""


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
