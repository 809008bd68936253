"""Identifiers that sort by time."""

from __future__ import annotations

import os
import uuid

from cronsensus.timing.clock import Clock, SystemClock


def new_id(clock: Clock | None = None) -> str:
    """Return a new UUIDv7 (RFC 9562): unique, and sorted by the millisecond it was made in."""
    millis = int((clock or SystemClock()).now().timestamp() * 1000)
    random = int.from_bytes(os.urandom(10), "big")
    value = (
        (millis & (1 << 48) - 1) << 80 | 0x7 << 76 | (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & (1 << 62) - 1
    )
    return str(uuid.UUID(int=value))
