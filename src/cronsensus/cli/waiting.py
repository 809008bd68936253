"""Why something that is due does not start: which nodes there are, and what is in the way. Prints nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from cronsensus.insight.words import counted, exact, relative
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import ACTIVE, SERIAL_ORIGINS, State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job

JUST_NOW = timedelta(seconds=2)


def is_alive(one: SessionView) -> bool:
    """Whether a session is in time with its lease; a draining one too."""
    return one.state in {"alive", "draining"} and one.expires_in > timedelta(0)


def alive(store: Store) -> list[SessionView]:
    """Return the nodes that live: those in time with their lease, draining ones too."""
    return [one for one in nodes(store) if is_alive(one)]


def needs_no_node(store: Store, sessions: list[SessionView]) -> str | None:
    """Return why nothing here waits for a node, as half a sentence; ``None``: a job does, or nothing is here at all.

    Guarded functions and locks work in the processes that use them.
    """
    jobs = False
    for view in every_job(store):
        jobs = True
        if not view.spec.guarded:
            return None
    if jobs:
        return "guarded functions need none"
    return "locks need none" if any(not one.is_node and is_alive(one) for one in sessions) else None


def nodes(store: Store) -> list[SessionView]:
    """Return the sessions of nodes: a process that only locks, or only calls guarded functions, runs no job."""
    return [one for one in store.sessions() if one.is_node]


def why_it_waits(store: Store, view: JobView, one: Occurrence, now: datetime) -> list[str]:
    """Return why a pending occurrence is not running, as sentences; the surest first."""
    if view.spec.guarded:
        was = f"failed {counted(one.failures, 'time')}" if one.failures else "was cut off"
        return [
            f"It {was}, and is free for the next call of the guarded function; if none comes, it is closed in time."
        ]
    if one.due_at > now:
        cause = f" after {counted(one.failures, 'failed attempt')}" if one.failures else ""
        return [f"It is due {relative(one.due_at, now)}{cause}."]
    if view.retired_at is not None and view.waiting_until is not None:
        ago = relative(view.retired_at, now)
        return [
            f"No running release declares the job {view.spec.name!r}, which was retired {ago}.",
            f"What waits is kept until {exact(view.waiting_until)}, in case one does, and then cancelled.",
        ]
    sessions = nodes(store)
    found = _none_works(sessions)
    if found:
        return found
    found = _in_the_way(store, view, one)
    if found:
        return found
    if all(session.holds >= session.concurrency for session in _working(sessions)):
        return ["Every node is full: start another, or allow them more (--concurrency)."]
    if now - one.due_at < JUST_NOW:
        return [f"It was due {relative(one.due_at, now)}: a node will take it within moments."]
    names = ", ".join(
        dict.fromkeys(f"{session.node} (release {session.release[:12]})" for session in _working(sessions))
    )
    return [
        f"It was due {relative(one.due_at, now)}, and nodes with room are alive: {names}.",
        f"Most likely none of them has the function {view.spec.function!r}: start a node whose code declares it.",
    ]


def who_was_there(store: Store, at: datetime, zone: tzinfo) -> list[str]:
    """Return a sentence if, as far as is on record, no node was alive at ``at``."""
    sessions = store.sessions(ended=True)
    there = [one for one in sessions if one.started_at <= at and _until(one) >= at]
    if there or (sessions and len(sessions) >= 200):
        return []
    earlier = [one for one in sessions if one.started_at <= at]
    later = [one for one in sessions if one.started_at > at]
    said = "No node was alive then"
    if earlier:
        last = max(earlier, key=_until)
        said += f": {last.node} was {last.ended_why or last.state} {exact(_until(last), zone)}"
    if later:
        first = min(later, key=lambda one: one.started_at)
        said += f"{';' if earlier else ':'} {first.node} came {exact(first.started_at, zone)}"
    if not sessions:
        said = "No node is on record (ended ones are kept for a day); start one: cronsensus run MODULE:ATTR"
    return [said + "."]


def _until(one: SessionView) -> datetime:
    return one.ended_at or one.renewed_at + max(one.expires_in, timedelta(0))


def _working(sessions: list[SessionView]) -> list[SessionView]:
    return [one for one in sessions if one.state == "alive"]


def _none_works(sessions: list[SessionView]) -> list[str]:
    if not sessions:
        return ["No node is alive: start one with cronsensus run MODULE:ATTR."]
    if not _working(sessions):
        names = ", ".join(dict.fromkeys(one.node for one in sessions))
        return [f"The nodes that are there take nothing new ({names}): start another."]
    return []


def _in_the_way(store: Store, view: JobView, one: Occurrence) -> list[str]:
    policies = view.spec.policies
    running = store.occurrences(OccurrenceFilter(job=one.job, states=(State.RUNNING,)), newest_first=False)
    if policies.concurrency is not None and len(running) >= policies.concurrency:
        names = ", ".join(f"run {other.id} on {other.node}" for other in running[:5])
        return [
            f"No more than {policies.concurrency} of {one.job} may run at a time (concurrency), and there are: {names}."
        ]
    if one.origin in SERIAL_ORIGINS and policies.overlap != "allow":
        active = store.occurrences(OccurrenceFilter(job=one.job, states=tuple(ACTIVE)), newest_first=False)
        earlier = [other for other in active if other.id < one.id and other.origin in SERIAL_ORIGINS]
        if earlier:
            return [f"It waits for run {earlier[0].id}, which is {earlier[0].state} (overlap={policies.overlap})."]
    return []
