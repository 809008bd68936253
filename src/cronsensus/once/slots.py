"""The slot of a trigger in which a moment lies: from one nominal time to the next."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsensus.errors import InvalidOption, InvalidTrigger
from cronsensus.timing.durations import Duration
from cronsensus.triggers import Trigger, every

_LONGEST_BACK = timedelta(days=366 * 10)


def read_trigger(trigger: Trigger | Duration) -> Trigger:
    """Return the trigger that a user means by a period.

    Raises:
        InvalidTrigger: it is a cron text, or no period; the message says what to write.
    """
    if isinstance(trigger, Trigger):
        return trigger
    if isinstance(trigger, str) and (len(trigger.split()) > 4 or trigger.lstrip().startswith("@")):
        raise InvalidTrigger(f"{trigger!r} is a cron text, not a period; write once_per(cron({trigger!r}))")
    return every(trigger)


def slot_of(trigger: Trigger, now: datetime, early: timedelta) -> datetime:
    """Return the nominal time of the slot that ``now`` lies in: from one nominal time to the next.

    A call up to ``early`` before the next nominal time belongs to that: its timer may be on a host whose clock is a
    little ahead of the store's. But a call in the first half of a slot always belongs to that slot.

    Raises:
        InvalidOption: the trigger has no nominal time up to now.
    """
    following = trigger.next_after(now)
    latest = trigger.latest_until(now, now - _LONGEST_BACK)
    if following is not None and following - now <= early and (latest is None or following - now < now - latest):
        return following
    if latest is None:
        raise InvalidOption("this trigger has had no nominal time yet, so there is no slot to run in")
    return latest
