"""Signs of life: a session's process holds an advisory lock that the server frees when its connection ends.

The lock is shared and named after the session. A process holds it on the connection that listens and on the one that
renews the session; the server knows it as one lock until both have ended. Others read ``pg_locks``: they take no lock,
so those that look do not disturb each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping, Sequence
from typing import Any

import psycopg

from cronsensus.stores.sql.transaction import Transaction

SHOW = "SELECT pg_advisory_lock_shared($1::bigint)"
HIDE = "SELECT pg_advisory_unlock_shared($1::bigint)"


def key_of(*names: str) -> int:
    """Return the 64-bit name of an advisory lock."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big", signed=True)


def show_sign(
    driver: psycopg.Connection[Any], info: MutableMapping[Any, Any], place: tuple[str, str], session: str | None
) -> None:
    """Hold the lock of ``session`` on a connection, and no other; ``info`` remembers which one that is."""
    shown_session = info.get("shown")
    if session == shown_session:
        return
    cursor = psycopg.RawCursor(driver)
    if session is not None:
        cursor.execute(SHOW, [str(key_of(*place, session))])
    info["shown"] = session
    if shown_session is not None:
        cursor.execute(HIDE, [str(key_of(*place, shown_session))])


def list_present(tx: Transaction, place: tuple[str, str], sessions: Sequence[str]) -> set[str] | None:
    """Return those of ``sessions`` whose lock is held, or waited for; ``None``: this server is a replica."""
    keys = {key_of(*place, session): session for session in sessions}
    rows = tx.send("held_signs", signs=list(keys)).rows
    return None if rows[0].is_replica else {keys[row.sign] for row in rows if row.sign is not None}
