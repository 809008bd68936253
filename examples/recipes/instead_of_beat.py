"""Celery beat on several machines: cronsensus run instead_of_beat:scheduler, on each of them"""

import os

from cronsensus import Run, Scheduler, every

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(every("1s"), retries=3, timeout="10m")  # crontab(minute=0, hour=3) is cron("0 3 * * *")
def report(run: Run) -> None:
    print(f"report for {run.scheduled_for:%H:%M:%S} in process {os.getpid()}", flush=True)
