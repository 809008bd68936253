"""The counts of a node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class NodeStats:
    """What a node did since its start; for tests, metrics and people."""

    steps: int = 0
    fired: int = 0
    lost_races: int = 0
    claimed: int = 0
    settled: int = 0
    refused: int = 0
    taken_over: int = 0
    sessions: int = 0
    store_errors: int = 0
