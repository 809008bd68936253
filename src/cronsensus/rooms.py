"""Which features take part in what a node runs. Left out of this list, one is gone."""

from __future__ import annotations

from cronsensus.after.room import make_after_hooks
from cronsensus.batching.room import make_batching_hooks
from cronsensus.node.hooks import HooksFactory

ROOMS: tuple[HooksFactory, ...] = (make_batching_hooks, make_after_hooks)
