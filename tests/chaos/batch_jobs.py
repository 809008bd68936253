"""What the nodes of the test of batches run: items that take a while, and write down outside of the store when."""

from __future__ import annotations

import os
import time

from sqlalchemy import text

from cronsensus import JobDefaults, Run, Scheduler

ITEMS = 300
LINES = "BATCH_LINES"
scheduler = Scheduler(defaults=JobDefaults(max_crashes=1000))


def took(number: int) -> float:
    """Return how long an item takes: 50 to 500 ms, each another."""
    return 0.05 + number * 37 % 451 / 1000


def say(event: str, item: int) -> None:
    """Write one line: event, item, pid, monotonic seconds (one clock for all processes of a host)."""
    lines = os.open(os.environ[LINES], os.O_WRONLY | os.O_APPEND)
    os.write(lines, f"{event} {item} {os.getpid()} {time.monotonic():.6f}\n".encode())
    os.close(lines)


def work(number: int, run: Run) -> int:
    """Take a while; its effect commits with its result, where the store has transactions."""
    say("begin", number)
    time.sleep(took(number))
    if not os.environ["CRONSENSUS_URL"].startswith("redis"):
        with run.transaction() as conn:
            conn.execute(text("INSERT INTO effects (item) VALUES (:item)"), {"item": number})
            run.complete(1)
    say("end", number)
    return 1


close_day = scheduler.job(items=lambda: range(ITEMS), collect=sum, name="close_day")(work)
