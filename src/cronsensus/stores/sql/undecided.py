"""Which nominal times of a job nobody has decided yet, as one range for the ledger. Pure. Floor 3."""

from __future__ import annotations

from datetime import datetime

from cronsensus.model.job import Era
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.planning import MOST_COUNTED, next_nominal


def undecided_until(eras: tuple[Era, ...], watermark: datetime, now: datetime) -> VerdictRange | None:
    """Return the nominal times in (watermark, now] as missed(retired); ``None``: there are none.

    ``eras`` are the one that holds at the watermark, and those after it.
    """
    first = next_nominal(eras, watermark)
    if first is None or first > now:
        return None
    last = first
    count: int | None = 0
    for index, era in enumerate(eras):
        after = watermark if index == 0 else max(era.since, watermark)
        until = min(eras[index + 1].since, now) if index + 1 < len(eras) else now
        if era.trigger is None or after >= until:
            continue
        last = era.trigger.latest_until(until, after) or last
        counted = era.trigger.count_between(after, until, MOST_COUNTED)
        count = None if count is None or counted is None else count + counted
    if count is not None and count > MOST_COUNTED:
        count = None
    return VerdictRange(first, last, State.MISSED, Reason.RETIRED, count)
