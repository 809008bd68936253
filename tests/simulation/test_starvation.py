"""Nights in which more comes due than nodes can run: what the schedule overtakes is run all the same, in a while."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import cast

import pytest

from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.node import claiming
from cronsensus.triggers import every
from tests.simulation.cluster import Parts, simulate
from tests.simulation.cluster.batch_night import BatchJudge, BatchPeople, SleepersWorld
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.scenario import Scenario, Shape
from tests.simulation.cluster.troubles import Troubles

NIGHTS = 3
OFTEN, SELDOM = "often", "seldom"
POLICIES = Policies.read({"overlap": "allow", "max_crashes": 100, "keep": 86_400})
OVERTAKEN = [Origin.ENQUEUE, Origin.BACKFILL]


class FullScenario(Scenario):
    """A job that comes due twice as often as two nodes can run it, and one that is asked for once."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.names = [OFTEN, SELDOM]
        self.executors = dict.fromkeys(self.names, "thread")
        self.shapes = dict.fromkeys(self.names, Shape(0.5, 3.0, 1.0))
        triggers = {OFTEN: every(timedelta(seconds=0.5)), SELDOM: None}
        self.releases = [
            [JobSpec(name=name, function=name, trigger=triggers[name], policies=POLICIES) for name in self.names]
        ]
        self.nodes, self.hands = 2, (1,)
        self.outsiders, self.clock_steps, self.rough = 0, False, True
        self.mortality = rng.choice([0.0, 0.02, 0.06])
        self.micros = 240 * SECOND


class AsksOnce(BatchPeople):
    """Somebody who asks for a little, and then for nothing more."""

    asked = False

    def do_one(self) -> None:
        """Ask, once there is somebody to do it."""
        if not self.asked and len(self._nodes) > 1:
            self.do("enqueue", [Item(job=SELDOM, origin=origin) for origin in OVERTAKEN])
            self.asked = True


class FullWorld(SleepersWorld):
    """A night that is full of what goes first."""

    def __init__(self, seed: int, parts: Parts) -> None:
        super().__init__(seed, parts)
        self.scenario = FullScenario(self.chance["scenario"])
        self.judge = cast("Judge", BatchJudge(self))
        self.people = AsksOnce(self, self.judge, self.nodes)
        self.troubles = Troubles(self, self.people, self.nodes, self.outsiders)

    def _calm_down(self) -> None:
        if not any(one.state is State.PENDING for one in self._of(OFTEN)):
            self.judge.broken("too quiet", "nothing waits that goes first")
        asked = self._of(SELDOM)
        waits = [one.id for one in asked if one.attempt == 0]
        if not asked or waits:
            self.judge.broken("starves", f"of {len(asked)} that were asked for, {waits} were not begun")
        self.over = True

    def _of(self, job: str) -> list[Occurrence]:
        return self.store.occurrences(OccurrenceFilter(job=job), limit=100_000)

    def _reckon(self) -> None:
        """Leave what is left to other nights."""


def violations(seed: int) -> tuple[str, ...]:
    return simulate(seed, Parts(), FullWorld).violations


@pytest.mark.parametrize("seed", range(NIGHTS))
def test_what_the_schedule_overtakes_is_run_all_the_same(seed: int) -> None:
    assert violations(seed) == ()


def test_a_node_that_always_goes_by_classes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "ignores_classes", lambda *_: False)
    assert "starves" in violations(0)[0]
