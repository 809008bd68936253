"""The answer to a health probe: does the store answer, and is a node alive?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from cronsensus.insight.life import Life, lives_of
from cronsensus.insight.live_nodes import needs_no_node, takes_work
from cronsensus.insight.sentences import Clause
from cronsensus.insight.time_words import brief_duration, format_count, relative_time
from cronsensus.membership.liveness import can_judge, own_start, process_state
from cronsensus.model.job import JobView, is_internal
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.model.stuck import is_stuck, overrun_of
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence
from cronsensus.stores.sql.probe import Living, probe_store

_MOST_NAMED = 3
_MOST_DUE_JOBS = 20
_MOST_RUNS = 2_000
"""Runs of a node that are read."""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer.

    Attributes:
        nodes: those known to be alive: of all nodes, or of the sessions of the named node.
        node: the name, if the probe names a node.
        idle: why no node is needed, if none is alive and none is needed.
        not_ready: why no due time is decided although a node is alive; only with ``ready``.
        stuck: why the named node starts nothing more although it is alive.
        others: those that are not known to be alive, with what is known of each.
    """

    nodes: tuple[Living | SessionView, ...]
    node: str | None = None
    idle: str | None = None
    others: tuple[tuple[SessionView, Life], ...] = ()
    not_ready: str | None = None
    stuck: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return (bool(self.nodes) or self.idle is not None) and self.not_ready is None and self.stuck is None

    @property
    def sentence(self) -> str:
        """The answer in words."""
        trouble = self.stuck or self.not_ready
        if trouble is not None and (self.nodes or self.idle is not None):
            return f"fail: the store answers, {format_count(len(self.nodes), 'live node')}, but {trouble}"
        if self.nodes:
            return f"ok: the store answers, {format_count(len(self.nodes), 'live node')}"
        if self.idle is not None:
            return f"ok: the store answers, no node is alive, and {self.idle}"
        subject = "no node is" if self.node is None else f"node {self.node!r} is not"
        if not self.others:
            return f"fail: the store answers, but {subject} alive"
        named = "; ".join(f"{session.node} is {life.sentence}" for session, life in self.others[:_MOST_NAMED])
        more = f"; and {len(self.others) - _MOST_NAMED} more" if len(self.others) > _MOST_NAMED else ""
        return f"fail: the store answers, but {subject} known to be alive: {named}{more}"


def read_health(store: Store, *, node: str | None = None, ready: bool = False) -> Health:
    """Return the health of the cluster, or of one node.

    Args:
        store: read a few times; signs of life twice if one is missing.
        node: the name of a node, its host alone, or a session. The name of this host means only processes that this
            host sees: any other was in a container that is gone, or ran before a reboot.
        ready: check also that due times are decided.
    """
    sessions = store.sessions()
    lives = lives_of(store, sessions)
    live_sessions = [session for session in sessions if lives[session.id].is_alive]
    probed = [session for session in sessions if _is_meant(session, node)]
    alive = tuple(session for session in probed if session in live_sessions and not _is_elsewhere(session, node))
    others = tuple(
        (session, _as_seen_here(lives[session.id], session, node)) for session in probed if session not in alive
    )
    idle = needs_no_node(store, live_sessions) if node is None and not alive else None
    stuck = None if node is None else _stuck(store, alive)
    return Health(alive, node, idle, others, _not_ready(store, alive) if ready else None, stuck)


def _stuck(store: Store, live_sessions: Sequence[SessionView]) -> str | None:
    """Return why no slot of these nodes gets free, as half a sentence; ``None``: some may get free.

    A coroutine that goes on after its timeout is not counted: only its node knows that it holds a slot.
    """
    nodes, now = [session for session in live_sessions if session.is_node], store.now()
    overdue_by: dict[str, timedelta] = {}
    for node in nodes:
        if node.holds < node.concurrency:
            return None
        overruns = list(_overruns(store, node, now))
        if not is_stuck(node.concurrency, [overrun for _, overrun in overruns]):
            return None
        overdue_by |= {job: overrun for job, overrun in overruns if overrun is not None}
    if not overdue_by:
        return None
    job, overrun = max(overdue_by.items(), key=lambda entry: entry[1])
    whose = "its" if len(nodes) == 1 else "their"
    return (
        f"each of {whose} slots is held by a run that is over its timeout= or slow=, {job} by "
        f"{brief_duration(overrun)}; restart the "
        "node, and see which: cronsensus runs list --state running"
    )


def _overruns(store: Store, node: SessionView, now: datetime) -> Iterator[tuple[str, timedelta | None]]:
    """Yield the job of each run of a node, and by how much the run is over its time."""
    views: dict[str, JobView | None] = {}
    running = every_occurrence(store, OccurrenceFilter(session=node.id, states=(State.RUNNING,)))
    for occurrence in islice(running, _MOST_RUNS):
        # A reserved claim waits for a slot, and internal jobs need none.
        if occurrence.reserved or occurrence.started_at is None or is_internal(occurrence.job):
            continue
        view = (
            views[occurrence.job]
            if occurrence.job in views
            else views.setdefault(occurrence.job, store.job(occurrence.job))
        )
        if view is not None:
            yield occurrence.job, overrun_of(view.spec, now - occurrence.started_at)


def _not_ready(store: Store, live_sessions: Sequence[SessionView]) -> str | None:
    """Return why no due time is decided, as half a sentence; ``None``: they are decided."""
    from cronsensus.insight.standstill import every_standstill  # more than a quick probe needs
    from cronsensus.insight.work_checks import OVERDUE

    nodes = [session for session in live_sessions if session.is_node]
    if nodes and not any(takes_work(node) for node in nodes):
        return "it drains" if len(nodes) == 1 else "all of them drain"
    view = store.look(limit=_MOST_DUE_JOBS)
    due_jobs = [(job.due_at, job.spec.name) for job in view.jobs if job.due_at is not None]
    due, name = min(due_jobs, default=(view.now, ""))
    if view.now - due >= OVERDUE:
        return f"nobody has decided {name}, which was due {relative_time(due, view.now)}"
    standstills = list(every_standstill(store))
    more = f"; and {format_count(len(standstills) - 1, 'more job')}" if len(standstills) > 1 else ""
    return f"{standstills[0].sentence}{more}" if standstills else None


def quick_health(url: str, namespace: str, *, node: str | None = None) -> Health | None:
    """Return the health without opening the store; ``None``: that is not possible, so call ``read_health``.

    It is possible if all sessions in question are processes of this host, whose kernel knows which of them run.
    """
    quick = probe_store(url, namespace)
    if quick is None:
        return None
    probed = [session for session in quick.living if _is_meant(session, node) and not _is_elsewhere(session, node)]
    if not probed and node is None and not quick.needs_a_node:
        return Health((), idle="guarded functions and locks need none")
    if node is not None and any(session.is_full for session in probed):
        return None  # perhaps it is stuck
    states = [process_state(session.host, session.pid, session.pid_started) for session in probed]
    alive = tuple(session for session, process in zip(probed, states, strict=True) if process == "runs")
    return Health(alive, node) if alive and None not in states else None


def _is_meant(session: Living | SessionView, node: str | None) -> bool:
    # The default name is host:pid, and a probe inside of a container knows only the host.
    return session.is_node if node is None else node in {session.node, session.node.rpartition(":")[0], session.id}


def _as_seen_here(life: Life, session: SessionView, node: str | None) -> Life:
    if not life.is_alive or not _is_elsewhere(session, node):
        return life
    return replace(life, state="unknown", sentence=Clause.NOT_SEEN_HERE(life=life.sentence))


def _is_elsewhere(session: Living | SessionView, node: str | None) -> bool:
    """Whether ``node`` is this host, and the session is of another process table."""
    return node == os.uname().nodename and bool(own_start()) and not can_judge(session.host)
