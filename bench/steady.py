"""How fast processes work jobs off, from the moment when all of them are at it. The same for everybody."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Drained:
    """``rate`` is in jobs a second, over the last ``measured`` of ``jobs`` jobs."""

    rate: float
    measured: int
    jobs: int


LEAST = 10
"""One of so many jobs must be left to count when all processes are at it."""


class Stuck(Exception):
    """The jobs were not worked off in time, or too fast to tell."""


def drained(
    folder: Path, workers: int, jobs: int, *, seconds: float, ended: Callable[[], bool] = lambda: True
) -> Drained:
    """Wait until all jobs have run, each adding a byte to ``ran.PID``, and then until ``ended``.

    The clock starts when so many processes have each run a job: how long one takes to start is not the question.

    Raises:
        Stuck: it took longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    begun, already = 0.0, 0
    while True:
        sizes = [file.stat().st_size for file in folder.glob("ran.*")]
        now, done = time.monotonic(), sum(sizes)
        if not begun and sum(size > 0 for size in sizes) >= workers:
            begun, already = now, done
        if done >= jobs and ended():
            break
        if now > deadline:
            raise Stuck(f"{done:,} of {jobs:,} after {seconds:.0f} s, by {len(sizes)} processes")
        time.sleep(0.005)
    if not begun or jobs - already < jobs / LEAST:
        raise Stuck(
            f"one process did {already or jobs:,} of {jobs:,} before the other was up: too few are left to count"
        )
    return Drained((jobs - already) / (time.monotonic() - begun), jobs - already, jobs)
