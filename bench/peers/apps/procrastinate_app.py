"""Procrastinate: ``prepare``, ``node``, ``ticking``, ``fill N``, ``long``."""

import asyncio
import sys

import evidence
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=evidence.URL, max_size=20))
if sys.argv[1] == "ticking":

    @app.periodic(cron="* * * * * *")
    @app.task(name="tick")
    async def tick(timestamp: int) -> None:
        evidence.tick(timestamp)


@app.task(name="noop")
async def noop(number: int) -> int:
    evidence.ran()
    return number


@app.task(name="long")
async def long() -> None:
    evidence.begin()
    await asyncio.sleep(600)


async def main() -> None:
    async with app.open_async():
        match sys.argv[1:]:
            case ["prepare"]:
                await app.schema_manager.apply_schema_async()
            case ["node"] | ["ticking"]:
                await app.run_worker_async(concurrency=evidence.CONCURRENCY)
            case ["fill", count]:
                await noop.batch_defer_async(*({"number": number} for number in range(int(count))))
            case ["long"]:
                await long.defer_async()
            case words:
                sys.exit(f"nothing to do for {words}")


asyncio.run(main())
