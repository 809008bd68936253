"""How fast processes work jobs off, from the moment when all of them are at it. The same for everybody."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Drained:
    """What was measured.

    Attributes:
        rate: jobs a second, over the last ``measured`` jobs.
        measured: how many were left when all processes were at it.
        jobs: how many there were.
        round_trips: of all processes for each job, their start included; 0: there was no network to count them.
    """

    rate: float
    measured: int
    jobs: int
    round_trips: float = 0.0


LEAST = 10
"""One of so many jobs must be left to count when all processes are at it."""


class Stuck(Exception):
    """The jobs were not worked off in time."""


class TooFew(Stuck):
    """They were worked off too fast to tell."""


def drained(
    folder: Path, workers: int, jobs: int, *, seconds: float, ended: Callable[[], bool] = lambda: True
) -> Drained:
    """Wait until all jobs have run, each adding a byte to the ``ran.…`` of its worker, and then until ``ended``.

    The clock starts when so many processes have each run a job: how long one takes to start is not the question.

    Raises:
        Stuck: it took longer than ``seconds``.
        TooFew: nearly all were done before all processes were at it.
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
        raise TooFew(
            f"one process did {already or jobs:,} of {jobs:,} before the other was up: too few are left to count"
        )
    return Drained((jobs - already) / (time.monotonic() - begun), jobs - already, jobs)


def with_enough(measure: Callable[[int], Drained], jobs: int) -> Drained:
    """Measure with so many jobs; with four times as many, and that again, if they are too few to tell.

    Raises:
        TooFew: sixteen times as many are too few as well.
    """
    for more in (1, 4):
        with contextlib.suppress(TooFew):
            return measure(jobs * more)
    return measure(jobs * 16)
