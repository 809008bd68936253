"""What becomes of an occurrence when an attempt of it is over? Values only.

::

    Final ──▶ succeeded, failed, cancelled or skipped, and never run again
    Again ──▶ pending, due after a while
    Parked ─▶ pending, due never, until what it waits for wakes it
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Self, assert_never

from msgspec import Struct

from cronsensus.model.occurrence import Claim, RunEnd, RunError
from cronsensus.model.states import State


class Final(Struct, frozen=True, tag=True):
    """It is over. ``result`` is JSON text, or ``None``."""

    state: State
    reason: str | None = None
    result: str | None = None
    error: RunError | None = None


class Again(Struct, frozen=True, tag=True):
    """It is due again after a while, on the store's clock.

    Attributes:
        after: that while.
        failed: the attempt failed, and counts as one. If not, it counts as none, and its crashes are kept.
        reason: why, for people.
        error: what a failed attempt raised; ``None``: it asked to be tried again.
        note: of an attempt that only looked: what the next one is to find, and what it finds also after an attempt
            that failed. It leaves no record, and its failures count from 0 again.
    """

    after: timedelta
    failed: bool
    reason: str | None = None
    error: RunError | None = None
    note: str | None = None


class Parked(Struct, frozen=True, tag=True):
    """It waits without a slot, due never, until ``Store.wake``. All counts begin anew, and the attempt is none.

    Attributes:
        on: what for: ``"items"``, ``"upstreams"``, or another word of at most 20 letters. Stores keep it and match on
            none.
        listed: of a batch: how many items its list had. Without it nothing ran, and there is no record.
        reason: what for, for people.
    """

    on: str
    listed: int | None = None
    reason: str | None = None


Then = Final | Again | Parked


class End(Struct, frozen=True, kw_only=True):
    """The end of an attempt.

    Attributes:
        session: the session that claimed it; where it is given, it is compared like the token.
        elapsed: how long the attempt took, by the node's monotonic clock.
    """

    id: int
    token: int
    session: str | None = None
    then: Then
    elapsed: timedelta = timedelta(0)

    @classmethod
    def of(cls, claim: Claim, then: Then, elapsed: timedelta = timedelta(0)) -> Self:
        """Return the end of the attempt that was claimed."""
        return cls(id=claim.id, token=claim.token, session=claim.session, then=then, elapsed=elapsed)

    @property
    def state(self) -> State:
        """Return the state that it asks for."""
        return state_after(self.then)

    @property
    def error(self) -> RunError | None:
        """Return what the attempt raised."""
        return error_of(self.then)


STATE_AFTER: Mapping[RunEnd, State] = {
    "succeeded": State.SUCCEEDED,
    "failed": State.FAILED,
    "cancelled": State.CANCELLED,
    "skipped": State.SKIPPED,
    "retry": State.PENDING,
    "snoozed": State.PENDING,
}
"""What the store answered to an end, by how its attempt is recorded."""
_FINAL: Mapping[State, RunEnd] = {state: end for end, state in STATE_AFTER.items() if state is not State.PENDING}


def state_after(then: Then) -> State:
    """Return the state that an occurrence is in from then on."""
    return then.state if isinstance(then, Final) else State.PENDING


def error_of(then: Then) -> RunError | None:
    """Return what the attempt raised."""
    return None if isinstance(then, Parked) else then.error


def is_snoozed(then: Then) -> bool:
    """Whether an occurrence goes back to pending, and its attempt counts as none."""
    return isinstance(then, Parked) or (isinstance(then, Again) and not then.failed)


def unless_cancelled(then: Then, cancel: str | None) -> Then:
    """Return what becomes of an occurrence that an operator asked to stop (``cancel``: why): it does not come back."""
    if cancel is None or isinstance(then, Final):
        return then
    return Final(State.CANCELLED, reason=cancel, error=error_of(then))


def recorded_as(then: Then) -> RunEnd | None:
    """Return how the attempt is recorded; ``None`` if nothing ran, so that no attempt is recorded."""
    match then:
        case Final(state=state):
            return _FINAL[state]
        case Again(failed=True):
            return "retry"
        case Again(note=note):
            return "snoozed" if note is None else None
        case Parked(listed=listed):
            return None if listed is None else "snoozed"
        case _:
            assert_never(then)
