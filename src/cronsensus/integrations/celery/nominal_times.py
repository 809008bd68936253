"""The times at which a schedule of Celery is due: instants that all beats compute alike.

Celery counts an interval from the last run, so each beat has its own times. Here it is due at the multiples of the
interval since 1970. A ``crontab`` is due when its five sets match the wall clock, with the rule of ``cron`` for clock
changes: Celery itself loses times in a repeated hour, and a beat started in it is due without end. Any other schedule
names its next time by ``remaining_estimate``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from celery.schedules import BaseSchedule, crontab, schedstate, schedule, solar

from cronsensus.timing.instants import from_micros, to_micros
from cronsensus.triggers.base import search_latest
from cronsensus.triggers.dst import ZonedClock
from cronsensus.triggers.fields import masks_of_days
from cronsensus.triggers.wall import WallClock

_MICROSECOND = timedelta(microseconds=1)
_NEVER = timedelta(days=366)
_MOST_ESTIMATES = 10_000
"""Times that are computed to catch up. If there are more, the latest is searched from today on."""


class SharedTimes:
    """Mixed into the class of a schedule, which then goes by the store's clock and names its times.

    Attributes:
        store_now: the store's clock.
    """

    store_now: Callable[[], datetime]

    def now(self) -> datetime:
        """Return the present time by the store's clock, in the zone in which Celery has it."""
        own = getattr(self, "nowfun", None)
        if own is not None and not isinstance(getattr(own, "__self__", None), BaseSchedule):
            return cast("datetime", own())  # the user's; as tests have it
        return self.store_now().astimezone(self.tz)  # type: ignore[attr-defined]

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first nominal time after ``instant``; ``None``: there is none."""
        raise NotImplementedError

    def latest_until(self, instant: datetime, after: datetime) -> datetime | None:
        """Return the last nominal time t with ``after < t <= instant``."""
        return search_latest(self.next_after, instant, after)


class Interval(SharedTimes):
    """An interval that is due at its multiples since 1970; mixed in before ``schedule``."""

    run_every: timedelta

    def next_after(self, instant: datetime) -> datetime:
        """Return the first multiple after ``instant``."""
        every = self.run_every // _MICROSECOND
        return from_micros((to_micros(instant) // every + 1) * every)

    def latest_until(self, instant: datetime, after: datetime) -> datetime | None:
        """Return the last multiple t with ``after < t <= instant``."""
        every = self.run_every // _MICROSECOND
        latest = from_micros(to_micros(instant) // every * every)
        return latest if latest > after else None

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """Return how long it is until the first time after the last run."""
        return self.next_after(_utc(self, last_run_at)) - _utc(self, self.now())

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Return whether a time has come since the last run, and the seconds until the next."""
        return _due(self, last_run_at)


class Crontab(SharedTimes):
    """A ``crontab``, or a subclass that differs in its zone; mixed in before it."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first match after ``instant``."""
        fields = (self.minute, self.hour, self.day_of_week, self.day_of_month, self.month_of_year)  # type: ignore[attr-defined]
        starred = (self._orig_minute, self._orig_hour)  # type: ignore[attr-defined]
        fixed = not any(isinstance(field, str) and field.startswith("*") for field in starred)
        sets = tuple(tuple(sorted(field)) for field in fields)
        clock = _zoned_clock(sets, self.tz, fixed=fixed)  # type: ignore[attr-defined]
        return clock.next_after(instant.astimezone(UTC))

    def remaining_estimate(self, last_run_at: datetime, ffwd: Any = None) -> timedelta:  # noqa: ARG002 - Celery's
        """Return how long it is until the first match after the last run."""
        following = self.next_after(_utc(self, last_run_at))
        return _NEVER if following is None else following - _utc(self, self.now())


class Estimated(SharedTimes):
    """Any other schedule: its next time is its estimate right after the last time; mixed in before it."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first time after ``instant``, as the schedule estimates it."""
        if not isinstance(self, solar):
            following = self._estimate_from(instant)
            return following if following > instant else None
        # Its last digits depend on where the search begins, so that is midnight, and seconds are enough.
        day = instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        found: datetime = self._estimate_from(day).replace(microsecond=0)
        while found <= instant:
            day += timedelta(days=1)
            found = self._estimate_from(day).replace(microsecond=0)
        return found

    def _estimate_from(self, instant: datetime) -> datetime:
        local = instant.astimezone(self.tz)  # type: ignore[attr-defined]
        pinned: Any = object.__new__(type(self))  # not copy(), which would return the original schedule
        pinned.__dict__.update(self.__dict__, now=lambda: local)
        # Added in UTC: over a clock change a local time would be an hour off.
        estimate: datetime = instant.astimezone(UTC) + pinned.remaining_estimate(local)
        return estimate

    def latest_until(self, instant: datetime, after: datetime) -> datetime | None:
        """Return the last time t with ``after < t <= instant``, by going from one to the next."""
        found, following = None, self.next_after(after)
        for _ in range(_MOST_ESTIMATES):
            if following is None or following > instant:
                break
            found, following = following, self.next_after(following)
        return found

    def is_due(self, last_run_at: datetime) -> Any:
        """Return the schedule's own answer, if the time has a name."""
        due, following = super().is_due(last_run_at)  # type: ignore[misc]
        if due and self.latest_until(_utc(self, self.now()), _utc(self, last_run_at)) is None:
            return schedstate(is_due=False, next=1.0)  # it is due by a rounding of its estimate
        return schedstate(due, following)


def shared_form(found: BaseSchedule, app: Any, store_now: Callable[[], datetime]) -> Any:
    """Return a schedule in the form with times that all beats share; ``None``: it names no times.

    It keeps its class as a base, its attributes and its equality.
    """
    if isinstance(found, SharedTimes) or not isinstance(found, BaseSchedule):
        return found if isinstance(found, SharedTimes) else None
    if (form := _form_of(found)) is None:
        return None
    shared: Any = form.__new__(form)
    shared.__dict__.update(found.__dict__)
    shared.store_now = store_now
    if shared.__dict__.get("_app") is None:
        shared.app = app
    return shared


def _form_of(found: Any) -> Any:
    kind: Any = type(found)
    if kind is schedule and not found.relative:
        return _mixed(Interval, kind) if found.run_every > timedelta(0) else None
    if isinstance(found, crontab) and _is_plain(kind):
        return _mixed(Crontab, kind)
    if kind.remaining_estimate is BaseSchedule.remaining_estimate:
        return None
    if isinstance(found, schedule) and kind.is_due is not schedule.is_due:
        # It decides itself when it is due, and its estimate is of something else.
        return _mixed(Estimated, kind) if kind.remaining_estimate is not schedule.remaining_estimate else None
    return _mixed(Estimated, kind)


def _is_plain(kind: Any) -> bool:
    return kind.remaining_estimate is crontab.remaining_estimate and kind.remaining_delta is crontab.remaining_delta


@lru_cache(maxsize=64)
def _mixed(form: Any, kind: Any) -> Any:
    # Pickled as the original: a shelve, or a copy, must not know of the beat that it was in.
    body = {"__reduce_ex__": lambda self, version: _plain(self, kind).__reduce_ex__(version)}
    return type(kind.__name__, (form, kind), body)


def _plain(shared: Any, kind: Any) -> Any:
    plain = kind.__new__(kind)
    plain.__dict__.update({name: value for name, value in shared.__dict__.items() if name != "store_now"})
    return plain


def _due(shared: Any, last_run_at: datetime) -> schedstate:
    remaining = max(shared.remaining_estimate(last_run_at).total_seconds(), 0)
    if remaining == 0:
        return schedstate(is_due=True, next=max(shared.remaining_estimate(shared.now()).total_seconds(), 0))
    return schedstate(is_due=False, next=remaining)


def _utc(shared: Any, time: datetime) -> datetime:
    aware: datetime = shared.maybe_make_aware(time)
    return aware.astimezone(UTC)


@lru_cache(maxsize=1024)
def _zoned_clock(fields: tuple[tuple[int, ...], ...], zone: Any, *, fixed: bool) -> ZonedClock:
    """Return the clock of the five sets in the order in which ``crontab`` takes them."""
    minutes, hours, weekdays, days, months = fields

    def matches(day: date) -> bool:
        return day.day in days and day.isoweekday() % 7 in weekdays  # both, as Celery has it

    wall = WallClock.of_values((0,), minutes, hours, months, masks_of_days(matches))
    return ZonedClock(wall=wall, zone=zone, gaps=fixed, second_pass=not fixed)
