"""What is examined of zone rules: whether all nodes have the same ones, and whether they are of this year."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from cronsensus.insight.check import OK_LEVEL, WARN, Check
from cronsensus.insight.time_words import shorten
from cronsensus.model.session import SessionView

_UPGRADE = (
    "pip install --upgrade tzdata where it says package, else upgrade the system's zone files (or set PYTHONTZPATH= "
    "to use the package); then restart these nodes"
)
_SHOWN = 5


def check_zone_rules(live: Sequence[SessionView], now: datetime) -> Iterator[Check]:
    """Compare the zone rules that nodes told when they started; ``now`` is the store's clock."""
    told = [one for one in live if one.zones]
    zones = sorted({zone for one in told for zone in one.zones})
    differing = [zone for zone in zones if len({one.zones[zone] for one in told if zone in one.zones}) > 1]
    versions = sorted({one.tzdata for one in told})
    if differing:
        names = ", ".join(differing[:_SHOWN]) + (f" and {len(differing) - _SHOWN} more" if differing[_SHOWN:] else "")
        text = f"nodes disagree on {names}, so jobs there may run twice or at the wrong time: {_by_version(told)}"
        yield Check("zone rules", WARN, text, _UPGRADE)
    elif told:
        yield Check("zone rules", OK_LEVEL, f"the same on all nodes (tzdata {', '.join(versions)})")
    old = [one for one in told if _is_old(one.tzdata, now)]
    if old:
        yield Check("zone rules", WARN, f"older than a year: {_by_version(old)}", _UPGRADE)


def _by_version(nodes: Sequence[SessionView]) -> str:
    """Return which nodes have which version."""
    by_version: dict[str, dict[str, None]] = {}
    for one in sorted(nodes, key=lambda one: (one.tzdata, one.node)):
        by_version.setdefault(one.tzdata, {})[one.node] = None
    return "; ".join(f"tzdata {version}: {shorten(', '.join(names), 100)}" for version, names in by_version.items())


def _is_old(version: str, now: datetime) -> bool:
    """Whether a version is more than a year old for certain: it names its year, and in it the first release is a."""
    found = re.match(r"(\d{4})[a-z]", version)
    return found is not None and int(found[1]) + 2 <= now.year
