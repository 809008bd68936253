"""A SQLite file that replaces a scheduler's store, at the time of a kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.stage import note_looked_at

if TYPE_CHECKING:
    from cronsensus.testing.stage import Stage


class KitSqliteStore(SqliteStore):
    """A file that wakes the kit's nodes, and records which runs the test has read."""

    _kit: Stage

    @classmethod
    def open_for(cls, kit: Stage, url: str, namespace: str) -> KitSqliteStore:
        """Open the file of ``url``, at the kit's time."""
        store = cls(url, namespace=namespace, clock=kit.clock)
        store._kit = kit
        store.migrate()
        return store

    def _sibling(self) -> Self:
        sibling = super()._sibling()
        sibling._kit = self._kit  # noqa: SLF001 - a handle of the same class
        self._kit.to_close.callback(sibling.close)
        return sibling

    def _notify(self) -> None:
        self._kit.notify_nodes(self)

    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]:
        return note_looked_at(self._kit, super()._occurrences(where, after, limit, newest_first=newest_first))
