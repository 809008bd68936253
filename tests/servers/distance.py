"""How far away the servers of this run are: ``CRONSENSUS_TEST_FAR=100`` moves them, milliseconds of a round trip."""

import os

FAR_AWAY = os.environ.get("CRONSENSUS_TEST_FAR", "")
ROUND_TRIP = float(FAR_AWAY) / 1000 if FAR_AWAY and "," not in FAR_AWAY else 0.0
"""Seconds; "0,40" says that the tests that ask for both get both, and nothing else is moved."""


def patience(seconds: float, *, trips: int = 2000) -> float:
    """Return how long a test waits that does its work in so many seconds and round trips, one after the other."""
    return seconds + trips * ROUND_TRIP
