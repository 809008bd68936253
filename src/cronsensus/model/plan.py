"""The decisions of planning, for a store to carry out in one step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cronsensus.model.states import State


@dataclass(frozen=True, slots=True)
class PlannedOccurrence:
    """An occurrence to create for a nominal time.

    Attributes:
        scheduled_for: the nominal time; its text is the key.
        due_at: the nominal time plus jitter; not claimed earlier.
        expires_at: not started by then: missed(late). ``None``: never too late.
        parked_on: what it waits for, if it is created as parked: then it has no due time and does not expire, until it
            is woken.
    """

    scheduled_for: datetime
    due_at: datetime
    expires_at: datetime | None
    parked_on: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictRange:
    """One verdict for every nominal time from ``first`` to ``last``, both included.

    Attributes:
        count: how many nominal times these are; ``None`` when there are too many to count here (the audit derives
            them).
    """

    first: datetime
    last: datetime
    state: State
    reason: str
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decisions about a job, which the store carries out in one step, or not at all.

    ``watermark_seen``, ``revision``, ``active_seen`` and ``definition`` (where it is given) are what the decision rests
    on. If one of them differs when the plan is carried out, another node was faster and nothing is written. It holds
    from ``not_before`` on, by the store's clock: it may have been made ahead of its time, or the clock may have been
    set back since. ``function`` is the job's; a store need not look at it.
    """

    job_id: int
    job: str
    revision: int
    watermark_seen: datetime
    active_seen: int
    occurrences: tuple[PlannedOccurrence, ...]
    verdicts: tuple[VerdictRange, ...]
    cancel_previous: bool
    watermark: datetime
    next_due: datetime | None
    not_before: datetime | None = None
    definition: str = ""
    function: str = ""

    @property
    def awake(self) -> tuple[PlannedOccurrence, ...]:
        """Return the occurrences that are not parked."""
        return tuple(planned for planned in self.occurrences if planned.parked_on is None)
