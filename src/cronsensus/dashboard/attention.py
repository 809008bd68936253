"""What needs people: jobs that fail, hold others up, were missed, or run or wait for too long, and nodes that are gone.

Decided from what was read. No threshold is of the page's own making: ``slow``, ``overdue`` and ``timeout`` are the
job's, *slower than usual* is twice what 95 of 100 of its runs took, and a wait is long
after a minute, as ``doctor`` has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile

from cronsensus.dashboard.numbers import Node
from cronsensus.dashboard.reads import read_percentiles
from cronsensus.insight.sentences import Sentence
from cronsensus.insight.standstill import find_standstill
from cronsensus.insight.work_checks import OVERDUE
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.states import Reason, State

UNDECIDED = timedelta(seconds=30)
"""After which a time that no node has decided is overdue."""
_RANK = ("fail", "stuck", "items", "gone", "miss", "blocked", "overdue", "slow", "late")
FAILED_ITEMS = 100
"""Failed items of a batch that are counted."""
_MEASURED = 5
"""Runs that must have succeeded before another is called slower than usual."""
_JITTER = timedelta(seconds=10)
_AT_A_GATE = frozenset({Reason.UPSTREAM_FAILED, Reason.UPSTREAM_SKIPPED, Reason.UPSTREAM_MISSING, Reason.UPSTREAM_LATE})
_LONGEST_CHAIN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Something that a person should look at.

    Attributes:
        kind: ``fail``, ``stuck``, ``items``, ``gone``, ``miss``, ``blocked``, ``overdue``, ``slow`` or ``late``.
        name: the job, or the node.
        at: when it happened last, or since when it lasts.
        times: how often it happened; of a failure ``row``: how often in a row, the last one included.
        text: why, where that is on record.
        one: the run that shows it.
        usual: what a run took that was not slow, or the time that was set.
        blocked: jobs that did not run because this one failed.
        ended: ``text`` does not say when.
        recovered: the job has succeeded since.
        elsewhere: only another program can run it.
    """

    kind: str
    name: str
    at: datetime
    times: int = 1
    row: int = 1
    text: Sentence | str = ""
    one: Occurrence | Glance | None = None
    usual: timedelta | None = None
    blocked: tuple[str, ...] = ()
    ended: bool = False
    recovered: bool = False
    elsewhere: bool = False

    @property
    def counted(self) -> str:
        """How often, where counting stops at ``FAILED_ITEMS``."""
        return f"{self.times}+" if self.times >= FAILED_ITEMS else str(self.times)

    @property
    def needs_people(self) -> bool:
        """Whether a job stands for it that is not well again."""
        return self.kind != "gone" and not self.recovered


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read.

    Attributes:
        views: jobs, with their ``pasts``: the newest verdicts.
        failed: runs that failed and that nobody ran again.
        missed: single times, and of how many times nothing was made.
        running: the longest first, and ``waiting``: the oldest first, without items of batches.
        failed_items: of batches that wait for their items, how many failed.
        succeeded: when a job with ``overdue=`` succeeded last, where its past does not tell.
    """

    now: datetime
    since: datetime
    views: Sequence[JobView]
    pasts: Mapping[str, Past]
    failed: Sequence[Occurrence]
    missed: Sequence[Glance]
    running: Sequence[Occurrence]
    waiting: Sequence[Occurrence]
    nodes: Sequence[Node]
    succeeded: Mapping[str, datetime]
    failed_items: Mapping[int, int]


def find_attention(seen: Seen) -> list[Attention]:
    """Return what needs people, the worst first; what is well again comes last."""
    failures = list(_find_failures(seen))
    open_ = {one.name for one in failures if not one.recovered}
    blocked = _find_blocked(seen, open_)
    found = [_with_blocked(one, blocked) for one in failures]
    found += [
        Attention(kind="blocked", name=job, at=at.due_at, text=at.reason or "", one=at)
        for root, some in blocked.items()
        if root not in open_
        for job, at in some
    ]
    for find in (_find_missed, _find_overdue, _find_running, _find_waiting, _find_items, _find_gone):
        found += find(seen)
    return sorted(found, key=lambda one: (one.recovered, _RANK.index(one.kind), -one.at.timestamp()))


def _find_failures(seen: Seen) -> Iterator[Attention]:
    by_job: dict[str, list[Occurrence]] = {}
    for one in seen.failed:
        by_job.setdefault(one.job, []).append(one)
    known = {view.spec.name: view for view in seen.views}
    for job, some in by_job.items():
        newest = max(some, key=lambda one: one.finished_at or one.created_at)
        ends = [one for one in seen.pasts.get(job, Past()).glances if one.state in {State.SUCCEEDED, State.FAILED}]
        row = sum(1 for _ in takewhile(lambda one: one.state is State.FAILED, ends))
        yield Attention(
            kind="fail",
            name=job,
            at=newest.finished_at or newest.created_at,
            times=len(some),
            row=row,
            one=newest,
            recovered=any(one.state is State.SUCCEEDED and one.id > newest.id for one in ends),
            elsewhere=job in known and known[job].spec.runs_elsewhere,
        )


def _find_blocked(seen: Seen, failing: set[str]) -> dict[str, list[tuple[str, Glance]]]:
    """Return the jobs whose newest run was skipped at its gate, by the job at which their chain begins."""
    behind: dict[str, tuple[str, Glance]] = {}
    for name, past in seen.pasts.items():
        newest = next((one for one in past.glances if one.state.final), None)
        if newest is None or newest.state is not State.SKIPPED or (newest.finished_at or newest.due_at) < seen.since:
            continue
        why, _, upstream = (newest.reason or "").partition(": ")
        if why in _AT_A_GATE and upstream:
            behind[name] = (upstream.partition(",")[0].strip(), newest)
    found: dict[str, list[tuple[str, Glance]]] = {}
    for name, (upstream, glance) in sorted(behind.items()):
        root = upstream
        for _ in range(_LONGEST_CHAIN):
            if root in failing or root not in behind:
                break
            root = behind[root][0]
        found.setdefault(root, []).append((name, glance))
    return found


def _with_blocked(one: Attention, blocked: Mapping[str, list[tuple[str, Glance]]]) -> Attention:
    names = () if one.recovered else tuple(name for name, _ in blocked.get(one.name, ()))
    return one if not names else replace(one, blocked=names)


def _find_missed(seen: Seen) -> Iterator[Attention]:
    glances: dict[str, list[Glance]] = {}
    for one in seen.missed:
        glances.setdefault(one.job, []).append(one)
    ranges = {
        name: [one.range for one in past.ranges if one.range.state is State.MISSED and one.range.last >= seen.since]
        for name, past in seen.pasts.items()
    }
    for name in sorted({*glances, *(name for name, some in ranges.items() if some)}):
        some, lost = glances.get(name, []), ranges.get(name, [])
        newest = max(some, key=_nominal, default=None)
        last = max(lost, key=lambda one: one.last, default=None)
        at = max(_nominal(newest) if newest else seen.since, last.last if last else seen.since)
        late = last is None or (newest is not None and _nominal(newest) >= last.last)
        yield Attention(
            kind="miss",
            name=name,
            at=at,
            times=len(some) + sum(one.count or 1 for one in lost),
            text=(newest.reason or "") if late and newest is not None else last.reason if last is not None else "",
            one=newest if late else None,
        )


def _find_overdue(seen: Seen) -> Iterator[Attention]:
    for view in seen.views:
        spec, due = view.spec, view.next_due
        if view.paused_at is not None or view.retired_at is not None:
            continue
        stands = find_standstill(view, seen.now)
        if stands is not None:
            yield Attention(kind="stuck", name=spec.name, at=stands.expected, text=stands.sentence)
        elif due is not None and spec.keeper is None and seen.now - due > UNDECIDED:
            yield Attention(kind="overdue", name=spec.name, at=due)
        if spec.overdue is not None:
            past = seen.pasts.get(spec.name, Past()).glances
            done = [one.finished_at for one in past if one.state is State.SUCCEEDED and one.finished_at is not None]
            last = max(done, default=seen.succeeded.get(spec.name, view.created_at))
            if seen.now - last > spec.overdue:
                yield Attention(kind="overdue", name=spec.name, at=last, usual=spec.overdue)


def _find_running(seen: Seen) -> Iterator[Attention]:
    known = {view.spec.name: view for view in seen.views}
    for one in seen.running:
        view, begun = known.get(one.job), one.started_at
        if view is None or begun is None or one.parent is not None:
            continue
        took, limit = seen.now - begun, view.spec.policies.timeout
        done = [at for at in seen.pasts.get(one.job, Past()).glances if at.state is State.SUCCEEDED]
        p95 = read_percentiles(done)[1] if len(done) >= _MEASURED else None
        usual = view.spec.slow or (None if p95 is None else 2 * p95 + _JITTER)
        if limit is not None and took > limit + OVERDUE:
            yield Attention(kind="stuck", name=one.job, at=begun, one=one, usual=limit)
        elif usual is not None and took > usual:
            yield Attention(kind="slow", name=one.job, at=begun, one=one, usual=p95 or usual)


def _find_waiting(seen: Seen) -> Iterator[Attention]:
    by_job: dict[str, list[Occurrence]] = {}
    for one in seen.waiting:
        if one.parent is None and one.parked_on is None and seen.now - one.due_at > OVERDUE:
            by_job.setdefault(one.job, []).append(one)
    for job, some in by_job.items():
        first = min(some, key=lambda one: one.due_at)
        yield Attention(kind="late", name=job, at=first.due_at, times=len(some), text=first.reason or "", one=first)


def _find_items(seen: Seen) -> Iterator[Attention]:
    for one in seen.waiting:
        if failed := seen.failed_items.get(one.id):
            yield Attention(kind="items", name=one.job, at=one.created_at, times=failed, one=one)


def _find_gone(seen: Seen) -> Iterable[Attention]:
    known = set[str]()
    for node in seen.nodes:  # the newest first: one that came back is not gone
        one = node.session
        at = one.ended_at or one.renewed_at
        if one.node not in known and node.state in {"gone", "stopped"} and at >= seen.since:
            text = node.life.sentence if node.life is not None else one.ended_why or ""
            yield Attention(kind="gone", name=one.node, at=at, text=text, ended=node.life is None)
        known.add(one.node)


def _nominal(one: Glance) -> datetime:
    return one.scheduled_for or one.due_at
