"""Presence for a SQL server that frees a lock when the connection that holds it ends."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from cronsensus.errors import StoreError
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.stores.presence import Observations, SignRecord
from cronsensus.stores.sql import looking, sessions
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.sql_handle import repeated
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.values import Partition, View

Answer = TypeVar("Answer")
_NO_TIME = timedelta(0)


class PresenceStore(SqlStore):
    """Adds the sign of life to renewals, and the question for signs to looks."""

    _own_session: str | None = None
    _registered: str | None = None
    _noted: tuple[str | None, bool] = None, False
    """What this handle wrote last into a session's row of its sign."""

    @abstractmethod
    def _show_sign(self, connection: Connection, session: str) -> bool:
        """Hold the lock of ``session`` on a connection, and no other; ``False``: it could not, or it means nothing."""

    @abstractmethod
    def _list_present(self, tx: Transaction, sessions: Sequence[str]) -> Collection[str] | None:
        """Return those of ``sessions`` whose lock is held; ``None``: locks mean nothing here. Sends what waits."""

    def _register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` on this handle from its next renewal."""
        self._registered = session

    @repeated
    def _open_session(self, session: SessionSpec, lease: timedelta) -> datetime:
        """Begin a session; from this moment on its connection observes the signs of the others."""
        self._own_session = session.id
        with self._write_transaction(queued=True) as tx:
            opened_at = sessions.open_session(tx, session, lease)
            silent, newest = tx.send("silent_sessions", space=tx.namespace), tx.send("newest_session")
        observations = tx.connection.info.setdefault("observations", Observations())
        observations.start_observing((row.id for row in silent.rows), newest.rows[0].number)
        return opened_at

    def _renew(self, session: str, lease: timedelta, idle_lease: timedelta) -> Renewal:
        """Set the lease, if it has not run out; show a sign of life of the registered session, and write that down."""
        renewal = super()._renew(session, lease, idle_lease)
        if session == self._registered and renewal.alive:
            shown = self._on_idle(lambda connection: self._show_sign(connection, session)) is True
            if shown != (self._noted == (session, True)):
                with contextlib.suppress(StoreError):
                    self._noted = session, self._note_sign(session, shown=shown)
        return renewal

    @repeated
    def _note_sign(self, session: str, *, shown: bool) -> bool:
        """Write down whether the server that is written to shows the sign of this session; return what was written."""
        with self._write_transaction(queued=True) as tx:
            is_shown = shown and session in (self._list_present(tx, [session]) or ())
            tx.send("note_sign", session=session, space=tx.namespace, shown=int(is_shown))
            return is_shown

    @repeated
    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        """Look, also for the signs of life of sessions that hold runs."""
        with self._glance_transaction() as tx:
            view = looking.read_view(tx, limit, partition, ahead)
            own = {self._own_session}
            holding = frozenset(session.id for session in view.holders if session.expires_in > _NO_TIME) - own
            others = holding.union(view.sessions) - own
            observations = tx.connection.info.setdefault("observations", Observations())
            if not observations.worth_asking(holding, others):
                return view
            asked_at = tx.dialect.monotonic()
            session_ids = sorted(others) or [self._own_session or ""]
            records, newest = tx.send("signs", sessions=session_ids, space=tx.namespace), tx.send("newest_session")
            present = self._list_present(tx, session_ids)
            if present is None:
                observations.blind = True
                return view
            missing = {
                row.id: SignRecord(row.number, None if row.shown is None else row.shown == 1)
                for row in records.rows
                if row.id not in present and row.ended_at is None
            }
            age = view.age + tx.dialect.monotonic() - asked_at
            return replace(view, absent=observations.note(present, missing, newest.rows[0].number), age=age)

    @repeated
    def _signs(self, sessions: Collection[str]) -> dict[str, bool]:
        with self._glance_transaction() as tx:
            session_ids = sorted(set(sessions))
            records = tx.send("signs", sessions=session_ids, space=tx.namespace)
            present = self._list_present(tx, session_ids)
            if present is None:
                return {}
            return {row.id: row.id in present for row in records.rows if row.id in present or row.shown == 1}

    def _on_idle(self, do: Callable[[Connection], Answer]) -> Answer | None:
        """Use the idle connection that was used last; a failure costs nothing."""
        with contextlib.suppress(Exception):
            connection = self._connections.acquire_connection()
            try:
                answer = do(connection)
            except BaseException:
                self._connections.throw_away(connection)
                raise
            self._connections.release_connection(connection)
            return answer
        return None
