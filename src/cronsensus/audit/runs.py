"""Check that each run was allowed.

Occurrences are read newest first, page by page, each with its runs. A suspicion is read again before it is reported:
occurrence and runs are read separately, and a node may write in between.

Overlaps of two occurrences of the same job are checked for jobs whose overlap policy forbids them, as far back as the
job's present definition has held (earlier policies are not kept), and among the ``NEIGHBOURS`` runs nearest in time.
A run that a dead node left behind ends when it was taken over. All times are by the store's clock. If that was set
back, two runs whose order is not certain are not compared, and an overlap within the repeated time is left open.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from cronsensus.audit.batches import Batches
from cronsensus.audit.finding_words import Words
from cronsensus.audit.nominal import MICROSECOND, Nominals
from cronsensus.audit.prunes import Prunes
from cronsensus.audit.report import Finding, JobReport
from cronsensus.audit.set_backs import SetBacks
from cronsensus.audit.upstreams import Upstreams
from cronsensus.model.job import Era, JobView
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.session import SessionView
from cronsensus.model.states import SERIAL_ORIGINS, Origin, State
from cronsensus.stores.base import Store

PAGE = 200
NEIGHBOURS = 2000
MOST_SESSIONS = 1000
MOST_REREADS = 5
GIVEN_BACK_ENDS = frozenset({"released", "snoozed"})
"""Ends of runs that do not count as an attempt."""
FINAL_ENDS = frozenset({"succeeded", "failed", "cancelled", "skipped"})
"""Ends of runs after which no further run of the occurrence may follow."""


class Sessions:
    """The live and the dead sessions, read once, at the first running occurrence."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._now: datetime | None = None
        self._living: dict[str, SessionView] = {}
        self._ended: dict[str, SessionView] = {}
        self._more = False

    def dead_for(self, session: str | None, since: datetime) -> tuple[timedelta, str] | None:
        """Return for how long a session has been dead, and how it died; ``None``: alive, or unknown.

        ``since`` is the start of its run, which is used as the time of death of a session that the store does not know.
        """
        if self._now is None:
            living = self._store.sessions(limit=MOST_SESSIONS)
            self._more = len(living) == MOST_SESSIONS
            self._living = {view.id: view for view in living}
            self._ended = {view.id: view for view in self._store.sessions(ended=True, limit=MOST_SESSIONS)}
            self._now = self._store.now()
        if session in self._living:
            overdue = -self._living[session].expires_in
            return (overdue, "whose lease ran out") if overdue > timedelta(0) else None
        ended = self._ended.get(session or "")
        if ended is not None and ended.ended_at is not None:
            return self._now - ended.ended_at, f"which is {ended.state} since"
        return None if self._more else (self._now - since, "which the store does not know, since")


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """The time of a run; ``end`` is ``None`` while it goes on."""

    start: datetime
    token: int
    end: datetime | None
    occurrence: int

    def overlaps(self, later: _Span) -> bool:
        """Whether this run still ran when ``later`` started.

        Tokens show which was really claimed first. If the starts are in another order, the store's clock was set back
        between the two, and its times prove nothing.
        """
        return self.token < later.token and self.start <= later.start and (self.end is None or later.start < self.end)


class Overlaps:
    """Remembers the runs nearest in time, and finds the neighbour that a new run overlaps."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []

    def add(self, span: _Span) -> tuple[_Span, _Span] | None:
        """Remember a run; return (earlier, later) if it overlaps the run before or after it.

        If the remembered runs do not overlap each other, a new run overlaps its neighbours first.
        """
        index = bisect_left(self._spans, span)
        before = self._spans[index - 1] if index else None
        after = self._spans[index] if index < len(self._spans) else None
        insort(self._spans, span)
        if len(self._spans) > NEIGHBOURS:
            del self._spans[-1 if index < NEIGHBOURS // 2 else 0]
        if before is not None and before.occurrence != span.occurrence and before.overlaps(span):
            return before, span
        if after is not None and after.occurrence != span.occurrence and span.overlaps(after):
            return span, after
        return None


class Runs:
    """Judges the runs of a job."""

    def __init__(
        self,
        store: Store,
        job: JobView,
        nominals: Nominals,
        report: JobReport,
        *,
        sessions: Sessions,
        set_backs: SetBacks,
        prunes: Prunes,
        tolerance: timedelta,
        eras: Sequence[Era] = (),
    ) -> None:
        self._store = store
        self._job = job
        self._nominals = nominals
        self._sessions = sessions
        self._set_backs = set_backs
        self._report = report
        self._tolerance = tolerance
        self._words = Words(job.spec.name)
        self._overlaps = Overlaps()
        self._batches = Batches(
            store, job, self._words, report, set_backs=set_backs, prunes=prunes, tolerance=tolerance
        )
        self._upstreams = Upstreams(store, job, eras, self._words, report, set_backs=set_backs, tolerance=tolerance)

    def judge(self, after: datetime, until: datetime, since: datetime | None) -> None:
        """Judge occurrences of nominal times in (after, until], and those without that were made in [since, until]."""
        for page in self._pages(after, until, since):
            judged = [candidate for candidate in page if _belongs(candidate, after, until, since)]
            runs: dict[int, list[RunView]] = defaultdict(list)
            for run in self._store.runs(*(candidate.id for candidate in judged)):
                runs[run.occurrence].append(run)
            for occurrence in judged:
                self._report.others += occurrence.scheduled_for is None
                self._judge(occurrence, _by_token(runs[occurrence.id]))

    def _pages(self, after: datetime, until: datetime, since: datetime | None) -> Iterator[Sequence[Occurrence]]:
        """Yield the occurrences that may belong to the judged time span, newest first."""
        wanted, oldest = OccurrenceFilter(job=self._job.spec.name), None
        while page := self._store.occurrences(wanted, after=oldest, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            oldest = page[-1].id
            if since is not None and all(self._is_made_before(occurrence, since) for occurrence in page):
                # A backfill may be made long before its nominal time, so from here on only that time decides.
                wanted = replace(wanted, scheduled_from=after + MICROSECOND, scheduled_until=until)

    def _is_made_before(self, occurrence: Occurrence, moment: datetime) -> bool:
        """Whether all older occurrences were made before ``moment``, too, because no clock was set back in between."""
        at = occurrence.created_at
        return at < moment and not self._set_backs.may_have_swapped(at, moment)

    def _judge(self, occurrence: Occurrence, runs: Sequence[RunView]) -> None:
        findings = self._check(occurrence, runs)
        for _ in range(MOST_REREADS):
            if not findings:
                break
            reread = self._store.occurrence(occurrence.id)
            if reread is None:
                return  # pruned during the audit
            unchanged = (reread.state, reread.token) == (occurrence.state, occurrence.token)
            occurrence, runs = reread, _by_token(self._store.runs(reread.id))
            findings = self._check(occurrence, runs)
            if unchanged:
                break
        for finding in findings:
            self._report.add(finding)
        for first, second in _list_overlapping_attempts(runs):
            if self._is_open(first, second):
                self._report.leave_open(self._words.attempts_overlap(occurrence, first, second))
        self._count(occurrence, runs)
        self._look_for_overlaps(occurrence, runs)

    def _is_open(self, first: RunView, second: RunView) -> bool:
        """Whether ``first`` may have ended before ``second`` started, although its end has the later time."""
        ended = first.finished_at
        return ended is not None and self._set_backs.may_have_swapped(second.started_at, ended)

    def _count(self, occurrence: Occurrence, runs: Sequence[RunView]) -> None:
        self._report.runs += len(runs)
        self._report.takeovers += sum(run.end == "crashed" for run in runs)
        if runs and occurrence.scheduled_for is not None and _by_schedule(occurrence):
            due = self._nominals.due_time_of(self._job.spec.name, occurrence.scheduled_for)
            self._report.lateness.add((runs[0].started_at - due).total_seconds())

    def _check(self, occurrence: Occurrence, runs: Sequence[RunView]) -> list[Finding]:
        """Judge an occurrence and its runs (sorted by token), as they were read together."""
        words, findings = self._words, []
        succeeded = [run for run in runs if run.end == "succeeded"]
        if len(succeeded) > 1:
            findings.append(words.two_successes(occurrence, succeeded))
        if stale := self._find_stale_write(occurrence, runs):
            findings.append(words.stale(occurrence, stale))
        findings += [
            words.attempts_overlap(occurrence, first, second)
            for first, second in _list_overlapping_attempts(runs)
            if not self._is_open(first, second)
        ]
        run, due = self._allowed_start(occurrence, runs)
        if run is not None and due is not None and run.started_at < due:
            findings.append(words.early(occurrence, run.started_at, due))
        if occurrence.state is State.RUNNING:
            dead = self._sessions.dead_for(occurrence.session, runs[-1].started_at if runs else occurrence.created_at)
            if dead is not None and dead[0] > self._tolerance:
                findings.append(words.stuck(occurrence, dead[1], dead[0]))
        return [*findings, *self._batches.judge(occurrence, runs), *self._upstreams.judge(occurrence, runs)]

    @staticmethod
    def _find_stale_write(occurrence: Occurrence, runs: Sequence[RunView]) -> str | None:
        """Return what is wrong with the tokens, or with the writer of the result."""
        for first, second in pairwise(runs):
            # A release or a snooze gives the attempt back, so the next run has the same number.
            if second.token == first.token or second.attempt < first.attempt + (first.end not in GIVEN_BACK_ENDS):
                return (
                    f"has tokens that do not grow with its attempts: attempt {first.attempt} has token {first.token}, "
                    f"attempt {second.attempt} has token {second.token}"
                )
            if first.end in FINAL_ENDS:
                return f"has a result under token {first.token} ({first.end}), although token {second.token} is newer"
        newest = runs[-1] if runs else None
        if newest is not None and occurrence.token < newest.token:
            return f"stands under token {occurrence.token}, although token {newest.token} is newer"
        if newest is not None and newest.end in FINAL_ENDS and occurrence.state != newest.end:
            return f"is {occurrence.state}, although its newest run (token {newest.token}) is {newest.end}"
        if occurrence.state is State.SUCCEEDED and (newest is None or newest.end != "succeeded"):
            return "is succeeded, although no current run says so"
        return None

    def _allowed_start(self, occurrence: Occurrence, runs: Sequence[RunView]) -> tuple[RunView | None, datetime | None]:
        """Return the run whose start can be checked, and the earliest time at which it was allowed to start.

        Either may be ``None``.
        """
        at = occurrence.scheduled_for
        if at is not None:
            by_trigger = _by_schedule(occurrence) and not self._nominals.named_elsewhere(at)
            due = self._nominals.due_time_of(self._job.spec.name, at) if by_trigger else None
            return (runs[0] if runs else None), due
        # What waits gets another due time with each look, and may leave no record of it: the one that stands there is
        # that of the newest claim, if that came to its end or still runs.
        untouched = occurrence.attempt == 1 and occurrence.crashes == 0 and occurrence.failures == 0
        newest = runs[-1] if runs and untouched and runs[-1].token == occurrence.token else None
        claimed = newest is not None and (newest.end in FINAL_ENDS or occurrence.state is State.RUNNING)
        return (newest if claimed else None), occurrence.due_at

    def _look_for_overlaps(self, occurrence: Occurrence, runs: Sequence[RunView]) -> None:
        spec, defined_since = self._job.spec, self._nominals.defined_since
        if spec.trigger is None or spec.policies.overlap == "allow" or occurrence.origin not in SERIAL_ORIGINS:
            return
        for run in runs:
            if defined_since is None or run.started_at < defined_since:
                continue
            pair = self._overlaps.add(_span(run))
            if pair is not None and (runs_of_pair := self._confirm_overlap(pair)) is not None:
                finding = self._words.runs_overlap(*runs_of_pair)
                if self._is_open(*runs_of_pair):
                    self._report.leave_open(finding)
                else:
                    self._report.add(finding)

    def _confirm_overlap(self, pair: tuple[_Span, _Span]) -> tuple[RunView, RunView] | None:
        """Read both runs again; return them if they really overlap."""
        confirmed = []
        for span in pair:
            run = next((run for run in self._store.runs(span.occurrence) if run.token == span.token), None)
            if run is None:
                return None
            confirmed.append(run)
        return (confirmed[0], confirmed[1]) if _span(confirmed[0]).overlaps(_span(confirmed[1])) else None


def _list_overlapping_attempts(runs: Sequence[RunView]) -> list[tuple[RunView, RunView]]:
    """Return the pairs of successive attempts of which the first still ran when the second started."""
    return [(first, second) for first, second in pairwise(runs) if _span(first).overlaps(_span(second))]


def _span(run: RunView) -> _Span:
    end = None if run.finished_at is None else max(run.started_at, run.finished_at)
    return _Span(run.started_at, run.token, end, run.occurrence)


def _belongs(occurrence: Occurrence, after: datetime, until: datetime, since: datetime | None) -> bool:
    """Whether the audit judges an occurrence: by its nominal time, or by its creation where it has none."""
    at, created_at = occurrence.scheduled_for, occurrence.created_at
    return (since or created_at) <= created_at <= until if at is None else after < at <= until


def _by_token(runs: Sequence[RunView]) -> list[RunView]:
    return sorted(runs, key=lambda run: run.token)


def _by_schedule(occurrence: Occurrence) -> bool:
    return occurrence.origin is Origin.SCHEDULE and occurrence.retry_of is None
