"""Taskiq on Redis: ``node``, ``ticking``, ``scheduler`` (one only, as its documentation demands), ``fill N``."""

import asyncio
import os
import sys

import evidence
from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import ListQueueBroker, RedisStreamBroker

broker = (ListQueueBroker if os.environ.get("BROKER") == "list" else RedisStreamBroker)(evidence.URL)
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])


@broker.task(task_name="tick", schedule=[{"interval": 1}])
async def tick() -> None:
    evidence.tick()


@broker.task(task_name="noop")
async def noop(number: int) -> int:
    evidence.ran()
    return number


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
        case ["prepare"]:
            asyncio.run(fill(0))
        case words:
            sys.exit(f"nothing to do for {words}")
