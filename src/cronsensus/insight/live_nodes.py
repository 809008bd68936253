"""The nodes that are alive now, and those that were alive at a past moment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from cronsensus.insight.life import lives_of
from cronsensus.insight.sentences import Clause, Sentence, Text
from cronsensus.model.job import JobSpec
from cronsensus.model.session import MOST_DECLARED, SessionView
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job

_MAX_SESSIONS_READ = 200


def takes_work(session: SessionView) -> bool:
    """Whether a session starts new runs, because it does not drain."""
    return session.state == "alive"


def live_nodes(store: Store) -> list[SessionView]:
    """Return the nodes that are known to be alive, also draining nodes; not processes that only hold locks."""
    return _nodes_that_are(store, {"alive"})


def nodes_there(store: Store) -> list[SessionView]:
    """Return the nodes that may be alive: without those that are gone or stopped."""
    return _nodes_that_are(store, {"alive", "unknown"})


def _nodes_that_are(store: Store, states: Collection[str]) -> list[SessionView]:
    nodes = [session for session in store.sessions() if session.is_node]
    lives = lives_of(store, nodes)
    return [one for one in nodes if lives[one.id].state in states]


def needs_no_node(store: Store, living: Sequence[SessionView]) -> str | None:
    """Return why no node is needed, as half a sentence; ``None``: a job needs a node, or the store is empty.

    Guarded functions and locks work in the processes that use them, of which ``living`` are alive.
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
    return "locks need none" if any(not session.is_node for session in living) else None


def describe_missing_node(store: Store, spec: JobSpec) -> str:
    """Return a sentence if no live node can run a job, by what the nodes declare; else ``None``."""
    nodes = live_nodes(store)
    if not nodes:
        return "no node is alive, so it waits; start one: cronsensus run MODULE:ATTR"
    # Nobody declares a job that was added at run time, and a node with very many jobs reports only a part.
    unknown = spec.source == "runtime" or any(len(node.declares) >= MOST_DECLARED for node in nodes)
    if unknown or any(spec.name in node.declares or (node.functions and not node.declares) for node in nodes):
        return ""
    names = ", ".join(dict.fromkeys(node.node for node in nodes))
    return f"no live node declares {spec.name} ({names} do not), so it waits; is its module imported there?"


@dataclass(frozen=True, slots=True)
class NodesAt:
    """The nodes at a moment, by the records.

    Attributes:
        alive: those that were; a session without an end counts until its lease ends.
        last_before: of the nodes that had started by then, the one that stayed longest.
        first_after: the first that came later.
        complete: ``False``: there are more sessions than were read.
    """

    alive: tuple[SessionView, ...]
    last_before: SessionView | None
    first_after: SessionView | None
    complete: bool

    def sentence(self, zone: tzinfo) -> Sentence | None:
        """Return a sentence if no node was alive, with times in ``zone``; else ``None``."""
        last, first = self.last_before, self.first_after
        if self.alive or not self.complete:
            return None
        events = []
        if last is not None:
            end, time = last.ended_why or last.state, _until(last).astimezone(zone)
            events.append(Clause.ENDED(node=last.node, end=end, time=time))
        if first is not None:
            events.append(Clause.CAME(node=first.node, time=first.started_at.astimezone(zone)))
        match events:
            case [ended, came]:
                return Text.NO_NODE_BETWEEN(ended=ended, came=came)
            case [event]:
                return Text.NO_NODE_THEN(event=event)
            case _:
                return Text.NO_NODE_ON_RECORD()


def nodes_alive_at(store: Store, at: datetime) -> NodesAt:
    """Return which nodes were alive at ``at``, and which came before and after."""
    sessions = store.sessions(ended=True)
    earlier = [session for session in sessions if session.is_node and session.started_at <= at]
    later = [session for session in sessions if session.is_node and session.started_at > at]
    return NodesAt(
        alive=tuple(one for one in earlier if _until(one) >= at),
        last_before=max(earlier, key=_until, default=None),
        first_after=min(later, key=lambda one: one.started_at, default=None),
        complete=len(sessions) < _MAX_SESSIONS_READ,
    )


def _until(session: SessionView) -> datetime:
    return session.ended_at or session.renewed_at + max(session.expires_in, timedelta(0))
