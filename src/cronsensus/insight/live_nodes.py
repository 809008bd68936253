"""Which nodes are alive, and how that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from cronsensus.insight.words import exact
from cronsensus.model.session import SessionView
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job

_MAX_SESSIONS_READ = 200


def is_alive(one: SessionView) -> bool:
    """Whether a session is in time with its lease; a draining one too.

    All of ``insight`` and the command line go by this. A node that was killed passes for alive until its lease ends or
    another node takes its runs over: the lease is all that is looked at here.
    """
    return one.state in {"alive", "draining"} and one.expires_in > timedelta(0)


def takes_work(one: SessionView) -> bool:
    """Whether a session starts something new: it does not drain."""
    return one.state == "alive"


def nodes(store: Store) -> list[SessionView]:
    """Return the sessions of nodes: a process that only locks, or only calls guarded functions, runs no job."""
    return [one for one in store.sessions() if one.is_node]


def live_nodes(store: Store) -> list[SessionView]:
    """Return the nodes that are alive, draining ones too."""
    return [one for one in nodes(store) if is_alive(one)]


def needs_no_node(store: Store, sessions: Sequence[SessionView]) -> str | None:
    """Return why nothing here waits for a node, as half a sentence; ``None``: a job does, or nothing is here at all.

    Guarded functions and locks work in the processes that use them.
    """
    jobs = False
    keeper = None
    for view in every_job(store):
        jobs = True
        keeper = keeper or view.spec.keeper
        if not view.spec.guarded and view.spec.keeper is None:
            return None
    if jobs:
        return "guarded functions need none" if keeper is None else f"jobs that {keeper} keeps need none"
    return "locks need none" if any(not one.is_node and is_alive(one) for one in sessions) else None


@dataclass(frozen=True, slots=True)
class NodesAt:
    """The nodes at a moment, as far as is on record.

    Attributes:
        alive: those that were; a session without an end counts until its lease ends.
        last_before: of those that had come by then, the one that stayed longest.
        first_after: the first that came later.
        complete: ``False``: there are more sessions than were read.
    """

    alive: tuple[SessionView, ...]
    last_before: SessionView | None
    first_after: SessionView | None
    complete: bool

    def sentence(self, zone: tzinfo) -> str:
        """Return a sentence if no node was alive, with times in ``zone``; else nothing."""
        last, first = self.last_before, self.first_after
        if self.alive or not self.complete:
            return ""
        if last is None and first is None:
            return "No node is on record (ended ones are kept for a day); start one: cronsensus run MODULE:ATTR."
        text = "No node was alive then"
        if last is not None:
            text += f": {last.node} was {last.ended_why or last.state} {exact(_until(last), zone)}"
        if first is not None:
            text += f"{':' if last is None else ';'} {first.node} came {exact(first.started_at, zone)}"
        return text + "."


def nodes_alive_at(store: Store, at: datetime) -> NodesAt:
    """Return which nodes were alive at ``at``, and which came before and after."""
    sessions = store.sessions(ended=True)
    earlier = [one for one in sessions if one.is_node and one.started_at <= at]
    later = [one for one in sessions if one.is_node and one.started_at > at]
    return NodesAt(
        alive=tuple(one for one in earlier if _until(one) >= at),
        last_before=max(earlier, key=_until, default=None),
        first_after=min(later, key=lambda one: one.started_at, default=None),
        complete=len(sessions) < _MAX_SESSIONS_READ,
    )


def _until(one: SessionView) -> datetime:
    return one.ended_at or one.renewed_at + max(one.expires_in, timedelta(0))
