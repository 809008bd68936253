"""APScheduler in several processes, and each time run by one of them. Start it in two terminals, and kill one:

    python examples/keep_apscheduler.py

Needs: pip install "cronsensus[apscheduler]"
"""

import os
import sys
import time

from apscheduler.schedulers.blocking import BlockingScheduler

from cronsensus.integrations.apscheduler import guard

URL = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///keep_apscheduler.db"

scheduler = BlockingScheduler()
guard(scheduler, URL)  # without this line each process runs each time


@scheduler.scheduled_job("cron", second="*/2", id="report", misfire_grace_time=30)
def report() -> None:
    print(f"{time.strftime('%H:%M:%S')} begins in process {os.getpid()}", flush=True)
    time.sleep(1)  # noqa: TID251 - a second of work


if __name__ == "__main__":
    try:
        scheduler.start()
    except (KeyboardInterrupt, SystemExit):
        scheduler.shutdown()
