"""A worker that waits for a start-up task which another one runs: ``waiting_worker.py URL``. Says when it waits."""

import sys

from cronsensus import Scheduler
from cronsensus.once.waiters import Waiters

add = Waiters.add_waiter


def said(self, occurrence):
    print("waiting", flush=True)
    return add(self, occurrence)


Waiters.add_waiter = said  # type: ignore[method-assign]
scheduler = Scheduler(sys.argv[1])


@scheduler.startup(wait=True)
def migrate() -> None: ...


print(scheduler.run(), flush=True)
