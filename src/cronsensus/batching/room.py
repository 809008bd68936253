"""The hooks of batches at a node: items are admitted, and parked batches are woken."""

from __future__ import annotations

from cronsensus.batching.admission import BatchAdmission
from cronsensus.batching.waking import BatchWaker
from cronsensus.node.hooks import Hooks, Host


def make_batching_hooks(host: Host) -> Hooks:
    """Make the hooks of batches for a node."""
    admission = BatchAdmission(host)
    return Hooks(admission, BatchWaker(host, admission))
