"""A SQL store whose server frees a lock when the connection that holds it ends: signs of life, shown and looked for."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.stores.presence import Eyes
from cronsensus.stores.sql import looking
from cronsensus.stores.sql.handle import repeated
from cronsensus.stores.sql.store import SqlStore
from cronsensus.stores.values import Share, View

_NO_TIME = timedelta(0)


class PresentStore(SqlStore):
    """Adds the sign to renewals, and the question for signs to looks."""

    _own_session: str | None = None
    _attended: str | None = None

    @abstractmethod
    def _show(self, connection: Connection, session: str) -> None:
        """Hold the lock of ``session`` on a connection, and no other; nothing where locks mean nothing."""

    @abstractmethod
    def _present(self, connection: Connection, sessions: Collection[str]) -> Collection[str] | None:
        """Return those of ``sessions`` whose lock is held; ``None``: locks mean nothing here."""

    def _attend(self, session: str | None) -> None:
        """Show a sign of life of ``session`` on this handle from its next renewal."""
        self._attended = session

    def _open_session(self, session: SessionSpec, lease: timedelta) -> datetime:
        self._own_session = session.id
        return super()._open_session(session, lease)

    def _renew(self, session: str, lease: timedelta, idle_lease: timedelta) -> Renewal:
        """Set the lease, if it has not run out; show a sign of life of a session that is attended."""
        renewal = super()._renew(session, lease, idle_lease)
        if session == self._attended and renewal.alive:
            self._on_idle(lambda connection: self._show(connection, session))
        return renewal

    @repeated
    def _look(self, limit: int, share: Share | None, ahead: timedelta) -> View:
        """Look, also for signs of life of those who hold runs."""
        with self._glancing() as tx:
            view = looking.look(tx, limit, share, ahead)
            own = {self._own_session}
            holding = frozenset(one.id for one in view.holders if one.expires_in > _NO_TIME) - own
            eyes = tx.connection.info.setdefault("eyes", Eyes())
            asked = eyes.worth_asking(holding, frozenset(view.sessions) - own)
            if not asked:
                return view
            present = self._present(tx.connection, asked)
            return view if present is None else replace(view, absent=eyes.note(asked, present))

    def _on_idle(self, do: Callable[[Connection], None]) -> None:
        """Do something on the connection that was used last; nothing is lost where it fails."""
        with contextlib.suppress(Exception):
            connection = self._connections.take()
            try:
                do(connection)
            except BaseException:
                self._connections.throw_away(connection)
                raise
            self._connections.give_back(connection)
