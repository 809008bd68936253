"""Detect a blocked event loop, and log which async job blocks it, and where.

While attempts are open, the process's timer schedules a callback on each of their loops twice a second. If the callback
has not run after a second, the loop is blocked: all else on it waits, and begins late, although nothing failed. The
loop's current task shows which job blocks it, and the stack of its thread shows where.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection
from typing import Any, Protocol

from cronsensus.node.executors.attempt import Attempts
from cronsensus.node.executors.base import Call
from cronsensus.node.executors.result import stack_of
from cronsensus.node.run import BaseRun, find_run_of_context
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.runs")

PROBE_EVERY = 0.5
"""Seconds between two questions to a loop."""
BLOCKED_AFTER = 1.0
"""Seconds without an answer after which a loop counts as blocked."""


class Pulse:
    """A loop, and the callback on it that has not run yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread: int | None = None
        """The thread that turns the loop, where that is known."""
        self.logged: set[tuple[int, int] | None] = set()
        """Which attempts were named as holding it; ``None``: something that is no job's."""
        self._asked: float | None = None
        self._looked = self._since = 0.0

    def silent_for(self, now: float) -> float:
        """Return for how long the loop has owed an answer, and ask again if it owes none."""
        if now - self._looked > 2 * PROBE_EVERY:
            # The whole process stood still (SIGSTOP, a held interpreter): that is no fault of a job's.
            self._since = now
        self._looked = now
        asked_at = self._asked  # the answer may come at any moment
        if asked_at is not None:
            return now - max(asked_at, self._since)
        self._asked = now
        with contextlib.suppress(RuntimeError):  # closed; its attempts are found by another look
            self.loop.call_soon_threadsafe(self._note_pulse)
        return 0.0

    def _note_pulse(self) -> None:
        self.thread = threading.get_ident()
        self._asked = None


class WatchedLoop(Protocol):
    """A loop that jobs run on."""

    @property
    def pulse(self) -> Pulse:
        """Return its pulse."""

    @property
    def is_turning(self) -> bool:
        """Return whether a thread turns it now."""

    @property
    def is_ours(self) -> bool:
        """Return whether nothing but jobs runs on it."""


class OpenAttempt(Protocol):
    """An open attempt."""

    call: Call
    home: Any
    key: tuple[int, int]
    task: asyncio.Task[None] | None


class LoopWatch:
    """Watches the loops of an executor's open attempts, by the executor's timer."""

    def __init__(self, attempts: Attempts[Any]) -> None:
        self._attempts = attempts
        self._lock = threading.Lock()
        self._watching = False

    def start_watching(self) -> None:
        """Watch from now on, for as long as attempts are open."""
        with self._lock:
            is_first, self._watching = not self._watching, True
        if is_first:
            self._attempts.timer.call_after(PROBE_EVERY, self._check_loops)

    def _check_loops(self) -> None:
        attempts = self._attempts.list_open()
        now = self._attempts.clock.monotonic()
        try:
            for watched in {attempt.home for attempt in attempts}:
                if watched.is_turning and (seconds := watched.pulse.silent_for(now)) >= BLOCKED_AFTER:
                    _log_blocked_loop(watched, [attempt for attempt in attempts if attempt.home is watched], seconds)
        finally:
            with self._lock:
                self._watching = goes_on = len(self._attempts) > 0
            if goes_on:
                self._attempts.timer.call_after(PROBE_EVERY, self._check_loops)


def _log_blocked_loop(watched: WatchedLoop, attempts: Collection[OpenAttempt], seconds: float) -> None:
    """Log what blocks a loop, once for each run."""
    pulse = watched.pulse
    holder = _find_holder(watched, attempts)
    key = None if holder is None else (holder.id, holder.token)
    stack = stack_of(pulse.thread)
    is_logged = key in pulse.logged
    pulse.logged &= {None, *(attempt.key for attempt in attempts)}
    pulse.logged.add(key)
    if is_logged:
        return
    # Logged aside: this is the thread of all timeouts.
    if holder is None:
        _log.aside.warning(
            "an event loop that async jobs run on has been blocked for %.1f s, by something that is no job: all %d "
            "async runs there stand still. It should use await or asyncio.to_thread. It stands here:\n%s",
            seconds, len(attempts), stack,
        )  # fmt: skip
        return
    _log.aside.warning(
        "run %d of %r (%s) has blocked its event loop for %.1f s: the other async runs of this node stand still or "
        "begin late. Use await, asyncio.to_thread, or executor='thread'. It stands here:\n%s",
        holder.id, holder.job, holder.key, seconds, stack,
        extra={name: getattr(holder, name) for name in ("job", "key", "attempt", "token")} | {"run": holder.id},
    )  # fmt: skip


def _find_holder(watched: WatchedLoop, attempts: Collection[OpenAttempt]) -> BaseRun | None:
    """Return the run whose code the loop executes; ``None`` if it is other code, or cannot be known."""
    loop = watched.pulse.loop
    try:
        task = asyncio.current_task(loop)
    except Exception:  # noqa: BLE001 - a loop of another make
        task = None
    for attempt in attempts:
        if task is not None and attempt.task is task:
            return attempt.call.run
    # A task that a job started has the job's context, which can be read from Python 3.12 on.
    context = getattr(task, "get_context", lambda: None)()
    if context is not None and (run := find_run_of_context(context)) is not None:
        return run
    return next(iter(attempts)).call.run if watched.is_ours and len(attempts) == 1 else None
