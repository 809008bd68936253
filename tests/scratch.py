"""Where tests write what no power cut need spare: in memory, for a disk that syncs at each commit takes long."""

import os
import shutil
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
