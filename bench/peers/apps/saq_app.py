"""SAQ, on Redis or PostgreSQL by the URL: ``node``, ``ticking``, ``fill N``, ``long``."""

import asyncio
import sys
from typing import Any

import evidence
from saq import CronJob, Queue, Worker


async def tick(ctx: dict[str, Any]) -> None:
    evidence.tick(ctx["job"].scheduled)


async def noop(_ctx: dict[str, Any], *, number: int) -> int:
    evidence.ran()
    return number


async def long(_ctx: dict[str, Any]) -> None:
    evidence.begin()
    await asyncio.sleep(600)


async def work(*, ticking: bool) -> None:
    queue = Queue.from_url(evidence.URL)
    crons: list[Any] = [CronJob(tick, cron="* * * * * *")] if ticking else []
    await queue.connect()
    worker: Worker[Any] = Worker(queue, functions=[tick, noop, long], concurrency=evidence.CONCURRENCY, cron_jobs=crons)
    await worker.start()


async def enqueue(name: str, count: int) -> None:
    queue = Queue.from_url(evidence.URL)
    await queue.connect()
    for number in range(count):
        await queue.enqueue(name, **({"number": number} if name == "noop" else {}))
    await queue.disconnect()


match sys.argv[1:]:
    case ["node"]:
        asyncio.run(work(ticking=False))
    case ["ticking"]:
        asyncio.run(work(ticking=True))
    case ["fill", count]:
        asyncio.run(enqueue("noop", int(count)))
    case ["long"]:
        asyncio.run(enqueue("long", 1))
    case ["prepare"]:
        asyncio.run(enqueue("noop", 0))
    case words:
        sys.exit(f"nothing to do for {words}")
