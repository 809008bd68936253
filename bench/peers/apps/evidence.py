"""What a peer's job leaves in the folder EVIDENCE, in the same form for all."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator

URL = os.environ.get("BENCH_URL", "")
AT_LEAST_ONCE = "AT_LEAST_ONCE" in os.environ
"""Be set up as the library's documentation says for those who want the run of a dead node to begin again."""
LONG = 50 if AT_LEAST_ONCE else 600
"""Seconds of a long run. Where a library can only count from its begin, it is told that 60 s are too long."""
PACE = float(os.environ.get("PACE", "0.2"))
"""Seconds between jobs that trickle in, about."""
CONCURRENCY = int(os.environ.get("CONCURRENCY", "10"))
_open: dict[str, int] = {}


def _write(name: str, text: str) -> None:
    name = f"{os.environ['EVIDENCE']}/{name}"
    # Opened once a process: a fork has its parent's descriptors under its parent's pid.
    if name not in _open:
        _open[name] = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_open[name], text.encode())


def tick(nominal: float | None = None) -> None:
    """Say which second this run is for, and how late it begins.

    A library that does not tell a job what time it is for is given the benefit of the doubt: the second that last
    began, or one that begins within 50 ms.
    """
    now = time.time()
    due = math.floor(now + 0.05) if nominal is None else nominal
    _write("ticks", f"{round(due)} 0 {os.getpid()} {now - due:.6f}\n")


def ran() -> None:
    """Add a byte for a run of a job that does nothing; the session is the worker that the bench started."""
    _write(f"ran.{os.getsid(0)}", ".")


def paced(count: int) -> Iterator[float]:
    """Wait a little while before each of so many jobs is to be enqueued, and give the time of that (monotonic)."""
    dice = random.Random(1)
    for _ in range(count):
        time.sleep(dice.uniform(PACE / 2, PACE * 1.5))  # no rhythm with which a poll could keep step
        yield time.monotonic()


def arrived(sent: float) -> None:
    """Say how long after it was enqueued a job begins."""
    _write("arrived", f"{time.monotonic() - sent:.6f}\n")


def begin() -> None:
    """Say that a long run begins here."""
    _write("begun", f"{os.getpid()} {time.monotonic():.6f}\n")
