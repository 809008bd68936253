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

_MOST_SESSIONS = 200


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
    return [node for node in nodes if lives[node.id].state in states]


def needs_no_node(store: Store, live_sessions: Sequence[SessionView]) -> str | None:
    """Return why no node is needed, as half a sentence; ``None``: a job needs a node, or the store is empty.

    Guarded functions and locks work in the processes that use them, of which ``live_sessions`` are alive.
    """
    has_jobs = False
    keeper = None
    for view in every_job(store):
        has_jobs = True
        keeper = keeper or view.spec.keeper
        if not view.spec.guarded and view.spec.keeper is None:
            return None
    if has_jobs:
        return "guarded functions need none" if keeper is None else f"jobs that {keeper} keeps need none"
    return "locks need none" if any(not session.is_node for session in live_sessions) else None


def describe_missing_node(store: Store, spec: JobSpec) -> str:
    """Return a sentence if no live node can run a job, by what the nodes declare; else ``None``."""
    nodes = live_nodes(store)
    if not nodes:
        return "no node is alive, so it waits; start one: cronsensus run MODULE:ATTR"
    # Nobody declares a job that was added at run time, and a node with very many jobs reports only a part.
    may_declare_it = spec.source == "runtime" or any(len(node.declares) >= MOST_DECLARED for node in nodes)
    if may_declare_it or any(spec.name in node.declares or (node.functions and not node.declares) for node in nodes):
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
        before, later = self.last_before, self.first_after
        if self.alive or not self.complete:
            return None
        events = []
        if before is not None:
            end, time = before.ended_why or before.state, _until(before).astimezone(zone)
            events.append(Clause.ENDED(node=before.node, end=end, time=time))
        if later is not None:
            events.append(Clause.CAME(node=later.node, time=later.started_at.astimezone(zone)))
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
        alive=tuple(session for session in earlier if _until(session) >= at),
        last_before=max(earlier, key=_until, default=None),
        first_after=min(later, key=lambda session: session.started_at, default=None),
        complete=len(sessions) < _MOST_SESSIONS,
    )


def _until(session: SessionView) -> datetime:
    return session.ended_at or session.renewed_at + max(session.expires_in, timedelta(0))
