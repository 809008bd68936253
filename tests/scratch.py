"""Where tests write what no power cut need spare: in memory, for a disk that syncs at each commit takes long."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
