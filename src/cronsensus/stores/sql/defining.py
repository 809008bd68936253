"""The verb that defines jobs: new jobs, new revisions, and jobs that are not declared any more."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from cronsensus.model.definition_change import Changes, changes_between, definition_entries
from cronsensus.model.job import Era, JobSpec
from cronsensus.payload.codec import write_payload
from cronsensus.planning import next_due_by_zone, next_nominal
from cronsensus.stores.sql.definitions import MOST_REMEMBERED_JOBS, read_spec
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import definition_of, last_eras, readable_eras, readable_specs
from cronsensus.stores.sql.occurrence_rows import micros
from cronsensus.stores.sql.retiring import retire_all
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sessions import know_release, one_at_a_time
from cronsensus.stores.sql.trail import entry, record_all
from cronsensus.stores.sql.transaction import Transaction, pieces
from cronsensus.stores.unreadable import LARGEST_COUNT, is_sound, whole_number
from cronsensus.stores.values import DefineResult
from cronsensus.timing.instants import from_micros, to_micros

_MICROSECOND = timedelta(microseconds=1)
BATCH_SIZE = 1000
"""Most jobs that a statement reads and locks."""
_LONG_AGO = timedelta(days=366 * 200)


class Move(NamedTuple):
    """The next due time of an unchanged job under the zone rules of this machine, and what it was computed from."""

    next_due: int | None
    job: int
    watermark: int
    revision: int


class PreparedDefinition(NamedTuple):
    """The slow part of a definition, which needs no lock.

    ``first`` is the first nominal time after a moment just before the lock is taken.
    """

    text: str
    trigger: str | None
    after: str | None
    first: datetime | None


@dataclass(slots=True)
class Declaration:
    """The arguments of ``define_jobs``, with values computed before the write lock is taken."""

    specs: Mapping[str, JobSpec]
    digests: Mapping[str, str]
    release: str
    complete: bool
    by: str
    retire_after: timedelta
    differing: list[str] = field(default_factory=list)
    moves: dict[str, Move] = field(default_factory=dict)
    prepared: dict[str, PreparedDefinition] = field(default_factory=dict)


def check_definitions(
    specs: Sequence[JobSpec], *, release: str, complete: bool, by: str, retire_after: timedelta
) -> Declaration:
    """Check definitions, before anything is written.

    Raises:
        InvalidPayload: arguments are not JSON, or too large.
    """
    for spec in specs:
        write_payload(spec.args, spec.kwargs, what=f"arguments of {spec.name!r}")
    by_name = {spec.name: spec for spec in specs}
    digests = {name: spec.digest for name, spec in by_name.items()}
    return Declaration(by_name, digests, release, complete, by, retire_after)


def answer_if_unchanged(tx: Transaction, declared: Declaration) -> DefineResult | None:
    """Return the answer if there is nothing to write; else ``None``, with the differences recorded in ``declared``.

    It ends the transaction.
    """
    stored_jobs = _StoredJobs(tx, declared)
    tx.commit()
    stored, undeclared = stored_jobs.read_jobs()
    for name, spec in declared.specs.items():
        row = stored.get(name)
        if not _is_same(declared, name, row):
            declared.differing.append(name)
        elif (move := _moved_due_time(spec, row)) is not None:
            declared.moves[name] = move
    retiring = undeclared and not stored_jobs.release.row.other_release_lives
    if declared.differing or declared.moves or stored_jobs.release.row.known is None or retiring:
        return None
    _keep_definitions(tx, declared, stored)
    return DefineResult(unchanged=tuple(declared.specs), kept=tuple(row.name for row in undeclared))


def _moved_due_time(spec: JobSpec, row: AnyRow) -> Move | None:
    """Return an unchanged job's new due time under the zone rules; ``None``: the same, or an unreadable row."""
    if spec.trigger is None or not spec.trigger.zones or not (is_sound(row.defined_at) and is_sound(row.watermark)):
        return None
    stored = from_micros(row.next_due) if is_sound(row.next_due) else None
    following = micros(next_due_by_zone(spec.trigger, from_micros(row.defined_at), from_micros(row.watermark), stored))
    return None if following == row.next_due else Move(following, row.id, row.watermark, row.revision)


def _keep_definitions(tx: Transaction, declared: Declaration, stored: Mapping[str, AnyRow]) -> None:
    """Cache the stored definitions, so that a node claims the first run of a job as fast as later ones."""
    for name in islice(declared.specs, MOST_REMEMBERED_JOBS):
        row = stored[name]
        tx.definitions.specs.put(row.id, definition_of(row), read_spec(_encode_spec(declared.specs[name])))
        tx.definitions.claimed.note_definition(row.id, row.id, definition_of(row))


def prepare_definitions(declared: Declaration, now: datetime) -> None:
    """Prepare the definitions that differ: the slow part, without a lock."""
    for name in declared.differing:
        declared.prepared[name] = _prepare_definition(declared.specs[name], now)


def _prepare_definition(spec: JobSpec, now: datetime) -> PreparedDefinition:
    # Arguments were checked and bounded in declare(); the rest is our own data.
    data = spec.to_json()
    trigger, after = (
        None if data.get(part) is None else json.dumps(data[part], separators=(",", ":"))
        for part in ("trigger", "after")
    )
    first = None if spec.trigger is None else spec.trigger.next_after(now)
    return PreparedDefinition(_encode_spec(spec), trigger, after, first)


def _encode_spec(spec: JobSpec) -> str:
    return json.dumps(spec.to_json(), ensure_ascii=False, separators=(",", ":"))


def write_definitions(tx: Transaction, declared: Declaration) -> DefineResult:
    """Define jobs, all or nothing.

    Safe when two nodes define the same job at the same instant: in a namespace one defines after the other, and both
    after or before a session opens. Against verbs of operators, rows are locked before they are compared, and the
    UPDATE compares the revision again.
    """
    know_release(tx, declared.release)
    one_at_a_time(tx)
    stored_jobs = _StoredJobs(tx, declared)
    superseded = _is_superseded(stored_jobs.release)
    by_name, declared_before = stored_jobs.read_jobs()
    ids = sorted({row.id for row in (*by_name.values(), *declared_before)})
    locked = [row for answer in tx.send_in("lock_definitions", "ids", ids) for row in answer.rows]
    stored = {row.name: row for row in locked if row.name in declared.specs}
    undeclared = [row for row in locked if row.name not in declared.specs and row.retired_at is None]
    names_by_outcome: dict[str, list[str]] = {outcome.name: [] for outcome in dataclasses.fields(DefineResult)}
    for name, spec in declared.specs.items():
        row = stored.get(name)
        if _is_same(declared, name, row):
            names_by_outcome["unchanged"].append(name)
        elif superseded and spec.source == "code":
            names_by_outcome["superseded"].append(name)
        else:
            names_by_outcome["created" if row is None else "changed"].append(name)
    for name in (*names_by_outcome["created"], *names_by_outcome["changed"]):
        if name not in declared.prepared:  # it changed between the read and the lock
            declared.prepared[name] = _prepare_definition(declared.specs[name], from_micros(tx.now))
    _create_jobs(tx, declared, names_by_outcome["created"])
    changes = _redefine_jobs(tx, declared, [stored[name] for name in names_by_outcome["changed"]])
    names_by_outcome["moved"] = [
        name for name in names_by_outcome["unchanged"] if _still_moves(declared.moves.get(name), stored[name])
    ]
    tx.send_rows("move_jobs", [declared.moves[name] for name in names_by_outcome["moved"]], one_each=True)
    if declared.complete:
        if undeclared and stored_jobs.release.row.other_release_lives:
            names_by_outcome["kept"] = [row.name for row in undeclared]
        else:
            retire_all(tx, undeclared, declared.retire_after)
            names_by_outcome["retired"] = [row.name for row in undeclared]
    if declared.by:
        entries = definition_entries(names_by_outcome, changes, declared.release)
        record_all(tx, [entry(tx, declared.by, "define", name, "", **details) for name, details in entries])
    return DefineResult(**{act: tuple(names) for act, names in names_by_outcome.items()})


class _StoredJobs:
    """The stored jobs; the statements are sent when this is made, and the answers read when needed."""

    def __init__(self, tx: Transaction, declared: Declaration) -> None:
        space: dict[str, Any] = {"space": tx.namespace}
        self._names = declared.specs.keys()
        self._stored = tx.send_in("definitions", "names", sorted(declared.specs), **space)
        self.release = tx.send("release_among_others", **space, boot=tx.epoch, moment=tx.moment, mine=declared.release)
        self._declared = tx.send("declared_jobs", **space) if declared.complete else None

    def read_jobs(self) -> tuple[dict[str, AnyRow], list[AnyRow]]:
        """Return the stored jobs by name, and the jobs of code that are not declared any more."""
        code = () if self._declared is None else self._declared.rows
        stored = {row.name: row for answer in self._stored for row in answer.rows}
        return stored, [row for row in code if row.name not in self._names]


def _is_superseded(release: Pending) -> bool:
    return bool(release.row.newer_release_lives)


def _still_moves(move: Move | None, row: AnyRow) -> bool:
    """Whether a locked job is unchanged; whoever moved its watermark has computed its next due time, too."""
    return move is not None and (row.watermark, row.revision) == (move.watermark, move.revision)


def _is_same(declared: Declaration, name: str, row: AnyRow | None) -> bool:
    return row is not None and row.digest == declared.digests[name] and row.retired_at is None


# --- new and changed definitions --------------------------------------------------------------------------------------


def _create_jobs(tx: Transaction, declared: Declaration, names: Sequence[str]) -> None:
    """Insert new jobs and their first eras, in pieces: a hundred thousand rows at once would fill the memory."""
    for piece in pieces(names, BATCH_SIZE):
        jobs: list[tuple[Any, ...]] = []
        eras: list[tuple[Any, ...]] = []
        for name in piece:
            watermark, next_due = _first_times(declared, name, from_micros(tx.now))
            jobs.append((name, *_columns_of(declared, name), to_micros(watermark), micros(next_due)))
            prepared = declared.prepared[name]
            eras.append((name, to_micros(watermark), 1, prepared.trigger, prepared.after))
        tx.send_rows("insert_jobs", jobs, space=tx.namespace, created=tx.now)
        tx.send_rows("insert_eras", eras, space=tx.namespace)
        if len(piece) == BATCH_SIZE:
            tx.flush()


def _first_times(declared: Declaration, name: str, now: datetime) -> tuple[datetime, datetime | None]:
    """Return the watermark and the next due time of a new job."""
    trigger = declared.specs[name].trigger
    if trigger is None:
        return now, None
    first = declared.prepared[name].first
    if first is None or first <= now:
        first = trigger.next_after(now)
    if first is not None:
        return now, first
    last = trigger.latest_until(now, now - _LONG_AGO)
    if last is None:
        return now, None
    # All of its times are past. The last one still needs a verdict, and a plan begins after the watermark.
    return last - _MICROSECOND, last


def _redefine_jobs(tx: Transaction, declared: Declaration, rows: Sequence[AnyRow]) -> dict[str, Changes]:
    """Write new revisions, each with an era that begins now; return what each changes."""
    rows = tx.unreadable.keep_readable(
        rows, _with_revision, lambda row: f"job {row.name!r} cannot be defined anew, and"
    )
    if not rows:
        return {}
    era_answers = tx.send_in("era_beginnings", "ids", [row.id for row in rows])
    eras_by_job = readable_eras(tx, rows)
    specs = readable_specs(tx, rows)
    last_eras_since = last_eras(era_answers)
    job_rows: list[tuple[Any, ...]] = []
    era_rows: list[tuple[Any, ...]] = []
    serial: dict[int, list[int]] = {0: [], 1: []}
    for row in rows:
        spec = declared.specs[row.name]
        # Defining a job again also repairs a row that was edited by hand.
        watermark = row.watermark if is_sound(row.watermark) else tx.now
        if row.retired_at is not None:
            watermark = max(watermark, tx.now)
        since = max(tx.now, watermark, last_eras_since.get(row.id, watermark))
        revision = row.revision + 1 if is_sound(row.revision) and 0 < row.revision < LARGEST_COUNT else 1
        all_eras = (*eras_by_job[row.id], Era(from_micros(since), spec.trigger, revision, spec.after))
        next_due = micros(next_nominal(all_eras, from_micros(watermark)))
        wake_at = None if row.paused_at is not None else next_due
        times = (revision, since, watermark, next_due, wake_at)
        job_rows.append((*_columns_of(declared, row.name), *times, row.id, row.revision))
        prepared = declared.prepared[row.name]
        era_rows.append((row.id, since, revision, prepared.trigger, prepared.after))
        if (row.overlap == "allow") != (spec.policies.overlap == "allow"):
            serial[int(spec.policies.overlap != "allow")].append(row.id)
    tx.send_rows("redefine_jobs", job_rows, one_each=True)
    tx.send_rows("insert_further_eras", era_rows)
    for is_serial, ids in serial.items():
        active_answers = tx.send_in("active_of_jobs", "ids", ids, space=tx.namespace, ruled=is_serial)
        active = sorted(row.id for answer in active_answers for row in answer.rows)
        tx.send_in("lock_runs", "ids", active, space=tx.namespace)
        tx.send_in("set_serial", "ids", active, ruled=is_serial)
    return {row.name: changes_between(specs.get(row.id), declared.specs[row.name]) for row in rows}


def _with_revision(row: AnyRow) -> AnyRow:
    """Return the row if its revision is a number, so that an UPDATE can compare it."""
    whole_number(row.revision)
    return row


def _columns_of(declared: Declaration, name: str) -> tuple[Any, ...]:
    """Return the columns that a row takes from a definition."""
    spec = declared.specs[name]
    policies = spec.policies
    keep = policies.keep // _MICROSECOND
    text = declared.prepared[name].text
    dependent = None if spec.after is None else 1
    return (
        spec.function,
        spec.source,
        declared.digests[name],
        text,
        policies.overlap,
        policies.concurrency,
        keep,
        dependent,
    )
