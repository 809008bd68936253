"""One job each second; each run writes a line to the evidence file, so that the ledger is not its own witness."""

import os
import time

from cronsensus import Run, Scheduler, every

scheduler = Scheduler()
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@scheduler.job(every("1s"), overlap="allow", catch_up="all", executor="thread")
def tick(run: Run) -> None:
    """Say when it began."""
    late = time.time() - run.due_at.timestamp()
    os.write(evidence, f"{run.due_at.timestamp():.0f} {run.token} {os.getpid()} {late:.6f}\n".encode())
