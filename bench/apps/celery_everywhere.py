"""An app of Celery, guarded where the environment says so, whose tasks write down each run."""

import os
import time

from celery import Celery, Task

from cronsensus.integrations.celery import configure

evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
BROKER = os.environ["BROKER"]

app = Celery("celery_everywhere", broker=BROKER, backend=os.environ["BACKEND"])
app.conf.update(
    timezone="UTC",
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    beat_schedule={"tick": {"task": "celery_everywhere.tick", "schedule": 1.0}},
)
if os.environ.get("VISIBILITY"):
    app.conf.broker_transport_options = {
        "visibility_timeout": int(os.environ["VISIBILITY"]),
        "unacked_restore_throttle": 1,
        "unacked_restore_interval": 1,
    }
if os.environ.get("REDBEAT"):
    app.conf.redbeat_redis_url = BROKER
    if os.environ["GUARDED"]:
        app.conf.redbeat_lock_key = None
if os.environ["GUARDED"]:
    configure(app, lease="5s")


def write(*words: object) -> None:
    os.write(evidence, (" ".join(map(str, (*words, os.getpid(), f"{time.time():.6f}"))) + "\n").encode())


@app.task(bind=True)
def tick(self: Task) -> None:
    write("tick", (self.request.headers or {}).get("cronsensus-time", self.request.id))


@app.task
def work(number: int, seconds: float) -> int:
    write("begun", number)
    time.sleep(seconds)
    write("ended", number)
    return number


@app.task
def nothing() -> None:
    """Do nothing."""
