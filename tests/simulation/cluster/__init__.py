"""A seeded simulation of a cluster: real nodes on a memory store, virtual time, and whatever may go wrong.

::

    seed ──▶ Scenario: jobs, policies, releases, nodes, how rough the night is
                │
    World ── one queue of events, a source of chance for each actor, one clock (and clocks beside it that are wrong)
      │
      ├── SimulatedNode ── real Round and SessionRenewer, turned by Cranks; Work that takes virtual time
      │        │
      │      Wire ── faults at any verb: errors, lost and late answers, pauses, crashes
      │        │
      ├── MemoryStore ◀── People: operators and callers
      │        ▲
      │      Outsiders: programs with timers of their own, which win occurrences by name and hold locks
      │        │
      └── Judge ── sees each verb as it is carried out, keeps books of its own
               │
             reckoning ── ledger against books, against triggers, against the audit; nothing may be left over

The same seed gives the same trace, whatever the hash seed. A failing seed is replayed with
``python -m tests.simulation.cluster --seed N``, which prints what happened.

What it cannot find: mistakes of a real store (``cronsensus.testing.conformance`` holds those against the same
contract), of threads within a node between two verbs, and of executors.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from cronsensus.model.occurrence import OccurrenceFilter
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.reckoning import EVERYTHING
from tests.simulation.cluster.trace import Trace
from tests.simulation.cluster.world import World

__all__ = ["Parts", "Simulation", "simulate", "suspend_log_and_collector"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What became of a seed.

    Attributes:
        violations: what must not have been; the first one ended the simulation.
        faults: how many faults bit.
        verbs: how many verbs the store carried out.
        seconds: how much virtual time passed.
        counts: what the store did, by kind.
    """

    seed: int
    violations: tuple[str, ...]
    trace: Trace
    faults: int
    verbs: int
    seconds: float
    counts: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations


def simulate(seed: int, parts: Parts | None = None, world: type[World] = World) -> Simulation:
    """Let one night happen.

    Example:
        >>> simulate(1).ok
        True

    Args:
        seed: decides everything. It means what it means for one version of this code.
        parts: what is simulated. Defaults to the memory store.
        world: what kind of night it is.
    """
    with suspend_log_and_collector():
        return _one_night(world(seed, parts or Parts()), seed)


def _one_night(world: World, seed: int) -> Simulation:
    world.run()
    world.tally.note_occurrences([one.state for one in world.store.occurrences(OccurrenceFilter(), limit=EVERYTHING)])
    return Simulation(
        seed=seed,
        violations=tuple(world.judge.violations),
        trace=world.trace,
        faults=world.faults,
        verbs=world.verbs,
        seconds=world.clock.micros / SECOND,
        counts=world.tally,
    )


@contextmanager
def suspend_log_and_collector() -> Iterator[None]:
    """Keep the log quiet (the trace says it all), and the collector from looking at a trace that only grows."""
    log = logging.getLogger("cronsensus")
    level, collects = log.level, gc.isenabled()
    log.setLevel(logging.CRITICAL + 1)
    gc.disable()
    try:
        yield
    finally:
        log.setLevel(level)
        if collects:
            gc.collect(1)  # the world is over and still young: now it goes in one pass, and never grows old
            gc.enable()
