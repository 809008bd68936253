"""The end of an attempt, as its executor saw it."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from msgspec import Struct

from cronsensus.model.ends import Again, Parked
from cronsensus.model.occurrence import RunError

EndingKind = Literal["returned", "raised", "timed_out", "cancelled", "skipped", "retry", "snoozed"]


class Ending(Struct, frozen=True, kw_only=True):
    """The end of an attempt, before it is decided what follows from it.

    Attributes:
        kind: ``returned`` a value; ``raised`` an exception (``sys.exit`` and the death of a job's own process are
            among them); ``timed_out``; ``cancelled`` on request or by ``raise Cancel``; ``skipped`` by ``raise
            Skip``; ``retry`` by ``raise Retry``; ``snoozed`` by ``raise Snooze``.
        result: JSON text of the value returned; ``None`` when it returned ``None``.
        reason: free text: why it was cancelled, skipped, asked for a retry, or waits.
        retry_after: what ``raise Retry(after=…)`` asked for.
        then: of one that ``snoozed``: how it goes on.
        hopeless: another attempt cannot end otherwise, or would do work again that is done: it is not retried.
        elapsed: by the node's monotonic clock.
        begun: whether the function was called at all, as far as is known here.
        cut_off: what it ran on went away under it: no doing of the job's, so it is given back. Where it ``raised``, the
            store failed under it, and that is a crash.
    """

    kind: EndingKind
    result: str | None = None
    error: RunError | None = None
    reason: str | None = None
    retry_after: timedelta | None = None
    hopeless: bool = False
    elapsed: timedelta = timedelta(0)
    begun: bool = True
    cut_off: bool = False
    then: Again | Parked | None = None
