"""Maintenance and reads: prune, notifications, and every verb that only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from cronsensus.model.batch import Children
from cronsensus.model.job import JobHistory, JobView
from cronsensus.model.ledger import Counts, Identity, LedgerRange, Loss, Prune, TrailEntry
from cronsensus.model.occurrence import LogLine, Occurrence, OccurrenceFilter, RunView
from cronsensus.model.parking import Sleeper
from cronsensus.model.session import LockView, SessionView
from cronsensus.model.states import State
from cronsensus.payload.codec import read_payload
from cronsensus.stores.memory.memory_handle import Handle, writes
from cronsensus.stores.memory.state import JobRow, LockRow, OccurrenceRow, Sorted
from cronsensus.stores.values import HISTORY_KEPT, REMEMBERED, Pruned

SESSIONS_KEPT = timedelta(days=1)


def _is_since(time: datetime | None, since: datetime | None) -> bool:
    return time is not None and since is not None and time >= since


class MaintenanceVerbs(Handle):
    """The verbs that prune, wait and notify."""

    _closed = False
    _notified = False

    @writes
    def _prune(self, before: datetime | None, limit: int) -> Pruned:
        """Delete old rows, oldest job first, and raise each job's horizon over them."""
        now = self._now()
        for job in self._space.jobs.values():
            if job.waiting_until is not None and job.waiting_until <= now:
                self._space.cancel_waiting(job, now)
        deleted = needed = 0
        dependent_since = min((row.created_at for row in self._parked_dependents()), default=None)
        for job in self._space.jobs_by_id.values():
            keep_time = job.spec.policies.keep
            needed_from = None if dependent_since is None else dependent_since - keep_time
            pruned = self._prune_job(job, before or now - keep_time, needed_from, limit - deleted, spare=before is None)
            deleted, needed = deleted + pruned, needed + pruned.needed
            if deleted >= limit:
                break
        for session in [row for row in self._space.sessions.values() if row.ended_at is not None]:
            if session.ended_at is not None and session.ended_at < now - SESSIONS_KEPT:
                del self._space.sessions[session.spec.id]
        for job in list(self._space.jobs.values()):
            keep = now - job.spec.policies.keep if before is None else before
            self._forget_history(job, min(keep, now - HISTORY_KEPT))
        self._forget_older(now - REMEMBERED)
        return Pruned(deleted, needed)

    def _parked_dependents(self) -> Iterator[OccurrenceRow]:
        """Yield the parked dependents."""
        rows = (self._space.occurrences[number] for number in self._space.parked)
        return (row for row in rows if row.listed is None)

    def _prune_job(
        self, job: JobRow, before: datetime, needed_from: datetime | None, limit: int, *, spare: bool
    ) -> Pruned:
        """Delete at most ``limit`` final occurrences and ranges of a job; ``spare``: keep what an open one needs.

        Occurrences above the watermark stay, because their keys keep a later plan from creating them again.
        """
        old = (
            self._space.occurrences[occurrence]
            for _, occurrence in takewhile(lambda entry: entry[0] < before, job.final)
        )
        may_go = (row for row in old if self._may_go(row, before))
        rows = [*islice((row for row in may_go if not (spare and self._is_needed(row, needed_from))), limit)]
        old_ranges = (entry for entry in job.ranges if entry.range.last < before)
        ranges = [
            *islice(
                (entry for entry in old_ranges if not (spare and _is_since(entry.range.last, needed_from))),
                limit - len(rows),
            )
        ]
        needed = sum(self._is_needed(row, needed_from) for row in rows)
        needed += sum(_is_since(entry.range.last, needed_from) for entry in ranges)
        for row in rows:
            self._space.delete_run(row)
        ids = {entry.id for entry in ranges}
        job.ranges = [entry for entry in job.ranges if entry.id not in ids] if ids else job.ranges
        self._raise_horizon(job, [row.scheduled_for for row in rows if row.scheduled_for is not None])
        self._raise_horizon(job, [entry.range.last for entry in ranges])
        return Pruned(len(rows) + len(ranges), needed)

    def _is_needed(self, row: OccurrenceRow, needed_from: datetime | None) -> bool:
        waited_for = row.scheduled_for is not None and _is_since(row.finished_at, needed_from)
        return waited_for or self._is_being_retried(row)

    def _is_being_retried(self, row: OccurrenceRow) -> bool:
        """Whether the retry of an occurrence, or of the batch that it is an item of, is open or was retried itself."""
        batch = row if row.parent is None else self._space.occurrences.get(row.parent)
        retry = None if batch is None or batch.retried_as is None else self._space.occurrences.get(batch.retried_as)
        return retry is not None and (not retry.state.final or retry.retried_as is not None)

    def _may_go(self, row: OccurrenceRow, before: datetime) -> bool:
        batch = None if row.parent is None else self._space.occurrences.get(row.parent)
        if batch is not None and (batch.finished_at is None or batch.finished_at >= before):
            return False
        return row.scheduled_for is None or row.scheduled_for <= row.job.watermark

    def _forget_history(self, job: JobRow, before: datetime) -> None:
        """Delete the eras and pauses of a living job that were over by ``before`` and leave no time undecided."""
        if job.retired_at is not None:
            return
        passed_eras = [
            index
            for index, era in enumerate(job.eras)
            if era.since < before and self._owes_nothing_until(job, era.since)
        ]
        if passed_eras and passed_eras[-1] > 0:
            job.eras = job.eras[passed_eras[-1] :]
            self._raise_watermark(job, job.eras[0].since)
            self._raise_horizon(job, [job.eras[0].since])
        job.pauses = [
            pause
            for pause in job.pauses
            if pause.end is None or pause.end >= before or not self._owes_nothing_until(job, pause.end)
        ]

    @staticmethod
    def _owes_nothing_until(job: JobRow, time: datetime) -> bool:
        return time <= job.watermark or job.next_due is None or time < job.next_due

    @staticmethod
    def _raise_watermark(job: JobRow, time: datetime) -> None:
        """Raise it to where the first era begins: planning begins with that era, and no time before it is undecided."""
        job.watermark = max(job.watermark, time)

    def _is_forgettable(self, job: JobRow, before: datetime) -> bool:
        return job.retired_at is not None and job.retired_at < before and not (job.keys or job.ranges)

    def _forget_older(self, before: datetime) -> None:
        """Delete retired jobs, replaced releases, and entries of the trail that are older."""
        space = self._space
        for job in list(space.jobs.values()):
            if self._is_forgettable(job, before):
                space.forget_job(job)
        living = {session.spec.release for session in space.open.values()}
        replaced = max((release for release in space.releases.values() if release.known_since < before), default=None)
        space.releases = {
            name: release
            for name, release in space.releases.items()
            if replaced is None or release >= replaced or name in living
        }
        space.trail = [entry for entry in space.trail if entry.at >= before]

    def _raise_horizon(self, job: JobRow, times: Iterable[datetime]) -> None:
        """Raise a job's horizon; never lower it."""
        job.horizon = max([*times, *([] if job.horizon is None else [job.horizon])], default=None)

    def _wait(self, timeout: float) -> bool:
        """Wait for a notification; one that came since the last wait counts."""
        with self._changed:
            self._changed.wait_for(lambda: self._notified or self._closed, timeout)
            notified, self._notified = self._notified and not self._closed, False
            return notified


class Reads(Handle):
    """The verbs that only read. Every answer is a value of its own, which does not change later.

    Those that are not here have a default that does as well (``default_reads``).
    """

    def _job(self, name: str) -> JobView | None:
        """Return one job."""
        with self._changed:
            job = self._space.jobs.get(name)
            return None if job is None else job_view(job)

    def _jobs(self, after: str, limit: int, *, retired: bool) -> list[JobView]:
        """Return jobs by name, in the order of code points."""
        with self._changed:
            rows = (self._space.jobs[name] for name in self._space.names.keys_after(after))
            return [job_view(row) for row in islice((row for row in rows if retired or row.retired_at is None), limit)]

    def _history(self, job: str) -> JobHistory:
        """Return a job's eras and paused stretches."""
        with self._changed:
            row = self._space.jobs.get(job)
            return JobHistory() if row is None else JobHistory(tuple(row.eras), tuple(row.pauses))

    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]:
        """Return occurrences by id."""
        with self._changed:
            rows = (
                row
                for row in self._matching_rows(where, after, newest_first=newest_first)
                if matches_filter(row, where)
            )
            return [occurrence_view(row) for row in islice(rows, limit)]

    def _matching_rows(
        self, where: OccurrenceFilter, after: int | None, *, newest_first: bool
    ) -> Iterator[OccurrenceRow]:
        ids = self._space.ids
        if where.parent is not None:
            ids = self._space.items.get(where.parent) or Sorted[int]()
        elif where.job is not None:
            job = self._space.jobs.get(where.job)
            if job is None:
                return
            ids = job.ids
        if newest_first:
            candidates = ids.keys_before(1 << 62 if after is None else after)
        else:
            candidates = ids.keys_after(0 if after is None else after)
        for occurrence in candidates:
            yield self._space.occurrences[occurrence]

    def _runs(self, numbers: Sequence[int]) -> list[RunView]:
        with self._changed:
            rows = map(self._space.occurrences.get, numbers)
            return [run for row in rows if row is not None for run in row.runs]

    def _logs(self, occurrence: int, after: int, limit: int) -> list[tuple[int, int, LogLine]]:
        """Return log lines."""
        with self._changed:
            row = self._space.occurrences.get(occurrence)
            return [] if row is None else row.lines[max(after, 0) :][:limit]

    def _ranges(
        self, job: str, *, since: datetime | None, until: datetime | None, after: int, limit: int
    ) -> list[LedgerRange]:
        """Return verdict ranges."""
        with self._changed:
            row = self._space.jobs.get(job)
            matching = (
                row_range
                for row_range in (() if row is None else row.ranges)
                if row_range.id > after
                and (since is None or row_range.range.last >= since)
                and (until is None or row_range.range.first <= until)
            )
            return list(islice(matching, limit))

    def _sessions(self, limit: int, *, ended: bool) -> list[SessionView]:
        """Return sessions."""
        with self._changed:
            rows = reversed((self._space.sessions if ended else self._space.open).values())
            return [replace(self._session_view(row), declares=row.spec.declares) for row in islice(rows, limit)]

    def _locks(self, name: str | None, limit: int) -> list[LockView]:
        """Return held locks, or the held places of one."""
        with self._changed:
            places = (place for place in self._space.locks if name is None or name == place[0])
            rows = (self._space.locks[place] for place in sorted(places))
            return [self._lock_view(row) for row in islice((row for row in rows if self._is_held(row)), limit)]

    def _lock_view(self, row: LockRow) -> LockView:
        owner = None if row.session is None else self._space.sessions[row.session].spec
        return LockView(
            name=row.name,
            holder=row.holder,
            session=row.session,
            token=row.token,
            acquired_at=row.acquired_at,
            expires_in=timedelta(seconds=row.until - self._monotonic()),
            place=row.place,
            host=None if owner is None else owner.host,
            pid=None if owner is None else owner.pid,
            pid_started=None if owner is None else owner.pid_started,
        )

    def _counts(self, limit: int) -> Counts:
        """Return bounded counts."""
        with self._changed:
            jobs = [job for job in self._space.jobs.values() if job.retired_at is None]
            return Counts(
                jobs=min(limit, len(jobs)),
                paused=min(limit, sum(job.paused_at is not None for job in jobs)),
                pending=min(limit, sum(len(waiting) for waiting in self._space.pending.values())),
                running=min(limit, len(self._space.running)),
                sessions=min(limit, sum(self._is_alive(session) for session in self._space.open.values())),
                limit=limit,
            )

    def _trail(self, target: str | None, after: int | None, limit: int) -> list[TrailEntry]:
        """Return the audit trail."""
        with self._changed:
            matching = (
                entry
                for entry in reversed(self._space.trail)
                if (target is None or entry.target == target) and (after is None or entry.id < after)
            )
            return list(islice(matching, limit))

    def _pending_of(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return how many occurrences of each job are pending."""
        with self._changed:
            counts = {name: len(self._space.jobs[name].pending) for name in jobs if name in self._space.jobs}
            return {name: count for name, count in counts.items() if count}

    def _children(self, numbers: Sequence[int], limit: int) -> dict[int, Children]:
        with self._changed:
            return {number: self._children_of(number, limit) for number in numbers}

    def _children_of(self, number: int, limit: int) -> Children:
        row = self._space.occurrences.get(number)
        counts = self._space.children.get(number) or Counter[State]()
        return Children(
            state=None if row is None else row.state,
            listed=None if row is None else row.listed,
            pending=min(counts[State.PENDING], limit),
            running=min(counts[State.RUNNING], limit),
            succeeded=min(counts[State.SUCCEEDED], limit),
            failed=min(counts[State.FAILED], limit),
            cancelled=min(counts[State.CANCELLED], limit),
            skipped=min(counts[State.SKIPPED], limit),
        )

    def _parked(self, after: int, limit: int) -> list[Sleeper]:
        with self._changed:
            rows = (self._space.occurrences[number] for number in islice(self._space.parked.keys_after(after), limit))
            return [
                Sleeper(row.id, row.job.spec.name, row.parked_on or "", row.scheduled_for, row.created_at)
                for row in rows
            ]

    def _identity(self) -> Identity:
        """Return which space this is."""
        return self._space.identity

    @writes
    def _note_in_trail(self, act: Loss | Prune, by: str) -> None:
        """Write into the trail what is about the store."""
        self._space.record_in_trail(self._now(), by, act.action, "", act.why, **act.details)


def matches_filter(row: OccurrenceRow, where: OccurrenceFilter) -> bool:
    """Whether all given conditions hold."""
    scheduled_for = row.scheduled_for
    return (
        (not where.states or row.state in where.states)
        and (where.origin is None or row.origin is where.origin)
        and (where.key is None or row.key == where.key)
        and (where.session is None or row.session == where.session)
        and (where.parent is None or row.parent == where.parent)
        and (where.job is None or row.job.spec.name == where.job)
        and (where.scheduled_from is None or (scheduled_for is not None and scheduled_for >= where.scheduled_from))
        and (where.scheduled_until is None or (scheduled_for is not None and scheduled_for <= where.scheduled_until))
    )


def job_view(job: JobRow) -> JobView:
    """Return a job as reads show it."""
    return JobView(
        id=job.id,
        spec=job.spec,
        revision=job.revision,
        watermark=job.watermark,
        horizon=job.horizon,
        next_due=job.next_due,
        paused_at=job.paused_at,
        paused_by=job.paused_by,
        paused_why=job.paused_why,
        retired_at=job.retired_at,
        waiting_until=job.waiting_until,
        created_at=job.created_at,
        active=job.active,
    )


def occurrence_view(row: OccurrenceRow) -> Occurrence:
    """Return an occurrence as reads show it."""
    args, kwargs = read_payload(row.payload)
    return Occurrence(
        id=row.id,
        job=row.job.spec.name,
        key=row.key,
        origin=row.origin,
        state=row.state,
        scheduled_for=row.scheduled_for,
        due_at=row.due_at,
        priority=row.priority,
        attempt=row.attempt,
        crashes=row.crashes,
        failures=row.failures,
        token=row.token,
        session=row.session,
        node=row.node,
        reason=row.reason,
        result=row.result,
        error=row.error,
        progress=row.progress,
        cancel_requested=row.cancel is not None,
        retry_of=row.retry_of,
        retried_as=row.retried_as,
        args=args,
        kwargs=kwargs,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        fingerprint=row.fingerprint,
        parent=row.parent,
        listed=row.listed,
        parked_on=row.parked_on,
        note=row.note,
        reserved=row.reserved,
    )
