"""FastAPI with APScheduler in its lifespan under uvicorn: four workers, and each time in one of them.

    cd examples && uvicorn --workers 4 keep_fastapi:app

Needs: pip install "cronsensus[apscheduler]" fastapi uvicorn
"""

import contextlib
import os
import time
from collections.abc import AsyncIterator

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI

from cronsensus.integrations.apscheduler import guard

scheduler = AsyncIOScheduler()
guard(scheduler, os.environ.get("CRONSENSUS_URL", "sqlite:///keep_fastapi.db"))


@scheduler.scheduled_job("cron", second="*/2", id="report", misfire_grace_time=30)
async def report() -> None:
    print(f"{time.strftime('%H:%M:%S')} report in {os.getpid()}", flush=True)


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    scheduler.start()
    print(f"keeping the schedule in {os.getpid()}", flush=True)
    yield
    scheduler.shutdown()


app = FastAPI(lifespan=lifespan)
