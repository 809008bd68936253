"""Nights in which two due jobs are a herd and all nodes but one are late: what few nodes and few jobs never show."""

from collections import Counter

import pytest

from cronsensus.node import decide, herd, turn_order
from tests.simulation.cluster import simulate

AT_ONCE = 20


@pytest.mark.parametrize("first", [0, AT_ONCE])
def test_no_promise_is_broken_in_herds_and_by_late_nodes(first, monkeypatch):
    monkeypatch.setattr(herd, "MOST_DUE_JOBS", 1)
    monkeypatch.setattr(herd, "LEAST_DUE_JOBS", 1)
    monkeypatch.setattr(turn_order, "IN_FRONT", 1)
    happened = Counter[str]()
    set_alarm = decide.set_alarm

    def noted(memory, view, *facts, **told):
        memory = set_alarm(memory, view, *facts, **told)
        happened["late"] += memory.defers
        happened["herds"] += view.more
        return memory

    monkeypatch.setattr(decide, "set_alarm", noted)
    turn_order.place_of.cache_clear()
    for seed in range(first, first + AT_ONCE):
        result = simulate(seed)
        assert result.ok, (seed, result.violations)
    turn_order.place_of.cache_clear()
    assert min(happened["late"], happened["herds"]) > AT_ONCE, happened
