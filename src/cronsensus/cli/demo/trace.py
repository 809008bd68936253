"""A count kept outside of the system: a file to which each run appends when it starts and when it ends.

The ledger is to be judged, so something else has to keep the count. One line is one ``write`` to a file that
was opened for appending, so lines of several processes do not mix, and what a process wrote is there when it is
killed. Times are the host's monotonic clock, which all its processes share. Used by the demo, and by the tests of
faults and of chaos.
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

from cronsensus.run import Run
from cronsensus.timing.clock import Clock, SystemClock

TRACE = "CRONSENSUS_DEMO_TRACE"
"""The variable that names the file to append to."""
LEASH = "CRONSENSUS_DEMO_LEASH"
"""If this variable is set, standard input is a pipe from the demo: when it closes, the node drains."""

Event = Literal["start", "end", "broken"]


class Line(msgspec.Struct, frozen=True):
    """An event that a run has written. ``broken``: it ended by an exception, as by a cancellation."""

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
        """Job and key of the occurrence of which the run is an attempt."""
        return self.job, self.key


_LINES = msgspec.json.Decoder(Line)


@contextmanager
def traced(run: Run, node: str, *, clock: Clock | None = None) -> Iterator[None]:
    """Write ``start`` before and ``end`` after a body, or ``broken`` if it raises."""
    now = (clock or SystemClock()).monotonic

    def write(event: Event) -> None:
        line = Line(event, now(), run.job, run.key, run.scheduled_for, node, os.getpid(), run.attempt, run.token)
        with Path(os.environ.get(TRACE, os.devnull)).open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(line) + b"\n")

    write("start")
    try:
        yield
    except BaseException:
        write("broken")
        raise
    write("end")


class Tail:
    """Reads the lines that are new since the last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
        return _LINES.decode_lines(whole)


@dataclass(frozen=True, slots=True)
class Count:
    """The runs of a trace: how many started, how many ended, and those that were ``cut``.

    Cut runs wrote neither ``end`` nor ``broken``: their process was killed.
    """

    started: int
    ended: int
    cut: tuple[Line, ...]


def count_lines(lines: list[Line]) -> Count:
    """Count the runs of a trace."""
    open_runs: dict[tuple[str, str, int], Line] = {}
    for line in lines:
        run = (*line.occurrence, line.token)
        if line.event == "start":
            open_runs[run] = line
        else:
            open_runs.pop(run, None)
    events = [line.event for line in lines]
    return Count(events.count("start"), events.count("end"), tuple(open_runs.values()))
