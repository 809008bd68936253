"""The verbs that only read, bounded, in pages by key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cronsensus.model.batch import Children
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobHistory, JobSpec, JobView, Stretch
from cronsensus.model.ledger import Counts, Identity, LedgerRange, Loss, Prune, TrailEntry
from cronsensus.model.occurrence import LogLine, Occurrence, OccurrenceFilter, RunView
from cronsensus.model.parking import Sleeper
from cronsensus.model.session import SessionView
from cronsensus.payload.codec import clean, dumps, loads
from cronsensus.stores.redis.redis_codec import (
    job_view,
    ledger_range,
    log_line,
    occurrence_id,
    read_attempts,
    read_children,
    read_era,
    read_glance,
    read_instant,
    read_occurrence,
    read_spec,
    read_stretch,
    session_views,
    to_micros_text,
    trail_entry,
)
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.stores.unreadable import read_one
from cronsensus.stores.values import LOOKED_THROUGH
from cronsensus.timing.instants import from_micros, to_micros

_JOBS_AT_ONCE = 1000
_GLANCES_AT_ONCE = 1000

RUNS_AT_ONCE = 200


class Reads(Handle):
    """The verbs that only read."""

    def _job(self, name: str) -> JobView | None:
        """Return one job."""
        row = self._read_script("job", name)
        return None if row is False else read_one(row, lambda row: job_view(self._keyspace, row), f"job {name!r}")

    def _jobs(self, after: str, limit: int, *, retired: bool) -> list[JobView]:
        """Return jobs by name, in the order of code points."""

        def fetch(after: str, size: int) -> list[tuple[str, Any]]:
            rows = self._read_script("jobs", after, size, retired)
            return sorted((tuple(row) for row in rows), key=lambda row: row[0])[:size]

        return self._unreadable.read_page(
            limit,
            after,
            fetch,
            lambda row: job_view(self._keyspace, row[1]),
            lambda row: f"job {row[0]!r}",
            position=lambda row: row[0],
        )

    def _edges(self, after: str, limit: int) -> list[JobSpec]:
        """Return the definitions of living jobs that come after others."""
        return self._unreadable.read_page(
            limit,
            after,
            lambda after, size: self._read_script("edges", after, size),
            lambda row: read_spec(row[1]),
            lambda row: f"job {row[0]!r}",
            position=lambda row: row[0],
        )

    def _history(self, job: str) -> JobHistory:
        """Return a job's eras and paused stretches."""
        eras, ended_pauses, paused_at = self._read_script("history", job)
        pauses = [read_one(text, read_stretch, f"a pause of job {job!r}") for text in ended_pauses]
        if paused_at is not False:
            pauses.append(Stretch(from_micros(int(paused_at)), None))
        eras_read = [read_one(text, lambda text: read_era(loads(text)), f"an era of job {job!r}") for text in eras]
        return JobHistory(tuple(eras_read), tuple(pauses))

    def _occurrence(self, number: int) -> Occurrence | None:
        """Return one occurrence."""
        row = self._read_script("occurrence", occurrence_id(number))
        return None if row is False else read_one(row, lambda row: read_occurrence(*row), f"run {number}")

    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]:
        """Return occurrences by id; if a filter matches few, the script is called again from where it stopped."""
        conditions = [
            where.job,
            [state.value for state in where.states] or None,
            None if where.origin is None else where.origin.value,
            where.key,
            to_micros_text(where.scheduled_from),
            to_micros_text(where.scheduled_until),
            where.session,
            None if where.parent is None else occurrence_id(where.parent),
        ]
        occurrences: list[Occurrence] = []
        position = None if after is None else f"{max(after, 0):014d}"
        while len(occurrences) < limit:
            rows, names, last = self._read_script(
                "occurrences", conditions, position, limit - len(occurrences), newest_first
            )
            job_names = dict(names)
            occurrences += self._unreadable.keep_readable(
                rows,
                lambda row: read_occurrence(row, job_names[row[0]]),  # noqa: B023
                lambda row: f"run {row[-1]}",
            )
            if last is False:
                break
            position = last
        return occurrences

    def _runs(self, numbers: Sequence[int]) -> list[RunView]:
        """Return the attempts of several occurrences, some hundred per script."""
        views: list[RunView] = []
        for start in range(0, len(numbers), RUNS_AT_ONCE):
            page = numbers[start : start + RUNS_AT_ONCE]
            rows = self._read_script("runs", [occurrence_id(number) for number in page])
            for number, row in zip(page, rows, strict=True):
                views += [] if row is False else self._read_attempts(number, row)
        return views

    def _read_attempts(self, number: int, row: Any) -> list[RunView]:
        views = self._unreadable.keep_readable(
            [row], lambda row: read_attempts(number, *row), lambda _: f"the attempts of run {number}"
        )
        return views[0] if views else []

    def _logs(self, occurrence: int, after: int, limit: int) -> list[tuple[int, int, LogLine]]:
        """Return log lines."""
        after = max(after, 0)
        texts = self._read_script("logs", occurrence_id(occurrence), after, limit)
        return self._unreadable.keep_readable(
            enumerate(texts, after + 1),
            lambda entry: log_line(*entry),
            lambda entry: f"line {entry[0]} of run {occurrence}",
        )

    def _ranges(
        self, job: str, *, since: datetime | None, until: datetime | None, after: int, limit: int
    ) -> list[LedgerRange]:
        """Return verdict ranges."""
        return self._unreadable.read_page(
            limit,
            max(after, 0),
            lambda after, size: self._read_script(
                "ranges", job, to_micros_text(since), to_micros_text(until), str(after), size
            ),
            lambda row: ledger_range(job, row[1]),
            lambda row: f"a verdict of job {job!r} ({row[1][:40]})",
            position=lambda row: row[0],
        )

    def _sessions(self, limit: int, *, ended: bool) -> list[SessionView]:
        """Return sessions."""
        return session_views(self._unreadable, self._read_script("sessions", ended, limit))

    def _counts(self, limit: int) -> Counts:
        """Return bounded counts."""
        jobs, paused, pending, running, sessions = (min(limit, count) for count in self._read_script("counts"))
        return Counts(jobs=jobs, paused=paused, pending=pending, running=running, sessions=sessions, limit=limit)

    def _pending_of(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return how many occurrences of each job are pending; the server counts them."""
        counts: dict[str, int] = {}
        for start in range(0, len(jobs), _JOBS_AT_ONCE):
            page = list(jobs[start : start + _JOBS_AT_ONCE])
            counts |= {
                name: count for name, count in zip(page, self._read_script("pending_of", page), strict=True) if count
            }
        return counts

    def _children(self, numbers: Sequence[int], limit: int) -> dict[int, Children]:
        """Return the state of batches; the server counts their items."""
        rows = self._read_script("children", [occurrence_id(number) for number in numbers])
        return {number: read_children(row, limit) for number, row in zip(numbers, rows, strict=True)}

    def _parked(self, after: int, limit: int) -> list[Sleeper]:
        """Return parked occurrences; the script is called again from where it stopped."""
        parked: list[Sleeper] = []
        position: Any = f"{max(after, 0):014d}"
        while position is not False and len(parked) < limit:
            rows, position = self._read_script("parked", position, limit - len(parked))
            parked += [
                Sleeper(int(number), job, on, read_instant(nominal), from_micros(int(created_at)))
                for number, job, on, nominal, created_at in rows
                if job is not False
            ]
        return parked

    def _ended_badly(self, since: datetime, after: int, limit: int) -> list[Occurrence]:
        """Return occurrences that did not end well since a moment, by time."""
        rows, names = self._read_script("ended_badly", str(to_micros(since)), f"{max(after, 0):014d}", limit)
        job_names = dict(names)
        return self._unreadable.keep_readable(
            rows, lambda row: read_occurrence(row, job_names[row[0]]), lambda row: f"run {row[-1]}"
        )

    def _decided(self, after: int, limit: int) -> list[LedgerRange]:
        """Return verdict ranges of all jobs, by their numbers."""
        rows = self._read_script("decided", None if after < 0 else str(after), limit)
        return self._unreadable.keep_readable(
            [row for row in rows if row[1] is not False],
            lambda row: ledger_range(row[1], row[0]),
            lambda row: f"a verdict of job {row[1]!r} ({row[0][:40]})",
        )

    def _last_of(self, jobs: Sequence[str], limit: int) -> dict[str, Past]:
        """Return the ends of the ledgers of jobs, some hundred rows per script."""
        pasts: dict[str, Past] = {}
        at_once = max(1, _GLANCES_AT_ONCE // max(1, limit))
        for start in range(0, len(jobs), at_once):
            page = list(jobs[start : start + at_once])
            for name, row in zip(page, self._read_script("last_of", page, limit, LOOKED_THROUGH), strict=True):
                if row is not False:
                    pasts[name] = Past(tuple(self._read_glances(row[0], name)), tuple(self._last_ranges(name, row[1])))
        return pasts

    def _last_ranges(self, job: str, texts: Sequence[str]) -> list[LedgerRange]:
        return self._unreadable.keep_readable(
            texts, lambda text: ledger_range(job, text), lambda text: f"a verdict of job {job!r} ({text[:40]})"
        )

    def _ran_since(self, since: datetime, limit: int) -> list[Glance]:
        """Return what is running, and what ended since, in short scripts that delay nobody."""
        glances: dict[int, Glance] = {}
        position = None
        for _ in range(LOOKED_THROUGH // _GLANCES_AT_ONCE):
            rows, names, position = self._read_script(
                "ran_since", to_micros_text(since), limit, position, _GLANCES_AT_ONCE
            )
            job_names = dict(names)
            for row in rows:
                glances |= {glance.id: glance for glance in self._read_glances([row], job_names[row[0]])}
            if position is False or len(glances) >= 2 * limit:
                break
        return sorted(glances.values(), key=lambda glance: -glance.id)[:limit]

    def _read_glances(self, rows: Sequence[Any], job: str) -> list[Glance]:
        return self._unreadable.keep_readable(rows, lambda row: read_glance(row, job), lambda row: f"run {row[11]}")

    def _identity(self) -> Identity | None:
        """Return the identity of this store; it has none before its first session."""
        identity, born = self._read_script("identity")
        return None if identity is False else Identity(identity, read_instant(born))

    def _note_in_trail(self, act: Loss | Prune, by: str) -> None:
        """Write an entry about the store into the trail."""
        self._write_script(
            "note_in_trail", [clean(by), act.action, "", clean(act.why), dumps(act.details, what="details")]
        )

    def _trail(self, target: str | None, after: int | None, limit: int) -> list[TrailEntry]:
        """Return the audit trail."""
        return self._unreadable.read_page(
            limit,
            None if after is None else str(max(after, 0)),
            lambda after, size: self._read_script("trail", target, after, size),
            lambda row: trail_entry(row[1]),
            lambda row: f"an entry of the audit trail ({row[1][:40]})",
            position=lambda row: row[0],
        )
