"""Extract, load, report: three jobs, one after the other, on whichever node is free; each minute one "night".

    python examples/extract_load_report.py sqlite:///nightly.db sales.db

Start it in as many terminals as you like, and kill one between two of them. The sales stand in a SQLite database of
their own; what is loaded is loaded once for each minute, because its key is the run's.
"""

import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from cronsensus import Run, Scheduler, cron

URL, SALES = (sys.argv[1:] + ["sqlite:///nightly.db", "sales.db"][len(sys.argv) - 1 :])[:2]
EVERY = sys.argv[3] if len(sys.argv) > 3 else "* * * * *"

scheduler = Scheduler(URL, lease="3s")


@contextmanager
def sales() -> Iterator[sqlite3.Connection]:
    """Open the database, and commit at the end."""
    with closing(sqlite3.connect(SALES, timeout=30)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS night (run TEXT PRIMARY KEY, shops INTEGER, total INTEGER)")
        yield connection


@scheduler.job(cron(EVERY), retries=2)
def extract(run: Run) -> list[int]:
    """Fetch what each shop took in."""
    shops = random.Random(str(run.scheduled_for))
    return [shops.randrange(1000) for _ in range(20)]


@scheduler.job(after=[extract], retries=2)
def load(run: Run) -> int:
    """Write the night into the database; written twice, it is one row."""
    takings = run.upstream[extract].result
    with sales() as connection:
        row = (run.idempotency_key, len(takings), sum(takings))
        connection.execute("INSERT INTO night VALUES (?, ?, ?) ON CONFLICT (run) DO NOTHING", row)
    return sum(takings)


@scheduler.job(after=[load])
def report(run: Run) -> str:
    """Say how it went."""
    with sales() as connection:
        nights, total = connection.execute("SELECT count(*), sum(total) FROM night").fetchone()
    return f"{nights} nights, {total} in all; this one {run.upstream[load].result}"


if __name__ == "__main__":
    scheduler.run()
