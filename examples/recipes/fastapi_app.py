"""Jobs in FastAPI: uvicorn --workers 2 fastapi_app:app"""

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI

from cronsensus import Run, Scheduler, every

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(every("1s"))
async def report(run: Run) -> None:
    print(f"report for {run.scheduled_for:%H:%M:%S} in worker {os.getpid()}", flush=True)


@scheduler.job()
async def send_invoice(number: int) -> None:
    print(f"invoice {number} in worker {os.getpid()}", flush=True)


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with scheduler:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def order(number: int) -> str:
    await send_invoice.options(key=f"invoice:{number}").aenqueue(number)
    return "ordered"
