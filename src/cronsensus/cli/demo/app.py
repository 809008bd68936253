"""The application that the demo's nodes run: ``cronsensus run cronsensus.cli.demo.app:scheduler``.

Each run appends to a file outside of the store when it starts and ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

from cronsensus.cli.demo.screen import PICTURES, SHRINK
from cronsensus.cli.demo.trace import LEASH, traced
from cronsensus.run import Run
from cronsensus.scheduler import Scheduler
from cronsensus.triggers import cron, every

scheduler = Scheduler(concurrency=4)  # of 6 items at a time, one node cannot have all


def work(run: Run, seconds: float) -> None:
    """Work for a while, and stop when told to."""
    run.cancelled.wait(seconds)
    run.check()


@scheduler.job(every("1s"), overlap="allow", catch_up="all")
def tick(run: Run) -> None:
    """Work nearly half of the time, so that a kill lands in the middle of a run."""
    with traced(run, scheduler.node_name):
        work(run, 0.4)


@scheduler.job(cron("*/10 * * * * *"), overlap="queue", catch_up="all")
def report(run: Run) -> str:
    """Work for long, in steps, and return something."""
    with traced(run, scheduler.node_name):
        for step in range(1, 11):
            work(run, 0.25)
            run.progress(step, 10)
    return f"report of {run.scheduled_for:%H:%M:%S}"


def pictures() -> Iterator[str]:
    """Name the pictures of an album."""
    yield from (f"photo-{number:02}.png" for number in range(1, PICTURES + 1))


@scheduler.job(items=pictures, collect=sum, concurrency=6, on_crash="retry", name=SHRINK)
def shrink(picture: str, run: Run) -> int:
    """Halve a picture, grey and made up of its name; return how many bytes that saves."""
    with traced(run, scheduler.node_name):
        side, seed = 64, sum(picture.encode())
        grey = bytes((x * y + seed) % 256 for y in range(side) for x in range(side))
        small = bytes(
            sum(grey[at] for at in (y * side + x, y * side + x + 1, (y + 1) * side + x, (y + 1) * side + x + 1)) // 4
            for y in range(0, side, 2)
            for x in range(0, side, 2)
        )
        work(run, 0.3)  # a camera's would take as long
    return len(grey) - len(small)


def _drain_when_the_demo_is_gone() -> None:
    while os.read(0, 1024):
        pass
    os.write(2, b"the demo is gone\n")
    os.kill(os.getpid(), signal.SIGTERM)


if LEASH in os.environ:
    threading.Thread(target=_drain_when_the_demo_is_gone, daemon=True, name="demo-leash").start()
