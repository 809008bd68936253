"""What the pages show, read from a store: bounded lists, and nothing that is counted over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsensus.dashboard.job_index import JobIndex, text_of
from cronsensus.dashboard.lanes import HOUR, MOST_RUNS, Lanes, NodeState, draw_lanes
from cronsensus.dashboard.numbers import Node, Standing, Work, count_nodes, count_work, read_nodes
from cronsensus.insight.clock_changes import describe_local_time
from cronsensus.insight.failures import MOST, open_failures
from cronsensus.insight.live_nodes import needs_no_node
from cronsensus.insight.sentences import Sentence
from cronsensus.insight.successes import last_success
from cronsensus.insight.summaries import job_next, job_state
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobView, is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

DAY = timedelta(days=1)
OVERDUE = timedelta(seconds=30)
PAGE = 50
STRIP = 30
"""Verdicts in the strip of a job."""
MEASURED = 100
"""Runs of which it is said how long they took."""
ONLY = ("failing", "missed", "paused")
_BY_VERDICT = ("failing", "missed")
_LATEST = datetime.max.replace(tzinfo=UTC)
MOST_JOBS = 50
"""Jobs of which the first page reads the last verdicts."""
_NEWEST = 15
"""Verdicts of each of these that the first page reads."""
_AT_ONCE = PAGE + 1
_MOST_FAILING = 500
"""Failures, the newest, among whose jobs those are looked for that fail."""
_SHOWN = 5
_LATELY = 12
_RUNNING = 10
STEP = 15
"""Seconds after which the picture moves on: a third of a pixel more each look would be a new page each time."""
_RANK = {"fail": 0, "gone": 1, "miss": 2}


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
        changes: what a clock change has to do with its next time; empty: nothing.
        trouble: ``failing``, ``missed`` or nothing.
    """

    view: JobView
    state: str
    state_text: str
    next_in: str
    next_at: str
    changes: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Something that a person should look at.

    Attributes:
        kind: ``fail``, ``miss`` or ``gone``.
        times: how often it happened lately.
        ended: ``text`` does not say when.
        recovered: the job has succeeded since.
    """

    kind: str
    name: str
    at: datetime
    times: int = 1
    text: Sentence | str = ""
    one: Occurrence | Glance | None = None
    ended: bool = False
    recovered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What the first page shows.

    Attributes:
        decided_at: when anything was last decided, as far as the newest rows tell.
        idle: why no node is needed although none is alive.
        keeper: the program that keeps the times, if no node is needed because of it.
    """

    now: datetime
    nodes: tuple[Node, ...]
    standing: Standing
    work: Work
    decided_at: datetime | None
    idle: str | None
    keeper: str | None
    attention: tuple[Attention, ...]
    hidden: int
    running: tuple[Occurrence, ...]
    paused: int
    jobs: int
    upcoming: tuple[JobView, ...]
    recent: tuple[Occurrence, ...]
    failed: int
    failed_capped: bool
    missed: int
    of_first_jobs: bool
    picture: Lanes

    @property
    def alive(self) -> int:
        """How many nodes are alive."""
        return self.standing.alive

    @property
    def is_well(self) -> bool:
        """Whether all that was looked for is as it should be, and all was looked at."""
        ticking = self.standing.alive > 0 or self.idle is not None
        return bool(self.jobs) and ticking and not self.attention and not self.of_first_jobs


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
        else ""
    )
    p50, p95 = read_percentiles(past.glances)
    return JobRow(view, known.state, known.text, next_in, next_at, changes, cells, _trouble(cells), p50, p95)


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


def now_page(store: Store) -> Now:
    """Return what the first page shows."""
    at = store.now()
    found = read_nodes(store)
    alive = [node for node in found if node.state == "alive"]
    work = count_work(store)
    views = [view for view in store.jobs(limit=MOST_JOBS + 1) if not is_internal(view.spec.name)]
    since = at - DAY
    failed = open_failures(store, since=since)
    last = store.last_of([view.spec.name for view in views[:MOST_JOBS]], limit=_NEWEST)
    lately = [one for past in last.values() for one in past.ranges if one.range.last >= since]
    ran = [one for one in store.ran_since(at - HOUR, limit=MOST_RUNS) if not is_internal(one.job)]
    recent = _lately(store, [*ran, *(one for past in last.values() for one in past.glances)])
    missed = _missed_since(since, [*ran, *(one for past in last.values() for one in past.glances)])
    ranges = [one for one in lately if one.range.state is State.MISSED]
    decided = [one.created_at for one in recent] + [one.decided_at for one in ranges]
    attention = [*_failures(store, failed), *_missed(missed), *_overdue(views, at), *_gone(found, since)]
    attention += [
        Attention(kind="miss", name=one.job, at=one.range.last, times=one.range.count or 1, text=one.range.reason)
        for one in ranges
    ]
    attention.sort(key=lambda one: (one.recovered, _RANK[one.kind], -one.at.timestamp()))
    due = [view for view in views if view.next_due is not None and view.paused_at is None]
    living = [node.session for node in alive]
    idle = None if alive else needs_no_node(store, living)
    return Now(
        now=at,
        nodes=found,
        standing=count_nodes(found, since),
        work=work,
        decided_at=max(decided, default=None),
        idle=idle,
        keeper=None if idle is None else next((view.spec.keeper for view in views if view.spec.keeper), None),
        attention=tuple(attention[:_SHOWN]),
        hidden=len(attention[_SHOWN:]),
        running=work.oldest[:_RUNNING],
        paused=work.paused,
        jobs=work.jobs,
        upcoming=tuple(sorted(due, key=lambda view: view.next_due or at)[:8]),
        recent=tuple(recent),
        failed=len(failed),
        failed_capped=len(failed) >= MOST,
        missed=len(missed) + sum(one.range.count or 1 for one in ranges),
        of_first_jobs=len(views) > MOST_JOBS,
        picture=draw_lanes(
            store,
            at - timedelta(seconds=at.timestamp() % STEP),
            nodes=_node_states(found),
            views=views[:MOST_JOBS],
            seen=ran,
            ranges=lately,
        ),
    )


def _node_states(found: Iterable[Node]) -> list[NodeState]:
    """Return what is known of each name: a node that came back under its name is not gone."""
    known: dict[str, NodeState] = {}
    for node in found:  # the newest first
        one = node.session
        gone_at = (one.ended_at or one.renewed_at) if node.state in {"gone", "stopped", "closed"} else None
        known.setdefault(one.node, NodeState(one.node, node.state, gone_at))
    return list(known.values())


def _lately(store: Store, seen: Iterable[Glance]) -> list[Occurrence]:
    """Return the newest occurrences, where the newest of all are items: their batches, and what else is known."""
    found = [one for one in store.occurrences(OccurrenceFilter(), limit=_LATELY) if not is_internal(one.job)]
    if len(found) == _LATELY and all(one.parent is None for one in found):
        return found
    known = {one.id: one for one in found if one.parent is None}
    numbers = {one.parent or one.id for one in found} | {one.parent or one.id for one in seen}
    some = (known.get(number) or store.occurrence(number) for number in sorted(numbers, reverse=True)[:_LATELY])
    return [one for one in some if one is not None]


def _missed_since(since: datetime, seen: Iterable[Glance]) -> list[Glance]:
    """Return what was missed, of what is read anyway: no index leads to what was missed of all jobs."""
    found = {one.id: one for one in seen if one.state is State.MISSED}
    return [one for one in found.values() if (one.finished_at or one.created_at) >= since]


def _failures(store: Store, failed: list[Occurrence]) -> Iterable[Attention]:
    """Yield one for each job that failed; whether it succeeded since is asked of the newest few."""
    by_job: dict[str, list[Occurrence]] = {}
    for one in failed:
        by_job.setdefault(one.job, []).append(one)
    for number, (job, some) in enumerate(by_job.items()):
        newest = max(some, key=lambda one: one.finished_at or one.created_at)
        recovered = False
        if number < 2 * _SHOWN:
            good = last_success(store, job)
            recovered = good is not None and good.id > newest.id
        yield Attention(
            kind="fail",
            name=job,
            at=newest.finished_at or newest.created_at,
            times=len(some),
            one=newest,
            recovered=recovered,
        )


def _missed(missed: Iterable[Glance]) -> Iterable[Attention]:
    for one in missed:
        yield Attention(kind="miss", name=one.job, at=one.scheduled_for or one.due_at, text=one.reason or "", one=one)


def _overdue(views: Iterable[JobView], now: datetime) -> Iterable[Attention]:
    for view in views:
        due = view.next_due
        if due is not None and view.paused_at is None and view.spec.keeper is None and now - due > OVERDUE:
            yield Attention(kind="miss", name=view.spec.name, at=due, text="overdue")


def _gone(found: Iterable[Node], since: datetime) -> Iterable[Attention]:
    for node in found:
        one = node.session
        at = one.ended_at or one.renewed_at
        if node.state in {"gone", "stopped"} and at >= since:
            text = node.life.sentence if node.life is not None else one.ended_why or ""
            yield Attention(kind="gone", name=one.node, at=at, text=text, ended=node.life is None)
