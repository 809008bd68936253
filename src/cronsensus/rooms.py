"""Which features take part in what a node runs. Left out of this list, one is gone."""

from __future__ import annotations

from cronsensus.after.room import make_after
from cronsensus.batching.room import make_batching
from cronsensus.node.hooks import Room

ROOMS: tuple[Room, ...] = (make_batching, make_after)
