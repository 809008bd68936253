"""Very many stored jobs of one function, of which one is due each second; some more that the code declares."""

import os
import time

from cronsensus import Run, Scheduler, cron

scheduler = Scheduler()
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@scheduler.job(name="report")
def report(run: Run) -> None:
    """Say when it began."""
    late = time.time() - run.due_at.timestamp()
    os.write(evidence, f"{run.key} {run.token} {os.getpid()} {late:.6f} {run.job} {run.origin.value}\n".encode())


for number in range(int(os.environ.get("DECLARED", "0"))):
    scheduler.job(cron(f"{number % 60} {number // 60 % 24} 2 1 *"), name=f"declared-{number}")(report)
