"""Signs of life: a session's process holds an advisory lock that the server frees when its connection ends.

The lock is shared and named after the session. A process holds it on the connection that listens and on the one that
renews the session; the server knows it as one lock until both have ended. Others read ``pg_locks``: they take no lock,
so those that look do not disturb each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, MutableMapping
from typing import Any

import psycopg

# Without asking whether it is granted: one who still waits for it lives.
_PRESENT = """
SELECT DISTINCT (classid::bigint << 32) | objid::bigint
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = ANY ($1::bigint[])
"""
SHOW = "SELECT pg_advisory_lock_shared($1::bigint)"
HIDE = "SELECT pg_advisory_unlock_shared($1::bigint)"


def key_of(*names: str) -> int:
    """Return the 64-bit name of an advisory lock."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big", signed=True)


def show(
    driver: psycopg.Connection[Any], info: MutableMapping[Any, Any], place: tuple[str, str], session: str | None
) -> None:
    """Hold the lock of ``session`` on a connection, and no other; ``info`` remembers which one that is."""
    shown = info.get("shown")
    if session == shown:
        return
    cursor = psycopg.RawCursor(driver)
    if session is not None:
        cursor.execute(SHOW, [str(key_of(*place, session))])
    info["shown"] = session
    if shown is not None:
        cursor.execute(HIDE, [str(key_of(*place, shown))])


def present(driver: psycopg.Connection[Any], place: tuple[str, str], sessions: Collection[str]) -> set[str]:
    """Return those of ``sessions`` whose lock is held."""
    keys = {key_of(*place, session): session for session in sessions}
    cursor = psycopg.RawCursor(driver)
    cursor.execute(_PRESENT, ["{" + ",".join(map(str, keys)) + "}"])
    return {keys[row[0]] for row in cursor.fetchall()}
