"""What the nodes of the chaos tests run. Each run appends to a file outside of the store when it starts and ends."""

from __future__ import annotations

import asyncio
import threading
import time

from cronsensus import JobDefaults, Run, Scheduler, every
from cronsensus.cli.demo.trace import traced

# Kills are the weather here: no occurrence is given up because it met too many.
scheduler = Scheduler(defaults=JobDefaults(catch_up="all", overlap="allow", max_crashes=1000))


def around(run: Run):
    return traced(run, scheduler.node_name)


@scheduler.job(every("1s"))
def tick(run: Run) -> None:
    """A thread that does not look at its lease: what it records too late has to be refused."""
    with around(run):
        threading.Event().wait(0.5)


@scheduler.job(every("1s"))
async def pulse(run: Run) -> None:
    """A coroutine, which is cancelled when the lease is lost; one that stood still past its lease ends in no other way.

    The process wakes with the sleep over and the lease lost: without the second wait it is chance which is seen first.
    """
    with around(run):
        begun = time.monotonic()
        await asyncio.sleep(0.5)
        if time.monotonic() - begun > 2:
            await asyncio.sleep(20)


@scheduler.job(every("2s"), overlap="queue")
def serial(run: Run) -> None:
    """One at a time, whatever happens."""
    with around(run):
        run.cancelled.wait(0.8)
        run.check()


@scheduler.job(every("2s"), on_crash="fail")
def at_most_once(run: Run) -> None:
    """Never started again."""
    with around(run):
        threading.Event().wait(0.3)


@scheduler.job()
def order(number: int, run: Run) -> int:
    """Work from a queue."""
    with around(run):
        threading.Event().wait(0.05)
    return number
