"""Jobs of which somebody may be told: a tick each 100 ms, work that is enqueued, and a job that fails each second."""

import os
import time
from datetime import timedelta

from cronsensus import Alert, Run, Scheduler, every
from cronsensus.timing.instants import EPOCH

ALERTS = os.environ.get("ALERTS", "")
FAILING = int(os.environ.get("FAILING", "0"))
"""So many jobs fail three times a minute, each with an alert of its own: none sends more than four messages."""
EVENTS = ["failed", "missed"] if FAILING else ["failed", "missed", "overdue", "stalled", "backlog", "node_lost"]
"""A node that is lost each three seconds would use up the messages of a minute."""
names = [f"bad{number}" for number in range(FAILING)] if FAILING else ["*"]
scheduler = Scheduler(
    alerts=[Alert(ALERTS, on=EVENTS, jobs=name, name=f"of-{name.strip('*')}x") for name in names if ALERTS]
)
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@scheduler.job(every("200ms"), catch_up="all")
async def tick(run: Run) -> None:
    """Say how late it is."""
    os.write(evidence, f"tick {time.time():.6f} {time.time() - run.due_at.timestamp():.6f}\n".encode())


@scheduler.job()
async def work(number: int) -> None:
    """Fail if it is told to."""
    if number < 0:
        raise ValueError(number)


for number in range(FAILING):

    @scheduler.job(every("20s", start=EPOCH + timedelta(seconds=2 * number)), name=f"bad{number}")
    async def bad() -> None:
        """Fail."""
        raise ValueError("each time")
