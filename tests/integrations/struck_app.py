"""A guarded program that faults are done to: it resumes when a file says so, and ends when another one does.

python -m tests.integrations.struck_app URL OUT [SHARED]

Its jobs are ``tick``, each second, and ``held``, due once, whose function ends when a third file is there. With SHARED,
the URL of a job store of SQLAlchemy, they are in there already.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.schedulers.background import BackgroundScheduler

from cronsensus.integrations.apscheduler import guard

DUE = datetime(2026, 1, 1, 3, tzinfo=UTC)
OUT = "STRUCK_APP_OUT"


def file(suffix: str) -> Path:
    return Path(os.environ[OUT]).with_suffix(suffix)


def note(what: str) -> None:
    with file(".out").open("a", encoding="utf-8") as lines:
        lines.write(f"{what} {os.getpid()}\n")


def wait_for(suffix: str) -> None:
    while not file(suffix).exists():
        time.sleep(0.02)


def tick() -> int:
    note("tick")
    return os.getpid()


def held() -> int:
    note("held-begin")
    wait_for(".release")
    note("held-end")
    return os.getpid()


def add_jobs(scheduler: BackgroundScheduler) -> None:
    scheduler.add_job(tick, "cron", second="*", id="tick", misfire_grace_time=30, max_instances=10)
    scheduler.add_job(held, "date", run_date=DUE, id="held", misfire_grace_time=None)


def die_when_told(scheduler: BackgroundScheduler) -> None:
    """Have one process die between what it won and its executor: the one that removes the file."""
    replaced = scheduler._cronsensus
    submit = replaced._submit_won

    def submit_or_die(executor: object, view: object, won: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            file(".die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        submit(executor, view, won)

    replaced._submit_won = submit_or_die


def main(url: str, shared: str | None) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, url, lease="2s")
    die_when_told(scheduler)
    if shared is None:
        add_jobs(scheduler)
    else:
        scheduler.add_jobstore("sqlalchemy", url=shared)
    scheduler.start(paused=True)
    note("up")
    wait_for(".resume")
    scheduler.resume()
    wait_for(".over")
    note("keeps-time" if scheduler._thread.is_alive() else "is-dead")
    scheduler.shutdown()


if __name__ == "__main__":
    os.environ[OUT] = sys.argv[2]
    main(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
