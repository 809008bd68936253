"""A shop whose scheduler names a database that is not there."""

import asyncio
import time

from cronsensus import Run, Scheduler, cron

scheduler = Scheduler("postgresql://nobody:secret@127.0.0.1:1/prod", tz="Europe/Paris", lease="10s")
log: list[str] = []


@scheduler.job(cron("30 2 * * *"))
def nightly(run: Run) -> str:
    log.append(f"nightly {run.local_time}")
    return str(run.local_time)


@scheduler.job(cron("0 6 * * 1-5"))
async def report() -> None:
    await asyncio.sleep(600)
    log.append("report")


@scheduler.job(cron("0 3 * * *"), retries=2, retry_delay="1h")
def sync(run: Run) -> None:
    if run.attempt < 3:
        raise OSError("no route to partner")


@scheduler.job(cron("0 4 * * *"), timeout="10m")
async def endless() -> None:
    await asyncio.Event().wait()


@scheduler.job(cron("0 * * * *"), overlap="skip")
def hourly(run: Run) -> None:
    if run.local_time is not None and run.local_time.hour == 12:
        time.sleep(5400)


@scheduler.job()
def mail(order: int) -> int:
    return order * 2


@scheduler.job()
def parent(order: int) -> int:
    return mail.enqueue(order).result("1h") + 1


def sign_up(order: int) -> None:
    """A view that enqueues deep inside."""
    mail.options(key=f"order:{order}").enqueue(order)
