"""A count kept outside of the system: a file to which each run appends when it starts and when it ends.

The ledger is what is to be judged, so something else has to keep the count. One line is one ``write`` to a file that
was opened for appending, so lines of several processes do not mix, and what a process wrote is there when it is
killed. Times are the host's monotonic clock, which all its processes share. Used by the demo, by the example's test
and by the chaos tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from cronsensus.clock import Clock, SystemClock
from cronsensus.node.run import Run

TRACE = "CRONSENSUS_DEMO_TRACE"
"""The variable that names the file to append to."""
LEASH = "CRONSENSUS_DEMO_LEASH"
"""The variable that says: standard input is a pipe from the demo; when it closes, drain."""

Event = Literal["start", "end", "broken"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What a run said of itself. ``broken``: it ended by an exception, a cancellation among them."""

    event: Event
    at: float
    job: str
    key: str
    scheduled_for: datetime | None
    node: str
    pid: int
    attempt: int
    token: int

    @property
    def occurrence(self) -> tuple[str, str]:
        """What the run is an attempt of: job and key."""
        return self.job, self.key


class Trace:
    """Writes lines. Opens the file for each, so it may be made before a fork and used in any process."""

    def __init__(self, path: str | Path, node: str, *, clock: Clock | None = None) -> None:
        self._path = str(path)
        self._node = node
        self._clock = clock or SystemClock()

    def write(self, event: Event, run: Run) -> None:
        """Append one line."""
        line = Line(
            event=event,
            at=self._clock.monotonic(),
            job=run.job,
            key=run.key,
            scheduled_for=run.scheduled_for,
            node=self._node,
            pid=os.getpid(),
            attempt=run.attempt,
            token=run.token,
        )
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(handle)

    @contextmanager
    def around(self, run: Run) -> Iterator[None]:
        """Write ``start`` before and ``end`` after a body, or ``broken`` if it raises."""
        self.write("start", run)
        try:
            yield
        except BaseException:
            self.write("broken", run)
            raise
        self.write("end", run)


class Tail:
    """Reads lines, those new since the last time."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._position = 0

    def read(self) -> list[Line]:
        """Return the whole lines that were added since the last call; none while there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]


@dataclass(frozen=True, slots=True)
class Count:
    """What a trace amounts to.

    Attributes:
        started: runs that started.
        ended: runs that reached their end.
        cut: runs that neither ended nor broke: their process was killed.
    """

    started: int
    ended: int
    cut: tuple[Line, ...]


def count(lines: list[Line]) -> Count:
    """Count what happened."""
    starts = {(line.occurrence, line.token): line for line in lines if line.event == "start"}
    closed = {(line.occurrence, line.token) for line in lines if line.event != "start"}
    return Count(
        started=sum(line.event == "start" for line in lines),
        ended=sum(line.event == "end" for line in lines),
        cut=tuple(line for run, line in starts.items() if run not in closed),
    )
