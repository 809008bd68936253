"""What follows for an occurrence when an attempt of it has ended. Values only.

::

    Final ──▶ succeeded, failed, cancelled or skipped, and never run again
    Again ──▶ pending, due after a while
    Parked ─▶ pending, without a due time, until it is woken
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Self, assert_never

from msgspec import Struct

from cronsensus.model.occurrence import Claim, RunEnd, RunError
from cronsensus.model.states import State


class Final(Struct, frozen=True, tag=True):
    """The occurrence is final. ``result`` is JSON text, or ``None``."""

    state: State
    reason: str | None = None
    result: str | None = None
    error: RunError | None = None


class Again(Struct, frozen=True, tag=True):
    """The occurrence is due again after a while, on the store's clock.

    Attributes:
        after: until it is due again.
        failed: the attempt failed, and counts. If not, it does not count, and its crashes are kept.
        reason: why, for people.
        error: the error of a failed attempt; ``None``: it asked for the retry.
        note: from an attempt that only looked, for the next attempt; it is kept across failed attempts. Such an attempt
            leaves no record, and failures count from 0 again.
    """

    after: timedelta
    failed: bool
    reason: str | None = None
    error: RunError | None = None
    note: str | None = None


class Parked(Struct, frozen=True, tag=True):
    """The occurrence waits without a slot or a due time, until ``Store.wake``; counts start anew, without this attempt.

    Attributes:
        on: what it waits for: ``"items"``, ``"upstreams"``, or another word of at most 20 letters. Stores keep it
            without interpreting it.
        listed: for a batch: how many items its list had. Without it nothing ran, and there is no record.
        reason: what it waits for, for people.
    """

    on: str
    listed: int | None = None
    reason: str | None = None


Then = Final | Again | Parked


class End(Struct, frozen=True, kw_only=True):
    """The end of an attempt.

    Attributes:
        session: the session that claimed it; if given, it is compared like the token.
        elapsed: how long the attempt took, by the node's monotonic clock.
    """

    id: int
    token: int
    session: str | None = None
    then: Then
    elapsed: timedelta = timedelta(0)

    @classmethod
    def of(cls, claim: Claim, then: Then, elapsed: timedelta = timedelta(0)) -> Self:
        """Return the end of a claim's attempt."""
        return cls(id=claim.id, token=claim.token, session=claim.session, then=then, elapsed=elapsed)

    @property
    def state(self) -> State:
        """Return the state that it requests."""
        return state_after(self.then)

    @property
    def error(self) -> RunError | None:
        """Return the error of the attempt."""
        return error_of(self.then)


STATE_AFTER: Mapping[RunEnd, State] = {
    "succeeded": State.SUCCEEDED,
    "failed": State.FAILED,
    "cancelled": State.CANCELLED,
    "skipped": State.SKIPPED,
    "retry": State.PENDING,
    "snoozed": State.PENDING,
}
"""The store's answer to an end, by how its attempt is recorded."""
_FINAL: Mapping[State, RunEnd] = {state: end for end, state in STATE_AFTER.items() if state is not State.PENDING}


def state_after(then: Then) -> State:
    """Return the state of an occurrence after an end."""
    return then.state if isinstance(then, Final) else State.PENDING


def error_of(then: Then) -> RunError | None:
    """Return the error of the attempt."""
    return None if isinstance(then, Parked) else then.error


def is_snoozed(then: Then) -> bool:
    """Whether an occurrence goes back to pending, and its attempt does not count."""
    return isinstance(then, Parked) or (isinstance(then, Again) and not then.failed)


def unless_cancelled(then: Then, cancel: str | None) -> Then:
    """Return what follows if an operator asked the occurrence to stop (``cancel``: why): it does not run again."""
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
