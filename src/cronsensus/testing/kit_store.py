"""The replacements of a kit for a scheduler's store, and for the clock by which callers wait."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cronsensus.errors import InvalidOption, UnsupportedTransaction
from cronsensus.model.occurrence import Claim, Item, Note, Occurrence, OccurrenceFilter
from cronsensus.opened.waits import Waits
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.stage import note_looked_at

if TYPE_CHECKING:
    from cronsensus.testing.stage import Stage


class KitStore(MemoryStore):
    """Memory that wakes the kit's nodes, and records which runs the test has read."""

    _kit: Stage

    def __init__(self, kit: Stage, namespace: str) -> None:
        super().__init__(namespace=namespace, clock=kit.clock)
        self._kit = kit

    def _sibling(self) -> Self:
        sibling = super()._sibling()
        sibling._kit = self._kit  # noqa: SLF001 - a handle of the same class
        return sibling

    def _notify(self) -> None:
        super()._notify()
        self._kit.notify_nodes(self)

    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]:
        return note_looked_at(self._kit, super()._occurrences(where, after, limit, newest_first=newest_first))

    def _transaction(self, claim: Claim) -> NoReturn:
        del claim
        raise _refuse_transaction("run.transaction()")

    def _complete_in(self, connection: Any, claim: Claim, result: str | None, notes: Sequence[Note]) -> NoReturn:
        del connection, claim, result, notes
        raise _refuse_transaction("run.complete_in(…)")

    def _enqueue_in(self, connection: Any, items: Sequence[Item]) -> NoReturn:
        del connection, items
        raise _refuse_transaction("enqueue_in(…)")

    async def _aenqueue_in(self, connection: Any, items: Sequence[Item]) -> NoReturn:
        del connection, items
        raise _refuse_transaction("aenqueue_in(…)")


def open_kit_store(kit: Stage, store: str, namespace: str) -> Store:
    """Return the store of a kit: ``"memory"``, ``"sqlite"`` or the URL of the test's own file."""
    if store == "memory":
        return KitStore(kit, namespace)
    if store == "sqlite":
        folder = kit.to_close.enter_context(TemporaryDirectory(prefix="cronsensus-"))
        store = f"sqlite:///{folder}/test.db"
    if not store.startswith("sqlite:"):
        raise InvalidOption(
            f"store={store!r}: a kit has memory, sqlite, or the URL of a file of the test's own, sqlite:///…; other "
            "stores have clocks that no test moves"
        )
    from cronsensus.testing.kit_sqlite_store import KitSqliteStore

    opened = KitSqliteStore.open_for(kit, store, namespace)
    kit.to_close.callback(opened.close)
    return opened


def _refuse_transaction(what: str) -> UnsupportedTransaction:
    return UnsupportedTransaction(
        f"{what}: in this test the store is memory, which shares no transaction with your rows; write "
        '@pytest.mark.cronsensus(store="sqlite"), or kit(scheduler, store="sqlite"), which is a file of the test\'s own'
    )


class KitWaits(Waits):
    """Lets virtual time pass for callers that wait for the end of a run."""

    def __init__(self, kit: Stage) -> None:
        self._kit = kit

    def monotonic(self) -> float:
        """Return virtual time."""
        return self._kit.clock.monotonic()

    def wait(self, seconds: float) -> None:
        """Run the next action of the agenda."""
        self._kit.pass_time(seconds)

    async def await_(self, seconds: float) -> None:
        """Do the same in a coroutine."""
        await self._kit.apass_time(seconds)
