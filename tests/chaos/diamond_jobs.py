"""What the nodes of the test of dependencies run: a diamond each second; a file outside of the store says when."""

from __future__ import annotations

import os
import time

from cronsensus import JobDefaults, Run, Scheduler, every

LINES = "DIAMOND_LINES"
BEHIND = {"top": (), "left": ("top",), "right": ("top",), "foot": ("left", "right")}
scheduler = Scheduler(defaults=JobDefaults(catch_up="all", max_crashes=1000))


def say(event: str, run: Run) -> None:
    """Write one line: event, job, nominal second, monotonic seconds (one clock for all processes of a host)."""
    assert run.scheduled_for is not None
    lines = os.open(os.environ[LINES], os.O_WRONLY | os.O_APPEND)
    os.write(lines, f"{event} {run.job} {run.scheduled_for.timestamp():.0f} {time.monotonic():.6f}\n".encode())
    os.close(lines)


def work(run: Run, seconds: float) -> int:
    say("begin", run)
    time.sleep(seconds)
    say("end", run)
    assert run.scheduled_for is not None
    return int(run.scheduled_for.timestamp())


@scheduler.job(every("1s"), overlap="allow")
def top(run: Run) -> int:
    return work(run, 0.1)


@scheduler.job(after=[top], concurrency=None)
def left(run: Run) -> int:
    return work(run, 0.3)


@scheduler.job(after=[top], concurrency=None)
def right(run: Run) -> int:
    return work(run, 0.05)


@scheduler.job(after=[left, right], concurrency=None)
def foot(run: Run) -> int:
    assert run.upstream[left].result == run.upstream[right].result
    return work(run, 0.1)
