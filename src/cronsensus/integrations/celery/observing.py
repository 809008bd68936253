"""``configure(app, observe=True)``: beat sends as without it, and its sends are counted.

The scheduler stays the program's own, with its intervals, its file, and its ids of tasks. A send is counted under the
time that a guarded beat would use: for an interval, the latest multiple since 1970. So beats whose intervals count from
their own starts count as sending the same time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cronsensus.errors import ConfigurationError
from cronsensus.external.observing import Observation, wants_observing
from cronsensus.integrations.celery.entries import is_taken_out, without_marks
from cronsensus.integrations.celery.naming import job_name
from cronsensus.integrations.celery.nominal_times import shared_form
from cronsensus.integrations.celery.part import make_scheduler, options_of
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.celery")
_CLOCK = SystemClock()
_A_DAY, _A_YEAR = timedelta(days=1), timedelta(days=366)


def observes(app: Any) -> bool:
    """Whether the beat of an app is only observed.

    Raises:
        InvalidOption: the environment says neither yes nor no.
    """
    return wants_observing(options_of(app).observe)


def observe_beat(scheduler: Any) -> Any:
    """Count what a scheduler of beat sends; return it. Opens nothing until it sends.

    Raises:
        ConfigurationError: no store is named.
    """
    if "_cronsensus_observer" not in scheduler.__dict__:
        scheduler._cronsensus_observer = Observer(scheduler, Observation(make_scheduler(options_of(scheduler.app))))
    return scheduler


class Observer:
    """Wraps two methods of a scheduler."""

    def __init__(self, scheduler: Any, observation: Observation) -> None:
        """Replace them; any subclass of beat's scheduler sends by ``apply_async``."""
        self._app = scheduler.app
        self._observation = observation
        self._unnamed: set[str] = set()
        self._apply_async = scheduler.apply_async
        self._close = scheduler.close
        scheduler.apply_async = self._on_apply_async
        scheduler.close = self._on_close

    def _on_apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        # Before it is sent: a slow broker must not move it into the next interval.
        nominal = None if is_taken_out(entry) else self._find_time(entry)
        result = self._apply_async(without_marks(entry), *args, **kwargs)
        if nominal is not None:
            self._observation.note(job_name(entry.name), nominal)
        return result

    def _find_time(self, entry: Any) -> datetime | None:
        try:
            nominal, why = latest_time(entry, self._app, _CLOCK.now()), "its schedule names no times"
        except Exception as error:  # noqa: BLE001 - of a schedule of the user's: it is sent all the same
            nominal, why = None, f"its schedule names no times: {error}"
        if nominal is None and entry.name not in self._unnamed:
            self._unnamed.add(entry.name)
            _log.warning("not observed, and refused without observe: the entry %r: %s", entry.name, why)
        return nominal

    def _on_close(self) -> None:
        try:
            self._close()
        finally:
            self._observation.close()


def make_bare_where_observed(guarded: Any, base: Any) -> None:
    """Let a guarded class of schedulers make an instance of ``base`` if the app is only observed.

    So a command line that names the guarded class runs as it would without it.
    """

    def make(kind: Any, *args: Any, **kwargs: Any) -> Any:
        app = kwargs.get("app", args[0] if args else None)
        if app is None or not observes(app):
            return object.__new__(kind)
        if kind is not guarded:
            raise ConfigurationError(
                f"observe=True runs beat as it is without the guard, and {kind.__qualname__} has it as a base; write "
                "it over the scheduler itself, and wrap that: wrap(OwnScheduler)"
            )
        return observe_beat(base(*args, **kwargs))  # of no subclass of ``guarded``, so it is not initialized twice

    guarded.__new__ = make


def latest_time(entry: Any, app: Any, now: datetime) -> datetime | None:
    """Return the nominal time under which a send of an entry is counted now; ``None``: its schedule names no times."""
    shared = shared_form(entry.schedule, app, lambda: now)
    if shared is None:
        return None
    # Times of a schedule of the user's are found one by one: from its last run on, which it has until it is sent.
    day_ago = now - _A_DAY
    last = shared.maybe_make_aware(entry.last_run_at or day_ago).astimezone(UTC)
    latest: datetime | None = shared.latest_until(now, max(last, day_ago)) or shared.latest_until(now, now - _A_YEAR)
    return latest
