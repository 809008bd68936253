"""Decide whether an item of a batch may start, and replace the function of a batch by its phases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from cronsensus.batching.batch import is_batch, tolerance_of
from cronsensus.batching.phases import make_adder, make_phases
from cronsensus.model.batch import Children, Tolerance
from cronsensus.model.ends import Final, Then
from cronsensus.model.occurrence import Claim
from cronsensus.model.states import Reason, State
from cronsensus.node.hooks import Admission, Admit, Host
from cronsensus.node.registered import Registered
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

TRUSTED_SECONDS = 1.0
"""Seconds for which an open batch still counts as open: its items start without a read of the store."""
BATCH_ENDED = Final(State.CANCELLED, Reason.BATCH_ENDED)
"""The end of an item that has not started when its batch is over."""
ADD_ITEMS = "add_items"
"""The name of the extra of a run that adds items to its batch."""


class BatchAdmission(Admission):
    """Runs the phases of a batch in place of its function, and starts no item of a batch that has ended."""

    def __init__(self, host: Host) -> None:
        self._registry = host.registry
        self._clock: Clock = host.clock
        self._store: Callable[[], Store] = host.store
        self._refuse = host.refuse
        self._open_at: dict[int, float] = {}
        """When each batch was last known to be open."""
        self._doubts = 0
        self._lock = threading.Lock()

    def concerns_claim(self, claim: Claim) -> bool:
        """Return whether a claim is an item, or a batch of a function that is known here."""
        if claim.parent is not None:
            return True
        registered = self._registry.get(claim.spec.function)
        return registered is not None and is_batch(registered, claim)

    def decide_claim(self, claim: Claim) -> Admit | Then | None:
        """Admit a batch itself, and an item whose batch was open a moment ago."""
        if claim.parent is None:
            return self._make_begin(claim)
        # With ``stop_after`` each item is checked: after the last tolerated failure only claimed items may still run.
        trusted = self._clock.monotonic() - self._open_at.get(claim.parent, -TRUSTED_SECONDS) < TRUSTED_SECONDS
        return self._make_begin(claim) if trusted and not self._tolerance_of(claim).stop_after else None

    def admit_claims(
        self,
        store: Store,
        claims: Sequence[Claim],
        company: Collection[Claim],  # noqa: ARG002
    ) -> Mapping[int, Admit | Then]:
        """Admit the items whose batches are open, and end the others."""
        tolerances = {claim.parent: self._tolerance_of(claim) for claim in claims if claim.parent is not None}
        read_at, doubts = self._clock.monotonic(), self._doubts
        children_of = store.children(
            list(tolerances), limit=max(tolerance.stop_after or 1 for tolerance in tolerances.values())
        )
        closed = {batch for batch, children in children_of.items() if starts_nothing(children, tolerances[batch])}
        for batch in closed:
            self.close_batch(batch)
        with self._lock:
            if doubts == self._doubts:  # else this answer may be from before the operator acted
                still_trusted = {batch: at for batch, at in self._open_at.items() if read_at - at < TRUSTED_SECONDS}
                self._open_at = still_trusted | dict.fromkeys(set(children_of) - closed, read_at)
        return {claim.id: BATCH_ENDED if claim.parent in closed else self._make_begin(claim) for claim in claims}

    def forget_answers(self) -> None:
        """Check the batch again before its next item."""
        with self._lock:
            self._doubts += 1
            self._open_at = {}

    def close_batch(self, batch: int) -> None:
        """Start no further item of a batch, and end the reserved ones."""
        with self._lock:
            self._open_at.pop(batch, None)
        self._refuse(lambda claim: claim.parent == batch, BATCH_ENDED)

    def _make_begin(self, claim: Claim) -> Admit:
        registered = self._registry.get(claim.spec.function)
        if registered is None:
            return Admit()
        add = make_adder(registered, claim, self._store)
        return Admit({ADD_ITEMS: add}, None if claim.parent is not None else self._replace_by_phases)

    def _replace_by_phases(self, registered: Registered, claim: Claim) -> Registered:
        return make_phases(registered, claim, self._store())

    def _tolerance_of(self, claim: Claim) -> Tolerance:
        return tolerance_of(self._registry.get(claim.spec.function))


def starts_nothing(children: Children, tolerance: Tolerance) -> bool:
    """Whether a batch starts no more items: it is over, deleted, or enough of its items have failed."""
    return children.state is None or children.state.final or tolerance.stops(children)
