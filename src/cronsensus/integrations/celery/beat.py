"""Celery's beat on several machines: each time of an entry is sent by exactly one of them.

::

    tick ──▶ is_due ──▶ acquire (entry, nominal time) ──▶ won: apply_entry sends, and it is recorded as sent
                            │                               └── not sent: any beat tries again
                            ├──▶ lost: another beat has it; this one goes on to the next time
                            └──▶ the store is away: not sent, tried again each second

Only methods of ``celery.beat.Scheduler`` are overridden, so its heap, its options and the additions of subclasses stay.
If a beat dies between winning and sending, another beat sends. The task's id is made of entry and time, so it is the
same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery import beat
from celery.schedules import schedstate

from cronsensus.errors import ConfigurationError, LeaseLost, StoreError
from cronsensus.integrations.celery.entries import is_taken_out, options_of_celery, with_options, without_marks
from cronsensus.integrations.celery.naming import (
    JOB_HEADER,
    OVERDUE_HEADER,
    TIME_HEADER,
    TOKEN_HEADER,
    entry_spec,
    job_name,
    task_id,
)
from cronsensus.integrations.celery.nominal_times import SharedTimes
from cronsensus.integrations.celery.part import Part, clock_of, is_guarded, options_of
from cronsensus.lifecycle.starting import may_come
from cronsensus.model.acquiring import Ask, NotWon
from cronsensus.model.ends import Again, Final, Then
from cronsensus.model.job import BEAT, JobSpec
from cronsensus.model.states import State
from cronsensus.outside import Outside, Won
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.durations import format_duration, parse_duration
from cronsensus.timing.instants import format_instant

_log = Logger("cronsensus.celery")

if TYPE_CHECKING:
    from cronsensus.stores.base import Store

_CLOCK = SystemClock()
AGAIN = 1.0
"""Seconds between two tries to reach the store."""
LOOK = 60.0
"""Seconds between two searches for what other beats left, if beat ticks that often."""
BEAT_DRAIN = timedelta(seconds=1)
"""How long a beat waits at its end for records on their way. If a signal cuts off a send, another beat sends."""
MOST_TOGETHER = 200
"""Most entries that are acquired in a single step of the store."""
PAGE = 500
LONG_AGO = timedelta(days=366)
NOT_SENT = False
"""What ``apply_async`` returns if this beat does not send."""
SENT = "sent"
"""The reason and note of a time that was sent: it waits for a worker, or its end is not known here."""
GONE = "disabled"
"""The reason of a time that was not sent, because its entry was deleted or disabled meanwhile."""
LOST_AFTER = timedelta(days=2)
"""How long a message waits for a worker before it counts as lost. It is not sent again: it may be in a queue."""


class BeatScheduler(beat.Scheduler):  # type: ignore[misc]
    """The mixin that ``wrap`` puts before a scheduler class of beat."""

    _keeps_last_runs = True
    """Whether the scheduler itself remembers when an entry was sent last."""

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        """Open nothing; ``lazy`` schedulers are made only to be inspected."""
        self._clock = clock_of(app)
        self._part = Part(app)
        self._tries_at = 0.0
        self._away = False
        self._answered: dict[str, Won | None] = {}
        """By entry, until it is applied: the claim that was won on the due time; ``None``: another beat has it."""
        self._asked: dict[str, datetime] = {}
        """By entry: the latest nominal time that was decided, here or elsewhere."""
        self._entries: dict[str, Any] = {}
        """By job: the entry as last acquired, for the thread that sends what others left."""
        self._of_own_id: set[str] = set()
        """The entries that give all their times one id, of which the log has a warning."""
        self._looks_at = 0.0
        self._thread = threading.current_thread()
        super().__init__(app, *args, **kwargs)

    # --- what beat calls ----------------------------------------------------------------------------------------------

    def setup_schedule(self) -> None:
        """Read the schedule, and go on where the previous beats ended.

        Raises:
            ConfigurationError: no store is named, or a schedule names no times.
        """
        super().setup_schedule()
        self._adopt_entries()
        self._find_outside()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send a due entry; return the seconds until the next tick."""
        outside = self._find_outside()
        if outside is not None:
            self._look_for_leftovers(outside)
        wait: float = super().tick(*args, **kwargs)
        return min(wait, AGAIN) if outside is None or self._away else wait

    def populate_heap(self, *args: Any, **kwargs: Any) -> None:
        """Put all entries in order of their due times."""
        self._adopt_entries()
        schedule = self.schedule
        for name in [name for name in self._answered if name not in schedule]:
            self._release(name)
        super().populate_heap(*args, **kwargs)

    def is_due(self, entry: Any) -> Any:
        """Return whether an entry is due, and acquire its time.

        Beat advances an entry before it sends it. Acquired before that, it stays due if the store is away.
        """
        due, following = super().is_due(entry)
        if not _is_guarded(entry):
            return schedstate(due, following)
        if due and self._thread is threading.current_thread():
            # Beat connects to the broker before it sends, and may wait for it: connect before winning times.
            _ = self.producer
        if not due:
            self._release(entry.name)
        elif entry.name not in self._answered and not self._acquire(self._list_due_with(entry)):
            return schedstate(is_due=False, next=AGAIN)
        return schedstate(due, following)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a time that was won; log nothing about a time that another beat has won."""
        try:
            result = self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:  # noqa: BLE001 - as beat does: logged, and the others go on
            beat.error("Message Error: %s", error, exc_info=True)
        else:
            if result is not NOT_SENT:
                beat.info("Scheduler: Sent due task %s (%s)", entry.name, entry.task)
                if hasattr(result, "id"):
                    beat.debug("%s sent. id->%s", entry.task, result.id)
                else:
                    beat.debug("%s sent.", entry.task)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002
        """Send the latest time of an entry, if this beat wins it; ``NOT_SENT``: it does not."""
        if not _is_guarded(entry):
            return super().apply_async(without_marks(entry), producer=producer, advance=advance, **options)
        if entry.name not in self._answered and not self._acquire([entry], due=False):
            return NOT_SENT  # and not advanced: it is still due
        won = self._answered.pop(entry.name)
        if won is None:
            if advance:
                self.reserve(entry)
            return NOT_SENT
        return self._send(entry, won, producer=producer, advance=advance, **options)

    def should_sync(self) -> Any:
        """Return whether it is time to write the schedule to its file."""
        # The thread that sends what others left must not write the shelve.
        return threading.current_thread() is self._thread and super().should_sync()

    def close(self) -> None:
        """Write the schedule, release what was won, and leave the store."""
        try:
            super().close()
        finally:
            for name in list(self._answered):
                self._release(name)
            self._part.close(wait=BEAT_DRAIN)

    # --- the store ----------------------------------------------------------------------------------------------------

    def _find_outside(self) -> Outside | None:
        """Return the access to the store, opened at the first try that reaches it; ``None``: the store is away."""
        part, now = self._part, _CLOCK.monotonic()
        if not part.is_open and now < self._tries_at:
            return None
        first = not part.is_open
        try:
            outside = part.outside()
            self._clock.read_when_due(part.now)
        except StoreError as error:
            if first and not may_come(error):
                raise
            self._tries_at = now + AGAIN
            self._report_away(error)
            return None
        if first:
            outside.on_leftover(self._send_leftover)
            self._catch_up(part)
        return outside

    def _catch_up(self, part: Part) -> None:
        """Go on after the last time that any beat has decided, so that a restart loses no time."""
        watermarks = _read_watermarks(part.store)
        guarded = {job_name(entry.name): entry for entry in self.schedule.values() if _is_guarded(entry)}
        self._entries.update(guarded)
        part.outside().declare(*map(_spec_of, guarded.values()))
        for job, entry in guarded.items():
            watermark = watermarks.get(job)
            if watermark is None:
                continue
            last = entry.schedule.maybe_make_aware(entry.last_run_at)
            if not self._keeps_last_runs or last < watermark:
                entry.last_run_at = watermark.astimezone(last.tzinfo)
            self._asked[entry.name] = watermark
        self._heap = None  # its times were made of the previous last runs

    def _list_due_with(self, entry: Any) -> list[Any]:
        """Return an entry with the other due entries of the heap, to be acquired in a single step."""
        heap: list[Any] = getattr(self, "_heap", None) or []
        now = self._when(entry, 0)
        due_entries, places = [entry], [0]
        while places and len(due_entries) < MOST_TOGETHER:
            place = places.pop()
            if place >= len(heap) or heap[place].time > now:
                continue
            other = heap[place].entry
            if other is not entry and _is_guarded(other) and other.name not in self._answered and other.is_due()[0]:
                due_entries.append(other)
            places += (2 * place + 1, 2 * place + 2)
        return due_entries

    def _acquire(self, entries: Sequence[Any], *, due: bool = True) -> bool:
        """Acquire the latest time of entries; ``False``: it is not known yet who has that of the first.

        Args:
            entries: at least one entry.
            due: acquire only times after the last run; else the latest time, if nobody has sent it.
        """
        outside = self._find_outside()
        if outside is None:
            return False
        asks: dict[str, tuple[JobSpec, Ask]] = {}
        for entry in entries:
            self._entries[job_name(entry.name)] = entry
            nominal = self._latest_time(entry, due=due)
            if nominal is None:
                self._answered[entry.name] = None
            else:
                spec = _spec_of(entry)
                asks[entry.name] = spec, Ask(spec.name, (nominal,))
        try:
            answers = outside.acquire(list(asks.values())) if asks else []
        except (StoreError, LeaseLost) as error:
            self._report_away(error)
            return False
        if self._away and asks:
            self._away = False
            _log.warning("the store answers again; what is due now is sent")
        for (name, (_, ask)), [answer] in zip(asks.items(), answers, strict=True):
            if isinstance(answer, Won) or answer.why is not NotWon.EARLY:
                self._asked[name] = ask.times[0]
                self._answered[name] = answer if isinstance(answer, Won) else None
        return entries[0].name in self._answered

    def _latest_time(self, entry: Any, *, due: bool) -> datetime | None:
        now = self._clock.now()
        last = entry.schedule.maybe_make_aware(entry.last_run_at).astimezone(UTC)
        after = max(last, self._asked.get(entry.name, last))
        latest: datetime | None = entry.schedule.latest_until(now, after)
        return entry.schedule.latest_until(now, now - LONG_AGO) if latest is None and not due else latest

    def _release(self, name: str) -> None:
        """Release the time of an entry that was won and is no longer due, because the entry was changed."""
        won = self._answered.pop(name, None)
        if won is not None:
            self._part.outside().release(won)

    def _report_away(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            _log.error("the store cannot be asked, so beat sends nothing until it can: %s", error)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, entry: Any, won: Won, **options: Any) -> Any:
        outside = self._part.outside()  # open already, because a time was won
        try:
            result = super().apply_async(_with_id(entry, won), **options)
        except BaseException as error:
            # The first beat that finds it sends it. A broker that is away is no failure of the task.
            again = Again(timedelta(0), failed=False, reason=f"not sent: {error}")
            outside.settle(won, again, on_recorded=lambda _: outside.look_for_leftovers())
            raise
        outside.settle(won, Final(State.SKIPPED, GONE) if result is NOT_SENT else self._end_of_sending(entry))
        return result

    def _end_of_sending(self, entry: Any) -> Then:
        """Return the end of a time that was sent. If its task is guarded, the worker goes on with it."""
        task = self.app.tasks.get(entry.task)
        if task is None or not is_guarded(task):
            return Final(State.SUCCEEDED, SENT)
        if "task_id" in (entry.options or {}):
            self._warn_of_own_id(entry)
            return Final(State.SUCCEEDED, SENT)
        return Again(LOST_AFTER, failed=False, reason=SENT, note=SENT)

    def _warn_of_own_id(self, entry: Any) -> None:
        """Warn of an entry that gives all its times one id: to the guard of tasks, that is a single task."""
        if entry.name not in self._of_own_id:
            self._of_own_id.add(entry.name)
            keep = format_duration(options_of(self.app).keep)
            _log.warning(
                "entry %r has a task_id, so each time is sent under one id: %s runs once in %s, and each other time "
                "gets that result; leave task_id out",
                entry.name, entry.task, keep,
            )  # fmt: skip

    def _end_of_waiting(self, won: Won) -> Then:
        """Return the end of a time whose task does not run: its message is somewhere, even if a worker died.

        It may be a retry, or a worker's crash may have left it with the broker. So only time shows that it is lost.
        """
        remaining = LOST_AFTER - (self._clock.now() - won.time)
        if remaining > timedelta(0):
            return Again(remaining, failed=False, reason=SENT, note=SENT)
        return Final(State.FAILED, f"lost: its task has not ended in {LOST_AFTER.days} days")

    def _look_for_leftovers(self, outside: Outside) -> None:
        now = _CLOCK.monotonic()
        if now >= self._looks_at:
            self._looks_at = now + LOOK
            outside.look_for_leftovers()

    def _send_leftover(self, won: Won) -> None:
        """Send a time that a beat won and did not send, or did not record as sent: under the same id."""
        entry, outside = self._entries.get(won.claim.job), self._part.outside()
        if entry is None or won.claim.scheduled_for is None:
            _log.info("%s was left by another beat, and is no entry of this one", won)
            outside.release(won)
            outside.withdraw(won.claim.job)
            return
        if won.claim.note == SENT:
            outside.settle(won, self._end_of_waiting(won))
            return
        try:
            self._send(entry, won, producer=None, advance=False)
        except Exception as error:  # noqa: BLE001 - logged as an error at first; it is tried again each second
            _log.debug("%s could not be sent yet: %s", won, error)
        else:
            _log.warning("%s was not sent by the beat that had won it: it is sent now", won)

    # --- entries ------------------------------------------------------------------------------------------------------

    def _adopt_entries(self) -> None:
        """Convert each entry to the shared class: a shelve returns them as beat's own.

        Raises:
            ConfigurationError: a schedule names no times.
        """
        schedule = self.schedule
        for name, entry in list(schedule.items()):
            if not isinstance(entry, self.Entry):
                adopted = object.__new__(self.Entry)
                adopted.__dict__.update({**entry.__dict__, "app": self.app})
                adopted.schedule = entry.schedule
                schedule[name] = adopted
        unnamed = [
            name for name, entry in list(schedule.items())
            if not is_taken_out(entry) and not isinstance(entry.schedule, SharedTimes)
        ]  # fmt: skip
        if unnamed:
            raise ConfigurationError(
                f"the schedules of {', '.join(map(repr, unnamed))} name no times, so no beat can tell another what it "
                "has sent; implement remaining_estimate(last_run_at), or take the entry out, and each beat sends it: "
                "'options': {'once': False}"
            )


def _read_watermarks(store: Store) -> dict[str, datetime]:
    """Return the latest decided time of each entry, by the name of its job."""
    watermarks: dict[str, datetime] = {}
    after = BEAT
    while page := store.jobs(after=after, limit=PAGE):
        watermarks.update((view.spec.name, view.watermark) for view in page if view.spec.name.startswith(BEAT))
        after = page[-1].spec.name
        if len(page) < PAGE or not after.startswith(BEAT):
            break
    return watermarks


def _is_guarded(entry: Any) -> bool:
    return isinstance(entry.schedule, SharedTimes) and not is_taken_out(entry)


def _spec_of(entry: Any) -> JobSpec:
    return entry_spec(job_name(entry.name), _overdue_of(entry))


def _overdue_of(entry: Any) -> timedelta | None:
    overdue = (entry.options or {}).get("overdue")
    return None if overdue is None else parse_duration(overdue, what=f"overdue of {entry.name!r}")


def _with_id(entry: Any, won: Won) -> Any:
    options = options_of_celery(entry)
    options.setdefault("task_id", task_id(entry.name, won.time))
    headers = {JOB_HEADER: won.claim.job, TIME_HEADER: format_instant(won.time), TOKEN_HEADER: won.claim.token}
    if (overdue := _overdue_of(entry)) is not None:
        headers[OVERDUE_HEADER] = overdue.total_seconds()
    options["headers"] = {**(options.get("headers") or {}), **headers}
    return with_options(entry, options)
