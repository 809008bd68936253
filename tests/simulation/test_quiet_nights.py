"""Nights without faults: each occurrence comes to the outcome that it had before, whatever a node asks of the store."""

from collections import Counter
from functools import cache

import pytest

from tests.simulation.cluster import cranks
from tests.simulation.cluster.cranks import Crank
from tests.simulation.cluster.node import SimulatedNode
from tests.simulation.cluster.quiet_night import QuietWorld
from tests.simulation.quiet import NIGHTS, play_night, read_kept

AT_ONCE = 10
recall_night = cache(play_night)
"""A night as it is; where something is changed, ``play_night``."""


@pytest.mark.parametrize("first", range(0, NIGHTS, AT_ONCE))
def test_each_occurrence_of_a_quiet_night_has_the_outcome_that_it_had(first: int) -> None:
    kept = read_kept()
    for seed in range(first, first + AT_ONCE):
        night = recall_night(seed)
        assert night.violations == (), seed
        assert night.digest == kept[seed], f"see what differs: python -m tests.simulation.quiet --ledger {seed}"


class TurnedRound(QuietWorld):
    """A night in which the last node takes turns first."""

    reverse = True


def test_the_outcome_does_not_depend_on_who_runs_what_nor_on_some_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = range(5)
    nights = [recall_night(seed) for seed in kinds]
    monkeypatch.setattr(cranks, "SHORTEST_TURN", 2000)
    assert [play_night(seed, TurnedRound) for seed in kinds] == nights


def test_a_kernel_that_is_late_by_seconds_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    end_turn = Crank._over

    def oversleep(crank: Crank) -> None:
        crank._wait += 5.0 if isinstance(crank.node, SimulatedNode) and crank is crank.node.turning else 0.0
        end_turn(crank)

    monkeypatch.setattr(Crank, "_over", oversleep)
    kept = read_kept()
    assert any(play_night(seed).digest != kept[seed] for seed in range(AT_ONCE))


def test_quiet_nights_are_full_enough_to_prove_something() -> None:
    happened = Counter[str]()
    for seed in range(AT_ONCE):
        for line in recall_night(seed).ledger:
            happened.update({*line.split()[1:]})
    for word in ("succeeded", "failed", "skipped", "missed", "cancelled", "paused", "overlap", "backfill", "manual"):
        assert happened[word] > 0, f"{word}: never, in {AT_ONCE} nights: {happened}"
