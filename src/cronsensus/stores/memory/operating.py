"""Verbs of people and programs: enqueue, trigger, cancel, retry, backfill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cronsensus.errors import InvalidTransition
from cronsensus.model.job import refuse_run_by_hand
from cronsensus.model.occurrence import (
    Enqueued,
    Item,
    chain_time,
    origin_of_retry,
    scheduled_key,
    still_running,
    succeeded_already,
    when_due,
)
from cronsensus.model.states import Origin, Reason, State
from cronsensus.payload.codec import clean, write_payload
from cronsensus.stores.memory.memory_handle import writes
from cronsensus.stores.memory.rounds import RoundVerbs, refuse_pruned
from cronsensus.stores.memory.state import JobRow, OccurrenceRow
from cronsensus.timing.instants import after, from_micros, to_micros


class OperatingVerbs(RoundVerbs):
    """The verbs that create and cancel occurrences outside of the schedule."""

    @writes
    def _enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences by key; payloads are checked before anything is written."""
        payloads = [self._check_payload(item) for item in items]
        now = self._now()
        enqueued = [self._enqueue_one(item, payload, now) for item, payload in zip(items, payloads, strict=True)]
        self._notify()
        return enqueued

    def _check_payload(self, item: Item) -> str:
        job = self._job_open_to_callers(item.job)
        if item.args is None and item.kwargs is None and item.headers is None:
            return job.payload
        args = job.spec.args if item.args is None else item.args
        kwargs = job.spec.kwargs if item.kwargs is None else item.kwargs
        return write_payload(args, kwargs, what=f"arguments of {item.job!r}", headers=item.headers)

    def _enqueue_one(self, item: Item, payload: str, now: datetime) -> Enqueued:
        job = self._job_open_to_callers(item.job)
        existing = None if item.key is None else job.keys.get(item.key)
        if existing is not None:
            return replace(answer_enqueued(existing, created=False), payload=existing.payload)
        due_at = when_due(item, now)
        row = self._create_occurrence(
            job,
            item.key,
            item.origin,
            due_at,
            now,
            expires_at=None if item.expires_in is None else after(due_at, item.expires_in),
            priority=item.priority,
            payload=payload,
            parent=item.parent,
        )
        return answer_enqueued(row, created=True)

    @writes
    def _wake(self, numbers: Sequence[int], listed: int | None) -> int:
        rows = (self._space.occurrences.get(number) for number in numbers)
        pending = [row for row in rows if row is not None and row.state is State.PENDING]
        if listed is None:
            woken = [row for row in pending if row.is_parked]
            for row in woken:
                self._space.wake_run(row, max(row.created_at, row.scheduled_for or row.created_at))
        else:
            woken = [row for row in pending if row.listed is None and not row.is_parked]
            for row in woken:
                row.listed = listed
                self._space.wake_run(row, row.created_at)
        if woken:
            self._notify()
        return len(woken)

    @writes
    def _trigger(
        self, job: str, payload: str | None, key: str | None, downstream: Sequence[str], *, by: str, why: str
    ) -> Enqueued:
        """Create a run of a job that is due now, beside its schedule, and one of each job in ``downstream``."""
        jobs, now = [self._job_open_to_callers(name) for name in (job, *downstream)], self._now()
        existing = None if key is None else jobs[0].keys.get(key)
        if existing is not None:
            return answer_enqueued(existing, created=False)
        nominal = from_micros(chain_time(to_micros(now))) if downstream else None
        row, *downstream_rows = [
            self._create_occurrence(
                row_of_job, key if place == 0 else None, Origin.MANUAL, now, now,
                payload=payload if place == 0 else None, scheduled_for=nominal,
            )
            for place, row_of_job in enumerate(jobs)
        ]  # fmt: skip
        details = {"downstream": [row.id for row in downstream_rows]} if downstream_rows else {}
        self._space.record_in_trail(now, by, "trigger", job, why, occurrence=row.id, **details)
        return answer_enqueued(row, created=True)

    @writes
    def _cancel(self, occurrence: int, *, by: str, why: str) -> State:
        """Cancel a pending occurrence, or ask a running one to stop."""
        row = self._existing_occurrence(occurrence)
        if row.state.final:
            raise InvalidTransition(f"occurrence {occurrence} is {row.state} and cannot be cancelled")
        now = self._now()
        state = self._ask_to_cancel(row, f"{Reason.OPERATOR}: {clean(why)}" if why else Reason.OPERATOR, now)
        self._space.record_in_trail(now, by, "cancel", row.job.spec.name, why, occurrence=occurrence)
        return state

    @writes
    def _retry(self, occurrence: int, *, by: str, why: str, again: bool) -> Enqueued:
        """Create a new occurrence of a final one. Enqueued work stays enqueued; anything else becomes manual."""
        old = self._existing_occurrence(occurrence)
        newest = self._newest_retry(old)
        if newest is not old:
            return answer_enqueued(newest, created=False)
        if not old.state.final:
            raise InvalidTransition(f"occurrence {occurrence} is {old.state}; only a final one can be retried")
        if old.state is State.SUCCEEDED and not again:
            raise succeeded_already(occurrence)
        job, now = self._job_open_to_callers(old.job.spec.name), self._now()
        row = self._create_occurrence(
            job,
            None,
            origin_of_retry(old.origin, old.parent),
            now,
            now,
            scheduled_for=old.scheduled_for,
            priority=old.priority,
            level=old.level,
            payload=old.payload,
            retry_of=old.id,
        )
        old.retried_as = row.id
        self._space.record_in_trail(now, by, "retry", job.spec.name, why, occurrence=old.id, retry=row.id)
        return answer_enqueued(row, created=True)

    @writes
    def _forget(self, job: str, key: str, *, by: str, why: str, running: bool, only: int | None) -> State | None:
        job_row = self._space.jobs.get(job)
        row = None if job_row is None else job_row.keys.get(key)
        if row is None or only not in {None, row.id}:
            return None
        if row.state is State.RUNNING and not running:
            raise still_running(job, key)
        self._space.delete_run(row)
        self._space.record_in_trail(
            self._now(), by, "forget", job, why, occurrence=row.id, key=key, state=row.state.value
        )
        return row.state

    @writes
    def _backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str) -> list[Enqueued]:
        row, now = self._job_open_to_callers(job), self._now()
        for time in times:
            refuse_pruned(row, time)
        answers = []
        for time in times:
            existing = [
                occurrence
                for occurrence in row.nominal.get(time, ())
                if not occurrence.state.final or occurrence.state is State.SUCCEEDED
            ]
            if existing:
                answers.append(answer_enqueued(existing[-1], created=False))
                continue
            key = scheduled_key(time)
            new_row = self._create_occurrence(
                row, None if key in row.keys else key, Origin.BACKFILL, now, now, scheduled_for=time
            )
            answers.append(answer_enqueued(new_row, created=True))
        created = [answer.id for answer in answers if answer.created]
        self._space.record_in_trail(now, by, "backfill", job, why, times=len(times), occurrences=created)
        return answers

    def _job_open_to_callers(self, name: str) -> JobRow:
        """Return a job of which any caller may create a run."""
        job = self._living_job(name)
        refuse_run_by_hand(job.spec)
        return job

    def _newest_retry(self, row: OccurrenceRow) -> OccurrenceRow:
        while row.retried_as is not None and (following := self._space.occurrences.get(row.retried_as)) is not None:
            row = following
        return row

    def _existing_occurrence(self, occurrence: int) -> OccurrenceRow:
        row = self._space.occurrences.get(occurrence)
        if row is None:
            raise LookupError(f"there is no occurrence {occurrence}")
        return row


def answer_enqueued(row: OccurrenceRow, *, created: bool) -> Enqueued:
    """Return the answer about an existing occurrence."""
    at = row.created_at if created else None
    return Enqueued(row.id, row.job.spec.name, row.key, created, row.state, created_at=at)
