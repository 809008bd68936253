"""Nights in which two due jobs are a herd and one alert node is enough: what few nodes and few jobs never show."""

from collections import Counter

import pytest

from cronsensus.node import firing, standing
from cronsensus.node.resting import Resting
from cronsensus.node.sharing import Sharing
from tests.simulation.cluster import simulate

AT_ONCE = 20


@pytest.mark.parametrize("first", [0, AT_ONCE])
def test_no_promise_is_broken_by_those_who_share_and_those_who_rest(first, monkeypatch):
    monkeypatch.setattr(firing, "MOST_DUE", 1)
    monkeypatch.setattr(firing, "LEAST_DUE", 1)
    monkeypatch.setattr(firing, "ALERT", 1)
    monkeypatch.setattr(standing, "ALERT", 1)
    happened = Counter[str]()
    begins, begin = Sharing.begins, Resting.begin

    def noted_begins(self, *args):
        began = begins(self, *args)
        happened["shared"] += began
        return began

    def noted_begin(self, *args):
        happened["rested"] += 1
        return begin(self, *args)

    monkeypatch.setattr(Sharing, "begins", noted_begins)
    monkeypatch.setattr(Resting, "begin", noted_begin)
    for seed in range(first, first + AT_ONCE):
        result = simulate(seed)
        assert result.ok, (seed, result.violations)
    assert min(happened["shared"], happened["rested"]) > AT_ONCE, happened
