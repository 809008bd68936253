"""The features whose hooks a node runs. A feature that is left out of this list takes no part."""

from __future__ import annotations

from cronsensus.after.room import make_after_hooks
from cronsensus.batching.room import make_batching_hooks
from cronsensus.node.hooks import HooksFactory

ROOMS: tuple[HooksFactory, ...] = (make_batching_hooks, make_after_hooks)
