"""What other nodes announced of their decisions, and its form in text.

An announcement is advisory, as a notification is: one that is lost costs a look. It wakes no node, which has something
to do only if it hears none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from cronsensus.instants import from_micros, to_micros

MOST = 1000
"""Jobs that are kept. A node listens for the few that come due within seconds."""


def written(decided: Mapping[int, datetime]) -> str:
    """Return an announcement as text: ``JOB:MICROSECONDS …``."""
    return " ".join(f"{job}:{to_micros(watermark)}" for job, watermark in decided.items())


def read(text: str | bytes) -> dict[int, datetime]:
    """Read an announcement; one that is written otherwise, by a later release, says nothing."""
    words = text if isinstance(text, str) else text.decode("ascii", "replace")
    try:
        pairs = [pair.split(":") for pair in words.split()]
        return {int(job): from_micros(int(watermark)) for job, watermark in pairs}
    except (ValueError, OverflowError):
        return {}


class Announcements:
    """Keeps for each of the last jobs the latest watermark. One thread notes, others read."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.kept: Mapping[int, datetime] = {}

    def note(self, decided: Mapping[int, datetime]) -> None:
        """Take in an announcement."""
        kept = dict(self.kept)
        for job, watermark in decided.items():
            latest = max(watermark, kept.pop(job, watermark))
            kept[job] = latest
        while len(kept) > MOST:
            del kept[next(iter(kept))]
        self.kept = kept
