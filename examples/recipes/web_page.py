"""A web page for my jobs: CRONSENSUS_DASHBOARD_TOKEN=… uvicorn web_page:app, then http://localhost:8000/cron"""

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from cronsensus import Scheduler, every
from cronsensus.dashboard import dashboard

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(every("1m"))
async def sync() -> str:
    return "nothing to do"


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with scheduler:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/cron", dashboard(scheduler))  # with the accounts of your application: auth=…
