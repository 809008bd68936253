"""Progress and log lines of running attempts, buffered for the node's next round.

They are written together at intervals, not one by one. Records that the store could not take are kept for the next
write; records that it refuses, because the run is no longer current, are dropped. Records of a run in its transaction
are held back for that to write: once it is committed, the run is no longer current.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cronsensus.model.occurrence import LogLine, Note
from cronsensus.node.run import BaseRun
from cronsensus.timing.clock import Clock

WRITE_EVERY = 0.5
"""Least seconds between two writes while an attempt runs."""

_Key = tuple[int, int]


class ProgressBuffer:
    """Progress and log lines that the store does not have yet. Jobs' threads add, the rounds flush."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._held: set[_Key] = set()
        self._under_way: dict[_Key, Note] = {}
        """What is being written just now."""
        self._progress: dict[_Key, tuple[float, float]] = {}
        self._lines: dict[_Key, list[LogLine]] = {}
        self._sessions: dict[_Key, str] = {}
        """For which session each of those runs."""
        self._flushed_at = -1e9
        self._process = os.getpid()

    def note_progress(self, run: BaseRun, done: float, total: float) -> None:
        """Note how far a run is; the last word counts. In a forked child nothing is noted: no node would read it."""
        if self._process != os.getpid():
            return  # the lock may be held by a thread that does not exist here
        key = run.id, run.token
        with self._lock:
            is_first = self._nothing_to_write and key not in self._held
            self._progress[key] = float(done), float(total)
            self._sessions[key] = run.session
        if is_first:
            self._wake()

    def note_line(self, run: BaseRun, line: LogLine) -> None:
        """Note a line; not in a forked child."""
        if self._process != os.getpid():
            return
        key = run.id, run.token
        with self._lock:
            is_first = self._nothing_to_write and key not in self._held
            self._lines.setdefault(key, []).append(line)
            self._sessions[key] = run.session
        if is_first:
            self._wake()

    @property
    def wanted_in(self) -> float | None:
        """Return the seconds until the next write; ``None`` if nothing is waiting to be written."""
        with self._lock:
            if self._nothing_to_write:
                return None
            return max(0.0, self._flushed_at + WRITE_EVERY - self._clock.monotonic())

    @contextmanager
    def open_writing(self) -> Iterator[tuple[Note, ...]]:
        """Give all that is to be written; what an exception of the body leaves unwritten stays."""
        with self._writing:
            with self._lock:
                keys = sorted((self._progress.keys() | self._lines.keys()) - self._held)
                progress = {key: self._progress.pop(key) for key in keys if key in self._progress}
                lines = {key: self._lines.pop(key) for key in keys if key in self._lines}
                sessions = {key: self._sessions.pop(key, None) for key in keys}
                self._under_way = {
                    key: Note(*key, progress.get(key), tuple(lines.get(key, ())), sessions[key]) for key in keys
                }
            try:
                yield tuple(self._under_way.values())
            except BaseException:
                with self._lock:
                    self._under_way = {}
                    self._sessions |= {key: session for key, session in sessions.items() if session is not None}
                    self._progress = progress | self._progress
                    for key, earlier in lines.items():
                        self._lines[key] = [*earlier, *self._lines.get(key, ())]
                raise
            if keys:
                with self._lock:
                    self._under_way = {}
                    self._flushed_at = self._clock.monotonic()

    # --- held back for a run's transaction ----------------------------------------------------------------------------

    def hold_notes(self, occurrence: int, token: int, *, most: float = -1.0) -> None:
        """Keep the notes of a run until ``release_notes``; when this returns, none is on its way to the store.

        Args:
            occurrence: of the run.
            token: of the run.
            most: seconds to wait for what is on its way; negative: for as long as it takes.
        """
        key = occurrence, token
        with self._lock:
            self._held.add(key)
            is_under_way = key in self._under_way
        if is_under_way and self._writing.acquire(timeout=most):
            self._writing.release()

    def held_notes(self, occurrence: int, token: int) -> Note | None:
        """Return the waiting notes of a run, for its transaction to write, and those still on their way.

        That cannot arrive before a transaction which keeps it from being written, and is refused afterwards.
        """
        key = occurrence, token
        with self._lock:
            before = self._under_way.get(key)
            progress, lines = self._progress.get(key), tuple(self._lines.get(key, ()))
            session = self._sessions.get(key)
        if before is not None:
            progress, lines = progress or before.progress, (*before.lines, *lines)
            session = session or before.session
        return Note(*key, progress, lines, session) if progress is not None or lines else None

    def release_notes(self, occurrence: int, token: int, written: Note | None = None) -> None:
        """Drop the notes that the run's transaction has ``written``; the others are written the usual way."""
        key = occurrence, token
        with self._lock:
            self._held.discard(key)
            if written is not None:
                if self._progress.get(key) == written.progress:
                    self._progress.pop(key, None)
                self._lines[key] = self._lines.get(key, [])[len(written.lines) :]
                if not self._lines[key]:
                    del self._lines[key]
                if key not in self._lines and key not in self._progress:
                    self._sessions.pop(key, None)
            has_more = not self._nothing_to_write
        if has_more:
            self._wake()

    @property
    def _nothing_to_write(self) -> bool:
        if not self._held:
            return not self._progress and not self._lines
        return not (self._progress.keys() | self._lines.keys()) - self._held
