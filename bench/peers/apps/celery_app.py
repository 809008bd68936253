"""Celery, with RedBeat: ``node``, ``ticking``, ``scheduler`` (several may stand by), ``fill N``, ``trickle N``,
``long``.
"""

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
if evidence.AT_LEAST_ONCE:
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True
    app.conf.worker_prefetch_multiplier = 1
    app.conf.broker_transport_options = {
        "visibility_timeout": 60, "unacked_restore_interval": 1, "unacked_restore_throttle": 1,
    }  # fmt: skip
else:
    app.conf.worker_prefetch_multiplier = 64  # as its guide to optimizing says for many short tasks
# An interval would count from whenever it was started; a rule counts whole seconds.
dtstart = datetime.fromtimestamp(int(os.environ.get("BENCH_BEGUN", "0")), UTC)
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": rrule("SECONDLY", dtstart=dtstart)}}


@app.task(name="tick")
def tick() -> None:
    evidence.tick()


@app.task(name="long")
def long() -> None:
    evidence.begin()
    time.sleep(evidence.LONG)


@app.task(name="noop")
def noop(number: int) -> int:
    evidence.ran()
    return number


@app.task(name="arrive")
def arrive(sent: float) -> None:
    evidence.arrived(sent)


if __name__ == "__main__":
    celery = [sys.executable, "-m", "celery", "-A", "celery_app", "--quiet"]
    match sys.argv[1:]:
        case ["node"] | ["ticking"]:
            concurrency = "1" if sys.argv[1] == "ticking" else str(evidence.CONCURRENCY)
            os.execv(sys.executable, [
                *celery, "worker", "--concurrency", concurrency, "--pool", os.environ.get("POOL", "prefork"),
                "--loglevel", "WARNING", "--hostname", f"{os.getpid()}@bench",
            ])  # fmt: skip
        case ["scheduler"]:
            os.execv(sys.executable, [
                *celery, "beat", "--scheduler", "redbeat.RedBeatScheduler", "--pidfile", "", "--loglevel", "WARNING",
            ])  # fmt: skip
        case ["fill", count]:
            import celery_app

            for number in range(int(count)):
                celery_app.noop.delay(number)
        case ["trickle", count]:
            import celery_app

            for sent in evidence.paced(int(count)):
                celery_app.arrive.delay(sent)
        case ["long"]:
            import celery_app

            celery_app.long.delay()
        case words:
            sys.exit(f"nothing to do for {words}")
