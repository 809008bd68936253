"""Identify the zone rules of this machine: by a version for people, and a digest of each zone for comparisons.

``zoneinfo`` takes each zone from the first folder of ``TZPATH`` that has it, else from the package ``tzdata``; so the
version is that of where the zones come from. The version alone proves nothing: systems give one number to files that
differ, and two numbers to rules that are the same. Equal digests do prove that two machines agree on a zone.
"""

from __future__ import annotations

import hashlib
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from cronsensus.triggers.base import Trigger
from cronsensus.triggers.zones import load_zone

MOST_ZONES = 100
_ALWAYS_PRESENT_ZONE = "Europe/London"
"""A zone that every set of zone files has."""
_BEGIN, _END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
"""What a digest covers. Fixed, so that nodes that start on different days give the same one."""
_STEP = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """The zone rules of a process.

    Attributes:
        version: of its zone data, and where that comes from, such as ``2026a (package)``; for people.
        digests: of the rules of each zone that its jobs use, by the zone's name.
    """

    version: str
    digests: Mapping[str, str]


def zone_rules_of(triggers: Iterable[Trigger | None]) -> ZoneRules:
    """Return the rules of this process for the zones of ``triggers``, the first ``MOST_ZONES`` of them."""
    names = sorted({zone for trigger in triggers if trigger is not None for zone in trigger.zones})[:MOST_ZONES]
    versions = sorted({version_of(name) for name in names or [_ALWAYS_PRESENT_ZONE]})
    return ZoneRules(", ".join(versions)[:200], {name: digest_of(name) for name in names})


def version_of(zone: str) -> str:
    """Return the version of the data that ``zone`` comes from, and its place; ``none`` where there is no data."""
    for folder in zoneinfo.TZPATH:
        if (Path(folder) / zone).is_file():
            return f"{_version_in(folder)} ({folder})"
    try:
        return f"{import_module('tzdata').IANA_VERSION} (package)"
    except ImportError:
        return "none"


def _version_in(folder: str) -> str:
    """Return the version that a folder of zone files names, as its distribution writes it."""
    try:
        return (Path(folder) / "+VERSION").read_text().strip()[:20]
    except (OSError, ValueError):
        pass
    try:
        with (Path(folder) / "tzdata.zi").open() as file:
            words = file.readline().split()
    except (OSError, ValueError):
        return "unknown"
    return words[2][:20] if words[:2] == ["#", "version"] and len(words) > 2 else "unknown"


@lru_cache(maxsize=MOST_ZONES)
def digest_of(zone: str) -> str:
    """Return a short digest of when clocks in ``zone`` change, and to which offset.

    Raises:
        InvalidTrigger: there is no such zone here.
    """
    changes = ";".join(f"{moment:%Y%m%d%H%M%S} {offset}" for moment, offset in _offset_changes(load_zone(zone)))
    return hashlib.blake2b(changes.encode(), digest_size=6).hexdigest()


def _offset_changes(zone: tzinfo) -> Iterator[tuple[datetime, timedelta]]:
    """Yield the offset at the beginning, and each instant at which it changes. Of two within a day it may miss both."""

    def offset_at(instant: datetime) -> timedelta:
        return instant.astimezone(zone).utcoffset() or timedelta(0)

    position, offset = _BEGIN, offset_at(_BEGIN)
    yield position, offset
    while position < _END:
        following = position + _STEP
        if (changed := offset_at(following)) != offset:
            lower, upper = position, following
            while upper - lower > _SECOND:
                middle = lower + (upper - lower) // 2
                lower, upper = (middle, upper) if offset_at(middle) == offset else (lower, middle)
            yield upper.replace(microsecond=0), changed
            offset = changed
        position = following
