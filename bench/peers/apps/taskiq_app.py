"""Taskiq on Redis: ``node``, ``ticking``, ``scheduler`` (one only, as its documentation demands), ``fill N``,
``trickle N``, ``long``."""

import asyncio
import os
import sys

import evidence
from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import ListQueueBroker, RedisStreamBroker

if os.environ.get("BROKER") == "list":
    broker = ListQueueBroker(evidence.URL)
else:
    broker = RedisStreamBroker(
        evidence.URL, **({"idle_timeout": 60_000, "unacknowledged_lock_timeout": 10} if evidence.AT_LEAST_ONCE else {})
    )
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])


@broker.task(task_name="tick", schedule=[{"interval": 1}])
async def tick() -> None:
    evidence.tick()


@broker.task(task_name="noop")
async def noop(number: int) -> int:
    evidence.ran()
    return number


@broker.task(task_name="arrive")
async def arrive(sent: float) -> None:
    evidence.arrived(sent)


@broker.task(task_name="long")
async def long() -> None:
    evidence.begin()
    await asyncio.sleep(evidence.LONG)


async def trickle(count: int) -> None:
    await broker.startup()
    for sent in evidence.paced(count):
        await arrive.kiq(sent)
    await broker.shutdown()


async def enqueue_long() -> None:
    await broker.startup()
    await long.kiq()
    await broker.shutdown()


async def fill(count: int) -> None:
    await broker.startup()
    for number in range(count):
        await noop.kiq(number)
    await broker.shutdown()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["node"] | ["ticking"]:
            os.execv(sys.executable, [
                sys.executable, "-m", "taskiq", "worker", "taskiq_app:broker", "--workers", "1", "--log-level",
                "WARNING", "--max-async-tasks", str(evidence.CONCURRENCY),
            ])  # fmt: skip
        case ["scheduler"]:
            os.execv(sys.executable, [
                sys.executable, "-m", "taskiq", "scheduler", "taskiq_app:scheduler", "--log-level", "WARNING",
            ])  # fmt: skip
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
