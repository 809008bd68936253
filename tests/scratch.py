"""Where tests write what no power cut need spare: in memory, for a disk that syncs at each commit takes long."""

import importlib
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from cronsensus import open_store

MEMORY = Path("/dev/shm")
MEGABYTE = 1 << 20
BUSY = "busy_timeout=60s"
"""Of a SQLite URL: that many processes want one file on a busy machine is no fault."""


def in_memory(megabytes: int = 16) -> Path | None:
    """Return a folder in memory with that much room, or None, which to ``tempfile`` is the usual place.

    Who has set ``TMPDIR`` has chosen the place.
    """
    if os.environ.get("TMPDIR"):
        return None
    try:
        room = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    return MEMORY if room >= megabytes * MEGABYTE else None


def import_before_forks(url: str) -> None:
    """Import what makes the tables of a SQL store, or each forked worker does it, for a quarter of a second."""
    if url.startswith(("sqlite", "postgres", "mysql")):
        for module in ("engine", "migrations"):
            importlib.import_module(f"cronsensus.stores.sql.{module}")


def make_tables(url: str) -> None:
    """Make the tables of a SQL store, where it is not the start on an empty store that is tested: see above."""
    if url.startswith(("sqlite", "postgres", "mysql")):
        store = open_store(url)
        store.migrate()
        store.close()


def copy_migrated_sqlite(path: Path) -> None:
    """Make a SQLite file with the tables in it, and an identity of its own: 25 times as fast as making the tables."""
    path.write_bytes(_migrated_sqlite())
    with closing(sqlite3.connect(path)) as connection, connection:
        new = (secrets.randbits(62),)
        connection.execute("UPDATE cronsensus_counters SET value = ? WHERE name = 'identity'", new)


@cache
def _migrated_sqlite() -> bytes:
    with scratch_folder() as folder:
        path = folder / "made.db"
        make_tables(f"sqlite:///{path}")
        return path.read_bytes()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give an empty folder, in memory where there is room, and remove it.

    A thread that frees a dropped lock may be writing there still, so what comes up meanwhile is removed again.
    """
    folder = Path(tempfile.mkdtemp(dir=in_memory()))
    try:
        yield folder
    finally:
        for _ in range(100):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            threading.Event().wait(0.05)
        else:
            raise AssertionError(f"something still writes to {folder}")
