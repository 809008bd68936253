"""Checks of nodes, jobs and runs: whether anybody does the work, and what does not get done."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Any

from cronsensus.insight.check import FAIL, OK_LEVEL, WARN, Check
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.life import lives_of
from cronsensus.insight.live_nodes import live_nodes, needs_no_node
from cronsensus.insight.lost_jobs import find_lost_jobs
from cronsensus.insight.standstill import every_standstill
from cronsensus.insight.summaries import why_ended
from cronsensus.insight.time_words import exact_time, format_count, relative_time, shorten, typed_time
from cronsensus.insight.two_programs import describe_strangers, find_twice_declared
from cronsensus.insight.waiting import JUST_NOW, Cause, why_it_waits
from cronsensus.insight.zone_checks import check_zone_rules
from cronsensus.model.gate import without_cycles
from cronsensus.model.job import ALERT
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.security.masking import mask
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, every_job, rules_of

OVERDUE = timedelta(seconds=60)
"""How late a job is reported whose time no node has decided, and a run that does not start."""
_DROPPED_WITHIN = timedelta(days=1)
RECENT_DEATH = timedelta(hours=1)
FAILURES_IN_A_ROW = 3
"""Failures in a row from which a job is reported."""
OWN_CONNECTIONS = 4
"""Connections that a node keeps open, whatever it runs."""
SPARE_CONNECTIONS = 20
"""Connections on top of a proposed limit: for locks, this command, the application, and the server's reserve."""
_MORE_CONNECTIONS = {
    "postgresql": "ALTER SYSTEM SET max_connections = {}; and restart the server",
    "mysql": "SET GLOBAL max_connections = {}; and the same in its configuration",
}
_RUNS_OF_JOB = 25
_JOBS_AT_ONCE = 50
_MOST_CHECKED = 200
_MOST_SHOWN = 5
_MOST_READ = 1000


_ADVICE_BY_STATE = {
    "stopped": "let it go on (kill -CONT), or end it",
    "gone": "a live node takes its runs over within moments; if none does, start one",
    "unknown": "ask on its own host, which sees its process",
}


def check_circles(store: Store) -> Iterator[Check]:
    """Find cycles of dependencies. No program declares a cycle alone: several make it together."""
    for cycle in without_cycles(rules_of(every_edge(store)))[1]:
        names = " → ".join((cycle[-1], *cycle))
        text = f"{names} come after each other, so each waits for the last, and is skipped when its wait_for is over"
        yield Check("circle", FAIL, shorten(text, 300), "take one after=[…] out, in the program that declares it")


def check_nodes(store: Store) -> Iterator[Check]:
    """Check whether nodes are alive, whether some died, and whether all are of the same release."""
    sessions = store.sessions()
    lives = lives_of(store, sessions)
    live_sessions = [session for session in sessions if lives[session.id].is_alive]
    live_nodes = [node for node in live_sessions if node.is_node]
    lost_sessions = [session for session in sessions if session not in live_sessions]
    if not live_nodes:
        if idle := needs_no_node(store, live_sessions):
            yield Check("nodes", OK_LEVEL, f"no node is alive, and {idle}")
        else:
            jobs = store.counts().jobs
            level = FAIL if jobs else WARN
            how_known = (
                "known to be alive"
                if any(lives[node.id].state == "unknown" for node in lost_sessions)
                else "alive, so nothing runs"
            )
            text = f"no node is {how_known} ({format_count(jobs, 'job')})"
            yield Check("nodes", level, text, "cronsensus run MODULE:ATTR")
    else:
        names = shorten(", ".join(dict.fromkeys(node.node for node in live_nodes)), 100)
        yield Check("nodes", OK_LEVEL, f"{len(live_nodes)} alive: {names}")
        if all(node.state == "draining" for node in live_nodes):
            yield Check("nodes", WARN, "all of them drain, so nothing new starts", "cronsensus run MODULE:ATTR")
        yield from _without_jobs(store, live_nodes)
    # A lost process that is no node and holds nothing does no harm: each deploy of guarded functions leaves some.
    for node in [node for node in lost_sessions if node.is_node or node.holds][:5]:
        life = lives[node.id]
        yield Check(
            "nodes",
            FAIL if node.holds and not live_nodes else WARN,
            f"{node.node} (session {node.id}) is {life.sentence}; it holds {node.holds or 'nothing'}",
            _ADVICE_BY_STATE[life.state]
            if node.holds or life.state != "gone"
            else "see the end of its log, if it was not meant",
        )
    now = store.now()
    dead_nodes = [session for session in store.sessions(ended=True) if session.state == "dead" and session.is_node]
    for node in dead_nodes[:5]:
        if node.ended_at is not None and now - node.ended_at < RECENT_DEATH:
            text = f"{node.node} died {relative_time(node.ended_at, now)} ({node.ended_why})"
            yield Check("nodes", WARN, text, "see the end of its log, and what it ran: cronsensus nodes list --ended")
    yield from _mixed("releases", "release", live_nodes, lambda node: shorten(node.release, 20))
    for conflict in find_twice_declared(live_nodes)[:_MOST_SHOWN]:
        yield Check(
            "programs", WARN, conflict.sentence, "give each program a namespace= of its own; see where they start"
        )
    if (strangers := describe_strangers(live_nodes)) is not None:
        advice = "normal during a deploy that adds and removes jobs; two programs: give each a namespace= of its own"
        yield Check("programs", WARN, strangers, advice)
    yield from _mixed("versions", "version of cronsensus", live_nodes, lambda node: node.version)
    yield from check_zone_rules(live_nodes, now)


def _without_jobs(store: Store, live_nodes: list[SessionView]) -> Iterator[Check]:
    """Find nodes whose program declared no job at its start and that have run no job added at run time."""
    idle = [
        node
        for node in live_nodes
        if not node.functions and not store.occurrences(OccurrenceFilter(session=node.id), limit=1)
    ]
    if idle and (store.counts().jobs or any(every_job(store, retired=True))):
        names = shorten(", ".join(dict.fromkeys(node.node for node in idle)), 100)
        text = f"{names} declare{'s' if len(idle) == 1 else ''} no job, and can run none of those in the store"
        yield Check("nodes", FAIL, text, "import the modules that declare jobs where the node's program starts")


def check_connections(store: Store, described: dict[str, Any]) -> Iterator[Check]:
    """Compare the connections that the live nodes may need with the server's limit."""
    limit, how_to_raise = described.get("max_connections"), _MORE_CONNECTIONS.get(store.capabilities.name)
    nodes = live_nodes(store)
    if limit is None or how_to_raise is None or not nodes:
        return
    kept_open, slots = OWN_CONNECTIONS * len(nodes), sum(node.concurrency for node in nodes)
    text = (
        f"{kept_open} of {format_count(len(nodes), 'live node')}, and {slots} more when each slot is in a "
        f"run.transaction(); max_connections is {limit}"
    )
    if kept_open + slots <= int(limit):
        yield Check("connections", OK_LEVEL, text)
        return
    advice = f"{how_to_raise.format(kept_open + slots + SPARE_CONNECTIONS)}, or fewer slots: CRONSENSUS_CONCURRENCY"
    yield Check("connections", WARN, f"{text}: a run that finds none left is cut off", advice)


def _mixed(
    name: str, noun: str, live_nodes: list[SessionView], value_of: Callable[[SessionView], str]
) -> Iterator[Check]:
    values = sorted({value_of(session) for session in live_nodes})
    if len(values) > 1:
        yield Check(
            name,
            WARN,
            f"live nodes are of more than one {noun}: {', '.join(values)}",
            "normal during a deploy; else restart the older ones",
        )


def check_jobs(store: Store, zone: tzinfo = UTC) -> Iterator[Check]:
    """Count the jobs, and find those that are due and were not fired."""
    counts = store.counts()
    paused = f", {counts.paused} of them paused" if counts.paused else ""
    yield Check(
        "jobs",
        OK_LEVEL,
        f"{format_count(counts.jobs, 'job')}{paused}; {counts.running} running, {counts.pending} waiting",
    )
    view = store.look(limit=_MOST_CHECKED)
    for job in view.jobs:
        if job.due_at is None or view.now - job.due_at < OVERDUE:
            continue
        yield Check(
            "overdue",
            FAIL,
            f"{job.spec.name} was due {relative_time(job.due_at, view.now)}, and no node fired it",
            f"cronsensus why '{job.spec.name}' '{typed_time(job.due_at, zone_of(job.spec.trigger, zone))}'",
        )


def check_standstills(store: Store, zone: tzinfo = UTC) -> Iterator[Check]:
    """Find jobs that stand still: they wait beyond their next nominal time."""
    standstills = list(every_standstill(store, zone))
    for standstill in standstills[:_MOST_SHOWN]:
        yield Check(
            "standstill", FAIL, str(standstill.sentence), f"cronsensus jobs rewind '{standstill.view.spec.name}'"
        )
    if len(standstills) > _MOST_SHOWN:
        text = (
            f"and {format_count(len(standstills) - _MOST_SHOWN, 'more job')} that "
            f"stand{'s' if len(standstills) == _MOST_SHOWN + 1 else ''} still"
        )
        yield Check("standstill", FAIL, text, "cronsensus jobs rewind --all")


def check_retired(store: Store, zone: tzinfo = UTC) -> Iterator[Check]:
    """Find jobs that a release dropped lately, or that still have pending runs: perhaps an import was forgotten."""
    now = store.now()
    dropped = {view.spec.name: view for view in find_lost_jobs(store, now - _DROPPED_WITHIN)}
    with_waiting_runs = {
        view.spec.name: view
        for view in islice(every_job(store, retired=True), _MOST_CHECKED)
        if view.waiting_until is not None
    }
    waiting = store.pending_of(list(dropped | with_waiting_runs))
    for name, view in sorted((dropped | with_waiting_runs).items()):
        job_zone = zone_of(view.spec.trigger, zone)
        if name in waiting and view.waiting_until is not None:
            detail = (
                f", and {format_count(waiting[name], 'run')} of it waiting; kept until "
                f"{exact_time(view.waiting_until, job_zone)}"
            )
        elif name in dropped and view.retired_at is not None:
            detail = f" since {exact_time(view.retired_at, job_zone)} ({relative_time(view.retired_at, now)})"
        else:
            continue
        next_step = (
            f"declare it again; if it is meant, scheduler.retired({name!r}) in the code, or "
            f"scheduler.remove_job({name!r}), which cancels what waits"
        )
        yield Check("retired", WARN, f"no running release declares {name}{detail}", next_step)


def check_alerts(store: Store) -> Iterator[Check]:
    """Find alerts that nothing watches for, because their run was cancelled."""
    for name in (view.spec.name for view in islice(every_job(store), _MOST_READ)):
        if not name.startswith(ALERT):
            continue
        open_runs = OccurrenceFilter(job=name, states=(State.PENDING, State.RUNNING))
        if not store.occurrences(open_runs, limit=1):
            text = f"nothing watches for alert {name.removeprefix(ALERT)}: its run is gone, so nothing is told"
            advice = "a node whose program has the alert starts it again within a minute; if none runs, start one"
            yield Check("alerts", WARN, text, advice)


def check_failing(store: Store) -> Iterator[Check]:
    """Find jobs whose latest runs all failed."""
    ended = {State.SUCCEEDED, State.FAILED}
    names = [view.spec.name for view in islice(every_job(store), _MOST_CHECKED)]
    chunks = [names[index : index + _JOBS_AT_ONCE] for index in range(0, len(names), _JOBS_AT_ONCE)]
    pasts = [store.last_of(chunk, limit=_RUNS_OF_JOB) for chunk in chunks]  # of a batch: itself, not its items
    for name, past in sorted(ChainMap(*pasts).items()):
        latest = [glance for glance in past.glances if glance.state in ended]
        failed = list(takewhile(lambda run: run.state is State.FAILED, latest))
        if len(failed) >= FAILURES_IN_A_ROW:
            newest = store.occurrence(failed[0].id)
            reason = shorten((newest and why_ended(newest)) or "no reason given", 100)
            text = f"{name} failed the last {len(failed)} times in a row: {reason}"
            yield Check("failing", WARN, text, f"cronsensus runs show {failed[0].id}")


def check_waiting(store: Store, zone: tzinfo = UTC) -> Iterator[Check]:
    """Explain why the oldest pending runs do not start."""
    now = store.now()
    checked_jobs: set[str] = set()
    for occurrence in store.occurrences(
        OccurrenceFilter(states=(State.PENDING,)), limit=_MOST_CHECKED, newest_first=False
    ):
        if occurrence.job in checked_jobs or now - occurrence.due_at < max(OVERDUE, JUST_NOW):
            continue
        checked_jobs.add(occurrence.job)
        view = store.job(occurrence.job)
        if view is not None:
            wait = why_it_waits(store, view, occurrence, now, zone_of(view.spec.trigger, zone))
            text = (
                f"run {occurrence.id} of {occurrence.job} was due {relative_time(occurrence.due_at, now)}. {wait.text}"
            )
            # Nodes are free, and none has the function: an import was forgotten, or all are of another release.
            level = FAIL if wait.cause is Cause.FUNCTION else WARN
            yield Check("waiting", level, text, f"cronsensus runs show {occurrence.id}")


def check_unreadable(store: Store) -> Iterator[Check]:
    """Read a part of each kind of record, and report what the store could not read."""
    list(islice(every_job(store), _MOST_READ))
    for states in ((State.PENDING,), (State.RUNNING,), ()):
        store.runs(
            *(occurrence.id for occurrence in store.occurrences(OccurrenceFilter(states=states), limit=_MOST_READ))
        )
    store.sessions(ended=True, limit=_MOST_READ)
    store.locks(limit=_MOST_READ)
    store.trail(limit=_MOST_READ)
    unreadable = store.unreadable
    for text in unreadable[:_MOST_CHECKED]:
        problem, _, advice = text.partition("; ")
        yield Check("unreadable", FAIL, mask(problem), advice or "define the job anew, or mend the row by hand")
    if len(unreadable) > _MOST_CHECKED:
        yield Check("unreadable", FAIL, f"and {len(unreadable) - _MOST_CHECKED} more that cannot be read")
