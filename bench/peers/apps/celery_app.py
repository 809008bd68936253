"""Celery with RedBeat: ``node``, ``ticking``, ``scheduler`` (several may stand by), ``long``."""

import os
import sys
import time
from datetime import UTC, datetime

import evidence
from celery import Celery
from redbeat.schedules import rrule

app = Celery("celery_app", broker=evidence.URL)
app.conf.redbeat_redis_url = evidence.URL
app.conf.task_ignore_result = True
app.conf.timezone = "UTC"
# An interval would count from whenever it was started; a rule counts whole seconds.
dtstart = datetime.fromtimestamp(int(os.environ.get("BENCH_BEGUN", "0")), UTC)
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": rrule("SECONDLY", dtstart=dtstart)}}


@app.task(name="tick")
def tick() -> None:
    evidence.tick()


@app.task(name="long")
def long() -> None:
    evidence.begin()
    time.sleep(600)


if __name__ == "__main__":
    celery = [sys.executable, "-m", "celery", "-A", "celery_app", "--quiet"]
    match sys.argv[1:]:
        case ["node"] | ["ticking"]:
            os.execv(sys.executable, [*celery, "worker", "--concurrency", "1", "--loglevel", "WARNING"])
        case ["scheduler"]:
            os.execv(sys.executable, [
                *celery, "beat", "--scheduler", "redbeat.RedBeatScheduler", "--pidfile", "", "--loglevel", "WARNING",
            ])  # fmt: skip
        case ["long"]:
            import celery_app

            celery_app.long.delay()
        case words:
            sys.exit(f"nothing to do for {words}")
