"""Wake parked batches whose items are done: when an item ends on this node, and now and then for all parked batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple, cast

from cronsensus.batching.admission import BatchAdmission, starts_nothing
from cronsensus.batching.batch import tolerance_of
from cronsensus.model.batch import phase
from cronsensus.model.ends import Parked, Then
from cronsensus.model.occurrence import Claim
from cronsensus.model.parking import Sleeper
from cronsensus.model.states import State
from cronsensus.node.hooks import Host, Waker
from cronsensus.stores.base import Store

CHECK_PAUSE = (0.005, 0.03)
"""Least seconds between two checks of batches whose items end here: while few items are open, and while many are."""
MOST_READ_SINGLY = 20


class _Batch(NamedTuple):
    number: int
    function: str


class BatchWaker(Waker):
    """Wakes batches whose items are done."""

    on = "items"

    def __init__(self, host: Host, admission: BatchAdmission) -> None:
        """Make the waker of the node ``host``; it closes batches at ``admission`` when they need no more items."""
        self._registry = host.registry
        self._admission = admission

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:
        """Return the batch of an item that has ended, or the batch that was just parked: its items may be done."""
        if claim.parent is not None:
            return _Batch(claim.parent, claim.spec.function)
        parked = isinstance(then, Parked) and then.on == self.on
        return _Batch(claim.id, claim.spec.function) if parked else None

    def find_wakeable(self, store: Store, triggers: dict[Hashable, None]) -> Collection[int]:
        """Return the batches whose items are done."""
        batches = cast("list[_Batch]", list(triggers))
        triggers.clear()
        return self._find_free(store, batches)

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:
        """Return the function that checks a page of parked batches."""
        return lambda page: self._find_free(store, [_Batch(sleeper.id, sleeper.job) for sleeper in page])

    def _find_free(self, store: Store, batches: Collection[_Batch]) -> Collection[int]:
        tolerances = {batch.number: tolerance_of(self._registry.get(batch.function)) for batch in batches}
        stops = [tolerance.counts for tolerance in tolerances.values() if tolerance.stop_after]
        states = store.children(list(tolerances), limit=max(MOST_READ_SINGLY, *stops) if stops else MOST_READ_SINGLY)
        self.pause = CHECK_PAUSE[all(children.open >= MOST_READ_SINGLY for children in states.values())]
        for number, children in states.items():
            if starts_nothing(children, tolerances[number]):
                self._admission.close_batch(number)
        return [
            number
            for number, children in states.items()
            if children.state is State.PENDING
            and children.listed is not None
            and phase(children.listed, children, tolerances[number]) != "wait"
        ]
