"""What the order of jobs does at a node: claims are asked about at their gates, and what is parked is woken."""

from __future__ import annotations

from cronsensus.after.admission import UpstreamAdmission
from cronsensus.after.waking import UpstreamWaker
from cronsensus.node.hooks import Hooks, Host


def make_after_hooks(host: Host) -> Hooks:
    """Make the hooks of jobs that come after others for a node."""
    return Hooks(UpstreamAdmission(host), UpstreamWaker(host))
