"""Snapshots of a SQLite database every few seconds, by as many processes as you like: each one is made once.

Start it in three terminals, and kill whichever you like:

    cronsensus run jobs:scheduler

``shop.db`` is the database of a small shop, which sells something each second. ``snapshots/`` fills with copies of it,
named by their nominal time; the newest ``SNAPSHOTS_KEEP`` stay.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from cronsensus import Cancel, Run, Scheduler, every

FOLDER = Path(os.environ.get("SNAPSHOTS_FOLDER", "."))
EVERY = os.environ.get("SNAPSHOTS_EVERY", "5s")
KEEP = int(os.environ.get("SNAPSHOTS_KEEP", "12"))
CUSTOMERS = int(os.environ.get("SNAPSHOTS_CUSTOMERS", "20000"))

SHOP = FOLDER / "shop.db"
CATALOG = FOLDER / "catalog.db"
SNAPSHOTS = FOLDER / "snapshots"

scheduler = Scheduler(f"sqlite:///{FOLDER / 'cronsensus.db'}")


@scheduler.job(every("1s"), overlap="allow", catch_up="all")
def sell(run: Run) -> None:
    """Sell something. The nominal time is the key of the sale: made again after a crash, it is still one sale."""
    second = int(nominal_time(run).timestamp())
    with transaction(SHOP, SHOP_SCHEMA) as shop:
        if not shop.execute("SELECT 1 FROM customers").fetchone():
            names = ((number, f"customer {number} " + "of a small shop " * 10) for number in range(CUSTOMERS))
            shop.executemany("INSERT INTO customers (id, name) VALUES (?, ?)", names)
        sale = (run.idempotency_key, second % CUSTOMERS, 100 + second % 900)
        shop.execute("INSERT OR IGNORE INTO sales (key, customer, cents) VALUES (?, ?, ?)", sale)


# Queued, so one snapshot at a time and in order; all that were due are made, however late. max_crashes: a snapshot
# is not given up because the machine was switched off in three of them.
@scheduler.job(every(EVERY), overlap="queue", catch_up="all", max_crashes=10)
def snapshot(run: Run) -> str:
    """Make the snapshot of a nominal time, and rotate."""
    target = SNAPSHOTS / f"shop-{nominal_time(run):%Y%m%dT%H%M%SZ}.db"
    say(run, "begins")
    SNAPSHOTS.mkdir(exist_ok=True)
    # Each attempt writes a file of its own: one that was frozen and wakes up cannot write into that of another.
    part = SNAPSHOTS / f".{target.name}.{run.token}.part"
    try:
        with transaction(SHOP, SHOP_SCHEMA):
            pass  # the shop may be new
        with connection(SHOP) as shop:
            shop.execute("VACUUM INTO ?", (str(part),))
        sales = examine(part)
        run.check()  # stop here if another node has this run by now, or somebody cancelled it
        with fenced(run) as catalog:
            # A snapshot that is there already was put there by an attempt that was killed before it could say so.
            if not target.exists():
                part.rename(target)  # whole, or not at all
            row = (target.name, run.token, sales)
            catalog.execute("INSERT OR IGNORE INTO snapshots (name, token, sales) VALUES (?, ?, ?)", row)
            rotate(catalog)
    finally:
        for leftover in SNAPSHOTS.glob(f".{target.name}.*.part*"):  # and SQLite's journal of it
            if token_of(leftover) <= run.token:
                leftover.unlink(missing_ok=True)
    say(run, "ends")
    return target.name


@contextmanager
def fenced(run: Run) -> Iterator[sqlite3.Connection]:
    """Let only the newest run publish and rotate.

    Between ``run.check()`` and this line the process may be frozen for an hour. So the catalog remembers the newest run
    that was here, and refuses older ones: checking first is courtesy, the fence is the protection.
    """
    mine = (nominal_time(run).isoformat(), run.token)
    with transaction(CATALOG, CATALOG_SCHEMA) as catalog:
        newest = catalog.execute("SELECT scheduled_for, token FROM fence").fetchone()
        if newest is not None and mine < newest:
            raise Cancel(f"a newer run was here already: {newest}")
        catalog.execute("INSERT OR REPLACE INTO fence (id, scheduled_for, token) VALUES (1, ?, ?)", mine)
        yield catalog


def rotate(catalog: sqlite3.Connection) -> None:
    """Delete all snapshots but the newest ``KEEP``."""
    old = catalog.execute("SELECT name FROM snapshots WHERE NOT rotated ORDER BY name DESC LIMIT -1 OFFSET ?", (KEEP,))
    for (name,) in old.fetchall():
        (SNAPSHOTS / name).unlink(missing_ok=True)
        catalog.execute("UPDATE snapshots SET rotated = 1 WHERE name = ?", (name,))


def examine(path: Path) -> int:
    """Return how many sales a snapshot holds, and refuse one that is damaged; make it durable."""
    with connection(path) as copy:
        verdict = copy.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict != "ok":
            raise RuntimeError(f"{path} is damaged: {verdict}")
        sales: int = copy.execute("SELECT count(*) FROM sales").fetchone()[0]
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return sales


def nominal_time(run: Run) -> datetime:
    """Return the time that a run is for; one that was triggered by hand has none, and takes its due time."""
    return run.scheduled_for or run.due_at


def token_of(part: Path) -> int:
    """Return the token in the name of a part file, or of its journal."""
    return int(part.name.rsplit(".", 2)[1])


def say(run: Run, what: str) -> None:
    """Print what a run does, for whoever watches."""
    print(f"{run.job} {run.key} {what}, token {run.token}, attempt {run.attempt}, pid {os.getpid()}", flush=True)


# --- SQLite ------------------------------------------------------------------------------------------------------

SHOP_SCHEMA = """
CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sales (key TEXT PRIMARY KEY, customer INTEGER NOT NULL, cents INTEGER NOT NULL);
"""
CATALOG_SCHEMA = """
CREATE TABLE IF NOT EXISTS snapshots (
    name TEXT PRIMARY KEY, token INTEGER NOT NULL, sales INTEGER NOT NULL, rotated INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS fence (id INTEGER PRIMARY KEY, scheduled_for TEXT NOT NULL, token INTEGER NOT NULL);
"""


@contextmanager
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database that other processes use too."""
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def transaction(path: Path, schema: str) -> Iterator[sqlite3.Connection]:
    """Run a body in one write transaction, on a database that has its tables."""
    with connection(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement in schema.split(";"):
                database.execute(statement)
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


if __name__ == "__main__":
    scheduler.run()
