"""Which batches can go on? Looked at when an item ends on this node, and now and then for all that are parked."""

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

PAUSE = (0.005, 0.03)
"""Least seconds between two looks at batches whose items end here: while few are open, and while there are many."""
FEW = 20


class _Batch(NamedTuple):
    number: int
    function: str


class BatchWaker(Waker):
    """Wakes batches whose items are done."""

    on = "items"

    def __init__(self, host: Host, admission: BatchAdmission) -> None:
        """Look at batches of the node ``host``; ``admission`` is told which of them are over."""
        self._registry = host.registry
        self._admission = admission

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:
        """Return the batch of an item that has ended, or the batch that was just parked: its items may be done."""
        if claim.parent is not None:
            return _Batch(claim.parent, claim.spec.function)
        parked = isinstance(then, Parked) and then.on == self.on
        return _Batch(claim.id, claim.spec.function) if parked else None

    def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:
        """Return the batches that wait for nothing any more."""
        batches = cast("list[_Batch]", list(told))
        told.clear()
        return self._find_free(store, batches)

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:
        """Return what looks at a page of parked batches."""
        return lambda page: self._find_free(store, [_Batch(one.id, one.job) for one in page])

    def _find_free(self, store: Store, batches: Collection[_Batch]) -> Collection[int]:
        tolerances = {one.number: tolerance_of(self._registry.get(one.function)) for one in batches}
        stops = [one.counts for one in tolerances.values() if one.stop_after]
        found = store.children(list(tolerances), limit=max(FEW, *stops) if stops else FEW)
        self.pause = PAUSE[all(one.open >= FEW for one in found.values())]
        for number, children in found.items():
            if starts_nothing(children, tolerances[number]):
                self._admission.close_batch(number)
        return [
            number
            for number, children in found.items()
            if children.state is State.PENDING
            and children.listed is not None
            and phase(children.listed, children, tolerances[number]) != "wait"
        ]
