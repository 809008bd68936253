"""The states of an occurrence, and the transitions between them.

::

    pending ──▶ running ──▶ succeeded | failed | cancelled | skipped
       ▲           │
       └───────────┘  retry, takeover, release
    pending ──▶ skipped | missed | cancelled

Final states have no exit: an operator's retry makes a new occurrence that is linked to the old one.
"""

from __future__ import annotations

from enum import StrEnum

from cronsensus.errors import InvalidTransition


class State(StrEnum):
    """The state of an occurrence; the final ones are verdicts of the ledger."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def final(self) -> bool:
        """Whether the state has no exit."""
        return not TRANSITIONS[self]


TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.RUNNING, State.SKIPPED, State.MISSED, State.CANCELLED}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED, State.PENDING}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.SKIPPED: frozenset(),
    State.MISSED: frozenset(),
}
ACTIVE = frozenset({State.PENDING, State.RUNNING})
UNWELL = frozenset({State.FAILED, State.MISSED, State.CANCELLED})
"""Final states that are no success: worth an alert."""


def require_transition(old: State, new: State, *, what: str) -> None:
    """Raise ``InvalidTransition`` unless ``what`` may go from ``old`` to ``new``."""
    if new not in TRANSITIONS[old]:
        raise InvalidTransition(f"{what} is {old} and cannot become {new}")


class Origin(StrEnum):
    """The reason why an occurrence exists."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    ENQUEUE = "enqueue"
    BATCH = "batch"
    BACKFILL = "backfill"
    STARTUP = "startup"


SERIAL_ORIGINS = frozenset({Origin.SCHEDULE, Origin.MANUAL, Origin.BACKFILL})
"""Origins to which a job's overlap policy applies; enqueued work is a queue and knows only ``concurrency``."""


class Reason(StrEnum):
    """The reason of a verdict: the words of the ledger. Free text may follow after a colon."""

    OVERLAP = "overlap"
    COALESCED = "coalesced"
    PAUSED = "paused"
    LATE = "late"
    NO_CATCH_UP = "catch_up=none"
    BEYOND_WINDOW = "catch_up_window"
    REPLACED = "cancel_previous"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OPERATOR = "operator"
    RETIRED = "retired"
    BATCH_ENDED = "batch ended"
    """Of an item that was not begun: its batch was over, or gone."""
    UPSTREAM_FAILED = "upstream failed"
    """Of an occurrence that was skipped, and the next five: after the colon the job that it comes after."""
    UPSTREAM_SUCCEEDED = "upstream succeeded"
    UPSTREAM_SKIPPED = "upstream skipped"
    UPSTREAM_MISSING = "upstream missing"
    UPSTREAM_PRUNED = "upstream unknown: pruned"
    UPSTREAM_LATE = "upstream late"
    JOB_SAID_SO = "job"
