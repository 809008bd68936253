"""APScheduler 3, every node with the whole schedule, and SET NX in the job as people guard it: ``ticking``."""

import time

import evidence
from apscheduler.schedulers.blocking import BlockingScheduler
from redis import Redis

redis = Redis.from_url(evidence.URL)
scheduler = BlockingScheduler()


@scheduler.scheduled_job("cron", second="*")
def tick() -> None:
    # The job is not told what time it is for.
    if redis.set(f"tick:{int(time.time() + 0.05)}", "taken", nx=True, ex=60):
        evidence.tick()


scheduler.start()
