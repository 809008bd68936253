"""Ten jobs each second beside three pairs, of which the second comes after the first or beside it."""

import os
import time

from cronsensus import Run, Scheduler, every

scheduler = Scheduler()
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
AFTER = bool(int(os.environ["AFTER"]))

for number in range(10):

    @scheduler.job(every("1s"), name=f"tick{number}", catch_up="all")
    async def tick(run: Run) -> None:
        """Say how late it is."""
        late = time.time() - run.due_at.timestamp()
        os.write(evidence, f"{run.job} {run.due_at.timestamp():.0f} {late:.6f}\n".encode())


for number in range(3):

    @scheduler.job(every("1s"), name=f"first{number}", catch_up="all")
    async def first() -> None:
        """Do nothing."""

    @scheduler.job(
        None if AFTER else every("1s"), name=f"second{number}", after=[first] if AFTER else None, catch_up="all"
    )
    async def second() -> None:
        """Do nothing."""
