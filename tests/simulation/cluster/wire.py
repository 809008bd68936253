"""The way from a node to the store, on which things go wrong.

A verb is one atomic step of the store; before and after it anything may happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

from cronsensus.errors import StoreBusy, StoreUnavailable
from cronsensus.stores.values import StoreCapabilities
from tests.simulation.cluster.batons import Crashed
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.cranks import Crank
from tests.simulation.cluster.faults import Fault
from tests.simulation.cluster.stage import Stage


class Wire:
    """Stands where a node has its handle on the store. Every verb goes through ``World.commit``, or does not."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def capabilities(self) -> StoreCapabilities:
        """What the store can do is known beforehand."""
        return self._stage.store.capabilities

    def sibling(self) -> Wire:
        """Return a handle for another thread of the node: things go wrong by thread, not by handle."""
        return self

    def register_presence(self, session: str) -> None:
        """Show nobody anything: this store can tell the living by ``World.is_dead`` only."""

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        world = self._stage

        def call(*args: Any, **kwargs: Any) -> Any:
            crank: Crank | None = world.current
            if crank is None:
                raise AssertionError(f"{verb} is called by nobody")
            fault = crank.fault
            if fault is None:
                return world.commit(crank.name, verb, args, kwargs)
            if fault.kind == "linger":
                rng = world.chance[source_of(crank, verb)]
                if verb == "step" and args[1].plans and rng.random() < 0.3:
                    world.interfere(rng.choice(args[1].plans).job)
                crank.suspend(int(SECOND * 10 ** rng.uniform(-4, -0.3)))
                return world.commit(crank.name, verb, args, kwargs)
            fault.verb -= 1
            if fault.verb >= 0:
                return world.commit(crank.name, verb, args, kwargs)
            crank.fault = None
            return _Request(world, crank, verb, copied(args), kwargs).meet(fault)

        self.__dict__[verb] = call
        return call


@dataclass(frozen=True, slots=True)
class _Request:
    """A verb on its way to the store, that does not get there as it should, or whose answer does not come back so."""

    world: Stage
    crank: Crank
    verb: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def meet(self, fault: Fault) -> Any:
        """Let the fault bite."""
        world, micros = self.world, fault.micros
        world.trace.add(world.clock.micros, self.crank.name, "FAULT", fault.kind, self.verb, f"{micros / SECOND:g}s")
        world.faults += 1
        match fault.kind:
            case "fail":
                raise StoreUnavailable("simulated: refused")
            case "lost":
                self.commit()
                raise StoreUnavailable("simulated: the answer is lost")
            case "crash":
                return self._crash(micros)
            case "hang":
                return self._give_up_after(micros)
            case "hang_lost":
                self.commit()
                return self._give_up_after(micros)
            case "late":
                world.after(2 * micros, lambda: world.commit_late(self.crank.name, self.verb, self.args, self.kwargs))
                return self._give_up_after(micros)
            case "freeze":
                self.crank.node.freeze(micros)
                return self._before_or_after(1)
            case _:
                return self._before_or_after(micros)

    def commit(self) -> Any:
        """Let the store carry it out."""
        return self.world.commit(self.crank.name, self.verb, self.args, self.kwargs)

    @property
    def _rng(self) -> Random:
        return self.world.chance[source_of(self.crank, self.verb)]

    def _before_or_after(self, micros: int) -> Any:
        if self._rng.random() < 0.5:
            self.crank.suspend(micros)
            return self.commit()
        answer = self.commit()
        self.crank.suspend(micros)
        return answer

    def _give_up_after(self, micros: int) -> NoReturn:
        self.crank.suspend(micros)
        raise StoreBusy("simulated: no answer in time")

    def _crash(self, micros: int) -> NoReturn:
        world, draw = self.world, self._rng.random()
        if draw < 0.5:
            self.commit()
        elif draw < 0.8:
            # It was sent, and waits behind something: it comes when others may have buried its node.
            world.after(micros, lambda: world.commit_late(self.crank.name, self.verb, self.args, self.kwargs))
        self.crank.node.crash()
        raise Crashed


def source_of(crank: Crank, verb: str) -> str:
    """Return the name of the source of chance for a verb of a node."""
    return f"wire {crank.node.name} {verb}"


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments as they are now: a caller may go on with its list."""
    return tuple(list(arg) if isinstance(arg, list) else arg for arg in args)
