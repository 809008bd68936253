"""Run once at start: CRONSENSUS_DEPLOY_ID=v42 python once_at_start.py, in as many terminals as you like"""

import os

from cronsensus import Scheduler

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.startup(scope="deploy", wait=True)
def migrate() -> None:
    print(f"migrating in {os.getpid()}", flush=True)


if __name__ == "__main__":
    scheduler.run_startup()  # the others wait here; scheduler.start() and run() do the same before any job
    print(f"serving in {os.getpid()}", flush=True)
