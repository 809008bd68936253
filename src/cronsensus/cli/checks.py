"""The checks of ``cronsensus doctor``. They change nothing and print nothing."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from cronsensus.audit.losses import losses
from cronsensus.clock import SystemClock
from cronsensus.errors import StoreError
from cronsensus.insight.live_nodes import is_alive, needs_no_node
from cronsensus.insight.summaries import why_ended
from cronsensus.insight.waiting import JUST_NOW, why_it_waits
from cronsensus.insight.words import brief, counted, exact, relative, shorten
from cronsensus.masking import mask
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job

OK_LEVEL, WARN, FAIL = "ok", "warn", "fail"

SKEW = timedelta(seconds=2)
SLOW = 0.1
WAKE_UP = 2.0
OVERDUE = timedelta(seconds=60)
LITTLE_SPACE = (50 * 2**20, 500 * 2**20)
"""Free bytes below which it fails, and below which it is worth a look."""
LATELY = timedelta(hours=1)
MOST_LOSSES = 5
IN_A_ROW = 3
"""Failures from which on a job is worth a look."""
_LATEST = 25
_LOOKED_AT = 200
_MOST_READ = 1000
_SHARED = re.compile("nfs|cifs|smb|ceph|gluster|lustre|sshfs|s3|9p")
"""File systems that several hosts may have mounted. The store refuses them unless its URL allows it."""
_LOSES = {
    "off": "a power failure loses committed results, and runs repeat",
    "normal": "a power failure may lose the last commits",
}
_TOLD_ELSEWHERE = {
    "store", "namespace", "schema", "clock", "lease_clock", "busy_timeout", "wake_ups", "synchronous", "bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: ``ok``, ``warn`` or ``fail``, a sentence, and what to type."""

    name: str
    level: str
    text: str
    then: str = ""


def examine(store: Store) -> Iterator[Check]:
    """Yield the findings.

    Raises:
        StoreError: the store cannot be used, so there is nothing to examine.
    """
    store.check()
    described = store.describe()
    yield from _store(store, described)
    yield from _losses(store)
    yield _speed(store)
    yield _clocks(store)
    yield _wake_ups(store, described)
    yield from _durability(described)
    for warning in described.get("warnings", ()):
        text, _, then = warning.partition("; ")
        yield Check("server", WARN, text, then)
    yield from _space(described)
    yield from _nodes(store)
    yield from _jobs(store)
    yield from _retired(store)
    yield from _failing(store)
    yield from _waiting(store)
    yield from _unreadable(store)


def unusable(error: StoreError) -> Check:
    """Return the finding for a store that cannot be used."""
    what, _, then = str(error).partition("; ")
    return Check("store", FAIL, mask(what), then or "cronsensus config")


def _store(store: Store, described: dict[str, Any]) -> Iterator[Check]:
    shown = ", ".join(
        f"{key.replace('_', ' ')} {mask(str(value))}"
        for key, value in described.items()
        if key not in _TOLD_ELSEWHERE and not isinstance(value, (dict, list))
    )
    name = store.capabilities.name
    yield Check("store", OK_LEVEL, f"{name}, namespace {store.namespace}" + (f": {shown}" if shown else ""))
    schema = described.get("schema")
    yield Check("schema", OK_LEVEL, "as this version wants it" + ("" if schema is None else f" (version {schema})"))
    if store.capabilities.clock == "process":
        yield Check(
            "store", WARN, "memory:// ends with its process, and no other node sees it", "--url sqlite:///cronsensus.db"
        )


def _losses(store: Store) -> Iterator[Check]:
    """Show which store this is, and what nodes found out that it lost."""
    identity = store.identity()
    if identity is not None:
        since = "" if identity.since is None else f", made {exact(identity.since)}"
        yield Check("identity", OK_LEVEL, f"{identity.id}{since}")
    for one in losses(store)[:MOST_LOSSES]:
        text = f"{one.action}: noticed {relative(one.at, store.now())} by {one.by} ({one.why})"
        if begin := one.details.get("from"):
            text += f"; what came between {begin} and {one.details['until']} may be gone"
        yield Check("loss", WARN, text, "see that replication or the disk is as safe as you need: docs/stores.md")


def _speed(store: Store) -> Check:
    clock = SystemClock()
    times = []
    for _ in range(3):
        begun = clock.monotonic()
        store.look(limit=1)
        times.append(clock.monotonic() - begun)
    middle = sorted(times)[1]
    text = f"a look takes {middle * 1000:.1f} ms"
    if middle > SLOW:
        return Check(
            "speed", WARN, text, "see what else uses the store, and how far away it is; runs start later by this"
        )
    return Check("speed", OK_LEVEL, text)


def _clocks(store: Store) -> Check:
    clock = SystemClock()
    before = clock.now()
    theirs = store.now()
    after = clock.now()
    skew = theirs - (before + (after - before) / 2)
    text = f"this machine's clock is {brief(abs(skew))} {'behind' if skew > timedelta(0) else 'ahead of'} the store's"
    if abs(skew) <= SKEW:
        return Check("clocks", OK_LEVEL, f"this machine and the store agree within {brief(abs(skew))}")
    return Check(
        "clocks", WARN, f"{text}; due times follow the store's, so nothing is lost or doubled", "chronyc tracking"
    )


def _wake_ups(store: Store, described: dict[str, Any]) -> Check:
    """Send a hint until a sibling hears it: the first may be sent before it listens."""
    if str(described.get("pooler", "none")) != "none" and not store.capabilities.notify:
        return Check(
            "wake-ups",
            WARN,
            "a connection pooler is between: nodes find work by looking, and a dead one by its lease alone",
            "give nodes a URL that leads to the server itself; or ?pooler=session if each client keeps its connection",
        )
    if not store.capabilities.notify and store.capabilities.clock == "server":
        return Check("wake-ups", OK_LEVEL, "this store has none: what is enqueued may wait two seconds for a look")
    clock, heard = SystemClock(), threading.Event()
    listener = store.sibling()
    begun = clock.monotonic()

    def listen() -> None:
        try:
            if listener.wait(WAKE_UP):
                heard.set()
        except StoreError:
            pass

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        while not heard.wait(0.02) and thread.is_alive():
            store.notify()
    finally:
        listener.close()
        thread.join(WAKE_UP)
    if heard.is_set():
        return Check("wake-ups", OK_LEVEL, f"a hint arrives within {(clock.monotonic() - begun) * 1000:.0f} ms")
    return Check(
        "wake-ups",
        WARN,
        f"no hint arrived within {brief(timedelta(seconds=WAKE_UP))}: work is found by looking, so it starts later",
        "see that nodes may write to the folder of the store, and that no firewall cuts idle connections",
    )


def _durability(described: dict[str, Any]) -> Iterator[Check]:
    journal = str(described.get("journal_mode", "")).lower()
    if journal and journal != "wal":
        yield Check(
            "journal", WARN, f"journal_mode is {journal}: readers and writers block each other", "cronsensus db upgrade"
        )
    synchronous = str(described.get("synchronous", "")).lower()
    synchronous = {"0": "off", "1": "normal"}.get(synchronous, synchronous)
    if synchronous:
        loses = _LOSES.get(synchronous)
        what = loses or "what is committed survives a power failure"
        level = OK_LEVEL if loses is None else FAIL if synchronous == "off" else WARN
        then = "" if loses is None else "add ?synchronous=FULL to the URL"
        yield Check("durability", level, f"synchronous is {synchronous}: {what}", then)
    kind = described.get("file_system")
    if isinstance(kind, str) and _SHARED.search(kind):
        yield Check(
            "file system",
            WARN,
            f"the file lies on {kind}, where SQLite's locks do not hold between machines",
            "use it from this host only, or put it on a local disk",
        )


def _space(described: dict[str, Any]) -> Iterator[Check]:
    place = described.get("file")
    if not isinstance(place, str):
        return
    try:
        free = shutil.disk_usage(Path(place).parent).free
    except OSError:
        return
    text = f"{free / 2**30:.1f} GiB free beside the store"
    low, little = LITTLE_SPACE
    if free < low:
        yield Check("disk", FAIL, text, "cronsensus db prune --before 7d, and make room: a full store runs nothing")
    elif free < little:
        yield Check("disk", WARN, text, "make room before it is full: cronsensus db prune")
    else:
        yield Check("disk", OK_LEVEL, text)


def _nodes(store: Store) -> Iterator[Check]:
    sessions = store.sessions()
    in_time = [one for one in sessions if is_alive(one)]
    live = [one for one in in_time if one.is_node]
    overdue = [one for one in sessions if one not in in_time and one.ended_at is None]
    if not live:
        if idle := needs_no_node(store, sessions):
            yield Check("nodes", OK_LEVEL, f"no node is alive, and {idle}")
        else:
            jobs = store.counts().jobs
            level = FAIL if jobs else WARN
            text = f"no node is alive, so nothing runs ({counted(jobs, 'job')})"
            yield Check("nodes", level, text, "cronsensus run MODULE:ATTR")
    else:
        names = shorten(", ".join(dict.fromkeys(one.node for one in live)), 100)
        yield Check("nodes", OK_LEVEL, f"{len(live)} alive: {names}")
        if all(one.state == "draining" for one in live):
            yield Check("nodes", WARN, "all of them drain, so nothing new starts", "cronsensus run MODULE:ATTR")
    for one in overdue[:5]:
        yield Check(
            "nodes",
            WARN if live else FAIL,
            f"{one.node} (session {one.id}) is {brief(-one.expires_in)} past its lease; it holds {one.holds}",
            "a live node takes its runs over within moments; if none does, start one",
        )
    now = store.now()
    died = [one for one in store.sessions(ended=True) if one.state == "dead"]
    for one in died[:5]:
        if one.ended_at is not None and now - one.ended_at < LATELY:
            text = f"{one.node} died {relative(one.ended_at, now)} ({one.ended_why})"
            yield Check("nodes", WARN, text, "see the end of its log, and what it ran: cronsensus nodes list --ended")
    yield from _mixed("releases", "release", live, lambda one: shorten(one.release, 20))
    yield from _mixed("versions", "version of cronsensus", live, lambda one: one.version)


def _mixed(name: str, what: str, live: list[SessionView], of: Callable[[SessionView], str]) -> Iterator[Check]:
    several = sorted({of(one) for one in live})
    if len(several) > 1:
        yield Check(
            name,
            WARN,
            f"live nodes are of more than one {what}: {', '.join(several)}",
            "normal during a deploy; else restart the older ones",
        )


def _jobs(store: Store) -> Iterator[Check]:
    counts = store.counts()
    paused = f", {counts.paused} of them paused" if counts.paused else ""
    yield Check(
        "jobs", OK_LEVEL, f"{counted(counts.jobs, 'job')}{paused}; {counts.running} running, {counts.pending} waiting"
    )
    view = store.look(limit=_LOOKED_AT)
    for job in view.jobs:
        if job.due_at is None or view.now - job.due_at < OVERDUE:
            continue
        yield Check(
            "overdue",
            FAIL,
            f"{job.spec.name} was due {relative(job.due_at, view.now)}, and no node fired it",
            f"cronsensus why '{job.spec.name}' '{exact(job.due_at)}'",
        )


def _retired(store: Store) -> Iterator[Check]:
    """Find retired jobs of which something waits: a release lacks them, perhaps for an import that was forgotten."""
    kept = {
        view.spec.name: view.waiting_until
        for view in islice(every_job(store, retired=True), _LOOKED_AT)
        if view.waiting_until is not None
    }
    for name, waits in sorted(store.pending_of(list(kept)).items()):
        until = exact(kept[name])
        text = f"no running release declares {name}, and {counted(waits, 'run')} of it waiting; kept until {until}"
        then = f"declare it again, or cancel what waits: scheduler.remove_job({name!r})"
        yield Check("retired", WARN, text, then)


def _failing(store: Store) -> Iterator[Check]:
    """Find jobs of which the latest runs failed, one like the other."""
    ended = (State.SUCCEEDED, State.FAILED)
    for view in islice(every_job(store), _LOOKED_AT):
        latest = store.occurrences(OccurrenceFilter(job=view.spec.name, states=ended), limit=_LATEST)
        failed = list(takewhile(lambda one: one.state is State.FAILED, latest))
        if len(failed) >= IN_A_ROW:
            why = shorten(why_ended(failed[0]) or "no reason given", 100)
            text = f"{view.spec.name} failed the last {len(failed)} times in a row: {why}"
            yield Check("failing", WARN, text, f"cronsensus runs show {failed[0].id}")


def _waiting(store: Store) -> Iterator[Check]:
    """Look at the oldest pending runs: which nodes could run them?"""
    now = store.now()
    said: set[str] = set()
    for one in store.occurrences(OccurrenceFilter(states=(State.PENDING,)), limit=_LOOKED_AT, newest_first=False):
        if one.job in said or now - one.due_at < max(OVERDUE, JUST_NOW):
            continue
        said.add(one.job)
        view = store.job(one.job)
        if view is not None:
            cause = why_it_waits(store, view, one, now).text
            text = f"run {one.id} of {one.job} was due {relative(one.due_at, now)}. {cause}"
            yield Check("waiting", WARN, text, f"cronsensus runs show {one.id}")


def _unreadable(store: Store) -> Iterator[Check]:
    """Read a part of everything there is; the store tells what it had to leave out."""
    list(islice(every_job(store), _MOST_READ))
    for states in ((State.PENDING,), (State.RUNNING,), ()):
        store.runs(*(one.id for one in store.occurrences(OccurrenceFilter(states=states), limit=_MOST_READ)))
    store.sessions(ended=True, limit=_MOST_READ)
    store.locks(limit=_MOST_READ)
    store.trail(limit=_MOST_READ)
    left_out = store.unreadable
    for text in left_out[:_LOOKED_AT]:
        what, _, then = text.partition("; ")
        yield Check("unreadable", FAIL, mask(what), then or "define the job anew, or mend the row by hand")
    if len(left_out) > _LOOKED_AT:
        yield Check("unreadable", FAIL, f"and {len(left_out) - _LOOKED_AT} more that cannot be read")
