"""Numbers of the first page: how many runs of users' jobs wait and run, and how many nodes there should be."""

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
    """A session, with what is known of its life if it has not ended."""

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
    """The count of nodes: how many are alive, and which are missing.

    Attributes:
        gone: names of nodes that died or are stopped, each with the time since when; the newest first.
    """

    alive: int
    gone: tuple[tuple[str, datetime], ...]

    @property
    def expected(self) -> int:
        """How many nodes there would be if none had died."""
        return self.alive + len(self.gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The waiting and running work, without the jobs that watch for alerts.

    Attributes:
        capped: there is more than these numbers.
        oldest: the running occurrences that were read, the longest first.
    """

    waiting: int
    running: int
    capped: bool
    paused: int
    jobs: int
    oldest: tuple[Occurrence, ...]


def read_nodes(store: Store, *, ended: bool = True) -> tuple[Node, ...]:
    """Return the nodes, the newest first; without processes that only hold locks."""
    sessions = [session for session in store.sessions(ended=ended, limit=200) if session.is_node]
    lives = lives_of(store, sessions)
    return tuple(Node(session, lives.get(session.id)) for session in sessions)


def count_nodes(nodes: Iterable[Node], since: datetime) -> Standing:
    """Count the live nodes; a node that died after ``since`` is missing until its name comes back."""
    alive, gone, names = 0, [], set[str]()
    for node in nodes:  # the newest first
        session = node.session
        at = session.ended_at or session.renewed_at
        alive += node.state == "alive"
        if session.node not in names and node.state in {"gone", "stopped"} and at >= since:
            gone.append((session.node, at))
        names.add(session.node)
    return Standing(alive, tuple(gone))


def count_work(store: Store) -> Work:
    """Return the waiting and running work of users' jobs."""
    counts = store.counts()
    internal_jobs = _internal_jobs(store)
    waiting = counts.pending - sum(store.pending_of(internal_jobs).values())
    running = store.occurrences(OccurrenceFilter(states=(State.RUNNING,)), limit=_MOST_RUNNING, newest_first=False)
    users_runs = [occurrence for occurrence in running if not is_internal(occurrence.job)]
    users_runs.sort(key=lambda occurrence: occurrence.started_at or occurrence.created_at)
    return Work(
        waiting=max(waiting, 0),
        running=max(counts.running - (len(running) - len(users_runs)), len(users_runs)),
        capped=max(counts.pending, counts.running) >= counts.limit,
        paused=counts.paused,
        jobs=counts.jobs,
        oldest=tuple(users_runs),
    )


def _internal_jobs(store: Store) -> Sequence[str]:
    """Return the names of the jobs that watch for alerts, which are neighbours by name."""
    names = (view.spec.name for view in every_job(store, after=INTERNAL, page=_INTERNAL_AT_ONCE))
    return tuple(islice(takewhile(is_internal, names), _MOST_INTERNAL))
