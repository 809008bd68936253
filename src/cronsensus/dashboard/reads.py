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
STRIP_LENGTH = 30
"""Verdicts in a job's strip: the row of small cells beside its name, one for each of its last verdicts."""
MOST_MEASURED = 100
"""Runs whose durations are measured."""
JOB_FILTERS = ("failing", "missed", "paused")
_VERDICT_FILTERS = ("failing", "missed")
_NO_NEXT_TIME = datetime.max.replace(tzinfo=UTC)
_PAGE_AND_ONE = PAGE + 1
_MOST_FAILURES = 500
"""The newest failures, whose jobs are checked for failing."""


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
        changes: how a clock change affects its next time; ``None``: not at all.
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
        """The newest verdict, or the state of the newest occurrence."""
        return self.strip[-1] if self.strip else None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs by name.

    Attributes:
        more: the name after which the next page begins; ``None``: this is the last page.
        stopped: so many jobs did not match that the search stopped before the page was full.
    """

    rows: tuple[JobRow, ...]
    more: str | None
    stopped: bool = False


def read_strip(past: Past, length: int = STRIP_LENGTH) -> tuple[Verdict, ...]:
    """Return the last verdicts of a job, the newest last: of occurrences, and of times without an occurrence."""
    glances = past.glances[:length]
    cells = [
        Verdict(glance.state, glance.scheduled_for or glance.due_at, 1, glance.reason or "", glance)
        for glance in glances
    ]
    oldest = min((cell.at for cell in cells), default=None) if len(glances) == length else None
    cells += [
        Verdict(
            ledger_range.range.state, ledger_range.range.last, ledger_range.range.count or 1, ledger_range.range.reason
        )
        for ledger_range in past.ranges
        if oldest is None or ledger_range.range.last >= oldest
    ]
    return tuple(sorted(cells, key=lambda cell: cell.at)[-length:])


def make_job_row(view: JobView, past: Past, now: datetime) -> JobRow:
    """Return a job as a line of a list."""
    job_words, (next_in, next_at) = job_state(view), job_next(view, now)
    strip = read_strip(past)
    trigger, due = view.spec.trigger, view.next_due
    changes = (
        describe_local_time(trigger, due, now)
        if trigger is not None and due is not None and job_words.state == "active"
        else None
    )
    p50, p95 = read_percentiles(past.glances)
    return JobRow(view, job_words.state, next_in, next_at, changes, strip, _trouble(strip), p50, p95)


def read_percentiles(glances: Iterable[Glance]) -> tuple[timedelta | None, timedelta | None]:
    """Return the median and the 95th percentile of the durations of runs that succeeded."""
    durations = sorted(
        glance.finished_at - glance.begun_at
        for glance in glances
        if glance.state is State.SUCCEEDED and glance.begun_at is not None and glance.finished_at is not None
    )
    if not durations:
        return None, None
    return durations[(len(durations) - 1) // 2], durations[-(-95 * len(durations) // 100) - 1]


def _trouble(cells: Sequence[Verdict]) -> str:
    """Return ``failing``: the newest final verdict is a failure; ``missed``: a time of the strip was; or nothing."""
    final = [cell.state for cell in cells if cell.state not in {"running", "pending"}]
    if final and final[-1] == "failed":
        return "failing"
    return "missed" if "missed" in final else ""


def read_job_page(store: Store, index: JobIndex, *, after: str = "", words: str = "", only: str = "") -> JobPage:
    """Return a page of jobs whose name, function or schedule contains each of ``words``; those in trouble come first.

    Args:
        store: has the jobs.
        index: finds them by words.
        after: the name after which the page begins.
        words: what to look for.
        only: ``failing``, ``missed`` or ``paused``; else all.
    """
    lowered = words.lower().split()
    views, read_up_to = _candidates(store, index, lowered, only, after)
    candidates = [view for view in views if view.retired_at is None and all(word in text_of(view) for word in lowered)]
    matching = _only(store, candidates, only)
    stopped = read_up_to is not None and len(matching) <= PAGE
    next_after = matching[PAGE - 1].spec.name if len(matching) > PAGE else read_up_to
    now = store.now()
    pasts = store.last_of([view.spec.name for view in matching[:PAGE]], limit=STRIP_LENGTH)
    rows = [make_job_row(view, pasts.get(view.spec.name, Past()), now) for view in matching[:PAGE]]
    rows.sort(key=lambda row: (row.trouble != "failing", row.trouble != "missed", row.view.next_due or _NO_NEXT_TIME))
    return JobPage(tuple(rows), next_after, stopped)


def _candidates(
    store: Store, index: JobIndex, words: Sequence[str], only: str, after: str
) -> tuple[list[JobView], str | None]:
    """Return a page of jobs that may match, and one job more; and the last name that was read, if others follow.

    Jobs beyond those are not checked: the page shows that, and the next page goes on from that name.
    """
    if only == "failing":
        failed = store.occurrences(OccurrenceFilter(states=(State.FAILED,)), limit=_MOST_FAILURES)
        names = sorted({failure.job for failure in failed if failure.job > after})
        views = [view for name in names[:_PAGE_AND_ONE] if (view := store.job(name)) is not None]
        return views, names[_PAGE_AND_ONE - 1] if len(names) > _PAGE_AND_ONE else None
    if words or only == "paused":
        names, more = index.find_names(store, words, paused=only == "paused", after=after, limit=_PAGE_AND_ONE)
        return index.read_views(store, names), more
    views = store.jobs(after=after, limit=_PAGE_AND_ONE)
    shown = [view for view in views if not is_internal(view.spec.name)]
    return shown, views[-1].spec.name if only and len(views) == _PAGE_AND_ONE else None


def _only(store: Store, views: list[JobView], only: str) -> list[JobView]:
    if only == "paused":
        return [view for view in views if view.paused_at is not None]
    if only in _VERDICT_FILTERS:
        pasts = store.last_of([view.spec.name for view in views], limit=STRIP_LENGTH)
        return [view for view in views if _trouble(read_strip(pasts.get(view.spec.name, Past()))) == only]
    return views
