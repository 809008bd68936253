"""Verbs on sessions: open, renew, end, and reclaim the runs of dead ones."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.errors import StoreError
from cronsensus.model.occurrence import Takeover
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.payload.codec import clean
from cronsensus.stores.redis.redis_codec import Row, read_takeover, to_length, write_json, write_session_spec
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.stores.redis.redis_health import EvictionWatch
from cronsensus.stores.redis.redis_presence import HeartbeatSign
from cronsensus.stores.values import NO_DELAY, Partition, View
from cronsensus.timing.instants import from_micros


class SessionVerbs(Handle):
    """What begins, keeps and ends a lease.

    Leases are not confirmed by replicas: one that a failover loses ends early, and tokens guard what it protected.
    """

    _eviction: EvictionWatch
    _heartbeat_sign: HeartbeatSign
    _registered: str | None = None
    _own_session = ""
    _noted: tuple[str, bool] = "", False
    """What the hash of a session says of its sign, as far as this handle wrote it."""

    @abstractmethod
    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View: ...

    def _open_session(self, session: SessionSpec, lease: timedelta) -> datetime:
        text = write_session_spec(replace(session, declares={})).decode()
        declares = write_json(dict(session.declares)) if session.declares else None
        release = session.release if session.is_node else None
        self._own_session = session.id
        now = self._write_script("open_session", session.id, session.node, text, release, to_length(lease), declares)
        if session.is_node:
            with contextlib.suppress(StoreError):  # from this moment on its connection observes the signs of the others
                self._look(1, None, NO_DELAY)
        return from_micros(int(now))

    def _renew(self, session: str, lease: timedelta, idle_lease: timedelta) -> Renewal:
        """Set the lease, if there still is one; the script looks whether the session holds runs."""
        now, set_to, cancel, drain, held, beats, store = self._write_script(
            "renew", session, to_length(lease), to_length(idle_lease)
        )
        self._eviction.check_policy()
        if session == self._registered and set_to is not False:
            self._show_sign(session)
        # A token that is none is that of no run here: it is stopped, for the store takes no result of it.
        runs = self._unreadable.keep_readable(
            held, lambda row: (int(row[0]), int(row[1] or 0)), lambda row: f"the token of run {row[0]}"
        )
        return Renewal(
            alive=set_to is not False,
            lease=timedelta(microseconds=set_to or 0),
            cancel={int(number): why for number, why in cancel},
            drain=drain,
            now=from_micros(int(now)),
            beats=int(beats),
            store=store,
            held=tuple(runs) if set_to is not False else None,
        )

    def _show_sign(self, session: str) -> None:
        """Show a sign of life, and write down that it is there; nothing is lost where that fails."""
        shown = self._heartbeat_sign.show_sign(self._keyspace.sign_channel(session))
        if shown != (self._noted == (session, True)):
            with contextlib.suppress(StoreError):
                self._noted = session, self._write_script("note_sign", session, shown)

    def _signs(self, sessions: Collection[str]) -> dict[str, bool]:
        return {session: bool(shown) for session, shown in self._read_script("signs", sorted(set(sessions)))}

    def _close_session(self, session: str) -> list[Takeover]:
        return self._read_takeovers(self._write_script("close_session", session))

    def _read_takeovers(self, rows: Sequence[Row]) -> list[Takeover]:
        return self._unreadable.keep_readable(rows, read_takeover, lambda row: f"run {row[0]} of a session that ended")

    def _reclaim(self, presumed_dead: Collection[str]) -> list[Takeover]:
        """End the sessions that are dead, some hundred runs a step."""
        takeovers: list[Takeover] = []
        more = True
        while more:
            rows, more = self._write_script("reclaim", list(presumed_dead))
            takeovers += self._read_takeovers(rows)
        return takeovers

    def _drain(self, session: str, *, by: str, why: str) -> bool:
        is_draining: bool = self._write_script("drain", session, clean(by), clean(why))
        return is_draining
