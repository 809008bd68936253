"""The verbs that define and retire jobs.

Lua has no triggers, so values that depend on them (the next due time, the undecided times) are computed here, between a
look and a write. The write compares again the values that the computation was based on, see ``define.lua``; a caller
that loses that race looks again. The change counts from the moment of the look, at most ten seconds before the write. A
decision in between would have moved a watermark or made a revision, and then the write is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from cronsensus.errors import StoreBusy, StoreCorrupt
from cronsensus.model.definition_change import changes_between, definition_entries
from cronsensus.model.job import Era, JobSpec
from cronsensus.model.rewind import Rewind
from cronsensus.payload.codec import clean, dumps, write_payload
from cronsensus.planning import next_due_by_zone, next_nominal, undecided_until
from cronsensus.stores.redis.redis_codec import (
    era_row,
    holding_eras,
    read_eras,
    read_spec,
    to_length,
    to_micros_text,
    write_json,
    write_range,
)
from cronsensus.stores.redis.redis_errors import Refusal
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.stores.unreadable import is_sound
from cronsensus.stores.values import NO_DELAY, DefineResult
from cronsensus.timing.instants import from_micros

MOST_JOBS_WRITTEN = 2500
"""Most definitions written, and most retired, in a step, for which others wait. More are written in several steps; the
last ones retire. A node that dies in between has defined a part, and defines the rest when it declares again."""
MOST_JOBS_READ = 1000
MOST_TRIES = 50
_MICROSECOND = timedelta(microseconds=1)
_LONG_AGO = timedelta(days=366 * 200)
_NO_DIGESTS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as read by a look."""

    name: str
    number: str
    digest: str
    revision: str
    watermark: datetime
    eras: tuple[Era, ...]
    last_since: datetime
    retired: bool
    source: str
    awaits_retirement: bool
    stored_watermark: Any
    """The watermark as stored, which may be no number; the write compares it."""
    next_due: str | None
    spec: JobSpec | None
    """The stored definition, if it was requested and can be read."""

    @property
    def next_revision(self) -> int:
        """Return the number of the next revision; 1 if the stored one is no number."""
        return int(self.revision) + 1 if re.fullmatch(r"\d{1,9}", str(self.revision)) else 1

    def era_start(self, now: datetime, watermark: datetime | None = None) -> datetime:
        """Return when an era created at ``at`` begins: not before the watermark, nor before the last era."""
        return max(now, watermark or self.watermark, self.last_since)

    def eras_and(self, era: Era, watermark: datetime) -> tuple[Era, ...]:
        """Return the eras that apply above ``watermark``, with the new ``era``."""
        return holding_eras((*self.eras, era), watermark)


@dataclass(slots=True)
class DefinitionsRead:
    """The definitions of a moment, and which releases were alive.

    Attributes:
        at: the store's clock then.
        generation: counts the changes of definitions.
        release_known: the release has defined jobs before.
        newer_release_lives: a later release has a live node.
        other_release_lives: any other release has a live node.
        code_job_count: how many jobs with ``source="code"`` are not retired.
        stored: the requested jobs that exist, by name.
    """

    at: datetime
    generation: str
    release_known: bool
    newer_release_lives: bool
    other_release_lives: bool
    code_job_count: int
    stored: dict[str, StoredJob] = field(default_factory=dict)

    def is_same(self, name: str, digest: str) -> bool:
        """Whether the stored definition equals the declared job."""
        job = self.stored.get(name)
        return job is not None and job.digest == digest and not job.retired


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A definition as an application declares it."""

    spec: JobSpec
    digest: str
    payload: str


class DefiningVerbs(Handle):
    """The verbs that change a job's definition."""

    def _define_jobs(
        self, specs: Sequence[JobSpec], *, release: str, complete: bool, by: str, retire_after: timedelta
    ) -> DefineResult:
        """Define jobs; everything is checked before anything is written."""
        declared = _check_specs(specs)
        names = list(declared)
        names_by_outcome: dict[str, list[str]] = {outcome.name: [] for outcome in dataclasses.fields(DefineResult)}
        pieces = [names[start : start + MOST_JOBS_WRITTEN] for start in range(0, len(names), MOST_JOBS_WRITTEN)] or [[]]
        retiring = complete
        while pieces or retiring:
            piece = pieces.pop(0) if pieces else []
            last = not pieces
            batch_outcomes = self._define_batch(
                [declared[name] for name in piece], names if complete and last else None, release, by, retire_after
            )
            for outcome_name, batch_names in batch_outcomes.items():
                names_by_outcome[outcome_name] += batch_names
            retiring = complete and (not last or len(batch_outcomes["retired"]) == MOST_JOBS_WRITTEN)
        return DefineResult(
            **{outcome_name: tuple(batch_names) for outcome_name, batch_names in names_by_outcome.items()}
        )

    def _define_batch(
        self,
        declared: Sequence[DeclaredJob],
        complete: Sequence[str] | None,
        release: str,
        by: str,
        retire_after: timedelta,
    ) -> dict[str, list[str]]:
        """Define some jobs in a step. ``complete``: all declared names, if all other jobs are to be retired."""
        for _ in range(MOST_TRIES):
            # For a large release, reading all names would take longer than the write may come after the read.
            reads_all = complete is not None and len(complete) <= MOST_JOBS_WRITTEN
            digests = {job.spec.name: job.digest for job in declared}
            look = self._read_definitions(release, complete if complete and reads_all else list(digests), digests)
            if look is None:
                continue
            undeclared = [] if complete is None else self._list_undeclared(look, complete, release, all_seen=reads_all)
            if undeclared is None:
                continue
            names_by_outcome = _compare_definitions(look, declared, undeclared)
            by_name = {job.spec.name: job for job in declared}
            moves = {
                name: move
                for name in names_by_outcome["unchanged"]
                if (move := _encode_moved(by_name[name], look.stored[name]))
            }
            names_by_outcome["moved"] = list(moves)
            if (
                not (names_by_outcome["created"] or names_by_outcome["changed"] or names_by_outcome["retired"] or moves)
                and look.release_known
            ):
                return names_by_outcome
            changes = {
                name: changes_between(look.stored[name].spec, by_name[name].spec)
                for name in names_by_outcome["changed"]
            }
            trail = definition_entries(names_by_outcome, changes, release) if by else ()
            entries = [[clean(by), "define", name, "", dumps(details)] for name, details in trail]
            try:
                self._write_definitions(
                    at=look.at,
                    generation=None if complete is None else look.generation,
                    release=release,
                    newer_release_lives=look.newer_release_lives,
                    other_release_lives=look.other_release_lives,
                    created=[_encode_created(by_name[name], look.at) for name in names_by_outcome["created"]],
                    changed=[
                        _encode_changed(by_name[name], look.stored[name], look.at)
                        for name in names_by_outcome["changed"]
                    ],
                    retired=[
                        _encode_retired(look.stored[name], look.at, retire_after)
                        for name in names_by_outcome["retired"]
                    ],
                    moved=list(moves.values()),
                    entries=entries,
                )
            except Refusal:
                continue  # AGAIN: another caller was faster
            return names_by_outcome
        raise _busy_error(f"definitions of release {release!r}")

    def _rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        """Rewind a job."""
        *step, details = _encode_rewind(rewind)
        is_rewound: bool = self._decide_script("rewind", *step, clean(by), clean(why), details)
        return is_rewound

    def _retire(self, job: str, *, by: str, why: str) -> bool:
        """Stop a job for good."""
        for _ in range(MOST_TRIES):
            look = self._read_definitions("", [job])
            if look is None:
                continue
            stored = look.stored.get(job)
            if stored is None:
                return False
            entry = [clean(by), "retire", job, clean(why), "{}"]
            try:
                self._write_definitions(
                    at=look.at, retired=[_encode_retired(stored, look.at, NO_DELAY)], entries=[entry]
                )
            except Refusal:
                continue  # AGAIN: it was fired or defined anew in this moment
            return not stored.retired or stored.awaits_retirement
        raise _busy_error(f"job {job!r}")

    def _write_definitions(
        self,
        *,
        at: datetime,
        generation: str | None = None,
        release: str | None = None,
        newer_release_lives: bool = False,
        other_release_lives: bool = False,
        created: Sequence[Any] = (),
        changed: Sequence[Any] = (),
        retired: Sequence[Any] = (),
        moved: Sequence[Any] = (),
        entries: Sequence[Any] = (),
    ) -> None:
        """Write definitions in a step, if the state from which they were computed has not changed.

        Args:
            at: when that state was read.
            generation: the number of changes of definitions then; ``None``: it is not compared.
            release: if given, the same releases must be alive as then.
            newer_release_lives: whether a later release was alive.
            other_release_lives: whether any other release was alive.
            created: new jobs, see ``_encode_created``; and so on.
            changed: existing jobs with a new definition.
            retired: jobs to retire.
            moved: jobs whose next due time changes with the zone rules.
            entries: for the trail.

        Raises:
            Refusal: something changed; look again.
        """
        self._decide_script(
            "define", to_micros_text(at), generation, release, newer_release_lives, other_release_lives,
            created, changed, retired, moved, entries,
        )  # fmt: skip

    # --- looking ------------------------------------------------------------------------------------------------------

    def _read_definitions(
        self, release: str, names: Sequence[str], digests: Mapping[str, str] = _NO_DIGESTS
    ) -> DefinitionsRead | None:
        """Read the jobs with some names; ``None`` if definitions changed meanwhile.

        A definition itself is read only if its digest is not that of ``digests``.
        """
        look: DefinitionsRead | None = None
        for start in range(0, max(len(names), 1), MOST_JOBS_READ):
            page = names[start : start + MOST_JOBS_READ]
            now, generation, release_known, lives, rows, code_job_count = self._read_script(
                "look_at_definitions", release, page, [digests.get(name, False) for name in page]
            )
            if look is None:
                newer_release_lives, other_release_lives = lives
                look = DefinitionsRead(
                    from_micros(int(now)),
                    generation,
                    release_known,
                    newer_release_lives,
                    other_release_lives,
                    code_job_count,
                )
            elif look.generation != generation:
                return None
            look.stored |= {name: _stored_job(name, row, look.at) for name, row in zip(page, rows, strict=True) if row}
        return look

    def _list_undeclared(
        self, look: DefinitionsRead, complete: Sequence[str], release: str, *, all_seen: bool
    ) -> list[StoredJob] | None:
        """Return jobs of code that are no longer declared, as many as a step takes; ``None``: read everything again."""
        if all_seen and look.code_job_count == sum(
            job.source == "code" and not job.retired for job in look.stored.values()
        ):
            return []
        names = set(complete)
        missing = [name for name in self._read_script("code") if name not in names][:MOST_JOBS_WRITTEN]
        other = self._read_definitions(release, missing)
        if other is None or other.generation != look.generation:
            return None
        look.stored |= other.stored
        return sorted(other.stored.values(), key=lambda job: job.number)


def _busy_error(what: str) -> StoreBusy:
    return StoreBusy(f"{what}: other nodes changed them {MOST_TRIES} times while this one tried to; try again")


def _encode_rewind(rewind: Rewind) -> list[Any]:
    """Return the script's arguments; see ``verbs/rewind.lua``."""
    eras = holding_eras(rewind.eras, rewind.watermark)
    cut = [
        [
            f"{change.id:014d}",
            to_micros_text(change.range.last),
            to_micros_text(change.decided_at),
            write_range(change.range),
        ]
        for change in rewind.cut
    ]
    return [
        rewind.job, str(rewind.revision), to_micros_text(rewind.watermark_seen), to_micros_text(rewind.watermark),
        to_micros_text(rewind.next_due), [_era_text(era) for era in rewind.eras], _eras_text(eras),
        to_micros_text(rewind.eras[-1].since), cut, dumps(rewind.details, what="details"),
    ]  # fmt: skip


def _check_specs(specs: Sequence[JobSpec]) -> dict[str, DeclaredJob]:
    """Check definitions.

    Raises:
        InvalidPayload: arguments are not JSON, or too large.
    """
    declared: dict[str, DeclaredJob] = {}
    for spec in specs:
        payload = write_payload(spec.args, spec.kwargs, what=f"arguments of {spec.name!r}")
        declared[spec.name] = DeclaredJob(spec, spec.digest, payload)
    return declared


def _stored_job(name: str, row: Sequence[Any], now: datetime) -> StoredJob:
    number, digest, revision, watermark, eras, last_since, retired_at, source, waiting_until, next_due, spec = row
    # Defining a job again also repairs a definition that was edited by hand.
    decided_until = from_micros(int(watermark)) if _is_instant(watermark) else now
    since = from_micros(int(last_since)) if _is_instant(last_since) else decided_until
    try:
        needed_eras = holding_eras(read_eras(eras), decided_until)
    except StoreCorrupt:
        needed_eras = ()
    return StoredJob(
        name, number, digest, revision, decided_until, needed_eras, since, retired_at is not False, source,
        waiting_until is not False, watermark, next_due if _is_instant(next_due) else None, _readable_spec(spec),
    )  # fmt: skip


def _readable_spec(text: str | Literal[False]) -> JobSpec | None:
    try:
        return None if text is False else read_spec(text)
    except StoreCorrupt:
        return None


def _is_instant(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"-?\d{1,16}", text) is not None and is_sound(int(text))


def _compare_definitions(
    look: DefinitionsRead, declared: Sequence[DeclaredJob], gone: Sequence[StoredJob]
) -> dict[str, list[str]]:
    did: dict[str, list[str]] = {each.name: [] for each in dataclasses.fields(DefineResult)}
    for definition in declared:
        name = definition.spec.name
        if look.is_same(name, definition.digest):
            did["unchanged"].append(name)
        elif look.newer_release_lives and definition.spec.source == "code":
            did["superseded"].append(name)
        else:
            did["changed" if name in look.stored else "created"].append(name)
    did["kept" if look.other_release_lives else "retired"] += [definition.name for definition in gone]
    return did


# --- what is written --------------------------------------------------------------------------------------------------


def _encode_created(definition: DeclaredJob, now: datetime) -> list[Any]:
    """Return a new job's name, fields, first era and next due time."""
    watermark = now
    trigger = definition.spec.trigger
    if trigger is not None and trigger.next_after(now) is None:
        last = trigger.latest_until(now, now - _LONG_AGO)
        if last is not None:
            # All of its times are past. The last time still needs a verdict, and a plan begins after the watermark.
            watermark = last - _MICROSECOND
    era = Era(watermark, trigger, 1, definition.spec.after)
    fields = _encode_fields(definition, 1, watermark, (era,))
    return [definition.spec.name, list(fields), _era_text(era), to_micros_text(next_nominal((era,), watermark))]


def _encode_changed(definition: DeclaredJob, stored: StoredJob, now: datetime) -> list[Any]:
    """Return a changed job: the values read, then the same as for a new job."""
    watermark = max(stored.watermark, now) if stored.retired else stored.watermark
    revision = stored.next_revision
    era = Era(stored.era_start(now, watermark), definition.spec.trigger, revision, definition.spec.after)
    eras = stored.eras_and(era, watermark)
    fields = _encode_fields(definition, revision, watermark, eras)
    return [*_encode_seen(stored), list(fields), _era_text(era), to_micros_text(next_nominal(eras, watermark))]


def _encode_moved(definition: DeclaredJob, stored: StoredJob) -> list[Any] | None:
    """Return the values read of an unchanged job and its due time under the zone rules; ``None``: it is the same."""
    trigger = definition.spec.trigger
    if trigger is None or not trigger.zones or not _is_instant(stored.stored_watermark):
        return None
    was = None if stored.next_due is None else from_micros(int(stored.next_due))
    next_due = next_due_by_zone(trigger, stored.last_since, stored.watermark, was)
    return None if next_due == was else [*_encode_seen(stored), to_micros_text(next_due)]


def _encode_retired(stored: StoredJob, now: datetime, retire_after: timedelta) -> list[Any]:
    """Return a job to retire: the values read, its fields and last era, and its undecided times."""
    if stored.retired:
        return _encode_seen(stored)
    until = to_micros_text(now + retire_after) if retire_after > NO_DELAY else None
    # After a clock was set back, the last era begins later: the times of the era before it until then count, too.
    undecided = undecided_until(stored.eras, stored.watermark, stored.era_start(now))
    watermark = stored.watermark if undecided is None else undecided.last
    revision = stored.next_revision
    era = Era(stored.era_start(now, watermark), None, revision)
    eras = _eras_text(stored.eras_and(era, watermark))
    fields = ["revision", str(revision), "last_since", to_micros_text(era.since), "eras", eras]
    last = None if undecided is None else to_micros_text(undecided.last)
    text = None if undecided is None else write_range(undecided)
    return [*_encode_seen(stored), fields, _era_text(era), last, text, until]


def _encode_seen(stored: StoredJob) -> list[Any]:
    return [stored.number, stored.revision, stored.stored_watermark, stored.name]


def _encode_fields(definition: DeclaredJob, revision: int, watermark: datetime, eras: tuple[Era, ...]) -> Iterator[str]:
    """Yield the fields of a revision and their values, alternately."""
    spec, policies = definition.spec, definition.spec.policies
    fields = {
        "name": spec.name,
        "function": spec.function,
        "source": spec.source,
        "digest": definition.digest,
        "spec": write_json(spec.to_json()),
        "args": dumps(list(spec.args)),
        "kwargs": dumps(spec.kwargs),
        "payload": definition.payload,
        "revision": revision,
        "overlap": policies.overlap,
        "concurrency": policies.concurrency,
        "grace": None if policies.grace is None else to_length(policies.grace),
        "priority": policies.priority,
        "on_crash": policies.on_crash,
        "max_crashes": policies.max_crashes,
        "keep": to_length(policies.keep),
        "manual": 1 if spec.trigger is None else None,
        "elsewhere": 1 if spec.runs_elsewhere else None,
        "dependent": 1 if spec.after is not None else None,
        "watermark": to_micros_text(watermark),
        "eras": _eras_text(eras),
        "last_since": to_micros_text(eras[-1].since),
    }
    for name, value in fields.items():
        if value is not None:
            yield name
            yield str(value)


def _era_text(era: Era) -> str:
    return write_json(era_row(era))


def _eras_text(eras: tuple[Era, ...]) -> str:
    return write_json([era_row(era) for era in eras])
