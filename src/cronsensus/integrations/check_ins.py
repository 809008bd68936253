"""Send check-ins to a service for cron monitoring when a scheduled run begins and ends: it notices missing runs.

Both functions listen to a scheduler's events, so nothing waits for the service, and a check-in may be lost with its
process. The id of a check-in is made of the run's number, so it stays the same if another node takes the run over.
"""

from __future__ import annotations

import atexit
import hashlib
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from uuid import UUID, uuid5

from cronsensus.errors import InvalidOption, MissingExtra
from cronsensus.events import RunEnded, RunStarted
from cronsensus.lifecycle.pinging import ping_url
from cronsensus.model.states import Origin
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.every import Every

if TYPE_CHECKING:
    from cronsensus.model.job import JobSpec
    from cronsensus.scheduler import Scheduler

EXIT_SECONDS = 2.0
"""Seconds for which a process that ends waits for pending pings."""
RETRY_PAUSES = (0.5, 2.0)
"""Seconds before a lost ping is tried again: after the end of a run no other ping follows."""
MOST_WAITING = 1_000
"""Pending pings at most; further pings push out the oldest."""
Status = Literal["begun", "succeeded", "failed"]
Tell = Callable[[RunStarted | RunEnded, Status], None]

_STATUS_OF_END: dict[str, Status] = {
    "succeeded": "succeeded", "skipped": "succeeded", "failed": "failed", "cancelled": "failed",
}  # fmt: skip
_UNITS = (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1)))
_FIELDS_OF_CRON = 5
_LONGEST_SLUG = 50
_RUN_NAMESPACE = UUID("0b1f3f0e-62a5-5f0c-9a55-1c6f3e1d2a77")
_log = Logger("cronsensus.check_ins")


def sentry(scheduler: Scheduler, *, jobs: str | Sequence[str] = "*") -> None:
    """Send a check-in to Sentry Crons when a scheduled run begins and when it ends.

    The monitor is made and kept by the check-ins: its schedule, time zone, margin (``grace``) and longest run
    (``timeout``) are those of the job, its slug is the job's name. Sentry knows cron texts of five fields, and
    intervals of whole minutes; of another job the monitor has to be there already. Call ``sentry_sdk.init(…)`` before.

    Args:
        scheduler: of each replica, before its start.
        jobs: patterns of the names of jobs, as ``"billing-*"``. Defaults to all.

    Raises:
        MissingExtra: ``pip install sentry-sdk``.
    """
    try:
        from sentry_sdk.crons import capture_checkin  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise MissingExtra(
            "check-ins at Sentry need its SDK, which is not installed; pip install sentry-sdk"
        ) from error
    sentry_statuses = {"begun": "in_progress", "succeeded": "ok", "failed": "error"}

    def send_check_in(event: RunStarted | RunEnded, status: Status) -> None:
        spec = scheduler.declared.spec_here(event.job)
        capture_checkin(
            monitor_slug=slug_of(event.job),
            check_in_id=_id_of(event).hex,
            status=sentry_statuses[status],
            duration=event.seconds if isinstance(event, RunEnded) else None,
            monitor_config=None if spec is None else cast("Any", monitor_of(spec)),
        )

    _listen(scheduler, jobs, send_check_in)


def healthchecks(scheduler: Scheduler, url: str, *, jobs: str | Sequence[str] = "*") -> None:
    """Ping healthchecks.io, or a server of its kind, when a scheduled run begins and when it ends.

    Each job has its own check: ``URL/SLUG/start``, then ``URL/SLUG`` or ``URL/SLUG/fail``. A missing check is created,
    with a period of a day: set its schedule and its time zone there.

    Args:
        scheduler: of each replica, before its start.
        url: with the project's ping key, as ``"https://hc-ping.com/PING_KEY"``.
        jobs: patterns of the names of jobs, as ``"billing-*"``. Defaults to all.

    Raises:
        InvalidOption: no such URL.
    """
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).path.strip("/"):
        raise InvalidOption(f"healthchecks({url!r}): write https://hc-ping.com/PING_KEY, with the project's ping key")
    path_of_status = {"begun": "/start", "succeeded": "", "failed": "/fail"}
    pinging = _Pinging()

    def send_check_in(event: RunStarted | RunEnded, status: Status) -> None:
        check = f"{url.rstrip('/')}/{quote(slug_of(event.job))}{path_of_status[status]}"
        error = event.error if isinstance(event, RunEnded) else None
        message = "" if error is None else f"{error.type}: {error.message}"
        pinging.send(f"{check}?create=1&rid={_id_of(event)}", message.encode()[:10_000])

    _listen(scheduler, jobs, send_check_in)


def slug_of(job: str) -> str:
    """Return the name of a job in the form of these services; with a hash, if the form loses a part of it.

    Example:
        >>> slug_of("billing:Close day")
        'billing-close-day'
    """
    slug = re.sub(r"[^a-z0-9_-]+", "-", job.lower()).strip("-")
    if not job.isascii() or len(slug) > _LONGEST_SLUG:  # else many jobs would have one check
        slug = f"{slug[: _LONGEST_SLUG - 9]}-{hashlib.sha256(job.encode()).hexdigest()[:8]}"
    return slug.strip("-") or "job"


def monitor_of(spec: JobSpec) -> dict[str, Any] | None:
    """Return a job's definition as Sentry wants it; ``None``: Sentry has no such schedule."""
    trigger, policies = spec.trigger, spec.policies
    schedule = _schedule_of(trigger)
    if schedule is None:
        return None
    config: dict[str, Any] = {"schedule": schedule, "timezone": trigger.tz if isinstance(trigger, Cron) else "UTC"}
    if policies.grace is not None:
        config["checkin_margin"] = _minutes(policies.grace)
    if policies.timeout is not None:
        config["max_runtime"] = _minutes(policies.timeout)
    return config


def _schedule_of(trigger: Any) -> dict[str, Any] | None:
    if isinstance(trigger, Cron) and len(trigger.expression.split()) == _FIELDS_OF_CRON:
        return {"type": "crontab", "value": trigger.expression}
    if isinstance(trigger, Every):
        for unit, length in _UNITS:
            if trigger.interval % length == timedelta(0):
                return {"type": "interval", "value": trigger.interval // length, "unit": unit}
    return None


def _minutes(span: timedelta) -> int:
    return max(1, math.ceil(span / timedelta(minutes=1)))


def _id_of(event: RunStarted | RunEnded) -> UUID:
    return uuid5(_RUN_NAMESPACE, f"{event.job}\n{event.scheduled_for}\n{event.occurrence}")


def _listen(scheduler: Scheduler, jobs: str | Sequence[str], send_check_in: Tell) -> None:
    patterns = (jobs,) if isinstance(jobs, str) else tuple(jobs)

    def is_meant(event: RunStarted | RunEnded) -> bool:
        if scheduler._opened.is_swapped:  # noqa: SLF001 - a test: no request leaves it
            return False
        return event.origin is Origin.SCHEDULE and any(fnmatchcase(event.job, pattern) for pattern in patterns)

    @scheduler.on(RunStarted)
    def begun(event: RunStarted) -> None:
        if is_meant(event):
            send_check_in(event, "begun")

    @scheduler.on(RunEnded)
    def ended(event: RunEnded) -> None:
        # A run that is retried, released or taken over has not ended.
        if (status := _STATUS_OF_END.get(event.end)) is not None and is_meant(event):
            send_check_in(event, status)


class _Pinging:
    """Pings one after the other on a thread of its own, so that no other subscriber waits for it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MOST_WAITING)
        self._asked = Event()
        self._idle = Event()
        self._paused = Event()
        self._thread: threading.Thread | None = None
        self._failed = False

    def send(self, url: str, body: bytes) -> None:
        """Ping soon; called only by the thread of the subscribers."""
        self._idle.clear()
        self._waiting.append((url, body))
        self._asked.set()
        if self._thread is None or not self._thread.is_alive():  # the first time, or in a fork
            self._thread = threading.Thread(target=self._ping_next, name="cronsensus-check-ins", daemon=True)
            self._thread.start()
            atexit.register(self._idle.wait, EXIT_SECONDS)  # else the last run of a process that leaves looks lost

    def _ping_next(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            while self._waiting:
                self._ping(*self._waiting.popleft())
            self._idle.set()

    def _ping(self, url: str, body: bytes) -> None:
        for pause in (*RETRY_PAUSES, None):
            try:
                ping_url(url, body)
            except Exception as error:  # noqa: BLE001 - logged; the next ping may arrive
                if pause is not None and _may_arrive_later(error):
                    self._paused.wait(pause)
                    continue
                if not self._failed:
                    # Not the whole URL: who knows the key may ping in our place.
                    _log.warning("no ping of a run reaches %s (%s)", urlsplit(url).hostname, error)
                self._failed = True
            else:
                self._failed = False
            return


def _may_arrive_later(error: Exception) -> bool:
    return not isinstance(error, HTTPError) or error.code >= 500 or error.code == HTTPStatus.TOO_MANY_REQUESTS
