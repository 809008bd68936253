"""arq: ``node``, ``fill N``, ``long``."""

import asyncio
import sys
from typing import Any

import evidence
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
    await asyncio.sleep(600)


class WorkerSettings:
    functions = (noop, long)
    redis_settings = REDIS
    max_jobs = evidence.CONCURRENCY


async def enqueue(name: str, count: int) -> None:
    pool = await create_pool(REDIS)
    for number in range(count):
        await pool.enqueue_job(name, *([number] if name == "noop" else []))
    await pool.aclose()


match sys.argv[1:]:
    case ["node"]:
        run_worker(WorkerSettings)
    case ["ticking"]:
        run_worker(WorkerSettings, cron_jobs=[cron(tick, second=set(range(60)), microsecond=0)])
    case ["fill", count]:
        asyncio.run(enqueue("noop", int(count)))
    case ["long"]:
        asyncio.run(enqueue("long", 1))
    case words:
        sys.exit(f"nothing to do for {words}")
