"""What the nodes of the fault tests run. Each run appends to a file outside of the store when it starts and ends."""

from __future__ import annotations

import asyncio
import os
import threading

from cronsensus import JobDefaults, Run, Scheduler, every
from cronsensus.cli.demo.trace import traced
from cronsensus.timing.durations import parse_duration

LEASE = parse_duration(os.environ.get("CRONSENSUS_LEASE") or "1s")
"""It is long where the server is far away, and then all takes longer."""

# Faults are the weather here: no occurrence is given up because it met too many.
scheduler = Scheduler(defaults=JobDefaults(catch_up="all", overlap="allow", max_crashes=1000))


def around(run: Run):
    return traced(run, scheduler.node_name)


@scheduler.job(every(LEASE / 5))
def tick(run: Run) -> None:
    """A thread that does not look at its lease: what it records too late has to be refused."""
    with around(run):
        threading.Event().wait(0.1)


@scheduler.job(every(LEASE / 2))
async def pulse(run: Run) -> None:
    """A coroutine that is nearly always running somewhere, and is cancelled when the lease cannot be trusted."""
    with around(run):
        await asyncio.sleep(1.5 * LEASE.total_seconds())


@scheduler.job(every(LEASE), overlap="queue")
def serial(run: Run) -> None:
    """One at a time, whatever happens."""
    with around(run):
        run.cancelled.wait(0.2)
        run.check()


@scheduler.job()
def order(number: int, run: Run) -> int:
    """Work from a queue."""
    with around(run):
        threading.Event().wait(0.02)
    return number
