"""Verbs on named locks: mutual exclusion with a lease and a token.

Tokens come from the namespace's one counter, so they grow with every grant of a name, also after its key was deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

from cronsensus.errors import StoreError
from cronsensus.model.session import LockGrant, LockView
from cronsensus.payload.codec import clean
from cronsensus.stores.redis.client import TooFewReplicas
from cronsensus.stores.redis.redis_codec import Row, lock_view, to_length, unpack_answer
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.stores.redis.redis_wait_queues import RedisQueues


class LockVerbs(Handle):
    """What takes, keeps and frees a lock."""

    def _lock(self, name: str, holder: str, *, ttl: timedelta, session: str | None, limit: int) -> LockGrant | None:
        """Take the first place of a lock that is free or overdue; look and take in one script."""
        try:
            taken = self._decide_script("lock", name, holder, to_length(ttl), session, limit)
        except TooFewReplicas as short:
            if taken := unpack_answer(short.answer)[1]:
                place, token = taken
                self._free_unused(LockGrant(name=name, holder=holder, token=int(token), place=place, session=session))
            raise
        if taken is False:
            return None
        place, token = taken
        return LockGrant(name=name, holder=holder, token=int(token), place=place, session=session)

    def _free_unused(self, grant: LockGrant) -> None:
        """Free a lock that was taken and may not be used. If that fails, it is overdue soon."""
        with contextlib.suppress(StoreError):
            self._write_script("unlock", *_encode_grant(grant))

    def _extend(self, grant: LockGrant, ttl: timedelta) -> bool:
        extended: bool = self._write_script("extend", *_encode_grant(grant), to_length(ttl))
        return extended

    def _unlock(self, grant: LockGrant) -> bool:
        """Free a lock that is still held, and notify the first waiter in its queue."""
        freed: bool = self._write_script("unlock", *_encode_grant(grant))
        return freed

    def _break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]:
        """Free all places of a lock, and notify the first waiter in its queue."""
        rows: Sequence[Row] = self._write_script("break_lock", name, clean(by), clean(why))
        return [
            LockGrant(name=name, holder=holder, token=int(token), place=place, session=session or None)
            for place, token, holder, session in rows
        ]

    def _wait_queues(self) -> RedisQueues:
        return RedisQueues(self._url, self._keyspace, self._write_script)

    def _wake_next(self, name: str) -> None:
        """Notify the first in a lock's queue."""
        with contextlib.suppress(StoreError):
            self._write_script("wake_next", name)

    def _locks(self, name: str | None, limit: int) -> list[LockView]:
        rows: Sequence[Row] = self._read_script("locks", name, limit)
        return self._unreadable.keep_readable(rows, lock_view, lambda row: f"lock {row[0]!r}")


def _encode_grant(grant: LockGrant) -> Row:
    """Return a grant as the scripts compare it; without a session, a row has none either."""
    return grant.name, grant.place, str(grant.token), grant.holder, grant.session or False
