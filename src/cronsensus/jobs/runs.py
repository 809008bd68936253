"""List runs, in pages, and find the next time of a job, for programs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice, takewhile

from cronsensus.declared.declarations import Named, name_of
from cronsensus.errors import InvalidDuration, InvalidOption, UnknownJob
from cronsensus.jobs.acting import Acts, unknown_job
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.process.twins import twin
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers.zones import instant_in

MOST_LISTED = 1000
"""Most runs of one answer."""


class Runs:
    """The runs in a scheduler's store, with or without a node in this process."""

    def __init__(self, acts: Acts) -> None:
        """Read the store of ``acts``."""
        self._acts = acts

    def runs(
        self,
        job: str | Named | None = None,
        *,
        state: State | str | Iterable[State | str] = (),
        since: Duration | datetime | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Occurrence]:
        """Return runs as they are now, newest first: ``scheduler.runs(state="failed", since="12h")``.

        Example:
            >>> from cronsensus.scheduler import Scheduler
            >>> with Scheduler("memory://") as scheduler:
            ...
            ...     @scheduler.job()
            ...     def fail() -> None:
            ...         raise ValueError("no paper")
            ...
            ...     _ = fail.enqueue().wait("10s")
            ...     [(one.job, one.error.message) for one in scheduler.runs(state="failed", since="12h")]
            [('fail', 'no paper')]

        Args:
            job: a job, or its name; of all jobs without it.
            state: one of ``"pending"``, ``"running"``, ``"succeeded"``, ``"failed"``, ``"cancelled"``, ``"skipped"``,
                ``"missed"``, or several.
            since: only those created since then: ``"12h"`` is twelve hours ago on the store's clock; or a time, which
                without an offset is of the scheduler's zone.
            limit: how many at most, up to 1000.
            after: the ``id`` of the last run of the previous page.

        Raises:
            InvalidOption: an unknown state, an invalid time, or a limit out of range.
            UnknownJob: neither this process nor the store has such a job.
            StoreError: the store could not be read.
        """
        states = _read_states(state)
        if limit not in range(1, MOST_LISTED + 1):
            raise InvalidOption(
                f"limit={limit!r}: write 1 to {MOST_LISTED}; for the next page write after= with the id of the last run"
            )
        name = None if job is None else name_of(job)
        store = self._acts.opened.ready()
        begin = None if since is None else _start_instant(since, store, self._acts.declared.zone)
        wanted = OccurrenceFilter(job=name, states=states)
        newest = every_occurrence(store, wanted, after=after, newest_first=True, page=limit)
        page = list(islice(takewhile(lambda run: begin is None or run.created_at >= begin, newest), limit))
        if not page and name is not None and self._acts.declared.spec(name) is None and store.job(name) is None:
            raise UnknownJob(unknown_job(name))
        return page

    @twin(runs)
    def aruns(self) -> None:
        """Do what ``runs`` does without blocking the event loop."""


def next_time(store: Store, spec: JobSpec) -> datetime | None:
    """Return the next nominal time of a job that is not decided yet; see ``Job.next_time``."""
    view = store.job(spec.name)
    if view is None:
        return None if spec.trigger is None else spec.trigger.next_after(store.now())
    if view.next_due is None or view.retired_at is not None or view.paused_at is not None or view.spec.trigger is None:
        return None
    # Not the due time, which the jitter may make later.
    return view.spec.trigger.next_after(view.watermark) or view.next_due


def _read_states(state: State | str | Iterable[State | str]) -> tuple[State, ...]:
    names = (state,) if isinstance(state, str) else state
    try:
        return tuple(State(name) for name in names)
    except (TypeError, ValueError):
        raise InvalidOption(f"state={state!r}: choose of {', '.join(repr(str(state)) for state in State)}") from None


def _start_instant(since: Duration | datetime, store: Store, zone: str) -> datetime:
    if not isinstance(since, datetime):
        try:
            ago: timedelta = parse_duration(since, what="since")
            return store.now() - ago
        except (InvalidDuration, OverflowError):
            if not isinstance(since, str):
                raise
    return instant_in(since, zone, "since", or_else=", or how long ago: '12h'")
