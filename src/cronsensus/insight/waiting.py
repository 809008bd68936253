"""Why something that is due does not start: which nodes there are, and what is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from cronsensus.insight.live_nodes import nodes_there, takes_work
from cronsensus.insight.time_words import counted, exact, relative
from cronsensus.model.batch import MOST_ITEMS
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import ACTIVE, SERIAL_ORIGINS, State
from cronsensus.stores.base import Store
from cronsensus.timing.instants import LATEST

JUST_NOW = timedelta(seconds=2)


class Cause(StrEnum):
    """What a pending occurrence waits for."""

    CALL = "the next call"
    DUE_TIME = "its due time"
    DECLARATION = "a release that declares it"
    NODE = "a node"
    NODE_WITHOUT_DRAIN = "a node that does not drain"
    CONCURRENCY = "concurrency"
    OVERLAP = "an earlier run"
    SLOT = "a free slot"
    LOOK = "the next look of a node"
    FUNCTION = "a node with its function"
    ITEMS = "its items"
    UPSTREAM = "another job"
    WOKEN = "what wakes it"


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a pending occurrence does not run: the surest cause, in one or two sentences."""

    cause: Cause
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentences in one line."""
        return " ".join(self.sentences)


def why_it_waits(store: Store, view: JobView, one: Occurrence, now: datetime, zone: tzinfo = UTC) -> Wait:
    """Return why a pending occurrence is not running; times are in ``zone``."""
    if view.spec.guarded:
        was = f"failed {counted(one.failures, 'time')}" if one.failures else "was cut off"
        return _wait(
            Cause.CALL,
            f"It {was}, and is free for the next call of the guarded function; if none comes, it is closed in time.",
        )
    if (keeper := view.spec.keeper) is not None:
        return _wait(
            Cause.CALL,
            f"It was cut off, and {keeper} runs it again in the next process that looks, within seconds where one "
            "lives.",
        )
    if one.parked_on is not None:
        return _until_woken(store, view, one, one.parked_on)
    if one.due_at >= LATEST:
        return _wait(Cause.DUE_TIME, "It is never due; cancel it, or enqueue it anew with a time.")
    if one.due_at > now and one.error is None and one.reason:
        return _wait(Cause.DUE_TIME, f"It looks again {relative(one.due_at, now)}: {one.reason}.")
    if one.due_at > now:
        after = f" after {counted(one.failures, 'failed attempt')}" if one.failures else ""
        return _wait(Cause.DUE_TIME, f"It is due {relative(one.due_at, now)}{after}.")
    if view.retired_at is not None and view.waiting_until is not None:
        ago = relative(view.retired_at, now)
        return _wait(
            Cause.DECLARATION,
            f"No running release declares the job {view.spec.name!r}, which was retired {ago}.",
            f"What waits is kept until {exact(view.waiting_until, zone)}, in case one does, and then cancelled.",
        )
    sessions = nodes_there(store)
    return _no_node(sessions) or _in_the_way(store, view, one) or _not_claimed(view, one, sessions, now)


def _until_woken(store: Store, view: JobView, one: Occurrence, what: str) -> Wait:
    match what:
        case "items":
            return _for_items(store, one)
        case "upstreams":
            return _wait(Cause.UPSTREAM, _behind(store, view, one))
        case _:
            return _wait(Cause.WOKEN, f"It is parked: it {one.reason or f'waits for {what}'}.")


def _behind(store: Store, view: JobView, one: Occurrence) -> str:
    """Return what a run comes after, as its definition says now, and which of that is not over."""
    at, rules = one.scheduled_for, () if view.spec.after is None else view.spec.after.upstreams
    if at is None or not rules:
        return "It comes after nothing any more, and goes on when a node looks."
    whom = ", ".join(rule.job for rule in rules)
    where = [OccurrenceFilter(job=rule.job, scheduled_from=at, scheduled_until=at) for rule in rules]
    newest = [store.occurrences(each, limit=1) for each in where]
    still = [rule.job for rule, found in zip(rules, newest, strict=True) if found and not found[0].state.final]
    return f"It comes after {whom}, and waits for {', '.join(still) if 0 < len(still) < len(rules) else 'that'}."


def _for_items(store: Store, one: Occurrence) -> Wait:
    children = store.children([one.id], limit=MOST_ITEMS)[one.id]
    return _wait(
        Cause.ITEMS,
        f"It is a batch of {counted(children.total, 'item')}, and waits for {children.open:,} of them: "
        f"{children.running:,} run, {children.pending:,} wait.",
    )


def _wait(cause: Cause, *sentences: str) -> Wait:
    return Wait(cause, sentences)


def _no_node(sessions: Sequence[SessionView]) -> Wait | None:
    if not sessions:
        return _wait(Cause.NODE, "No node is alive: start one with cronsensus run MODULE:ATTR.")
    if not any(takes_work(one) for one in sessions):
        names = ", ".join(dict.fromkeys(one.node for one in sessions))
        return _wait(Cause.NODE_WITHOUT_DRAIN, f"The nodes that are there take nothing new ({names}): start another.")
    return None


def _in_the_way(store: Store, view: JobView, one: Occurrence) -> Wait | None:
    policies = view.spec.policies
    running = store.occurrences(OccurrenceFilter(job=one.job, states=(State.RUNNING,)), newest_first=False)
    if policies.concurrency is not None and len(running) >= policies.concurrency:
        names = ", ".join(f"run {other.id} on {other.node}" for other in running[:5])
        return _wait(
            Cause.CONCURRENCY,
            f"No more than {policies.concurrency} of {one.job} may run at a time (concurrency), "
            f"and there are: {names}.",
        )
    if one.origin in SERIAL_ORIGINS and policies.overlap != "allow":
        active = store.occurrences(OccurrenceFilter(job=one.job, states=tuple(ACTIVE)), newest_first=False)
        earlier = [other for other in active if other.id < one.id and other.origin in SERIAL_ORIGINS]
        if earlier:
            return _wait(
                Cause.OVERLAP,
                f"It waits for run {earlier[0].id}, which is {earlier[0].state} (overlap={policies.overlap}).",
            )
    return None


def _not_claimed(view: JobView, one: Occurrence, sessions: Sequence[SessionView], now: datetime) -> Wait:
    """Return why nodes that start new work, with nothing in the way, have not claimed it."""
    working = [session for session in sessions if takes_work(session)]
    if all(session.holds >= session.concurrency for session in working):
        return _wait(Cause.SLOT, "Every node is full: start another, or allow them more (--concurrency).")
    due = relative(one.due_at, now)
    if now - one.due_at < JUST_NOW:
        return _wait(Cause.LOOK, f"It was due {due}: a node will take it within moments.")
    names = ", ".join(dict.fromkeys(f"{session.node} (release {session.release[:12]})" for session in working))
    return _wait(
        Cause.FUNCTION,
        f"It was due {due}, and nodes with room are alive: {names}.",
        f"Most likely none of them has the function {view.spec.function!r}: start a node whose code declares it.",
    )
