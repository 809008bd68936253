"""The application that the demo's nodes run: ``cronsensus run cronsensus.cli.demo.app:scheduler``.

Four jobs of different kinds, each of which appends to a file outside of the store when a run starts and ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from cronsensus.cli.demo.trace import LEASH, TRACE, Trace
from cronsensus.node.run import Run
from cronsensus.scheduler import Scheduler
from cronsensus.triggers import cron, every

scheduler = Scheduler()


def trace() -> Trace:
    """Return the file that this process appends to."""
    return Trace(os.environ.get(TRACE, os.devnull), scheduler.node_name)


def work(run: Run, seconds: float) -> None:
    """Work for a while, and stop when told to."""
    run.cancelled.wait(seconds)
    run.check()


@scheduler.job(every("1s"), overlap="allow", catch_up="all")
def tick(run: Run) -> None:
    """Work nearly half of the time, so that a kill lands in the middle of a run."""
    with trace().around(run):
        work(run, 0.4)


@scheduler.job(every("2s"), overlap="allow", catch_up="all")
async def pulse(run: Run) -> None:
    """Work as a coroutine."""
    with trace().around(run):
        await asyncio.sleep(0.3)


@scheduler.job(cron("*/10 * * * * *"), overlap="queue", catch_up="all")
def report(run: Run) -> str:
    """Work for long, in steps, and return something."""
    with trace().around(run):
        for step in range(1, 11):
            work(run, 0.25)
            run.progress(step, 10)
    return f"report of {run.scheduled_for:%H:%M:%S}"


@scheduler.job()
def order(number: int, run: Run) -> int:
    """Work off a queue: enqueued with a key, so each order once."""
    with trace().around(run):
        work(run, 0.2)
    return number


def _drain_when_the_demo_is_gone() -> None:
    while os.read(0, 1024):
        pass
    os.write(2, b"the demo is gone\n")
    os.kill(os.getpid(), signal.SIGTERM)


if LEASH in os.environ:
    threading.Thread(target=_drain_when_the_demo_is_gone, daemon=True, name="demo-leash").start()
