"""Jobs that come one after another: a chain, and many behind one that runs long."""

import os
import threading
import time
from typing import Any

from cronsensus import Run, Scheduler, at, every

scheduler = Scheduler()
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
LINKS = int(os.environ.get("LINKS", "0"))
EVERY = os.environ.get("EVERY", "2s")
BEHIND = int(os.environ.get("BEHIND", "0"))
BEGIN = os.environ.get("BEGIN", "")


def say(event: str, run: Run, more: float = 0.0) -> None:
    """Write one line: event, job, nominal time, pid, monotonic seconds (one clock for all processes of a host)."""
    nominal = run.scheduled_for.timestamp() if run.scheduled_for else 0
    line = f"{event} {run.job} {nominal:.0f} {os.getpid()} {time.monotonic():.6f} {more:.6f}\n"
    os.write(evidence, line.encode())


last: Any = None
for number in range(LINKS):

    @scheduler.job(every(EVERY) if last is None else None, name=f"link{number:02}", after=[last] if last else None)
    async def link(run: Run) -> None:
        """Do nothing, and say when."""
        say("begin", run)
        say("end", run)

    last = link

if BEGIN:

    @scheduler.job(every("1s"), catch_up="all")
    async def tick(run: Run) -> None:
        """Say how late it is."""
        say("begin", run, time.time() - run.due_at.timestamp())

    @scheduler.job(at(BEGIN), catch_up="all")
    def long(run: Run) -> None:
        """Run while all that comes after it sleeps."""
        say("begin", run)
        threading.Event().wait(float(os.environ["LONG"]))
        say("end", run)

    for number in range(BEHIND):

        @scheduler.job(after=[long], name=f"behind{number:04}")
        async def behind(run: Run) -> None:
            """Say that it was its turn."""
            say("begin", run)
