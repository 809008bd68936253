"""The end of an attempt, as its executor saw it."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from msgspec import Struct

from cronsensus.model.ends import Again, Parked
from cronsensus.model.occurrence import RunError

EndingKind = Literal["returned", "raised", "timed_out", "cancelled", "skipped", "retry", "snoozed"]


class Ending(Struct, frozen=True, kw_only=True):
    """The end of an attempt, before ``retry`` decides what to record of it.

    Attributes:
        kind: ``returned`` a value; ``raised`` an exception (``sys.exit`` and the death of a job's own process are
            among them); ``timed_out``; ``cancelled`` on request or by ``raise Cancel``; ``skipped`` by ``raise
            Skip``; ``retry`` by ``raise Retry``; ``snoozed`` by ``raise Snooze``.
        result: JSON text of the value returned; ``None`` when it returned ``None``.
        reason: free text: why it was cancelled, skipped, asked for a retry, or waits.
        retry_after: what ``raise Retry(after=…)`` asked for.
        then: for ``snoozed``: how it goes on.
        permanent: it is not retried: another attempt would end the same way, or repeat work that is done.
        elapsed: by the node's monotonic clock.
        begun: whether the function was called, as far as is known here.
        cut_off: its event loop or its store failed, which is not the job's fault, so the claim is released. If the
            attempt ``raised``, it was the store, and that counts as a crash.
    """

    kind: EndingKind
    result: str | None = None
    error: RunError | None = None
    reason: str | None = None
    retry_after: timedelta | None = None
    permanent: bool = False
    elapsed: timedelta = timedelta(0)
    begun: bool = True
    cut_off: bool = False
    then: Again | Parked | None = None
