"""Jobs that do nothing: one on the event loop, one on threads. Told a file, each run adds a byte to it."""

import os

from cronsensus import Scheduler

scheduler = Scheduler()
ran = os.open(f"{os.environ['RAN']}/ran.{os.getpid()}", os.O_WRONLY | os.O_CREAT) if "RAN" in os.environ else None


@scheduler.job()
async def noop(_number: int) -> None:
    """Do nothing."""
    if ran is not None:
        os.write(ran, b".")


@scheduler.job()
def plain(_number: int) -> None:
    """Do nothing."""
    if ran is not None:
        os.write(ran, b".")
