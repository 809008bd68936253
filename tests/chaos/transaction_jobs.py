"""What the nodes of the test of transactions run: each run books once, and some kill their process on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sqlalchemy import text

from cronsensus import JobDefaults, Run, Scheduler

MARKS = "BOOKING_MARKS"
scheduler = Scheduler(defaults=JobDefaults(max_crashes=1000))


def die_once(where: str, run: Run) -> None:
    """End this process as a power cut does, after a word outside of every database; once for each booking."""
    marks = Path(os.environ[MARKS])
    if f" {run.key}\n" not in marks.read_text(encoding="utf-8"):
        with marks.open("a", encoding="utf-8") as file:
            file.write(f"{where} {run.key}\n")
        os.kill(os.getpid(), signal.SIGKILL)


@scheduler.job()
def book(number: int, run: Run) -> None:
    with run.transaction() as conn:
        conn.execute(
            text("INSERT INTO bookings (name, attempt, pid) VALUES (:key, :attempt, :pid)"),
            {"key": run.key, "attempt": run.attempt, "pid": os.getpid()},
        )
        run.complete(os.getpid())
        if number % 5 == 0:
            die_once("before", run)
    if number % 5 == 1:
        die_once("after", run)
