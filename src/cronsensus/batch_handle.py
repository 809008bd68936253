"""``BatchHandle``: what can be asked of a batch, and of its items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cronsensus.errors import InvalidTransition
from cronsensus.handle import Handle, R_co
from cronsensus.model.batch import MOST_ITEMS, Children
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node.batch_items import Results, items_of
from cronsensus.stores.base import Store
from cronsensus.twins import twin


@dataclass(frozen=True, slots=True)
class BatchHandle(Handle[R_co]):
    """One batch: a handle whose ``result`` is that of ``collect=``, and what its items are doing.

    Example:
        >>> from cronsensus.scheduler import Scheduler
        >>> with Scheduler("memory://") as scheduler:
        ...
        ...     @scheduler.job()
        ...     def double(number: int) -> int:
        ...         return number * 2
        ...
        ...     batch = double.enqueue_batch([1, 2, 3])
        ...     _ = batch.wait("10s")
        ...     sorted(batch.results()), batch.progress().succeeded
        ([2, 4, 6], 3)
    """

    _operator: Callable[[], str] = field(repr=False, compare=False, default=lambda: "")

    def progress(self) -> Children:
        """Return how many items are in which state now."""
        return self._opened.store.children([self.id], limit=MOST_ITEMS + 1)[self.id]

    aprogress = twin(progress)

    def results(self) -> Iterator[Any]:
        """Give what the items that have succeeded by now returned, in the order of the list, page by page."""
        return iter(Results(self._opened.store, (self.id,), self._types(self.job)))

    def cancel(self, *, reason: str, by: str | None = None) -> State:
        """Cancel the batch: no further item is begun, those that run are asked to stop; see ``Scheduler.cancel``."""
        return cancel(self._opened.store, self.id, by=by or self._operator(), why=reason)

    acancel = twin(cancel)


def cancel(store: Store, occurrence: int, *, by: str, why: str) -> State:
    """Cancel an occurrence, and of a batch what runs of it.

    What waits of it is cancelled where it is claimed.

    Raises:
        InvalidTransition: it is final.
        LookupError: there is none.
    """
    state = store.cancel(occurrence, by=by, why=why)
    if store.occurrences(OccurrenceFilter(parent=occurrence), limit=1):
        for item in list(items_of(store, occurrence, State.RUNNING)):
            try:
                store.cancel(item.id, by=by, why=f"its batch {occurrence} was cancelled" + (f": {why}" if why else ""))
            except (InvalidTransition, LookupError):
                continue  # it has ended meanwhile
    return state
