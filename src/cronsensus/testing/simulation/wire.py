"""The way from a node to the store, on which things go wrong. Floor 6.

A verb is one atomic step of the store; before and after it anything may happen. A fault is armed for a crank and bites
at one of the verbs of its next turn (``linger`` at all of them):

==================  ===================================================================================
fault               what the node sees, and what the store did
==================  ===================================================================================
``fail``            an error; nothing happened
``lost``            an error; it was done
``hang``            an error after a while; nothing happened
``hang_lost``       an error after a while; it was done at once
``late``            an error after a while; it is done some time after that
``slow``            the answer, late; it was done at once
``wait``            the answer, late; it was done late (as behind a lock)
``freeze``          as ``slow`` or ``wait``, and the whole process stood still
``crash``           nothing: the process is gone, before or after it was done
``linger``          the answer, a little late, at every verb, so that others come in between
==================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cronsensus.errors import StoreBusy, StoreUnavailable
from cronsensus.testing.simulation.batons import Crashed
from cronsensus.testing.simulation.clocks import SECOND

if TYPE_CHECKING:
    from cronsensus.testing.simulation.cranks import Crank
    from cronsensus.testing.simulation.world import World

Kind = Literal["fail", "lost", "hang", "hang_lost", "late", "slow", "wait", "freeze", "crash", "linger"]
INSTANT: frozenset[Kind] = frozenset({"fail", "lost", "crash"})
"""Faults for which nobody has to wait."""


@dataclass(slots=True)
class Fault:
    """What goes wrong in a turn of a crank: at which of its verbs, and for how long."""

    kind: Kind
    verb: int
    micros: int = 0


class Wire:
    """Stands where a node has its handle on the store. Every verb goes through ``World.commit``, or does not."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        world = self._world

        def call(*args: Any, **kwargs: Any) -> Any:
            crank = world.current
            if crank is None:
                return world.commit("nobody", verb, args, kwargs)
            fault = crank.fault
            if fault is None:
                return world.commit(crank.name, verb, args, kwargs)
            if fault.kind == "linger":
                crank.suspend(int(SECOND * 10 ** world.rng.uniform(-4, -0.3)))
                return world.commit(crank.name, verb, args, kwargs)
            fault.verb -= 1
            if fault.verb >= 0:
                return world.commit(crank.name, verb, args, kwargs)
            crank.fault = None
            return _bite(world, crank, fault, verb, tuple(list(arg) if isinstance(arg, list) else arg for arg in args), kwargs)

        self.__dict__[verb] = call
        return call


def _bite(world: World, crank: Crank, fault: Fault, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    world.trace.add(world.clock.micros, crank.name, "FAULT", fault.kind, verb, f"{fault.micros / SECOND:g}s")
    world.faults += 1
    match fault.kind:
        case "fail":
            raise StoreUnavailable("simulated: refused")
        case "lost":
            world.commit(crank.name, verb, args, kwargs)
            raise StoreUnavailable("simulated: the answer is lost")
        case "hang" | "hang_lost":
            if fault.kind == "hang_lost":
                world.commit(crank.name, verb, args, kwargs)
            crank.suspend(fault.micros)
            raise StoreBusy("simulated: no answer in time")
        case "late":
            world.at(world.clock.micros + 2 * fault.micros, lambda: world.commit_late(crank.name, verb, args, kwargs))
            crank.suspend(fault.micros)
            raise StoreBusy("simulated: no answer in time")
        case "wait":
            crank.suspend(fault.micros)
            return world.commit(crank.name, verb, args, kwargs)
        case "slow":
            answer = world.commit(crank.name, verb, args, kwargs)
            crank.suspend(fault.micros)
            return answer
        case "freeze":
            crank.node.freeze(fault.micros)
            if world.rng.random() < 0.5:
                crank.suspend(1)
                return world.commit(crank.name, verb, args, kwargs)
            answer = world.commit(crank.name, verb, args, kwargs)
            crank.suspend(1)
            return answer
        case "crash":
            if world.rng.random() < 0.5:
                world.commit(crank.name, verb, args, kwargs)
            crank.node.crash()
            raise Crashed
        case "linger":
            raise AssertionError("lingering has no single verb")
