"""SAQ, on Redis or PostgreSQL by the URL: ``node``, ``ticking``, ``fill N``, ``trickle N``, ``long``."""

import asyncio
import sys
from typing import Any

import evidence
import uvloop
from saq import CronJob, Queue, Worker


async def tick(ctx: dict[str, Any]) -> None:
    evidence.tick(ctx["job"].scheduled)


async def noop(_ctx: dict[str, Any], *, number: int) -> int:
    evidence.ran()
    return number


async def arrive(_ctx: dict[str, Any], *, sent: float) -> None:
    evidence.arrived(sent)


async def long(ctx: dict[str, Any]) -> None:
    evidence.begin()
    for _ in range(evidence.LONG):
        await asyncio.sleep(1)
        if evidence.AT_LEAST_ONCE:
            await ctx["job"].update()  # its heartbeat


async def work(*, ticking: bool) -> None:
    queue = Queue.from_url(evidence.URL)
    crons: list[Any] = [CronJob(tick, cron="* * * * * *")] if ticking else []
    await queue.connect()
    worker: Worker[Any] = Worker(
        queue, functions=[tick, noop, arrive, long], concurrency=evidence.CONCURRENCY, cron_jobs=crons,
        timers={"sweep": 5} if evidence.AT_LEAST_ONCE else None,
    )  # fmt: skip
    await worker.start()


async def fill(count: int) -> None:
    queue = Queue.from_url(evidence.URL)
    await queue.connect()
    for number in range(count):
        await queue.enqueue("noop", number=number)
    await queue.disconnect()


async def trickle(count: int) -> None:
    queue = Queue.from_url(evidence.URL)
    await queue.connect()
    for sent in evidence.paced(count):
        await queue.enqueue("arrive", sent=sent)
    await queue.disconnect()


async def enqueue_long() -> None:
    queue = Queue.from_url(evidence.URL)
    await queue.connect()
    await queue.enqueue("long", **({"heartbeat": 10, "timeout": 0, "retries": 3} if evidence.AT_LEAST_ONCE else {}))
    await queue.disconnect()


uvloop.install()
match sys.argv[1:]:
    case ["node"]:
        asyncio.run(work(ticking=False))
    case ["ticking"]:
        asyncio.run(work(ticking=True))
    case ["fill", count]:
        asyncio.run(fill(int(count)))
    case ["trickle", count]:
        asyncio.run(trickle(int(count)))
    case ["long"]:
        asyncio.run(enqueue_long())
    case ["prepare"]:
        asyncio.run(fill(0))
    case words:
        sys.exit(f"nothing to do for {words}")
