"""A claim of a process that is no node, and what happens to it if its owner goes away in the middle.

Python may leave a call at any line: a task is cancelled, or a signal handler raises. So a ``Ticket`` shows whether the
owner is still there, and a claim is registered here before it is used. A claim that was left behind is ended by the
first of these: its owner as it leaves the call, another call of the same key, the background queue.

::

    OwnedClaim ──▶ begun ──▶ returned
      │              │        └── left: the result is recorded
      │              └── left: recorded as interrupted; free or kept, by ``end_if_left``
      └── left: released, as if it had never been acquired
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from cronsensus.errors import StoreError
from cronsensus.membership.lease import SessionLease
from cronsensus.model.ends import Again, End
from cronsensus.model.occurrence import Claim, Note
from cronsensus.model.step import GiveBack, Step
from cronsensus.node.run_transaction import RunTransaction
from cronsensus.outside.background_queue import BackgroundQueue
from cronsensus.process.logger import Logger
from cronsensus.run import Run
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.outside")

RETRY_INTERVAL = 0.5
"""Seconds between two attempts to record a result while the store is away."""
CHECK_INTERVAL = 1.0
"""Seconds between two checks for owners that went away silently."""
UNSET: Any = object()
"""The value of a function that has not returned."""


class Holder(Protocol):
    """The holder of claims: ``OutsideClaims``."""

    clock: Clock
    store: Store
    background: BackgroundQueue

    def drop_settled(self, held: OwnedClaim, *, accepted: bool = False) -> None:
        """Drop a claim whose end the store has recorded."""

    def drop_claim(self, held: OwnedClaim) -> None:
        """Drop a claim."""

    def record_later(self, held: OwnedClaim) -> None:
        """Record a claim's end later."""

    def note_owner_gone(self, ticket: Ticket) -> None:
        """Record that an owner is gone."""


class Ticket:
    """Belongs to the frame of a call: the call goes on while its ticket exists and is not ``over``.

    Attributes:
        held: the claim of the call, until the store has recorded its end.
    """

    __slots__ = ("__weakref__", "held", "over")

    def __init__(self) -> None:
        self.over: bool = False
        self.held: OwnedClaim | None = None


class OwnedClaim:
    """A claim that this process works on, and the run that its code sees.

    Attributes:
        begun: the function may have started.
        value: what it returned.
        end_if_left: makes the end to record if the call goes away from here on; called once ``begun``.
        unsettled: the end to record, while it is not recorded.
        owed: whether recording the end failed because the store was away.
        is_over: the store has recorded the end.
        is_settled: its owner has set the end, by ``set_end``.
    """

    def __init__(self, claims: Holder, claim: Claim, lease: SessionLease, ticket: Ticket) -> None:
        self.claim = claim
        self.session: str = claim.session
        self.started: float = claims.clock.monotonic()
        self.run: Run = Run(
            claim, namespace=claims.store.namespace, run_transaction=RunTransaction(claims.store, claim, _NO_PROGRESS)
        )
        self.begun = False
        self.value: Any = UNSET
        self.end_if_left: Callable[[OwnedClaim], End] | None = None
        self.unsettled: End | None = None
        self.claims = claims
        self._on_recorded: list[Callable[[bool], object]] = []
        """Called once, with whether the store has accepted the end that the owner set."""
        self._was_accepted = False
        self.is_settled: bool = False
        self.owed = False
        self.is_over: bool = False
        self._lease = lease
        self._ticket = weakref.ref(ticket)

    @property
    def name(self) -> tuple[str, str]:
        """Its name in the namespace: job and key."""
        return self.claim.job, self.claim.key

    @property
    def is_left(self) -> bool:
        """Whether the call that it was acquired for is gone."""
        ticket = self._ticket()
        return ticket is None or ticket.over

    @property
    def expires_in(self) -> float:
        """Return the seconds for which no other process can have the claim."""
        return self._lease.trusted_for

    def expire(self) -> None:
        """Lose the claim because its lease has run out; for the monitor."""
        self.mark_lost("its session could not be renewed in time")

    def mark_lost(self, why: str) -> None:
        """Lose the claim with its session. An end that its owner has set is still sent; the store may refuse it."""
        self.run.request_stop(f"lease lost: {why}", lease_lost=True)
        if self.is_settled:
            # While the store is away nobody else can have the claim, and afterwards the store decides.
            self.claims.record_later(self)
        elif self.owed or self.is_left:
            self.claims.drop_claim(self)  # another process has it: there is nothing left to record

    def set_end(self, end: End, on_recorded: Callable[[bool], object] | None) -> bool:
        """Set how the run ended, to be recorded by another thread; ``False``: the end is set already.

        ``on_recorded`` is called once, with whether the store has accepted this end.
        """
        if self.is_settled:
            return False
        self.is_settled, self.unsettled = True, end
        if on_recorded is not None:
            self._on_recorded.append(on_recorded)
        return True

    def release_claim(self, *, accepted: bool = False) -> None:
        """Remove it from its owner's ticket, now that the store has recorded its end."""
        self.is_over, self._was_accepted = True, accepted and self.is_settled
        ticket = self._ticket()
        if ticket is not None and ticket.held is self:
            ticket.held = None

    def left_end(self) -> End:
        """Return the end to record if the call is gone."""
        if self.unsettled is None:
            if self.begun and self.end_if_left is not None:
                self.unsettled = self.end_if_left(self)
            else:
                self.unsettled = uncounted_end(self.claim.id, self.claim.token, self.claim.session)
        return self.unsettled

    def renew_when_due(self, store: Store) -> float:
        """Queue the recording of its end, if that failed before or the call is gone. Does not call the store."""
        del store
        if not (self.owed or self.is_left):
            return CHECK_INTERVAL
        self.claims.background.add_call(self.record_end)
        return RETRY_INTERVAL

    def record_end(self) -> bool:
        """Record the end, or release the claim if it never started; ``False``: the store is away, try again."""
        if self.is_over:  # an interrupted call may not have dropped it
            self.claims.drop_claim(self)
            return True
        step = Step(ends=(self.left_end(),)) if self.begun else Step(give_back=(GiveBack(claim=self.claim),))
        try:
            settled = self.claims.store.step(self.claim.session, step).settled
        except StoreError as error:
            _log.debug("the end of %r could not be recorded yet: %s", self.run, error)
            return False
        self.claims.drop_settled(self, accepted=bool(settled) and all(answer.accepted for answer in settled))
        return True

    def report_recorded(self, *, accepted: bool | None = None) -> None:
        """Call the callback, once, with whether the store accepted the end; ``None``: as recorded here."""
        try:
            on_recorded = self._on_recorded.pop()  # of two threads one gets it
        except IndexError:
            return
        try:
            on_recorded(self._was_accepted if accepted is None else accepted)
        except Exception:  # noqa: BLE001 - logged; the callbacks of the same step are called, too
            _log.exception("the callback for the recorded end of %r failed", self.run)


class _NoNotes:
    """A run outside of a node has no notes."""

    def hold_notes(self, occurrence: int, token: int, *, most: float = -1.0) -> None: ...

    def held_notes(self, occurrence: int, token: int) -> Note | None:  # noqa: ARG002 - nothing is held
        return None

    def release_notes(self, occurrence: int, token: int, written: Note | None = None) -> None: ...


_NO_PROGRESS = _NoNotes()


def uncounted_end(occurrence: int, token: int, session: str | None) -> End:
    """Return the end of an attempt that is not counted; the next attempt is due at once."""
    return End(id=occurrence, token=token, session=session, then=Again(timedelta(0), failed=False))
