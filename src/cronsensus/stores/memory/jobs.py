"""Verbs on definitions: define, retire, pause, resume."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.model.definition_change import Changes, changes_between, definition_entries
from cronsensus.model.job import Era, JobSpec, Stretch
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.rewind import REWIND, Rewind
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import clean, read_payload, write_payload
from cronsensus.planning import next_due_by_zone, undecided_until
from cronsensus.stores.memory.memory_handle import Handle, writes
from cronsensus.stores.memory.state import JobRow
from cronsensus.stores.values import NO_DELAY, DefineResult

MICROSECOND = timedelta(microseconds=1)


class JobVerbs(Handle):
    """The verbs that define, retire, pause and resume jobs."""

    @writes
    def _define_jobs(
        self, specs: Sequence[JobSpec], *, release: str, complete: bool, by: str, retire_after: timedelta
    ) -> DefineResult:
        """Define jobs; everything is checked before anything is written."""
        payloads = {
            spec.name: write_payload(spec.args, spec.kwargs, what=f"arguments of {spec.name!r}") for spec in specs
        }
        digests = {spec.name: spec.digest for spec in specs}
        names_by_outcome: dict[str, list[str]] = {field.name: [] for field in dataclasses.fields(DefineResult)}
        superseded = self._is_superseded(release)
        changes: dict[str, Changes] = {}
        for spec in specs:
            job = self._space.jobs.get(spec.name)
            if job is not None and job.digest == digests[spec.name] and job.retired_at is None:
                names_by_outcome["unchanged"].append(spec.name)
                if self._move_due(job, spec):
                    names_by_outcome["moved"].append(spec.name)
            elif superseded and spec.source == "code":
                names_by_outcome["superseded"].append(spec.name)
            elif job is None:
                self._define_job(spec, digests[spec.name], payloads[spec.name])
                names_by_outcome["created"].append(spec.name)
            else:
                changes[spec.name] = changes_between(job.spec, spec)
                self._redefine_job(job, spec, digests[spec.name], payloads[spec.name])
                names_by_outcome["changed"].append(spec.name)
        if complete:
            undeclared = [
                job
                for job in self._space.jobs.values()
                if job.spec.source == "code" and job.retired_at is None and job.spec.name not in payloads
            ]
            if self._other_release_lives(release):
                names_by_outcome["kept"] += [job.spec.name for job in undeclared]
            else:
                for job in undeclared:
                    self._retire_job(job, retire_after)
                    names_by_outcome["retired"].append(job.spec.name)
        for name, details in definition_entries(names_by_outcome, changes, release) if by else ():
            self._space.record_in_trail(self._now(), by, "define", name, "", **details)
        return DefineResult(**{act: tuple(names) for act, names in names_by_outcome.items()})

    def _is_superseded(self, release: str) -> bool:
        own_place = self._space.know_release(release, self._now())
        return any(
            self._is_live_node(session) and self._space.releases[session.spec.release] > own_place
            for session in self._space.open.values()
        )

    def _other_release_lives(self, release: str) -> bool:
        return any(
            self._is_live_node(session) and session.spec.release != release for session in self._space.open.values()
        )

    def _define_job(self, spec: JobSpec, digest: str, payload: str) -> None:
        now = self._now()
        watermark = now
        if spec.trigger is not None and spec.trigger.next_after(now) is None:
            last = spec.trigger.latest_until(now, now - _LONG_AGO)
            if last is not None:
                watermark = last - MICROSECOND
        job = JobRow(
            id=self._world.next_number("job"),
            spec=_as_stored(spec, payload),
            digest=digest,
            payload=payload,
            revision=1,
            watermark=watermark,
            eras=[Era(watermark, spec.trigger, 1, spec.after)],
            created_at=now,
        )
        self._space.add_job(job)

    def _redefine_job(self, job: JobRow, spec: JobSpec, digest: str, payload: str) -> None:
        now = self._now()
        if job.retired_at is not None:
            job.retired_at = job.waiting_until = None
            job.watermark = max(job.watermark, now)
        self._begin_era(job, spec, now)
        job.spec, job.digest, job.payload = _as_stored(spec, payload), digest, payload
        self._space.schedule_job(job)

    def _move_due(self, job: JobRow, spec: JobSpec) -> bool:
        """Set the next due time as the zone rules have it now; return whether it was another one."""
        next_due = next_due_by_zone(spec.trigger, job.eras[-1].since, job.watermark, job.next_due)
        if next_due == job.next_due:
            return False
        self._space.set_due(job, next_due)
        return True

    def _begin_era(self, job: JobRow, spec: JobSpec | None, now: datetime) -> None:
        """Begin a new revision now; never before the watermark, and never before the last one began."""
        job.revision += 1
        since = self._next_era(job, now)
        trigger, upstreams = (None, None) if spec is None else (spec.trigger, spec.after)
        job.eras.append(Era(since, trigger, job.revision, upstreams))

    @staticmethod
    def _next_era(job: JobRow, now: datetime) -> datetime:
        return max(now, job.watermark, job.eras[-1].since)

    @writes
    def _retire(self, job: str, *, by: str, why: str) -> bool:
        """Stop a job for good."""
        row = self._space.jobs.get(job)
        if row is None:
            return False
        stops = row.retired_at is None or row.waiting_until is not None
        if row.retired_at is None:
            self._retire_job(row, NO_DELAY)
        elif stops:
            self._space.cancel_waiting(row, self._now())
        self._space.record_in_trail(self._now(), by, "retire", job, why)
        return stops

    def _retire_job(self, job: JobRow, retire_after: timedelta) -> None:
        now = self._now()
        if retire_after > NO_DELAY:
            job.waiting_until = now + retire_after
        else:
            self._space.cancel_waiting(job, now)
        # Where the clock was set back, the last era begins later than now; until then the one before it holds.
        undecided = undecided_until(job.eras_after_watermark(), job.watermark, self._next_era(job, now))
        if undecided is not None:
            job.ranges.append(LedgerRange(self._world.next_number("range"), job.spec.name, undecided, now))
            job.watermark = undecided.last
        job.retired_at = now
        self._begin_era(job, None, now)
        self._space.schedule_job(job)

    @writes
    def _pause(self, job: str, *, by: str, why: str) -> bool:
        """Stop firing a job."""
        row = self._living_job(job)
        if row.paused_at is not None:
            return False
        now = self._now()
        row.paused_at, row.paused_by, row.paused_why = now, clean(by), clean(why)
        row.pauses.append(Stretch(now, None))
        self._space.index_due(row)
        self._space.record_in_trail(now, by, "pause", job, why)
        return True

    @writes
    def _resume(self, job: str, *, by: str, why: str) -> bool:
        """End a pause."""
        row = self._living_job(job)
        if row.paused_at is None:
            return False
        now = self._now()
        row.paused_at = row.paused_by = row.paused_why = None
        row.pauses[-1] = Stretch(row.pauses[-1].start, max(row.pauses[-1].start, now))
        self._space.index_due(row)
        self._space.record_in_trail(now, by, "resume", job, why)
        return True

    @writes
    def _rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        """Take a job's schedule back."""
        row, watermark = self._living_job(rewind.job), rewind.watermark
        if row.paused_at is not None or (row.watermark, row.revision) != (rewind.watermark_seen, rewind.revision):
            return False
        cut = {entry.id: entry for entry in rewind.cut}
        row.ranges = [cut.get(entry.id, entry) for entry in row.ranges if entry.range.first <= watermark]
        withdrawn = [entry for time, occurrences in row.nominal.items() if time > watermark for entry in occurrences]
        for entry in withdrawn:
            if entry.state is State.PENDING and entry.origin is Origin.SCHEDULE and entry.attempt == 0:
                self._space.delete_run(entry)
        row.pauses = [
            replace(entry, end=min(entry.end or watermark, watermark))
            for entry in row.pauses
            if entry.start <= watermark
        ]
        row.eras = list(rewind.eras)
        row.watermark = watermark
        self._space.schedule_job(row)
        self._space.record_in_trail(self._now(), by, REWIND, rewind.job, why, **rewind.details)
        return True


_LONG_AGO = timedelta(days=366 * 200)


def _as_stored(spec: JobSpec, payload: str) -> JobSpec:
    """Return the definition as it comes back from JSON, independent of what the caller may still change."""
    args, kwargs = read_payload(payload)
    return dataclasses.replace(spec, args=args, kwargs=kwargs)
