"""Nights in which two due jobs are a herd and one alert node is enough: what few nodes and few jobs never show."""

from collections import Counter

import pytest

from cronsensus.node import decide, turn_order
from tests.simulation.cluster import simulate

AT_ONCE = 20


@pytest.mark.parametrize("first", [0, AT_ONCE])
def test_no_promise_is_broken_with_partitions_and_idle_mode(first, monkeypatch):
    monkeypatch.setattr(decide, "MOST_DUE", 1)
    monkeypatch.setattr(decide, "LEAST_DUE", 1)
    monkeypatch.setattr(decide, "ACTIVE", 1)
    monkeypatch.setattr(turn_order, "ACTIVE", 1)
    happened = Counter[str]()
    due, next_look = decide.due, decide.next_look

    def noted_due(*seen):
        todo, memory = due(*seen)
        happened["partitions"] += todo.again
        return todo, memory

    def noted_next_look(*seen, **told):
        todo, memory = next_look(*seen, **told)
        happened["idle"] += memory.idle is not None
        return todo, memory

    monkeypatch.setattr(decide, "due", noted_due)
    monkeypatch.setattr(decide, "next_look", noted_next_look)
    for seed in range(first, first + AT_ONCE):
        result = simulate(seed)
        assert result.ok, (seed, result.violations)
    assert min(happened["partitions"], happened["idle"]) > AT_ONCE, happened
