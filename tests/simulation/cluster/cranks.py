"""A crank: something of a node that is turned now and again, and may be stopped in the middle of a turn."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.cluster.batons import Crashed, Step
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.faults import INSTANT, Fault
from tests.simulation.cluster.stage import Process

SHORTEST_TURN = 100
"""Microseconds that a turn takes at least, so that no crank can turn for ever in one moment."""
MOST_TURNS = 120
"""Turns of one crank in one second from which it does not sleep but spin."""


class Crank:
    """Turns ``turn``, which returns the seconds until it wants to be turned again, and sooner when woken.

    What a thread of ``Node`` does with an event, this does with the simulation's queue.
    """

    def __init__(self, node: Process, name: str, turn: Callable[[], float], *, soonest: float = 0.0) -> None:
        """Make a crank of ``node`` that sleeps no shorter than ``soonest`` between two turns, if it is not woken."""
        self.node = node
        self.name = name
        self.fault: Fault | None = None
        self.stopped = False
        self.on_rest: Callable[[], None] | None = None
        """Called once, when the crank is stopped and rests."""
        self._turn = turn
        self._soonest = soonest
        self._step: Step | None = None
        self._wait = 0.0
        self._woken = False
        self._turning = False
        self._resumed = False
        self._scheduled = 0
        self._second = -1
        self._turns = 0

    @property
    def suspended(self) -> bool:
        """Whether a turn is under way; seen from outside, it rests in the middle."""
        return self._turning

    def wake(self) -> None:
        """Turn now, or again when the turn under way is over."""
        if self._turning:
            self._woken = True
        else:
            self._schedule(SHORTEST_TURN)

    def stop(self) -> None:
        """Turn no more; a turn under way is ended."""
        self.stopped = True
        if not self._turning:
            self._at_rest()

    def suspend(self, micros: int) -> None:
        """Stop in the middle of this turn for a while; called from within it."""
        self.node.later(micros, self._resume)
        world = self.node.stage
        world.current = None
        if self._step is not None:
            self._step.suspend()
        else:
            self._resumed = False
            world.go_on(lambda: self._resumed or self.node.gone)
            if not self._resumed or self.node.gone:
                raise Crashed
        world.current = self

    def kill(self) -> None:
        """Unwind a turn that is suspended: its process is gone."""
        step, self._step = self._step, None
        if step is not None and not step.over:
            step.resume(crash=True)

    def _schedule(self, micros: int) -> None:
        self._scheduled += 1
        mine = self._scheduled
        self.node.later(micros, lambda: self._begin(mine))

    def _begin(self, mine: int) -> None:
        if mine != self._scheduled or self._turning or self.stopped:
            return
        self._count()
        self._woken, self._turning = False, True
        world = self.node.stage
        if not world.scenario.batons or (
            (self.fault is None or self.fault.kind in INSTANT) and not self.node.suspended
        ):
            world.current = self
            try:
                self._body()
            except Crashed:
                return
            finally:
                world.current = None
            self._over()
        else:
            self._step = Step(self._body)
            self.node.suspended.append(self)
            self._resume()

    def _resume(self) -> None:
        self._resumed = True
        step, world = self._step, self.node.stage
        if step is None:
            return
        world.current = self
        try:
            over = step.resume()
        finally:
            world.current = None
        if over:
            self._step = None
            self.node.suspended.remove(self)
            if not self.node.gone:
                self._over()

    def _body(self) -> None:
        self._wait = self._turn()

    def _over(self) -> None:
        self._turning = False
        if self.stopped:
            self._at_rest()
        elif self._woken:
            self._schedule(SHORTEST_TURN)
        else:
            self._schedule(max(SHORTEST_TURN, self.node.clock.micros(max(self._wait, self._soonest))))

    def _at_rest(self) -> None:
        then, self.on_rest = self.on_rest, None
        if then is not None:
            then()

    def _count(self) -> None:
        world = self.node.stage
        second = world.clock.micros // SECOND
        if second != self._second:
            self._second, self._turns = second, 0
        self._turns += 1
        if self._turns == MOST_TURNS:
            world.witness.broken("spins", f"{self.name} was turned {MOST_TURNS} times within a second")
