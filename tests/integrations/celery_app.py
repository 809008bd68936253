"""An app of Celery as each machine runs it: tasks that write down each of their runs.

BROKER, OUT and CRONSENSUS_URL say where; DIE says that sending ends this process: before, or after the message is out.
"""

import os
import signal
import threading
import time
from pathlib import Path

from celery import Celery

from cronsensus.integrations.celery import configure

OUT = Path(os.environ["OUT"])

app = Celery("celery_app", broker=os.environ["BROKER"], backend=os.environ.get("BACKEND"))
PREFIX = {"global_keyprefix": f"{os.environ['PREFIX']}."} if "PREFIX" in os.environ else {}
SOON = {"unacked_restore_throttle": 1, "unacked_restore_interval": 1}
app.conf.update(
    timezone="UTC",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    beat_max_loop_interval=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        **PREFIX,
        **({"data_folder_in": os.environ["BOX"], "data_folder_out": os.environ["BOX"]} if "BOX" in os.environ else {}),
        **({"visibility_timeout": int(os.environ["VISIBILITY"]), **SOON} if "VISIBILITY" in os.environ else {}),
    },
    result_backend_transport_options=PREFIX,
    beat_schedule={"tick": {"task": "celery_app.tick", "schedule": float(os.environ.get("EVERY", "1"))}},
)
configure(app, lease=os.environ.get("LEASE", "3s"))


def note(what: str, *more: object) -> None:
    with OUT.open("a", encoding="utf-8") as file:
        file.write(" ".join(map(str, (what, os.getpid(), f"{time.time():.3f}", *more))) + "\n")


@app.task(once=False)
def plain(number: int, seconds: float) -> int:
    note("plain", number)
    time.sleep(seconds)
    return number


@app.task(bind=True, time_limit=2 if os.environ.get("TICK") == "hangs" else None)
def tick(self) -> None:
    note("tick", self.request.id, (self.request.headers or {}).get("cronsensus-time"))
    if os.environ.get("TICK") == "fails":
        raise RuntimeError("as told")
    if os.environ.get("TICK") == "slowly":
        threading.Event().wait(2)
    if os.environ.get("TICK") == "hangs":
        threading.Event().wait(60)


@app.task
def slow(number: int, seconds: float) -> int:
    note("begin", number)
    time.sleep(seconds)
    note("end", number)
    return number


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def kills(number: int) -> None:
    note("begin", number)
    os.kill(os.getpid(), signal.SIGKILL)


if death := os.environ.get("DIE"):
    send = tick.apply_async

    def die(*args: object, **options: object) -> object:
        sent = send(*args, **options) if death == "after" else None
        note("sent" if sent else "not-sent", options["task_id"])
        os.kill(os.getpid(), signal.SIGKILL)
        return sent

    tick.apply_async = die
