"""Checks of zone rules: whether all nodes have the same rules, and whether they are recent."""

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
_MOST_SHOWN = 5


def check_zone_rules(live: Sequence[SessionView], now: datetime) -> Iterator[Check]:
    """Compare the zone rules that nodes reported when they started; ``now`` is the store's clock."""
    reporting = [node for node in live if node.zones]
    zones = sorted({zone for node in reporting for zone in node.zones})
    differing = [zone for zone in zones if len({node.zones[zone] for node in reporting if zone in node.zones}) > 1]
    versions = sorted({node.tzdata for node in reporting})
    if differing:
        names = ", ".join(differing[:_MOST_SHOWN]) + (
            f" and {len(differing) - _MOST_SHOWN} more" if differing[_MOST_SHOWN:] else ""
        )
        text = f"nodes disagree on {names}, so jobs there may run twice or at the wrong time: {_by_version(reporting)}"
        yield Check("zone rules", WARN, text, _UPGRADE)
    elif reporting:
        yield Check("zone rules", OK_LEVEL, f"the same on all nodes (tzdata {', '.join(versions)})")
    old = [node for node in reporting if _is_old(node.tzdata, now)]
    if old:
        yield Check("zone rules", WARN, f"older than a year: {_by_version(old)}", _UPGRADE)


def _by_version(nodes: Sequence[SessionView]) -> str:
    """Return which nodes have which version."""
    by_version: dict[str, dict[str, None]] = {}
    for node in sorted(nodes, key=lambda node: (node.tzdata, node.node)):
        by_version.setdefault(node.tzdata, {})[node.node] = None
    return "; ".join(f"tzdata {version}: {shorten(', '.join(names), 100)}" for version, names in by_version.items())


def _is_old(version: str, now: datetime) -> bool:
    """Whether a version, such as ``2024a``, is certainly more than a year old by the year in its name."""
    match = re.match(r"(\d{4})[a-z]", version)
    return match is not None and int(match[1]) + 2 <= now.year
