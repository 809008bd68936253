"""My job takes longer than its interval: cronsensus run longer_than_its_interval:scheduler"""

import time

from cronsensus import Run, Scheduler, every

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(every("1s"), overlap="skip")  # the default; "queue_one", "queue", "cancel_previous", "allow"
def sync(run: Run) -> None:
    print(f"begin {run.scheduled_for:%H:%M:%S}", flush=True)
    time.sleep(1.5)
    print(f"end {run.scheduled_for:%H:%M:%S}", flush=True)
