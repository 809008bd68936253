"""Each safeguard is there for a reason: without it the simulation finds a broken promise within a thousand seeds."""

import pytest

from cronsensus.testing.simulation import Parts, simulate
from tests.simulation.ablations import CONDUCTORS, KEEPERS, LEASES, STORES, on

MOST = 1000
SEEN_AT = {
    "AcquiresPastWhatIsOwed": 330,
    "AdoptsOnce": 428,
    "BlindWhileFull": 130,
    "HearsAnybody": 403,
    "LocksOutliveSessions": 183,
}
"""Where the rarer ones were found last; looked at first, to save time."""


def named(part):
    return part.__name__


def is_found(name, parts):
    seeds = [*range(SEEN_AT.get(name, 0), MOST), *range(SEEN_AT.get(name, 0))]
    return any(not simulate(seed, parts).ok for seed in seeds)


@pytest.mark.parametrize("store", STORES, ids=named)
def test_a_store_without_a_safeguard_is_found_out(store):
    assert is_found(named(store), on(store)), f"{store.__name__} passed {MOST} nights: {store.__doc__}"


@pytest.mark.parametrize("conductor", CONDUCTORS, ids=named)
def test_a_conductor_without_a_safeguard_is_found_out(conductor):
    assert is_found(named(conductor), Parts(conductor=conductor)), (
        f"{conductor.__name__} passed {MOST} nights: {conductor.__doc__}"
    )


@pytest.mark.parametrize("keeper", KEEPERS, ids=named)
def test_a_keeper_without_a_safeguard_is_found_out(keeper):
    assert is_found(named(keeper), Parts(keeper=keeper)), f"{keeper.__name__} passed {MOST} nights: {keeper.__doc__}"


@pytest.mark.parametrize("lease", LEASES, ids=named)
def test_a_node_that_trusts_its_lease_for_too_long_is_found_out(lease, monkeypatch):
    monkeypatch.setattr("cronsensus.node.conductor.SessionLease", lease)
    assert is_found(named(lease), Parts()), f"{lease.__name__} passed {MOST} nights: {lease.__doc__}"
