"""Procrastinate: ``prepare``, ``node``, ``ticking``, ``fill N``, ``trickle N``, ``long``."""

import asyncio
import sys

import evidence
import uvloop
from procrastinate import App, JobContext, PsycopgConnector

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


@app.task(name="arrive")
async def arrive(sent: float) -> None:
    evidence.arrived(sent)


@app.task(name="long")
async def long() -> None:
    evidence.begin()
    await asyncio.sleep(evidence.LONG)


if evidence.AT_LEAST_ONCE:

    @app.periodic(cron="*/5 * * * * *")
    @app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    async def retry_stalled(context: JobContext, timestamp: int) -> None:
        del timestamp
        for job in await context.app.job_manager.get_stalled_jobs(seconds_since_heartbeat=10):
            await context.app.job_manager.retry_job(job)


async def main() -> None:
    async with app.open_async():
        match sys.argv[1:]:
            case ["prepare"]:
                await app.schema_manager.apply_schema_async()
            case ["node"] | ["ticking"]:
                await app.run_worker_async(
                    concurrency=evidence.CONCURRENCY,
                    **({"update_heartbeat_interval": 3, "stalled_worker_timeout": 10}
                       if evidence.AT_LEAST_ONCE else {}),
                )  # fmt: skip
            case ["fill", count]:
                await noop.batch_defer_async(*({"number": number} for number in range(int(count))))
            case ["trickle", count]:
                for sent in evidence.paced(int(count)):
                    await arrive.defer_async(sent=sent)
            case ["long"]:
                await long.defer_async()
            case words:
                sys.exit(f"nothing to do for {words}")


uvloop.install()
asyncio.run(main())
