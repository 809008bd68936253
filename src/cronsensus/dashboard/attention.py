"""What needs people: jobs that fail, block others, missed times, or run or wait for too long, and nodes that are gone.

Pure functions of what was read. The thresholds are not the page's own: ``slow``, ``overdue`` and ``timeout`` are the
job's, *slower than usual* is twice the 95th percentile of its runs, and a wait is long after a minute, as
``doctor`` has it.
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

UNDECIDED_AFTER = timedelta(seconds=30)
"""How late a nominal time is overdue that no node has decided."""
_WORST_FIRST = ("fail", "stuck", "items", "gone", "miss", "blocked", "overdue", "slow", "late")
FAILED_ITEMS = 100
"""Failed items of a batch that are counted at most."""
_ENOUGH_RUNS = 5
"""Runs that must have succeeded before a run is called slower than usual."""
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
        times: how often it happened.
        row: how often in a row, up to the last time.
        text: the reason, where it is on record.
        example: a run that shows it, mostly the newest.
        usual: the usual duration, or the limit that is set.
        blocked: jobs that did not run because this job failed.
        ended: its session has ended: ``text`` names no time, so ``at`` is shown.
        recovered: the job has succeeded since.
        elsewhere: only another program can run it.
    """

    kind: str
    name: str
    at: datetime
    times: int = 1
    row: int = 1
    text: Sentence | str = ""
    example: Occurrence | Glance | None = None
    usual: timedelta | None = None
    blocked: tuple[str, ...] = ()
    ended: bool = False
    recovered: bool = False
    elsewhere: bool = False

    @property
    def counted(self) -> str:
        """``times`` as text; it has a plus where counting stopped at ``FAILED_ITEMS``."""
        return f"{self.times}+" if self.times >= FAILED_ITEMS else str(self.times)

    @property
    def needs_people(self) -> bool:
        """Whether it is about a job that has not recovered."""
        return self.kind != "gone" and not self.recovered


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read from the store.

    Attributes:
        views: jobs, with their ``pasts``: the newest verdicts.
        failed: runs that failed and that nobody ran again.
        missed: occurrences that were missed. Missed ranges are in ``pasts``.
        running: the longest first, and ``waiting``: the oldest first, without items of batches.
        failed_items: the number of failed items of each batch that waits for its items.
        succeeded: the last success of a job with ``overdue=``, where its past has none.
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


def find_attention(facts: Facts) -> list[Attention]:
    """Return what needs people, the worst first; jobs that have recovered come last."""
    failures = list(_find_failures(facts))
    failing = {failure.name for failure in failures if not failure.recovered}
    blocked = _find_blocked(facts, failing)
    attention = [_with_blocked(failure, blocked) for failure in failures]
    attention += [
        Attention(kind="blocked", name=job, at=glance.due_at, text=glance.reason or "", example=glance)
        for root, blocked_runs in blocked.items()
        if root not in failing
        for job, glance in blocked_runs
    ]
    for find_one in (_find_missed, _find_overdue, _find_running, _find_waiting, _find_items, _find_gone):
        attention += find_one(facts)
    return sorted(attention, key=lambda entry: (entry.recovered, _WORST_FIRST.index(entry.kind), -entry.at.timestamp()))


def _find_failures(facts: Facts) -> Iterator[Attention]:
    by_job: dict[str, list[Occurrence]] = {}
    for run in facts.failed:
        by_job.setdefault(run.job, []).append(run)
    views = {view.spec.name: view for view in facts.views}
    for job, failed_runs in by_job.items():
        newest = max(failed_runs, key=lambda run: run.finished_at or run.created_at)
        ends = [
            glance for glance in facts.pasts.get(job, Past()).glances if glance.state in {State.SUCCEEDED, State.FAILED}
        ]
        row = sum(1 for _ in takewhile(lambda run: run.state is State.FAILED, ends))
        yield Attention(
            kind="fail",
            name=job,
            at=newest.finished_at or newest.created_at,
            times=len(failed_runs),
            row=row,
            example=newest,
            recovered=any(end.state is State.SUCCEEDED and end.id > newest.id for end in ends),
            elsewhere=job in views and views[job].spec.runs_elsewhere,
        )


def _find_blocked(facts: Facts, failing: set[str]) -> dict[str, list[tuple[str, Glance]]]:
    """Return the jobs whose newest run was skipped at its gate, by the first job of their chain of upstreams."""
    skipped: dict[str, tuple[str, Glance]] = {}
    for name, past in facts.pasts.items():
        newest = next((past_glance for past_glance in past.glances if past_glance.state.final), None)
        if newest is None or newest.state is not State.SKIPPED or (newest.finished_at or newest.due_at) < facts.since:
            continue
        reason, _, upstream = (newest.reason or "").partition(": ")
        if reason in _AT_A_GATE and upstream:
            skipped[name] = (upstream.partition(",")[0].strip(), newest)
    by_root: dict[str, list[tuple[str, Glance]]] = {}
    for name, (upstream, glance) in sorted(skipped.items()):
        root = upstream
        for _ in range(_LONGEST_CHAIN):
            if root in failing or root not in skipped:
                break
            root = skipped[root][0]
        by_root.setdefault(root, []).append((name, glance))
    return by_root


def _with_blocked(failure: Attention, blocked: Mapping[str, list[tuple[str, Glance]]]) -> Attention:
    names = () if failure.recovered else tuple(name for name, _ in blocked.get(failure.name, ()))
    return failure if not names else replace(failure, blocked=names)


def _find_missed(facts: Facts) -> Iterator[Attention]:
    glances: dict[str, list[Glance]] = {}
    for entry in facts.missed:
        glances.setdefault(entry.job, []).append(entry)
    ranges = {
        name: [
            ledger_range.range
            for ledger_range in past.ranges
            if ledger_range.range.state is State.MISSED and ledger_range.range.last >= facts.since
        ]
        for name, past in facts.pasts.items()
    }
    for name in sorted({*glances, *(name for name, missed in ranges.items() if missed)}):
        missed, lost = glances.get(name, []), ranges.get(name, [])
        newest = max(missed, key=_nominal, default=None)
        last = max(lost, key=lambda entry: entry.last, default=None)
        at = max(_nominal(newest) if newest else facts.since, last.last if last else facts.since)
        late = last is None or (newest is not None and _nominal(newest) >= last.last)
        yield Attention(
            kind="miss",
            name=name,
            at=at,
            times=len(missed) + sum(entry.count or 1 for entry in lost),
            text=(newest.reason or "") if late and newest is not None else last.reason if last is not None else "",
            example=newest if late else None,
        )


def _find_overdue(facts: Facts) -> Iterator[Attention]:
    for view in facts.views:
        spec, due = view.spec, view.next_due
        if view.paused_at is not None or view.retired_at is not None:
            continue
        standstill = find_standstill(view, facts.now)
        if standstill is not None:
            yield Attention(kind="stuck", name=spec.name, at=standstill.expected, text=standstill.sentence)
        elif due is not None and spec.keeper is None and facts.now - due > UNDECIDED_AFTER:
            yield Attention(kind="overdue", name=spec.name, at=due)
        if spec.overdue is not None:
            glances = facts.pasts.get(spec.name, Past()).glances
            successes = [
                glance.finished_at
                for glance in glances
                if glance.state is State.SUCCEEDED and glance.finished_at is not None
            ]
            last_success = max(successes, default=facts.succeeded.get(spec.name, view.created_at))
            if facts.now - last_success > spec.overdue:
                yield Attention(kind="overdue", name=spec.name, at=last_success, usual=spec.overdue)


def _find_running(facts: Facts) -> Iterator[Attention]:
    views = {view.spec.name: view for view in facts.views}
    for run in facts.running:
        view, started_at = views.get(run.job), run.started_at
        if view is None or started_at is None or run.parent is not None:
            continue
        running_for, timeout = facts.now - started_at, view.spec.policies.timeout
        successes = [glance for glance in facts.pasts.get(run.job, Past()).glances if glance.state is State.SUCCEEDED]
        p95 = read_percentiles(successes)[1] if len(successes) >= _ENOUGH_RUNS else None
        slow_after = view.spec.slow or (None if p95 is None else 2 * p95 + _JITTER)
        if timeout is not None and running_for > timeout + OVERDUE:
            yield Attention(kind="stuck", name=run.job, at=started_at, example=run, usual=timeout)
        elif slow_after is not None and running_for > slow_after:
            yield Attention(kind="slow", name=run.job, at=started_at, example=run, usual=p95 or slow_after)


def _find_waiting(facts: Facts) -> Iterator[Attention]:
    by_job: dict[str, list[Occurrence]] = {}
    for run in facts.waiting:
        if run.parent is None and run.parked_on is None and facts.now - run.due_at > OVERDUE:
            by_job.setdefault(run.job, []).append(run)
    for job, runs in by_job.items():
        oldest = min(runs, key=lambda run: run.due_at)
        yield Attention(
            kind="late", name=job, at=oldest.due_at, times=len(runs), text=oldest.reason or "", example=oldest
        )


def _find_items(facts: Facts) -> Iterator[Attention]:
    for batch in facts.waiting:
        if failed := facts.failed_items.get(batch.id):
            yield Attention(kind="items", name=batch.job, at=batch.created_at, times=failed, example=batch)


def _find_gone(facts: Facts) -> Iterable[Attention]:
    seen_names = set[str]()
    for node in facts.nodes:  # the newest first: a node that came back is not gone
        session = node.session
        at = session.ended_at or session.renewed_at
        if session.node not in seen_names and node.state in {"gone", "stopped"} and at >= facts.since:
            text = node.life.sentence if node.life is not None else session.ended_why or ""
            yield Attention(kind="gone", name=session.node, at=at, text=text, ended=node.life is None)
        seen_names.add(session.node)


def _nominal(glance: Glance) -> datetime:
    return glance.scheduled_for or glance.due_at
