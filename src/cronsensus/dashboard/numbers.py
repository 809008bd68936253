"""Numbers of the first look: how much waits and runs of the users' jobs, and how many nodes there should be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from cronsensus.insight.life import Life, lives_of
from cronsensus.model.job import INTERNAL, is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job

_MOST_RUNNING = 200
_MOST_INTERNAL = 100
_INTERNAL_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Node:
    """A session, and what is known of its life if it has not ended."""

    session: SessionView
    life: Life | None

    @property
    def state(self) -> str:
        """``alive``, ``unknown``, ``stopped`` or ``gone``; ``closed``: it left in order."""
        if self.life is not None:
            return self.life.state
        return "gone" if self.session.state == "dead" else "closed"


@dataclass(frozen=True, slots=True)
class Standing:
    """How many nodes are alive, and which are missing.

    Attributes:
        gone: names of nodes that died or stand still, with the time since when, the newest first.
    """

    alive: int
    gone: tuple[tuple[str, datetime], ...]

    @property
    def expected(self) -> int:
        """How many there would be, had none died."""
        return self.alive + len(self.gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What waits and runs, without the jobs that watch for alerts.

    Attributes:
        capped: there is more than these numbers say.
        oldest: what runs, the longest first, as far as was read.
    """

    waiting: int
    running: int
    capped: bool
    paused: int
    jobs: int
    oldest: tuple[Occurrence, ...]


def read_nodes(store: Store, *, ended: bool = True) -> tuple[Node, ...]:
    """Return the nodes, the newest first; a process that only holds locks is none."""
    found = [session for session in store.sessions(ended=ended, limit=200) if session.is_node]
    lives = lives_of(store, found)
    return tuple(Node(one, lives.get(one.id)) for one in found)


def count_nodes(found: Iterable[Node], since: datetime) -> Standing:
    """Return how many nodes are alive; one that died after ``since`` is missed until its name comes back."""
    alive, gone, known = 0, [], set[str]()
    for node in found:  # the newest first
        one = node.session
        at = one.ended_at or one.renewed_at
        alive += node.state == "alive"
        if one.node not in known and node.state in {"gone", "stopped"} and at >= since:
            gone.append((one.node, at))
        known.add(one.node)
    return Standing(alive, tuple(gone))


def count_work(store: Store) -> Work:
    """Return what waits and runs of the users' jobs."""
    counts = store.counts()
    own = _internal_jobs(store)
    waiting = counts.pending - sum(store.pending_of(own).values())
    read = store.occurrences(OccurrenceFilter(states=(State.RUNNING,)), limit=_MOST_RUNNING, newest_first=False)
    shown = [one for one in read if not is_internal(one.job)]
    shown.sort(key=lambda one: one.started_at or one.created_at)
    return Work(
        waiting=max(waiting, 0),
        running=max(counts.running - (len(read) - len(shown)), len(shown)),
        capped=max(counts.pending, counts.running) >= counts.limit,
        paused=counts.paused,
        jobs=counts.jobs,
        oldest=tuple(shown),
    )


def _internal_jobs(store: Store) -> Sequence[str]:
    """Return the names of the jobs that watch for alerts: they stand together."""
    names = (view.spec.name for view in every_job(store, after=INTERNAL, page=_INTERNAL_AT_ONCE))
    return tuple(islice(takewhile(is_internal, names), _MOST_INTERNAL))
