"""The hooks of dependent jobs at a node: a claim passes its gate, and parked occurrences are woken."""

from __future__ import annotations

from cronsensus.after.admission import UpstreamAdmission
from cronsensus.after.waking import UpstreamWaker
from cronsensus.node.hooks import Hooks, Host


def make_after_hooks(host: Host) -> Hooks:
    """Make the hooks of jobs that come after others for a node."""
    return Hooks(UpstreamAdmission(host), UpstreamWaker(host))
