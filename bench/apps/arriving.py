"""A job that says how long after it was enqueued it began."""

import os
import time

from cronsensus import Scheduler

scheduler = Scheduler()
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@scheduler.job()
def arrive(sent: float) -> None:
    """Say it. One clock for all processes of a host."""
    os.write(evidence, f"{time.monotonic() - sent:.6f}\n".encode())
