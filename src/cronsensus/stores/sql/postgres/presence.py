"""Signs of life: a session's process holds a lock that the server frees when its connection ends.

A process holds a shared advisory lock, named after its session, on two connections: on the one that listens, and on the
one that renews the session. The server knows it as one lock until both have ended. Others read ``pg_locks``; they take
no lock, so those who look do not disturb each other. What they learn:

- the lock is there: a process holds it;
- it was there a moment ago, by the same pair of eyes, and is gone: the process is gone, or both connections were cut.
  One that lives comes back at once, so whoever decides looks twice;
- it was never seen: nothing. After a restart of the server nobody has seen anything, for the eyes are connections too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, MutableMapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Eyes:
    """What was seen through one connection; a new connection has new eyes.

    Attributes:
        asked: sessions that were looked for at least once.
        seen: sessions whose sign of life was there when last looked for, or before.
    """

    asked: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def look(
        self, driver: psycopg.Connection[Any], place: tuple[str, str], sessions: Collection[str], *, needed: bool
    ) -> tuple[str, ...]:
        """Return those of ``sessions`` that showed a sign of life before and show none now.

        Unless ``needed``, only sessions that were never looked for are worth a statement.
        """
        if not needed and self.asked >= set(sessions):
            return ()
        keys = {key_of(*place, session): session for session in sessions}
        cursor = psycopg.RawCursor(driver)
        cursor.execute(_PRESENT, ["{" + ",".join(map(str, keys)) + "}"])
        present = {keys[row[0]] for row in cursor.fetchall()}
        self.asked = set(keys.values())
        self.seen = (self.seen & self.asked) | present
        return tuple(sorted(self.seen - present))
