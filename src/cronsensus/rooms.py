"""Which features take part in what a node runs. Left out of this list, one is gone."""

from __future__ import annotations

from cronsensus.after.room import make_after_room
from cronsensus.batching.room import make_batching_room
from cronsensus.node.hooks import Room

ROOMS: tuple[Room, ...] = (make_batching_room, make_after_room)
