"""A program with APScheduler, guarded where the environment says so, whose jobs write down for which time they run."""

import os
import threading
import time
from datetime import datetime
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from cronsensus.integrations.apscheduler import guard
from cronsensus.integrations.apscheduler.views import view_of

evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Telling(ThreadPoolExecutor):  # type: ignore[misc]
    """APScheduler's own, which tells a function the time that it runs for."""

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        told = view_of(job)
        told.args = (run_times[-1].timestamp(), job.id)
        super()._do_submit_job(told, run_times)


def report(due: float, job: str) -> None:
    """Write which time of which job this is, and how late it begins."""
    os.write(evidence, f"ran {due:.0f} {job} {os.getpid()} {time.time() - due:.6f}\n".encode())


scheduler = BackgroundScheduler(executors={"default": Telling()}, timezone="UTC")
if os.environ["GUARDED"]:
    guard(scheduler)
for number in range(int(os.environ["JOBS"])):
    scheduler.add_job(report, "cron", second=os.environ["SECONDS"], args=(0.0, ""), id=f"job{number}")
scheduler.start()
os.write(evidence, b"up\n")
threading.Event().wait()
