"""What goes wrong, and when: faults at verbs, processes that freeze or die, clocks that are set, deploys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.faults import Fault, Kind
from tests.simulation.cluster.node import SimulatedNode
from tests.simulation.cluster.outsiders import Outsider
from tests.simulation.cluster.people import People
from tests.simulation.cluster.stage import Stage

KINDS: tuple[Kind, ...] = ("fail", "lost", "hang", "hang_lost", "late", "slow", "linger")
WEIGHTS = (1, 2, 1, 1, 1, 3, 5)


class Troubles:
    """Somebody up there. Ends when the world calms down."""

    def __init__(
        self, stage: Stage, people: People, nodes: Sequence[SimulatedNode], outsiders: Sequence[Outsider]
    ) -> None:
        self._stage = stage
        self._rng = stage.chance["troubles"]
        self._people = people
        self._nodes = nodes
        self._outsiders = outsiders

    def begin(self) -> None:
        """Draw what will happen when."""
        world, scenario = self._stage, self._stage.scenario
        if scenario.rough:
            self._again(self._trouble, self._next_trouble)
            self._again(self._people.act, self._people.next_in)
        elif scenario.busy:
            self._again(self._people.ask, self._people.next_in)
        if scenario.rough and scenario.outsiders:
            self._again(
                self._trouble_outside, lambda: int(world.chance["troubles outside"].expovariate(1 / 25) * SECOND)
            )
        if scenario.rough and scenario.clock_steps:
            clock = world.chance["clock"]
            for _ in range(clock.randint(1, 3)):
                world.at(clock.randint(0, scenario.micros), self._step_clock)
        if world.parts.forgets:
            forgetting = world.chance["forgetting"]
            for _ in range(forgetting.randint(1, 4)):
                world.at(forgetting.randint(3 * SECOND, scenario.micros - 6 * SECOND), world.remember)
        if scenario.rough and len(scenario.releases) > 1:
            world.at(world.chance["deploy"].randint(20 * SECOND, scenario.micros - 30 * SECOND), self._deploy)

    def end(self) -> None:
        """Let nothing new go wrong; who stands still wakes in his own time."""
        for node in self._nodes:
            node.turning.fault = node.beating.fault = None
        for outsider in self._outsiders:
            outsider.later(0, outsider.leave)

    def _again(self, act: Callable[[], None], next_in: Callable[[], int]) -> None:
        world = self._stage

        def go() -> None:
            if not world.calm:
                act()
                world.after(next_in(), go)

        world.after(next_in(), go)

    def _next_trouble(self) -> int:
        return int(self._rng.expovariate(1 / self._stage.scenario.seconds_between_faults) * SECOND)

    def _next_trouble_outside(self) -> int:
        return int(self._stage.chance["troubles outside"].expovariate(1 / 25) * SECOND)

    def _trouble(self) -> None:
        world, rng = self._stage, self._rng
        if not self._nodes:
            return
        node = rng.choice(self._nodes)
        draw, mortality = rng.random(), world.scenario.mortality
        if draw < mortality:
            world.faults += 1
            how = rng.choice([node.freeze, node.leave, None])
            if how is None:
                node.crash()
            else:
                how(self._while())
        elif draw < 2 * mortality:
            self._arm(node, rng.choice(["crash", "freeze"]))
        elif rng.random() < 0.3:
            node.beating.fault = Fault(rng.choices(KINDS, WEIGHTS)[0], 0, self._while())
            if rng.random() < 0.5:
                node.notify()
        else:
            self._arm(node, rng.choices(KINDS, WEIGHTS)[0])

    def _trouble_outside(self) -> None:
        rng = self._stage.chance["troubles outside"]
        if self._outsiders:
            outsider = rng.choice(self._outsiders)
            if rng.random() < 0.3:
                outsider.crash()
            elif not outsider.gone:
                outsider.freeze(self._while())

    def _arm(self, node: SimulatedNode, kind: Kind) -> None:
        """Let something go wrong at one of the next verbs of a node's rounds."""
        world, rng = self._stage, self._rng
        node.turning.fault = Fault(kind, rng.choice([0, 0, 1, 1, 2, 3]), self._while())
        if rng.random() < 0.5:
            node.notify()
        if rng.random() < 0.2:
            world.after(rng.randint(0, SECOND), lambda: None if world.calm else self._people.act())

    def _while(self) -> int:
        """Return how long something takes that should take no time: up to three leases."""
        longest = 3 * self._stage.scenario.lease.total_seconds()
        return int(0.01 * (longest / 0.01) ** self._rng.random() * SECOND)

    def _step_clock(self) -> None:
        rng = self._stage.chance["clock"]
        micros = int(rng.choice([-1, 1, 1]) * 0.1 * 1200 ** rng.random() * SECOND)
        self._stage.clock.step(micros)
        self._stage.trace.add(self._stage.clock.micros, "store", "CLOCK SET", f"{micros / SECOND:+g}s")

    def _deploy(self) -> None:
        world, rng = self._stage, self._stage.chance["deploy"]
        world.release = 1
        world.trace.add(world.clock.micros, "people", "deploy")
        for node in list(self._nodes):
            world.after(rng.randint(0, 20 * SECOND), lambda node=node: node.leave(rng.randint(0, 5 * SECOND)))  # type: ignore[misc]
