"""django-celery-beat's rows: only the beat that sends writes them, and no beat overwrites edits of the admin.

::

    a time was won ──▶ read its row whole ──▶ gone or disabled: not sent
                                          ├──▶ one_off: disabled by one UPDATE, then sent; refused: another beat did
                                          └──▶ sent, and then one UPDATE: last_run_at, total_run_count + 1

In django-celery-beat each beat saves whole rows now and then as it has read them: over an admin's edit, with its own
counts. Here ``last_run_at`` is the nominal time, because machines' clocks differ.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any

from celery import beat
from django.conf import settings
from django.db import Error, close_old_connections
from django.db.models import Case, F, Value, When

from cronsensus.integrations.celery.beat import LONG_AGO, NOT_SENT
from cronsensus.integrations.celery.naming import HEADERS, TIME_HEADER
from cronsensus.integrations.celery.nominal_times import Crontab, Interval, SharedTimes, shared_form
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import parse_instant

_log = Logger("cronsensus.celery")
_CLOCK = SystemClock()

ASK_EVERY = 1.0
"""Seconds between two reads of the mark of an edit; beat itself reads it on each tick, 100 times a second."""
_PRIORITY = 5
_KINDS = ("interval", "crontab", "solar", "clocked")
_TELL_WHEN = (
    "pk", "name", "task", "enabled", "one_off", "start_time", "expires",
    "last_run_at", "total_run_count", "date_changed", *(f"{kind}_id" for kind in _KINDS),
)  # fmt: skip
"""The columns that determine when a row is due."""
_CHOOSE_ROWS = ("all_as_schedule", "enabled_models", "enabled_models_qs")
_MAY_END = ("one_off", "expires", "args", "kwargs")
"""The columns for which a row is disabled."""
_JUST_BEFORE = timedelta(microseconds=1)


class Row:
    """The columns of a row that determine when it is due: a Django model takes four times the time and memory."""

    __slots__ = ("table", *_TELL_WHEN)

    def __init__(self, table: Any, *values: Any) -> None:
        """Keep ``values``, those of the columns."""
        self.table = table
        (
            self.pk, self.name, self.task, self.enabled, self.one_off, self.start_time, self.expires, self.last_run_at,
            self.total_run_count, self.date_changed, self.interval_id, self.crontab_id, self.solar_id, self.clocked_id,
        ) = values  # fmt: skip

    def find_schedule(self, shared: Mapping[tuple[str, Any], Any]) -> Any:
        """Return the row's schedule, from all schedules by kind and id."""
        ids = (self.interval_id, self.crontab_id, self.solar_id, self.clocked_id)
        return next((shared[kind, key] for kind, key in zip(_KINDS, ids, strict=True) if (kind, key) in shared), None)

    def due_start_time(self, zone: Any) -> datetime:  # noqa: ARG002 - the models'
        """Return when to check a row again that starts later."""
        start: datetime = self.start_time
        return start


class RowEntry:
    """An entry that never saves its row; mixed in before ``ModelEntry``."""

    app: Any
    model: Any
    schedule: Any
    total_run_count: int
    last_run_at: datetime
    default_now: Any

    def __init__(self, model: Any, app: Any = None, schedule: Any = None) -> None:
        """Read a row; with its ``schedule``, only when it is due: the whole row is read when it is sent."""
        if schedule is None:
            super().__init__(model, app=app)  # type: ignore[call-arg] # ModelEntry's
        else:
            self.__dict__.update(app=app, model=model, name=model.name, task=model.task, options={})
            self.total_run_count = model.total_run_count
            self.schedule = schedule
            self.last_run_at = model.last_run_at or model.date_changed or self._default_now()
        self._set_base(model)

    def _set_base(self, model: Any) -> None:
        """Set the time after which the row's times are sent."""
        if model.clocked_id is not None and self.schedule is not None:
            # Due once, however late its row was written: even at a "now" that was before that.
            self.last_run_at = min(_aware(self.last_run_at), self.schedule.clocked_time - _JUST_BEFORE)
        elif model.start_time is not None and model.last_run_at is None:
            # As in django-celery-beat: an interval begins at the start, a crontab with its first time after it.
            start = _aware(model.start_time) - _JUST_BEFORE
            self.last_run_at = start if model.crontab_id is not None else _aware(self._default_now()) - LONG_AGO

    def _default_now(self) -> datetime:
        """Return the store's time in the form of the row's times."""
        return _as_stored(self.default_now())

    def is_due(self) -> Any:
        """Return whether the row is due; a row that is over is disabled."""
        model = self.model
        if model.enabled and model.one_off and model.total_run_count > 0:
            self._disable(model)  # sent by a beat without this guard
        return super().is_due()  # type: ignore[misc]

    def _disable(self, model: Any) -> None:
        """Disable a row that will never be sent again, unless it was edited since it was read."""
        model.enabled = False
        read = {name: getattr(model, name) for name in _MAY_END if hasattr(model, name)}
        reset = {"total_run_count": 0} if model.one_off else {}
        rows = getattr(model, "table", type(model))._default_manager.filter(pk=model.pk, enabled=True, **read)
        rows.update(enabled=False, last_run_at=None, **reset)

    def __next__(self) -> RowEntry:
        """Return the entry after a time that this or another beat sends. Only the winner writes the count."""
        self.model.last_run_at = self._default_now()
        return type(self)(self.model, app=self.app, schedule=self.schedule)

    def is_due_by_its_schedule_alone(self, now: datetime) -> bool:
        """Return whether only the schedule determines now when the row is due."""
        row = self.model
        starts = row.start_time is None or _aware(row.start_time) <= now
        ends = row.expires is not None and _aware(row.expires) <= now
        return bool(row.enabled and starts and not ends and not (row.one_off and row.total_run_count > 0))

    def save(self) -> None:
        """Do nothing: the beat that sends writes."""


class RowScheduler:
    """A scheduler that writes only the rows that it sent; mixed in before ``DatabaseScheduler``."""

    app: Any
    Entry: Any
    Model: Any
    Changes: Any
    schedule: Any
    adjust: Any
    _clock: Any
    _when: Any
    _is_due_failed: Any
    _heap_invalidated: bool
    _chooses_rows = False
    """Whether a subclass has its own way to choose rows."""
    _asks_at = 0.0

    def reserve(self, entry: Any) -> Any:
        """Return the entry after this time; there is nothing to save."""
        return next(entry)

    def all_as_schedule(self) -> dict[str, Any]:
        """Read when each enabled row is due, and each schedule once: many rows share it."""
        if self._chooses_rows:
            whole: dict[str, Any] = super().all_as_schedule()  # type: ignore[misc]
            return whole
        # The rows first: then the schedules that they name exist.
        rows = [
            Row(self.Model, *it) for it in self.Model._default_manager.filter(enabled=True).values_list(*_TELL_WHEN)
        ]
        shared = {(kind, key): it for kind in _KINDS for key, it in self._read_schedules(kind)}
        found = {}
        for row in rows:
            schedule = row.find_schedule(shared)
            if schedule is None:
                _log.warning("%s has no schedule that names times, so it is not sent: edit it in the admin", row.name)
            else:
                found[row.name] = self.Entry(row, app=self.app, schedule=schedule)
        return found

    def _read_schedules(self, kind: str) -> Iterator[tuple[Any, Any]]:
        for row in self.Model._meta.get_field(kind).related_model._default_manager.all():
            try:
                shared = shared_form(row.schedule, self.app, self._clock.now)
            except Exception as error:  # noqa: BLE001 - one typo is not to stop the others
                _log.debug("%s schedule %s cannot be read: %s", kind, row.pk, error)
                continue
            if shared is not None:
                yield row.pk, shared

    def populate_heap(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - beat's
        """Put all entries in order of their due times; each schedule is evaluated once for all of its rows."""
        now = self._clock.now()
        times: dict[int, tuple[datetime, float]] = {}
        heap = []
        for entry in self.schedule.values():
            if isinstance(entry.schedule, (Interval, Crontab)) and entry.is_due_by_its_schedule_alone(now):
                if id(entry.schedule) not in times:
                    times[id(entry.schedule)] = self._times_around(entry.schedule, now)
                latest, following = times[id(entry.schedule)]
                at = now.timestamp() if _aware(entry.last_run_at) < latest else following
            else:
                at = self._next_tick_of(entry)
            heap.append(beat.event_t(at, _PRIORITY, entry))
        heap.sort(key=itemgetter(0))  # a sorted list is a heap; heapify would compare entries of equal times
        self._heap = heap

    def _times_around(self, schedule: SharedTimes, now: datetime) -> tuple[datetime, float]:
        latest = schedule.latest_until(now, now - LONG_AGO)
        following = schedule.next_after(now)
        at = math.inf if following is None else self.adjust(following.timestamp())
        return now - LONG_AGO if latest is None else latest, at

    def _next_tick_of(self, entry: Any) -> float:
        try:
            due, wait = entry.is_due()
        except Exception:  # noqa: BLE001 - as beat does: logged, and the others go on
            due, wait = self._is_due_failed(entry)
        at: float = self._when(entry, 0 if due else wait)
        return at

    def schedule_changed(self) -> bool:
        """Return whether rows were edited, by the mark that each edit leaves; read once a second."""
        now = _CLOCK.monotonic()
        if now < self._asks_at:
            return False
        self._asks_at = now + ASK_EVERY
        changed: bool = super().schedule_changed()  # type: ignore[misc]
        return changed

    def schedules_equal(self, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
        """Return whether the heap is still of this schedule: whether the rows were not read anew meanwhile."""
        read_anew, self._heap_invalidated = self._heap_invalidated, False
        return old is not None and new is not None and len(old) == len(new) and not read_anew

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002
        """Send a time that was won, by its present row; ``NOT_SENT``: the row is gone, disabled, or was over before."""
        if advance:
            self.reserve(entry)
        close_old_connections()
        marks = {name: value for name, value in entry.options["headers"].items() if name in HEADERS}
        time = _as_stored(parse_instant(marks[TIME_HEADER]))
        row = self._read_to_send(entry.model, time)
        current = None if row is None else self.Entry(row, app=self.app)
        if current is None or not (row.enabled or row.one_off):  # by now: its arguments cannot be read
            _log.info("%s at %s is not sent: its row was deleted or disabled", entry.name, marks[TIME_HEADER])
            return NOT_SENT
        headers = {**(current.options.get("headers") or {}), **marks}
        current.options = {**current.options, "task_id": entry.options["task_id"], "headers": headers}
        result = super().apply_async(current, producer=producer, advance=False, **options)  # type: ignore[misc]
        if not row.one_off:
            self._record_send(row, time)
        return result

    def _read_to_send(self, model: Any, time: datetime) -> Any:
        """Return the row as it is now, if this time is to be sent; a ``one_off`` row is disabled by this."""
        found = self.Model._default_manager.filter(pk=model.pk)
        row = found.select_related(*_KINDS).first()
        if row is not None and row.one_off:
            # Before it is sent: if two beats won two times of the row, the first to do this sends.
            ended = found.filter(enabled=True, one_off=True).update(enabled=False, last_run_at=time, total_run_count=0)
            model.enabled = False
            # Disabled for this very time: by a beat that died before it sent.
            to_send = ended or found.filter(enabled=False, one_off=True, last_run_at=time).exists()
            if to_send:
                self.Changes.update_changed()
        else:
            to_send = row is not None and row.enabled
        return row if to_send else None

    def _record_send(self, row: Any, time: datetime) -> None:
        later = Case(When(last_run_at__gt=time, then=F("last_run_at")), default=Value(time))
        try:
            enabled = self.Model._default_manager.filter(pk=row.pk, enabled=True)  # else the admin has reset it
            enabled.update(last_run_at=later, total_run_count=F("total_run_count") + 1)
        except Error as error:  # it is sent, and in the ledger
            _log.warning("%s was sent, but last_run_at and total_run_count could not be written: %s", row.name, error)


@lru_cache(maxsize=16)
def write_by_winner(base: Any) -> Any:
    """Return a ``DatabaseScheduler``, or a subclass, whose rows are written by the beat that sends."""
    theirs = sys.modules["django_celery_beat.schedulers"].DatabaseScheduler
    chooses = any(getattr(base, name) is not getattr(theirs, name) for name in _CHOOSE_ROWS)
    entries = type(base.Entry.__name__, (RowEntry, base.Entry), {"__module__": __name__})
    return type(
        base.__name__, (RowScheduler, base), {"Entry": entries, "_chooses_rows": chooses, "__module__": __name__}
    )


def _aware(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _as_stored(time: datetime) -> datetime:
    if getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True):
        return time
    return time.astimezone(UTC).replace(tzinfo=None)
