"""arq: ``node``, ``ticking``, ``fill N``, ``trickle N``, ``long``."""

import asyncio
import sys
from typing import Any

import evidence
import uvloop
from arq import create_pool, cron, run_worker
from arq.connections import RedisSettings

REDIS = RedisSettings.from_dsn(evidence.URL)


async def tick(ctx: dict[str, Any]) -> None:
    evidence.tick(int(ctx["job_id"].rpartition(":")[2]) / 1000)


async def noop(_ctx: dict[str, Any], number: int) -> int:
    evidence.ran()
    return number


async def long(_ctx: dict[str, Any]) -> None:
    evidence.begin()
    await asyncio.sleep(evidence.LONG)


async def arrive(_ctx: dict[str, Any], sent: float) -> None:
    evidence.arrived(sent)


class WorkerSettings:
    functions = (noop, long, arrive)
    redis_settings = REDIS
    max_jobs = evidence.CONCURRENCY
    if evidence.AT_LEAST_ONCE:
        job_timeout = 60  # ten seconds later another may take it


async def trickle(count: int) -> None:
    pool = await create_pool(REDIS)
    for sent in evidence.paced(count):
        await pool.enqueue_job("arrive", sent)
    await pool.aclose()


async def enqueue(name: str, count: int) -> None:
    pool = await create_pool(REDIS)
    for number in range(count):
        await pool.enqueue_job(name, *([number] if name == "noop" else []))
    await pool.aclose()


uvloop.install()
match sys.argv[1:]:
    case ["node"]:
        run_worker(WorkerSettings)
    case ["ticking"]:
        run_worker(WorkerSettings, cron_jobs=[cron(tick, second=set(range(60)), microsecond=0)])
    case ["fill", count]:
        asyncio.run(enqueue("noop", int(count)))
    case ["trickle", count]:
        asyncio.run(trickle(int(count)))
    case ["long"]:
        asyncio.run(enqueue("long", 1))
    case words:
        sys.exit(f"nothing to do for {words}")
