"""Batches: items that do nothing, that take a while, and lists so short that waking up is what one sees."""

import asyncio
import os
import time
from collections.abc import Iterable

from cronsensus import Run, Scheduler

scheduler = Scheduler()
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
ITEMS = int(os.environ.get("ITEMS", "1000"))


def say(event: str, batch: int, item: object) -> None:
    """Write one line: event, batch, item, pid, monotonic seconds (one clock for all processes of a host)."""
    os.write(evidence, f"{event} {batch} {item} {os.getpid()} {time.monotonic():.6f}\n".encode())


def collected(_results: Iterable[object], run: Run) -> None:
    """Say when the batch goes on."""
    say("collect", run.id, "-")


@scheduler.job(items=lambda: range(ITEMS))
async def nothing(_number: int) -> None:
    """Do nothing."""


@scheduler.job(items=lambda: range(ITEMS), collect=collected)
async def equal(number: int, run: Run) -> None:
    """Take 50 ms."""
    say("begin", run.batch or 0, number)
    await asyncio.sleep(0.05)
    say("end", run.batch or 0, number)


@scheduler.job(items=range(6), collect=collected)
async def short(number: int, run: Run) -> None:
    """Take some milliseconds, each item others."""
    await asyncio.sleep(0.005 * (number + 1))
    say("end", run.batch or 0, number)


@scheduler.job(items=lambda: range(ITEMS), collect=collected, max_crashes=10)
async def mixed(number: int, run: Run) -> None:
    """Take 50 to 500 ms."""
    say("begin", run.batch or 0, number)
    await asyncio.sleep(0.05 + number * 37 % 451 / 1000)
    say("end", run.batch or 0, number)
