"""APScheduler 4 on PostgreSQL: ``prepare``, ``ticking``."""

import asyncio
import sys

import evidence
from apscheduler import AsyncScheduler, ConflictPolicy, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.psycopg import PsycopgEventBroker
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy.ext.asyncio import create_async_engine


async def tick() -> None:
    due = current_job.get().scheduled_fire_time
    evidence.tick(due.timestamp() if due is not None else None)


async def main() -> None:
    engine = create_async_engine(evidence.URL.replace("postgresql://", "postgresql+psycopg://"))
    store, broker = SQLAlchemyDataStore(engine), PsycopgEventBroker(evidence.URL)
    async with AsyncScheduler(store, broker) as scheduler:
        if sys.argv[1] == "prepare":
            await scheduler.add_schedule(
                tick, CronTrigger(second="*"), id="tick", conflict_policy=ConflictPolicy.do_nothing
            )
        else:
            await scheduler.run_until_stopped()


if __name__ == "__main__":
    # By its name, not as __main__: the schedule refers to the function by it.
    import apscheduler4_app

    asyncio.run(apscheduler4_app.main())
