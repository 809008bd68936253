"""The settings of a node."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cronsensus.membership.lease import IDLE_LEASE
from cronsensus.membership.renewer import IDLE_RENEWAL

POLL = 180.0
"""Most seconds between looks when nothing runs and nothing is due, where the store notifies nodes."""
WATCH_SECONDS = 0.5
"""Seconds between looks while another node runs something: how soon its death is noticed."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of a node.

    ``fast_evidence=False`` judges other sessions by their lease alone; with ``stop_on_store_loss`` the node does
    nothing more on a store that was emptied; ``zone`` is that of jobs whose trigger names none; without ``reserves`` it
    claims no more than its slots hold. A session that holds nothing has at least ``idle_lease`` and is renewed every
    ``idle_renewal``.
    """

    name: str
    lease: timedelta
    concurrency: int
    fast_evidence: bool = True
    watch_seconds: float = WATCH_SECONDS
    stop_on_store_loss: bool = False
    zone: str = "UTC"
    reserves: bool = True
    poll_seconds: float = POLL
    idle_lease: timedelta = IDLE_LEASE
    idle_renewal: timedelta = IDLE_RENEWAL
