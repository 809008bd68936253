"""Leave a store behind as the version on PYTHONPATH writes it, with a process that was killed: ``record.py URL``.

``tests/stores/test_recorded.py`` reads what ``dump.py`` then tells of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from cronsensus import Run, Scheduler, every

scheduler = Scheduler(sys.argv[1], node="recorded", release="r1", drain_timeout="1s")
begun = threading.Event()


@scheduler.job(every("1h"))
def hourly() -> None: ...


@scheduler.job()
def order(number: int) -> dict[str, int]:
    return {"number": number}


@scheduler.job(retries=3, retry_delay="1h")
def failing(number: int) -> None:
    raise ValueError(f"as it was: {number}")


@scheduler.job()
def long(number: int, run: Run) -> None:
    run.progress(1, 2)
    begun.set()
    threading.Event().wait()


@scheduler.once(key="charge:{number}", keep="36500d")
def charge(number: int) -> str:
    return f"charged {number}"


def until(happened) -> None:
    while not happened():
        threading.Event().wait(0.02)


scheduler.start()
order.enqueue(1).result("30s")
failed = failing.enqueue(2)
until(lambda: failed.look().failures == 1)
charge(3)
scheduler.pause("hourly", reason="to see it later")
held = scheduler.lock("held")
held.acquire()
long.enqueue(4)
begun.wait()
until(lambda: scheduler.store.sessions() and scheduler.store.locks())
threading.Event().wait(2)  # for what is said of running ones in between, and signs
os.kill(os.getpid(), signal.SIGKILL)
