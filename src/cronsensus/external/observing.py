"""Count the runs of each process of a program without controlling them, to see what a guard would have prevented.

Nothing is acquired, so no run waits for the store or depends on it. Each process remembers which times it ran, and now
and then records them as a call of a guarded function: two writes, however many jobs. The key of that call is made of
process and number, so a record whose answer was lost is not counted twice. ``external.observed`` reads them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from datetime import datetime
from typing import Any
from uuid import uuid4

from cronsensus.errors import InvalidOption
from cronsensus.external.observed import OBSERVED_NAME, compress_times
from cronsensus.process.logger import Logger
from cronsensus.scheduler import Scheduler
from cronsensus.timing.instants import to_micros

_log = Logger("cronsensus.external")

FIRST_WRITE = 15.0
"""Seconds after its first run until the first record of a process: soon enough to see that it works."""
WRITE_EVERY = 300.0
"""Seconds between two records of a process. The runs since the last record are lost if it is killed."""
MOST_TIMES = 10_000
"""Most runs that are remembered while the store is away."""
CLOSE_SECONDS = 5.0
"""Longest wait for the last record."""
VARIABLE = "CRONSENSUS_OBSERVE"
_YES, _NO = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


def wants_observing(observe: bool | None) -> bool:  # noqa: FBT001 - as guard has it
    """Whether to observe only: by the code, or else by the environment.

    Raises:
        InvalidOption: the environment says neither yes nor no.
    """
    if observe is not None:
        return observe
    setting = os.environ.get(VARIABLE, "").strip().lower()
    if setting not in _YES | _NO:
        raise InvalidOption(f"{VARIABLE}={setting!r} says neither yes nor no; write {VARIABLE}=1, or leave it out")
    return setting in _YES


class Observation:
    """The unrecorded runs of this process. Safe to share between threads, and to make before a fork."""

    def __init__(self, scheduler: Scheduler, *, first: float = FIRST_WRITE, every: float = WRITE_EVERY) -> None:
        """Open nothing, start nothing.

        Args:
            scheduler: a scheduler on the store, for this alone.
            first: seconds until the first record.
            every: seconds between two later ones.
        """
        self._ours = scheduler
        self._first, self._every = first, every
        # Beat closes in a handler of SIGTERM, which may come while a run is being noted.
        self._lock = threading.RLock()
        self._ran: dict[str, list[int]] = defaultdict(list)
        self._count = self._forgotten = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = uuid4().hex
        self._number = 0
        self._record: dict[str, Any] | None = None
        self._away = False
        self._once = scheduler.once(key="{key}", name=OBSERVED_NAME)(self._recorded)

    def note(self, job: str, time: datetime) -> None:
        """Remember that this process ran a time of a job, without a call of the store."""
        with self._lock:
            if self._thread is None:
                self._over, self._process = threading.Event(), uuid4().hex
                self._thread = threading.Thread(
                    target=self._work, args=(self._over,), name="cronsensus-observing", daemon=True
                )
                self._thread.start()
            if self._count >= MOST_TIMES:
                self._forgotten += 1
                return
            self._count += 1
            self._ran[job].append(to_micros(time))

    def close(self) -> None:
        """Record the rest, if the store answers at once."""
        with self._lock:
            thread, self._thread = self._thread, None
        self._over.set()
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def _work(self, over: threading.Event) -> None:
        self._open()
        delay = self._first
        while not over.wait(delay):
            self._write()
            delay = self._every
        self._write()
        self._ours._opened.close()  # noqa: SLF001 - as a guard does

    def _open(self) -> None:
        """Open the store before the first record: making its tables at a shutdown would take too long."""
        with contextlib.suppress(Exception):  # shown when it is written
            self._ours._opened.ready()  # noqa: SLF001 - as a guard does

    def _write(self) -> None:
        """Record the runs since the last record; repeat the last record if it is not known to be stored."""
        with self._lock:
            if self._record is None and (self._ran or self._forgotten):
                self._number += 1
                jobs = {job: compress_times(times) for job, times in self._ran.items()}
                self._record = {"process": self._process, "jobs": jobs, "forgotten": self._forgotten}
                self._ran, self._count, self._forgotten = defaultdict(list), 0, 0
        if self._record is None:
            return
        try:
            self._once(f"{self._process}:{self._number}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            if not self._away:
                _log.warning("what this process ran is not recorded yet; it runs on as ever: %s", error)
            self._away = True
        else:
            self._away, self._record = False, None

    def _recorded(self, key: str) -> dict[str, Any] | None:  # noqa: ARG002 - it names the call
        return self._record
