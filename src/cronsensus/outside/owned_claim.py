"""A claim that this process holds outside of a node, and what becomes of it if its owner goes away in the middle.

Python may leave a call at any line: a task is cancelled, or a signal handler raises. So a ``Ticket`` says whether the
owner is still there, and a claim is recorded here before it is used. A claim that was left behind is settled by the
first of: its owner on the way out, another call of the same key, the background queue.

::

    OwnedClaim ──▶ begun ──▶ returned
      │              │        └── left: the result is recorded
      │              └── left: recorded as interrupted; free or kept, as ``end_if_left`` says
      └── left: given back, as if it had never been acquired
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

AGAIN = 0.5
"""Seconds between two tries to record a result while the store is away."""
WATCH = 1.0
"""Seconds between two looks for owners that went away without a word."""
UNSET: Any = object()
"""The value of a function that has not returned."""


class Holder(Protocol):
    """Holds what is won: ``OutsideClaims``."""

    clock: Clock
    store: Store
    background: BackgroundQueue

    def drop_settled(self, held: OwnedClaim, *, accepted: bool = False) -> None:
        """Drop a claim that the store has settled."""

    def drop_claim(self, held: OwnedClaim) -> None:
        """Drop a claim."""

    def record_later(self, held: OwnedClaim) -> None:
        """Record its end later."""

    def note_owner_gone(self, ticket: Ticket) -> None:
        """Note that an owner is gone."""


class Ticket:
    """Lies in the frame of a call: while it lives and is not ``over``, the call goes on.

    Attributes:
        held: what was won for the call, until the store knows how it ended.
    """

    __slots__ = ("__weakref__", "held", "over")

    def __init__(self) -> None:
        self.over: bool = False
        self.held: OwnedClaim | None = None


class OwnedClaim:
    """A claim that this process works on, and the run that its code sees.

    Attributes:
        begun: the function may have begun.
        value: what it returned.
        end_if_left: what to record if the call goes away from here on; asked once ``begun``.
        unsettled: what could not be recorded yet.
        owed: whether the store was away when it was to be recorded.
        is_over: the store knows how it ended.
        is_settled: its owner has said how it ended, by ``ends_as``.
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
        self._told: list[Callable[[bool], object]] = []
        """Told once: whether the store has accepted the end that it was settled with."""
        self._was_accepted = False
        self.is_settled: bool = False
        self.owed = False
        self.is_over: bool = False
        self._lease = lease
        self._ticket = weakref.ref(ticket)

    @property
    def name(self) -> tuple[str, str]:
        """What names it in the namespace."""
        return self.claim.job, self.claim.key

    @property
    def is_left(self) -> bool:
        """Whether the call is gone that it was won for."""
        ticket = self._ticket()
        return ticket is None or ticket.over

    @property
    def expires_in(self) -> float:
        """Return the seconds for which no other process can have it."""
        return self._lease.trusted_for

    def expire(self) -> None:
        """Lose the claim because its time is over; for the monitor."""
        self.mark_lost("its session could not be renewed in time")

    def mark_lost(self, why: str) -> None:
        """Lose the claim with its session; an end that is owed is tried until the store refuses it."""
        self.run.request_stop(f"lease lost: {why}", lease_lost=True)
        if self.is_settled:
            # While the store is away nobody else can have it, and afterwards the store decides.
            self.claims.record_later(self)
        elif self.owed or self.is_left:
            self.claims.drop_claim(self)  # another process has it: there is nothing left to record

    def ends_as(self, end: End, told: Callable[[bool], object] | None) -> bool:
        """Note how it ended, for whoever records it; ``False``: that is known already.

        ``told`` is told once whether the store has accepted this end, and no other.
        """
        if self.is_settled:
            return False
        self.is_settled, self.unsettled = True, end
        if told is not None:
            self._told.append(told)
        return True

    def release_claim(self, *, accepted: bool = False) -> None:
        """Take it out of the ticket of its owner, now that the store knows its end."""
        self.is_over, self._was_accepted = True, accepted and self.is_settled
        ticket = self._ticket()
        if ticket is not None and ticket.held is self:
            ticket.held = None

    def left_end(self) -> End:
        """Return what the store is to be told if the call is gone."""
        if self.unsettled is None:
            if self.begun and self.end_if_left is not None:
                self.unsettled = self.end_if_left(self)
            else:
                self.unsettled = uncounted_end(self.claim.id, self.claim.token, self.claim.session)
        return self.unsettled

    def renew_when_due(self, store: Store) -> float:
        """Queue the record of its end, if that failed before or the call is gone. Asks no store itself."""
        del store
        if not (self.owed or self.is_left):
            return WATCH
        self.claims.background.add_act(self.record_end)
        return AGAIN

    def record_end(self) -> bool:
        """Record how it ended, or give back what never began; ``False``: the store is away, so ask it again."""
        if self.is_over:  # an interrupted call may not have dropped it
            self.claims.drop_claim(self)
            return True
        step = Step(ends=(self.left_end(),)) if self.begun else Step(give_back=(GiveBack(claim=self.claim),))
        try:
            settled = self.claims.store.step(self.claim.session, step).settled
        except StoreError as error:
            _log.debug("the end of %r could not be recorded yet: %s", self.run, error)
            return False
        self.claims.drop_settled(self, accepted=bool(settled) and all(one.accepted for one in settled))
        return True

    def report_recorded(self, *, accepted: bool | None = None) -> None:
        """Tell who wants to know it, once, whether the store has accepted the end; ``None``: as is known of it."""
        try:
            tell = self._told.pop()  # of two threads one gets it
        except IndexError:
            return
        try:
            tell(self._was_accepted if accepted is None else accepted)
        except Exception:  # noqa: BLE001 - logged; the others of the same step are to be told too
            _log.exception("who wanted to know whether the end of %r was recorded could not be told", self.run)


class _NoNotes:
    """Nothing is noted of a run outside of a node."""

    def hold_notes(self, occurrence: int, token: int, *, most: float = -1.0) -> None: ...

    def held_notes(self, occurrence: int, token: int) -> Note | None:  # noqa: ARG002 - nothing is held
        return None

    def release_notes(self, occurrence: int, token: int, written: Note | None = None) -> None: ...


_NO_PROGRESS = _NoNotes()


def uncounted_end(occurrence: int, token: int, session: str | None) -> End:
    """Return the end of an attempt that counts as none: the next one is due at once."""
    return End(id=occurrence, token=token, session=session, then=Again(timedelta(0), failed=False))
