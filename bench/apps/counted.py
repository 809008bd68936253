"""A node that counts every statement it sends, BEGIN and COMMIT included."""

import os
import sqlite3
from typing import Any

from cronsensus import Scheduler, cron

counts = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_connect = sqlite3.connect


def counting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    """Connect, and write a line for each statement."""
    connection: sqlite3.Connection = _connect(*args, **kwargs)
    connection.set_trace_callback(
        lambda text: os.write(counts, f"{os.getpid()} {' '.join(text.split())[:160]}\n".encode())
    )
    return connection


sqlite3.connect = sqlite3.dbapi2.connect = counting  # type: ignore[assignment]
scheduler = Scheduler()


@scheduler.job(cron("0 0 1 1 *"))
def new_year() -> None:
    """Be due in a long time."""
