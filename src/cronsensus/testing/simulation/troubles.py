"""What goes wrong, and when: faults at verbs, processes that freeze or die, clocks that are set, deploys. Floor 6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronsensus.testing.simulation.clocks import SECOND
from cronsensus.testing.simulation.wire import Fault, Kind

if TYPE_CHECKING:
    from cronsensus.testing.simulation.cranks import Crank
    from cronsensus.testing.simulation.world import World

KINDS: tuple[Kind, ...] = ("fail", "lost", "hang", "hang_lost", "late", "slow", "linger")
WEIGHTS = (1, 2, 1, 1, 1, 3, 5)


class Troubles:
    """Somebody up there. Ends when the world calms down."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.set_back = False
        """Whether the store's clock was set back at some time."""

    def begin(self) -> None:
        """Draw what will happen when."""
        world, rng, scenario = self._world, self._world.rng, self._world.scenario
        if scenario.rough:
            self._again(self._trouble, self._next_trouble)
            self._again(world.people.act, world.people.next_in)
        elif scenario.busy:
            self._again(world.people.ask, world.people.next_in)
        if scenario.rough and scenario.clock_steps:
            for _ in range(rng.randint(1, 3)):
                world.at(rng.randint(0, scenario.micros), self._step_clock)
        if scenario.rough and len(scenario.releases) > 1:
            world.at(rng.randint(20 * SECOND, scenario.micros - 30 * SECOND), self._deploy)

    def end(self) -> None:
        """Let nothing new go wrong; who stands still wakes in his own time."""
        for node in self._world.nodes:
            node.turning.fault = node.keeping.fault = None

    def _again(self, act: object, next_in: object) -> None:
        world = self._world

        def go() -> None:
            if not world.calm:
                act()  # type: ignore[operator]
                world.after(next_in(), go)  # type: ignore[operator]

        world.after(next_in(), go)  # type: ignore[operator]

    def _next_trouble(self) -> int:
        return int(self._world.rng.expovariate(1 / self._world.scenario.seconds_between_faults) * SECOND)

    def _trouble(self) -> None:
        world, rng = self._world, self._world.rng
        if not world.nodes:
            return
        node = rng.choice(world.nodes)
        draw, mortality = rng.random(), world.scenario.mortality
        if draw < mortality:
            world.faults += 1
            how = rng.choice([node.freeze, node.leave, None])
            if how is None:
                node.crash()
            else:
                how(self._while())
        elif draw < 2 * mortality:
            self._arm(node.turning, rng.choice(["crash", "freeze"]))
        elif rng.random() < 0.3:
            self._arm(node.keeping, rng.choices(KINDS, WEIGHTS)[0])
        else:
            self._arm(node.turning, rng.choices(KINDS, WEIGHTS)[0])

    def _arm(self, crank: Crank, kind: Kind) -> None:
        """Let something go wrong at one of the next verbs of a crank."""
        world, rng = self._world, self._world.rng
        crank.fault = Fault(kind, 0 if crank is crank.node.keeping else rng.choice([0, 0, 1, 1, 2, 3]), self._while())
        if rng.random() < 0.5:
            crank.node.hint()
        if rng.random() < 0.2:
            world.after(rng.randint(0, SECOND), world.people.act)

    def _while(self) -> int:
        """Return how long something takes that should take no time: up to three leases."""
        longest = 3 * self._world.scenario.lease.total_seconds()
        return int(0.01 * (longest / 0.01) ** self._world.rng.random() * SECOND)

    def _step_clock(self) -> None:
        rng = self._world.rng
        micros = int(rng.choice([-1, 1, 1]) * 0.1 * 1200 ** rng.random() * SECOND)
        self._world.clock.step(micros)
        self.set_back |= micros < 0
        self._world.trace.add(self._world.clock.micros, "store", "CLOCK SET", f"{micros / SECOND:+g}s")

    def _deploy(self) -> None:
        world, rng = self._world, self._world.rng
        world.release = 1
        world.trace.add(world.clock.micros, "people", "deploy")
        for node in list(world.nodes):
            world.after(rng.randint(0, 20 * SECOND), lambda node=node: node.leave(rng.randint(0, 5 * SECOND)))  # type: ignore[misc]
