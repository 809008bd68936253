"""The claim of one call of a guarded function, and what becomes of it if the call goes away in the middle.

Python may leave a call at any line: a task is cancelled, or a signal handler raises. So a ``Ticket`` in its frame
says whether the call is still there, and a claim is recorded here before it is used. A claim that was left behind is
settled by the first of: the call itself on its way out, another call of the same key, the background queue.

::

    PendingAcquire ──▶ OwnedClaim ──▶ begun ──▶ returned
      │                  │              │        └── left: the result is recorded
      │                  │              └── left: recorded as interrupted; the key is free or kept, as ``on_error`` says
      │                  └── left: given back, as if it had never been acquired
      └── left: looked for; given back if the store granted it to this process
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from cronsensus.clock import Clock
from cronsensus.errors import PayloadMismatch, StoreError
from cronsensus.logger import Logger
from cronsensus.membership.heartbeat import LONGEST_WAIT
from cronsensus.membership.lease import SessionLease
from cronsensus.model.ends import Again, End
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Note, Occurrence, scheduled_key
from cronsensus.model.step import GiveBack, Step
from cronsensus.node.run_transaction import RunTransaction
from cronsensus.once.background_queue import BackgroundQueue
from cronsensus.once.payloads import Difference, difference
from cronsensus.run import Run
from cronsensus.stores.base import Store

_log = Logger("cronsensus.once")

AGAIN = 0.5
"""Seconds between two tries to record a result while the store is away."""
WATCH = 1.0
"""Seconds between two looks for calls that went away without a word."""
UNSET: Any = object()
"""The value of a function that has not returned."""


@dataclass(frozen=True, slots=True)
class CallKey:
    """One key of one implicit job, or one of its nominal times.

    Attributes:
        fingerprint: of the call's payload.
        fields: what the values in the key are called.
        lenient: another payload gets the recorded result.
        zone: of what the run shows as its local time.
    """

    spec: JobSpec
    key: str
    scheduled_for: datetime | None = None
    fingerprint: str | None = None
    fields: tuple[str, ...] = ()
    lenient: bool = False
    zone: str = "UTC"

    @classmethod
    def slot(cls, spec: JobSpec, scheduled_for: datetime, zone: str = "UTC") -> CallKey:
        """Return the occurrence of a nominal time."""
        return cls(spec, scheduled_key(scheduled_for), scheduled_for, zone=zone)

    @property
    def name(self) -> tuple[str, str]:
        """What names it in the namespace."""
        return self.spec.name, self.key

    def differs_from(self, recorded: str | None) -> Difference | None:
        """Return how the payload differs from the one of a fingerprint, as far as that matters."""
        found = difference(self.fingerprint, recorded)
        if found is not None and self.lenient:
            if found.names:
                _log.info("%s is called with another payload under the key %s", self.spec.name, self.key)
            found = replace(found, names=()) if found.kinds else None
        return found

    def mismatch(self, found: Difference, other: str, occurrence: Occurrence | None) -> PayloadMismatch:
        """Return the error for a call with another payload than the recorded one. It has names, never values."""
        name, key = self.spec.name, self.key
        if found.kinds:
            fields = ", ".join(self.fields[place] for place in found.kinds if place < len(self.fields)) or "a value"
            example = self.fields[found.kinds[0]] if self.fields else "name"
            why = (
                f"{fields} in the key is spelled as there, and is of another kind, such as 1, '1' and True: pass one "
                f"kind, or write {{{example}!r}} in the key to keep them apart"
            )
        else:
            why = (
                f"{', '.join(found.names)} differ{'s' if len(found.names) == 1 else ''} (compared here: "
                f"{', '.join(found.given)}; recorded: {', '.join(found.recorded)}). If it is the same call, say what "
                "of it counts, by payload=; if it is another one, it needs another key"
            )
        return PayloadMismatch(
            f"{name!r} was called under the key {key!r} with another payload than {other}: {why}. To have it run anew: "
            f"`cronsensus once forget {name} {key!r}`",
            occurrence=occurrence,
            differs=found.names,
            given=found.given,
            recorded=found.recorded,
        )


class Holder(Protocol):
    """Holds what is won: ``Claims``."""

    clock: Clock
    store: Store
    background: BackgroundQueue

    def done(self, held: OwnedClaim) -> None:
        """Drop a claim that the store has settled."""

    def forget(self, held: OwnedClaim) -> None:
        """Drop a claim."""

    def leave(self, ticket: Ticket) -> None:
        """Note that a call is over."""

    def sweep(self) -> bool:
        """Settle claims that calls left behind; return whether calls are still asking."""

    def is_asking(self) -> bool:
        """Whether calls are asking for a key. Asks no store."""

    def is_left_behind(self) -> bool:
        """Whether there is something to sweep. Asks no store."""


class Ticket:
    """Lies in the frame of a call: while it lives and is not ``over``, the call goes on.

    Attributes:
        held: what was won for the call, until the store knows how it ended.
    """

    __slots__ = ("__weakref__", "held", "over")

    def __init__(self) -> None:
        self.over = False
        self.held: OwnedClaim | None = None


class PendingAcquire:
    """That a call is asking the store for a key, so that an answer which never reaches the call is not lost."""

    __slots__ = ("_ticket", "wanted")

    def __init__(self, wanted: CallKey, ticket: Ticket) -> None:
        self.wanted = wanted
        self._ticket = weakref.ref(ticket)

    @property
    def is_left(self) -> bool:
        """Whether the call is gone."""
        ticket = self._ticket()
        return ticket is None or ticket.over


class OwnedClaim:
    """A claim that this process works on, and the run that its code sees.

    Attributes:
        begun: the function may have begun.
        value: what it returned.
        end_if_left: what to record if the call goes away from here on; asked once ``begun``.
        unsettled: what could not be recorded yet.
        owed: whether the store was away when it was to be recorded.
        is_over: the store knows how it ended.
    """

    def __init__(self, claims: Holder, claim: Claim, lease: SessionLease, ticket: Ticket) -> None:
        self.claim = claim
        self.session = claim.session
        self.started = claims.clock.monotonic()
        self.run = Run(
            claim, namespace=claims.store.namespace, run_transaction=RunTransaction(claims.store, claim, _NO_PROGRESS)
        )
        self.begun = False
        self.value: Any = UNSET
        self.end_if_left: Callable[[OwnedClaim], End] | None = None
        self.unsettled: End | None = None
        self.claims = claims
        self.owed = self.is_over = False
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
        self.lose("its session could not be renewed in time")

    def lose(self, why: str) -> None:
        """Lose the claim with its session."""
        self.run.stop(f"lease lost: {why}", lease_lost=True)
        if self.owed or self.is_left:
            self.claims.forget(self)  # another process may have it: there is nothing left to record

    def let_go_of(self) -> None:
        """Take it out of the ticket of the call, now that the store knows its end."""
        self.is_over = True
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

    def step(self, store: Store) -> float:
        """Queue the record of its end, if that failed before or the call is gone. Asks no store itself."""
        del store
        if not (self.owed or self.is_left):
            return WATCH
        self.claims.background.add(self.record_end)
        return AGAIN

    def record_end(self) -> bool:
        """Record how it ended, or give back what never began; ``False``: the store is away, so ask it again."""
        if self.is_over:  # an interrupted call may not have dropped it
            self.claims.forget(self)
            return True
        step = Step(ends=(self.left_end(),)) if self.begun else Step(give_back=(GiveBack(claim=self.claim),))
        try:
            self.claims.store.step(self.claim.session, step)
        except StoreError as error:
            _log.debug("the end of %r could not be recorded yet: %s", self.run, error)
            return False
        self.claims.done(self)
        return True


class Sweep:
    """Looks at intervals for calls that went away while they asked the store for a key."""

    session = ""
    """No session: it holds nothing."""

    def __init__(self, claims: Holder) -> None:
        self._claims = claims

    def step(self, store: Store) -> float:
        """Queue the sweep, if there is anything to sweep. Asks no store itself."""
        del store
        if self._claims.is_left_behind():
            self._claims.background.add(self.look)
            return AGAIN
        return WATCH if self._claims.is_asking() else LONGEST_WAIT

    def look(self) -> None:
        """Sweep."""
        try:
            self._claims.sweep()
        except StoreError as error:
            _log.debug("what a call has left behind could not be looked for yet: %s", error)

    def lose(self, why: str) -> None:
        """Do nothing: it belongs to no session."""


class _NoNotes:
    """Nothing is noted of a run outside of a node."""

    def hold(self, occurrence: int, token: int, *, most: float = -1.0) -> None: ...

    def held(self, occurrence: int, token: int) -> Note | None:  # noqa: ARG002 - nothing is held
        return None

    def let_go(self, occurrence: int, token: int, written: Note | None = None) -> None: ...


_NO_PROGRESS = _NoNotes()


def uncounted_end(occurrence: int, token: int, session: str | None) -> End:
    """Return the end of an attempt that counts as none: the next one is due at once."""
    return End(id=occurrence, token=token, session=session, then=Again(timedelta(0), failed=False))
