"""django-celery-beat's rows, written by the beat that sends: the admin goes on, and no beat writes over its edits.

::

    a time was won ──▶ read its row whole ──▶ gone or disabled: not sent
                                          ├──▶ one_off: disabled by one UPDATE, then sent; refused: another beat did
                                          └──▶ sent, and then one UPDATE: last_run_at, total_run_count + 1

In django-celery-beat each beat saves whole rows now and then, as it has read them: over an admin's edit, with counts of
its own. Here ``last_run_at`` is the nominal time, as machines' clocks differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import Error, close_old_connections
from django.db.models import Case, F, Value, When

from cronsensus.integrations.celery.beat import JOB_HEADER, LONG_AGO, NOT_SENT, TIME_HEADER, TOKEN_HEADER
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import parse_instant

_log = Logger("cronsensus.celery")
_CLOCK = SystemClock()

ASK_EVERY = 1.0
"""Seconds between two looks for the mark of an edit; beat itself asks for it on each tick, 100 times a second."""
_SCHEDULES = ("interval", "crontab", "solar", "clocked")
_JUST_BEFORE = timedelta(microseconds=1)


class RowEntry:
    """An entry that never saves its row; mixed in before ``ModelEntry``."""

    app: Any
    model: Any
    schedule: Any
    last_run_at: datetime
    default_now: Any

    def __init__(self, model: Any, app: Any = None) -> None:
        """Read a row."""
        super().__init__(model, app=app)  # type: ignore[call-arg] # ModelEntry's
        last = self.last_run_at
        if model.clocked_id is not None and self.schedule is not None:
            # Due once, however late its row was written: also "now", which was before that.
            self.last_run_at = min(_aware(last), self.schedule.clocked_time - _JUST_BEFORE)
        elif model.start_time is not None:
            # Of a row with a start it is decades ago, and the times since would be counted one by one.
            self.last_run_at = max(_aware(last), _aware(self._default_now()) - LONG_AGO)

    def _default_now(self) -> datetime:
        """Return the store's time, as the row has its times."""
        return _as_stored(self.default_now())

    def is_due(self) -> Any:
        """Return whether the row is due; one that is over is disabled."""
        model = self.model
        if model.enabled and model.one_off and model.total_run_count > 0:
            self._disable(model)  # sent by a beat without this
        return super().is_due()  # type: ignore[misc]

    def _disable(self, model: Any) -> None:
        """Disable a row that can be sent no more, unless it was edited since it was read."""
        model.enabled = False
        read = {name: getattr(model, name) for name in ("one_off", "expires", "args", "kwargs")}
        reset = {"total_run_count": 0} if model.one_off else {}
        rows = type(model)._default_manager.filter(pk=model.pk, enabled=True, **read)
        rows.update(enabled=False, last_run_at=None, **reset)

    def __next__(self) -> RowEntry:
        """Return the entry after a time that this beat, or another one, sends. The count is the winner's to write."""
        self.model.last_run_at = self._default_now()
        return type(self)(self.model, app=self.app)

    def save(self) -> None:
        """Do nothing: the beat that sends writes."""


class RowScheduler:
    """A scheduler that writes to a row only what it sent; mixed in before ``DatabaseScheduler``."""

    app: Any
    Entry: Any
    Model: Any
    Changes: Any
    _heap_invalidated: bool
    _asks_at = 0.0

    def reserve(self, entry: Any) -> Any:
        """Return the entry after this time; there is nothing to save."""
        return next(entry)

    def schedule_changed(self) -> bool:
        """Return whether rows were edited, by the mark that each edit leaves; asked for once a second."""
        now = _CLOCK.monotonic()
        if now < self._asks_at:
            return False
        self._asks_at = now + ASK_EVERY
        changed: bool = super().schedule_changed()  # type: ignore[misc]
        return changed

    def schedules_equal(self, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
        """Return whether the heap is still of this schedule: entries are not compared, a read of the rows says so."""
        read_anew, self._heap_invalidated = self._heap_invalidated, False
        return old is not None and new is not None and len(old) == len(new) and not read_anew

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002
        """Send a time that was won, as its row is now; ``NOT_SENT``: the row is gone, disabled, or was over before."""
        if advance:
            self.reserve(entry)
        close_old_connections()
        marks = {name: entry.options["headers"][name] for name in (JOB_HEADER, TIME_HEADER, TOKEN_HEADER)}
        time = _as_stored(parse_instant(marks[TIME_HEADER]))
        row = self._read_to_send(entry.model, time)
        if row is None:
            return NOT_SENT
        current = self.Entry(row, app=self.app)
        headers = {**(current.options.get("headers") or {}), **marks}
        current.options = {**current.options, "task_id": entry.options["task_id"], "headers": headers}
        result = super().apply_async(current, producer=producer, advance=False, **options)  # type: ignore[misc]
        if not row.one_off:
            self._record_send(row, time)
        return result

    def _read_to_send(self, model: Any, time: datetime) -> Any:
        """Return the row as it is now, if this time of it is to be sent; of ``one_off`` it is disabled by that."""
        found = self.Model._default_manager.filter(pk=model.pk)
        row = found.select_related(*_SCHEDULES).first()
        if row is not None and row.one_off:
            # Before it is sent: of two beats that won two times of it, the first to do this sends.
            ended = found.filter(enabled=True, one_off=True).update(enabled=False, last_run_at=time, total_run_count=0)
            model.enabled = False
            # Disabled for this very time: by a beat that died before it sent.
            to_send = ended or found.filter(enabled=False, one_off=True, last_run_at=time).exists()
            if to_send:
                self.Changes.update_changed()
        else:
            to_send = row is not None and row.enabled
        if not to_send:
            _log.info("%s at %s is not sent: its row was deleted or disabled", model.name, time)
        return row if to_send else None

    def _record_send(self, row: Any, time: datetime) -> None:
        later = Case(When(last_run_at__gt=time, then=F("last_run_at")), default=Value(time))
        try:
            enabled = self.Model._default_manager.filter(pk=row.pk, enabled=True)  # else the admin has reset it
            enabled.update(last_run_at=later, total_run_count=F("total_run_count") + 1)
        except Error as error:  # it is sent, and the ledger knows it
            _log.warning("%s was sent, but last_run_at and total_run_count could not be written: %s", row.name, error)


@lru_cache(maxsize=16)
def write_by_winner(base: Any) -> Any:
    """Return a ``DatabaseScheduler``, or a subclass, whose rows are written by the beat that sends."""
    entries = type(base.Entry.__name__, (RowEntry, base.Entry), {"__module__": __name__})
    return type(base.__name__, (RowScheduler, base), {"Entry": entries, "__module__": __name__})


def _aware(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _as_stored(time: datetime) -> datetime:
    if getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True):
        return time
    return time.astimezone(UTC).replace(tzinfo=None)
