"""Zone files that a test writes: what a machine has before ``tzdata`` is upgraded, and what it has after."""

import struct
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cronsensus.triggers.cron import _clock_for
from cronsensus.triggers.zone_rules import digest_of
from cronsensus.triggers.zones import load_zone


def write_zone(folder: Path, name: str, rule: str) -> None:
    """Write a zone that has had one POSIX rule at all times, such as ``PST8PDT,M3.2.0,M11.1.0``."""
    header = struct.pack(">4sc15x6L", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
    block = header + struct.pack(">lBB", 0, 0, 0) + b"LMT\0"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(block + block + f"\n{rule}\n".encode())


def forget_rules() -> None:
    """Read zone files anew, as a process does that starts."""
    zoneinfo.ZoneInfo.clear_cache()
    load_zone.cache_clear()
    _clock_for.cache_clear()
    digest_of.cache_clear()


@contextmanager
def zones_in(folder: Path) -> Iterator[Path]:
    """Let zones come from ``folder`` first."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(folder), *before])
    try:
        forget_rules()
        yield folder
    finally:
        zoneinfo.reset_tzpath(before)
        forget_rules()
