"""Assertions on the ledger. A failure explains itself with the sentences of ``cronsensus why``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from cronsensus.audit import audit
from cronsensus.declared.declarations import name_of
from cronsensus.insight.ledger import ledger_page
from cronsensus.insight.why import Why, explain_time
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.triggers.zones import load_zone

if TYPE_CHECKING:
    from cronsensus.scheduler import Scheduler
    from cronsensus.testing.stage import AttemptRecord, KitOptions

_DAY = timedelta(days=1)
_SHOWN_DAYS = timedelta(days=8)
_SHOWN_LINES = 6


class Assertions:
    """The assertions of a kit."""

    scheduler: Scheduler
    store: Store
    tz: str
    options: KitOptions
    looked_at: set[int]

    if TYPE_CHECKING:

        def read_instant(self, time: datetime | str, job: Any = None) -> datetime:
            """Return the instant of a test's time."""
            raise NotImplementedError

        def attempts(self, job: Any = None) -> list[AttemptRecord]:
            """Return attempts."""
            raise NotImplementedError

    @property
    def zone(self) -> tzinfo:
        """The zone of times that belong to no job."""
        return load_zone(self.tz)

    def runs(self, job: Any = None) -> list[Occurrence]:
        """Return the runs of a job or of all, in any state, the oldest first."""
        where = OccurrenceFilter(job=None if job is None else name_of(job))
        found = self.store.occurrences(where, limit=10_000, newest_first=False)
        self._require_job(job, found)
        return found

    def assert_ran_once(self, job: Any, *, on: date | str | None = None) -> Occurrence:
        """Fail unless exactly one run of a job has succeeded; return it.

        Args:
            job: the job, or its name.
            on: the nominal time, or the day in the job's zone, for which it is; ``None``: all runs of the job count.
        """
        __tracebackhide__ = True
        if on is not None and not _is_day(on):
            return self.assert_verdict(job, _as_time(on), "succeeded").occurrences[-1]
        runs = self.runs(job)
        if on is not None:
            zone, day = self._zone_of(job), on if isinstance(on, date) else date.fromisoformat(on)
            runs = [
                run
                for run in runs
                if run.scheduled_for is not None and run.scheduled_for.astimezone(zone).date() == day
            ]
        succeeded = [run for run in runs if run.state is State.SUCCEEDED]
        if len(succeeded) == 1:
            return succeeded[0]
        when = "" if on is None else f" on {on}"
        raise self._failure(job, f"{name_of(job)} succeeded {len(succeeded)} times{when}, not once", runs)

    def assert_verdict(self, job: Any, at: datetime | str, verdict: str, *, reason: str | None = None) -> Why:
        """Fail unless a nominal time of a job has this verdict; return its explanation.

        Args:
            job: the job, or its name.
            at: the nominal time: aware, or text, which without an offset is of the job's zone.
            verdict: ``succeeded``, ``failed``, ``cancelled``, ``skipped``, ``missed``; ``pending``, ``running``.
            reason: a part of the reason that the ledger has.
        """
        __tracebackhide__ = True
        why = explain_time(self.store, self._view(job), self.read_instant(at, job), zone=self.zone)
        if why.verdict == verdict and (reason is None or reason in (why.reason or "")):
            return why
        is_so = f"{why.verdict or 'no verdict'}" + (f" ({why.reason})" if why.reason else "")
        wanted = verdict + (f" ({reason})" if reason else "")
        head = f"{name_of(job)} at {at}: {is_so}, not {wanted}"
        raise self._failure(job, "\n".join([head, *(f"  {sentence}" for sentence in why.sentences)]), why.occurrences)

    def assert_honest(self) -> None:
        """Fail unless the audit finds that each nominal time has one verdict, and each run was allowed."""
        __tracebackhide__ = True
        looked_at = set(self.looked_at)
        report = audit(self.store)
        self.looked_at.intersection_update(looked_at)  # the audit's reads do not count as the test's
        if not report.ok:
            sentences = [finding.sentence for finding in report.findings]
            raise AssertionError("\n  ".join(["the audit finds faults:", *sentences]))

    def check(self) -> None:
        """Fail on failed runs that the test did not read, and on findings of the audit; ends each test.

        A failed run is no error of the test by itself: an ``assert`` in a job would otherwise pass in silence.
        """
        __tracebackhide__ = True
        looked_at = set(self.looked_at)
        if self.options.get("audit", True):
            self.assert_honest()
        if self.options.get("allow_failures", False):
            return
        failed = self.store.occurrences(OccurrenceFilter(states=(State.FAILED,)), limit=100, newest_first=False)
        if unseen := [one for one in failed if one.id not in looked_at]:
            job, many = unseen[0].job, len(unseen)
            head = (
                f"{many} failed run{'' if many == 1 else 's'} of which the test saw nothing; look at them "
                f"(kit.runs({job!r}), assert_verdict, handle.result()), or say allow_failures=True"
            )
            raise self._failure(job, head, unseen)

    def _require_job(self, job: Any, runs: Sequence[object]) -> None:
        """Fail if there is no such job: otherwise a misspelt name would pass as "it did not run"."""
        __tracebackhide__ = True
        if job is not None and not runs:
            self._view(job)

    def _view(self, job: Any) -> JobView:
        view = self.store.job(name_of(job))
        if view is None:
            known = ", ".join(one.spec.name for one in self.store.jobs(limit=20)) or "none"
            raise AssertionError(f"the scheduler of this kit has no job {name_of(job)!r}; it has {known}")
        return view

    def _zone_of(self, job: Any) -> tzinfo:
        trigger = self._view(job).spec.trigger
        return load_zone((trigger and trigger.zone) or self.tz)

    def _failure(self, job: Any, head: str, runs: Sequence[Occurrence]) -> AssertionError:
        """Return an error with the last lines of the job's ledger, caused by the error of its last attempt."""
        numbers = {run.id for run in runs}
        errors = [
            attempt.error for attempt in self.attempts(job) if attempt.run in numbers and attempt.error is not None
        ]
        failure = AssertionError("\n".join([head, *self._ledger(job)]))
        failure.__cause__ = errors[-1] if errors else None
        return failure

    def _ledger(self, job: Any) -> list[str]:
        now, view, zone = self.store.now(), self._view(job), self._zone_of(job)
        page = ledger_page(self.store, view, now - _SHOWN_DAYS, now, now=now, limit=_SHOWN_LINES)
        lines = [f"{line.first.astimezone(zone)}  {line.state}  {line.text}".rstrip() for line in page.lines]
        lines += [
            f"{run.key}  {run.state}" + (f"  {run.error.type}: {run.error.message}" if run.error else "")
            for run in self.runs(job)[-_SHOWN_LINES:]
            if run.scheduled_for is None
        ]
        return [f"  ledger, now {now.astimezone(zone)}:", *(f"    {line}" for line in lines or ["nothing"])]


def _is_day(on: date | str) -> bool:
    return len(on) == len("2027-03-28") if isinstance(on, str) else not isinstance(on, datetime)


def _as_time(on: date | str) -> datetime | str:
    assert isinstance(on, datetime | str)  # noqa: S101 - for the type checker
    return on
