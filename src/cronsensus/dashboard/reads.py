"""What the pages show, read from a store: bounded lists, and nothing that is counted over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsensus.dashboard.job_index import JobIndex, text_of
from cronsensus.insight.clock_changes import describe_local_time
from cronsensus.insight.sentences import Sentence
from cronsensus.insight.summaries import job_next, job_state
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobView, is_internal
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

DAY = timedelta(days=1)
PAGE = 50
STRIP = 30
"""Verdicts in the strip of a job."""
MEASURED = 100
"""Runs of which it is said how long they took."""
ONLY = ("failing", "missed", "paused")
_BY_VERDICT = ("failing", "missed")
_LATEST = datetime.max.replace(tzinfo=UTC)
_AT_ONCE = PAGE + 1
_MOST_FAILING = 500
"""Failures, the newest, among whose jobs those are looked for that fail."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cell of a strip: a verdict on ``count`` nominal times, or on one occurrence."""

    state: str
    at: datetime
    count: int = 1
    reason: str = ""
    occurrence: Glance | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as a line of a list.

    Attributes:
        changes: what a clock change has to do with its next time; ``None``: nothing.
        trouble: ``failing``, ``missed`` or nothing.
    """

    view: JobView
    state: str
    next_in: str
    next_at: str
    changes: Sentence | None
    strip: tuple[Verdict, ...]
    trouble: str
    p50: timedelta | None
    p95: timedelta | None

    @property
    def last(self) -> Verdict | None:
        """The newest verdict, or where the newest occurrence stands."""
        return self.strip[-1] if self.strip else None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs by name; ``more``: the name after which the next page begins."""

    rows: tuple[JobRow, ...]
    more: str | None
    stopped: bool = False


def read_strip(past: Past, length: int = STRIP) -> tuple[Verdict, ...]:
    """Return the last verdicts of a job, the newest last: those of occurrences, and those that made none."""
    made = past.glances[:length]
    cells = [Verdict(one.state, one.scheduled_for or one.due_at, 1, one.reason or "", one) for one in made]
    since = min((cell.at for cell in cells), default=None) if len(made) == length else None
    cells += [
        Verdict(one.range.state, one.range.last, one.range.count or 1, one.range.reason)
        for one in past.ranges
        if since is None or one.range.last >= since
    ]
    return tuple(sorted(cells, key=lambda cell: cell.at)[-length:])


def job_row(view: JobView, past: Past, now: datetime) -> JobRow:
    """Return a job as a line of a list."""
    known, (next_in, next_at) = job_state(view), job_next(view, now)
    cells = read_strip(past)
    trigger, due = view.spec.trigger, view.next_due
    changes = (
        describe_local_time(trigger, due, now)
        if trigger is not None and due is not None and known.state == "active"
        else None
    )
    p50, p95 = read_percentiles(past.glances)
    return JobRow(view, known.state, next_in, next_at, changes, cells, _trouble(cells), p50, p95)


def read_percentiles(glances: Iterable[Glance]) -> tuple[timedelta | None, timedelta | None]:
    """Return what half of the runs that succeeded took at most, and what 95 of 100 did."""
    took = sorted(
        one.finished_at - one.begun_at
        for one in glances
        if one.state is State.SUCCEEDED and one.begun_at is not None and one.finished_at is not None
    )
    if not took:
        return None, None
    return took[(len(took) - 1) // 2], took[-(-95 * len(took) // 100) - 1]


def _trouble(cells: Sequence[Verdict]) -> str:
    """Return ``failing``: the newest final verdict is a failure; ``missed``: a time of the strip was; or nothing."""
    final = [cell.state for cell in cells if cell.state not in {"running", "pending"}]
    if final and final[-1] == "failed":
        return "failing"
    return "missed" if "missed" in final else ""


def job_page(store: Store, index: JobIndex, *, after: str = "", words: str = "", only: str = "") -> JobPage:
    """Return a page of jobs whose name, function or schedule holds each of ``words``; those in trouble stand first.

    Args:
        store: has the jobs.
        index: finds them by words.
        after: the name after which the page begins.
        words: what to look for.
        only: ``failing``, ``missed`` or ``paused``; else all.
    """
    wanted = words.lower().split()
    views, last = _candidates(store, index, wanted, only, after)
    some = [view for view in views if view.retired_at is None and all(word in text_of(view) for word in wanted)]
    found = _only(store, some, only)
    stopped = last is not None and len(found) <= PAGE
    more = found[PAGE - 1].spec.name if len(found) > PAGE else last
    now = store.now()
    pasts = store.last_of([view.spec.name for view in found[:PAGE]], limit=STRIP)
    rows = [job_row(view, pasts.get(view.spec.name, Past()), now) for view in found[:PAGE]]
    rows.sort(key=lambda row: (row.trouble != "failing", row.trouble != "missed", row.view.next_due or _LATEST))
    return JobPage(tuple(rows), more, stopped)


def _candidates(
    store: Store, index: JobIndex, words: Sequence[str], only: str, after: str
) -> tuple[list[JobView], str | None]:
    """Return a page of jobs, and one more, among which those stand that are looked for, and the last if others follow.

    Of more than that it is not looked whether they are what they should be: the list says so, and goes on.
    """
    if only == "failing":
        failed = store.occurrences(OccurrenceFilter(states=(State.FAILED,)), limit=_MOST_FAILING)
        names = sorted({one.job for one in failed if one.job > after})
        found = [view for name in names[:_AT_ONCE] if (view := store.job(name)) is not None]
        return found, names[_AT_ONCE - 1] if len(names) > _AT_ONCE else None
    if words or only == "paused":
        names, more = index.find_names(store, words, paused=only == "paused", after=after, limit=_AT_ONCE)
        return index.read_views(store, names), more
    found = store.jobs(after=after, limit=_AT_ONCE)
    shown = [view for view in found if not is_internal(view.spec.name)]
    return shown, found[-1].spec.name if only and len(found) == _AT_ONCE else None


def _only(store: Store, views: list[JobView], only: str) -> list[JobView]:
    if only == "paused":
        return [view for view in views if view.paused_at is not None]
    if only in _BY_VERDICT:
        pasts = store.last_of([view.spec.name for view in views], limit=STRIP)
        return [view for view in views if _trouble(read_strip(pasts.get(view.spec.name, Past()))) == only]
    return views
