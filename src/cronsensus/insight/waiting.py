"""Why a due run does not start: no node, no free slot, a limit, or something that it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from cronsensus.insight.live_nodes import nodes_there, takes_work
from cronsensus.insight.sentences import Clause, Sentence, Text, distance_text
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
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """The sentences in one line."""
        return " ".join(map(str, self.sentences))


def why_it_waits(store: Store, view: JobView, occurrence: Occurrence, now: datetime, zone: tzinfo = UTC) -> Wait:
    """Return why a pending occurrence is not running; times are in ``zone``."""
    if view.spec.guarded:
        was = Clause.FAILED_TIMES(times=occurrence.failures) if occurrence.failures else Clause.WAS_CUT_OFF()
        return _wait(Cause.CALL, Text.WAITS_FOR_CALL(was=was))
    if (keeper := view.spec.keeper) is not None:
        if occurrence.reason is not None:
            return _wait(Cause.CALL, Text.LEFT_BY_KEEPER(keeper=keeper, reason=occurrence.reason))
        return _wait(Cause.CALL, Text.WAITS_FOR_KEEPER(keeper=keeper))
    if occurrence.parked_on is not None:
        return _until_woken(store, view, occurrence, occurrence.parked_on)
    if occurrence.due_at >= LATEST:
        return _wait(Cause.DUE_TIME, Text.NEVER_DUE())
    when = distance_text(occurrence.due_at, now)
    if occurrence.due_at > now and occurrence.error is None and occurrence.reason:
        return _wait(Cause.DUE_TIME, Text.LOOKS_AGAIN(when=when, reason=occurrence.reason))
    if occurrence.due_at > now and occurrence.failures:
        return _wait(Cause.DUE_TIME, Text.DUE_AFTER_FAILURES(when=when, failures=occurrence.failures))
    if occurrence.due_at > now:
        return _wait(Cause.DUE_TIME, Text.DUE(when=when))
    if view.retired_at is not None and view.waiting_until is not None:
        return _wait(
            Cause.DECLARATION,
            Text.NOT_DECLARED(job=repr(view.spec.name), when=distance_text(view.retired_at, now)),
            Text.KEPT_UNTIL(time=view.waiting_until.astimezone(zone)),
        )
    sessions = nodes_there(store)
    return _no_node(sessions) or _in_the_way(store, view, occurrence) or _not_claimed(view, occurrence, sessions, now)


def _until_woken(store: Store, view: JobView, occurrence: Occurrence, parked_on: str) -> Wait:
    match parked_on:
        case "items":
            return _for_items(store, occurrence)
        case "upstreams":
            return _wait(Cause.UPSTREAM, _for_upstreams(store, view, occurrence))
        case _:
            return _wait(Cause.WOKEN, Text.PARKED(what=occurrence.reason or Clause.WAITS_FOR(what=parked_on)))


def _for_upstreams(store: Store, view: JobView, occurrence: Occurrence) -> Sentence:
    """Return the upstreams of a run, by the job's current definition, and which of them have not ended."""
    at, rules = occurrence.scheduled_for, () if view.spec.after is None else view.spec.after.upstreams
    if at is None or not rules:
        return Text.COMES_AFTER_NOTHING()
    jobs = [rule.job for rule in rules]
    filters = [OccurrenceFilter(job=rule.job, scheduled_from=at, scheduled_until=at) for rule in rules]
    newest = [store.occurrences(where, limit=1) for where in filters]
    still = [rule.job for rule, runs in zip(rules, newest, strict=True) if runs and not runs[0].state.final]
    if 0 < len(still) < len(rules):
        return Text.COMES_AFTER_AND_WAITS_FOR(jobs=jobs, open=still)
    return Text.COMES_AFTER(jobs=jobs)


def _for_items(store: Store, occurrence: Occurrence) -> Wait:
    children = store.children([occurrence.id], limit=MOST_ITEMS)[occurrence.id]
    counts = {"total": children.total, "open": children.open, "running": children.running, "pending": children.pending}
    return _wait(Cause.ITEMS, Text.WAITS_FOR_ITEMS(**counts))


def _wait(cause: Cause, *sentences: Sentence) -> Wait:
    return Wait(cause, sentences)


def _no_node(sessions: Sequence[SessionView]) -> Wait | None:
    if not sessions:
        return _wait(Cause.NODE, Text.NO_NODE())
    if not any(takes_work(session) for session in sessions):
        names = list(dict.fromkeys(session.node for session in sessions))
        return _wait(Cause.NODE_WITHOUT_DRAIN, Text.NODES_DRAIN(nodes=names))
    return None


def _in_the_way(store: Store, view: JobView, occurrence: Occurrence) -> Wait | None:
    policies = view.spec.policies
    running = store.occurrences(OccurrenceFilter(job=occurrence.job, states=(State.RUNNING,)), newest_first=False)
    if policies.concurrency is not None and len(running) >= policies.concurrency:
        runs = [Clause.RUN_ON(run=run.id, node=run.node) for run in running[:5]]
        return _wait(Cause.CONCURRENCY, Text.CONCURRENCY(most=policies.concurrency, job=occurrence.job, runs=runs))
    if occurrence.origin in SERIAL_ORIGINS and policies.overlap != "allow":
        active = store.occurrences(OccurrenceFilter(job=occurrence.job, states=tuple(ACTIVE)), newest_first=False)
        earlier = [run for run in active if run.id < occurrence.id and run.origin in SERIAL_ORIGINS]
        if earlier:
            first_earlier = earlier[0]
            return _wait(
                Cause.OVERLAP,
                Text.WAITS_FOR_RUN(run=first_earlier.id, state=first_earlier.state, overlap=policies.overlap),
            )
    return None


def _not_claimed(view: JobView, occurrence: Occurrence, sessions: Sequence[SessionView], now: datetime) -> Wait:
    """Return why no working node has claimed a run that nothing blocks."""
    working = [session for session in sessions if takes_work(session)]
    if all(session.holds >= session.concurrency for session in working):
        return _wait(Cause.SLOT, Text.NODES_FULL())
    when = distance_text(occurrence.due_at, now)
    if now - occurrence.due_at < JUST_NOW:
        return _wait(Cause.LOOK, Text.DUE_JUST_NOW(when=when))
    releases = dict.fromkeys((session.node, session.release[:12]) for session in working)
    nodes = [Clause.OF_RELEASE(node=node, release=release) for node, release in releases]
    return _wait(
        Cause.FUNCTION,
        Text.NODES_HAVE_FREE_SLOTS(when=when, nodes=nodes),
        Text.NO_FUNCTION(function=repr(view.spec.function)),
    )
