"""A program with APScheduler, guarded, as each replica runs it, until a file says that it is over.

python guarded_app.py URL OUT KIND
"""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ProcessPoolExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from cronsensus.integrations.apscheduler import guard

URL, OUT, KIND = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
OVER = OUT.with_suffix(".over")


def note(what: str) -> None:
    with OUT.open("a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()} {os.getppid()} {datetime.now(UTC).timestamp():.6f}\n")


def tick() -> str:
    note("tick")
    return "done"


async def atick() -> str:
    note("tick")
    return "done"


def slow() -> None:
    note("slow-begin")
    time.sleep(1.0)
    note("slow-end")


def long() -> None:
    note("long-begin")
    time.sleep(2.5)
    note("long-end")


def broken() -> None:
    raise ValueError("no disk")


def add_jobs(scheduler, function) -> None:
    scheduler.add_job(function, "cron", second="*", id="tick")
    scheduler.add_job(slow, "cron", second="*/2", id="slow")
    scheduler.add_job(broken, "cron", second="*/3", id="broken")


def main() -> None:
    executors = {"default": ProcessPoolExecutor(2)} if KIND == "process" else {}
    # A busy machine takes more than the second of grace to start a process of a pool, and what waits for it counts.
    defaults = {"misfire_grace_time": 30, "max_instances": 10}
    scheduler = BackgroundScheduler(executors=executors, job_defaults=defaults)
    guard(scheduler, URL, lease="3s")
    if KIND == "long":
        scheduler.add_job(long, "cron", second="*", id="long", max_instances=1)
        scheduler.add_listener(lambda event: note("refused"), EVENT_JOB_MAX_INSTANCES)
    else:
        add_jobs(scheduler, tick)
    scheduler.start()
    note("up")
    while not OVER.exists():
        time.sleep(0.05)
    scheduler.shutdown()


async def amain() -> None:
    scheduler = AsyncIOScheduler()
    guard(scheduler, URL, lease="3s")
    add_jobs(scheduler, atick)
    scheduler.start()
    note("up")
    while not OVER.exists():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.05)
    scheduler.shutdown()
    await asyncio.sleep(0)


if __name__ == "__main__":
    if KIND == "asyncio":
        asyncio.run(amain())
    else:
        main()
