"""A job of each second that tells how late it began. Each process takes itself for another host."""

import os
import time
from pathlib import Path

import cronsensus.membership.liveness
from cronsensus import Run, Scheduler, every

cronsensus.membership.liveness.host_identity = lambda: f"host of {os.getpid()}"  # type: ignore[assignment,attr-defined]
scheduler = Scheduler()
evidence = Path(os.environ["EVIDENCE"])


@scheduler.job(every("1s"), overlap="allow", catch_up="all", executor="thread")
def tick(run: Run) -> None:
    """Say which second it was for, and how late it began."""
    late = time.time() - run.due_at.timestamp()
    with evidence.open("a", encoding="utf-8") as file:
        file.write(f"{run.due_at.timestamp():.0f} {late:.6f}\n")
