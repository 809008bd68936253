"""Verbs on definitions: define, retire, pause, resume. Floor 3."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, exists, insert, literal_column, select, update

from cronsensus.codec import dumps
from cronsensus.errors import DuplicateJob, StoreUnavailable
from cronsensus.model.instants import from_micros, to_micros
from cronsensus.model.job import Era, JobSpec
from cronsensus.model.states import SERIAL_ORIGINS, Reason
from cronsensus.planning import next_nominal
from cronsensus.stores.base import PutResult
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.firing import INSERT_VERDICTS, verdict_row
from cronsensus.stores.sql.jobrows import BY_NAME_LOCKED, eras_after, find_locked, living
from cronsensus.stores.sql.occurrencerows import PENDING, RUNNING, clean, micros, write_payload
from cronsensus.stores.sql.schema import eras, jobs, occurrences, pauses, releases, sessions
from cronsensus.stores.sql.sessions import ALIVE, know_release
from cronsensus.stores.sql.trail import entry, record, record_all
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.sql.undecided import undecided_until

_j, _o, _s = jobs.c, occurrences.c, sessions.c
_MICROSECOND = timedelta(microseconds=1)
_LONG_AGO = timedelta(days=366 * 200)

_IN_NAMESPACE = _j.namespace == bindparam("space")
_STANDING = select(_j.id, _j.name, _j.digest, _j.revision, _j.overlap, _j.watermark, _j.paused_at, _j.retired_at).where(
    _IN_NAMESPACE, _j.name.in_(bindparam("names", expanding=True))
)
_STANDING_LOCKED = _STANDING.order_by(_j.id).with_for_update()
_ALL_CODE = (
    select(_j.id, _j.name, _j.revision, _j.watermark)
    .where(_IN_NAMESPACE, _j.source == "code", _j.retired_at.is_(None))
    .order_by(_j.id)
)
_IDS = select(_j.id, _j.name).where(_IN_NAMESPACE, _j.name.in_(bindparam("names", expanding=True)))
_RELEASE = select(releases.c.id).where(
    releases.c.namespace == bindparam("space"), releases.c.release == bindparam("name")
)
_LATER_RELEASE_LIVES = select(
    exists()
    .where(_s.namespace == bindparam("space"), ALIVE)
    .where(and_(releases.c.namespace == _s.namespace, releases.c.release == _s.release))
    .where(releases.c.id > bindparam("place"))
)
_OTHER_RELEASE_LIVES = select(
    exists().where(_s.namespace == bindparam("space"), ALIVE, _s.release != bindparam("name"))
)
_INSERT_ERAS = insert(eras)
_REDEFINE = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.revision == bindparam("of_revision"))
    .values(
        {
            column: bindparam(f"new_{column}")
            for column in (
                "function", "source", "digest", "spec", "revision", "overlap", "concurrency", "keep",
                "watermark", "next_due", "wake_at",
            )
        }
        | {"retired_at": None}
    )
)  # fmt: skip
_RETIRE = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.revision == bindparam("of_revision"), _j.retired_at.is_(None))
    .values(
        retired_at=bindparam("now"),
        revision=_j.revision + 1,
        watermark=bindparam("decided"),
        next_due=None,
        wake_at=None,
    )
)
_LAST_ERA = (
    select(eras.c.job_id, eras.c.since)
    .where(eras.c.job_id.in_(bindparam("ids", expanding=True)))
    .order_by(eras.c.job_id, eras.c.since)
)
# job_id is hidden in a sum, so that the index of what is pending is walked, and not the whole history of the job.
_OF_JOBS = (_o.job_id + literal_column("0")).in_(bindparam("ids", expanding=True))
_HERE = _o.namespace == bindparam("space")
_CANCEL_PENDING = (
    update(occurrences)
    .where(_HERE, PENDING, _OF_JOBS)
    .values(state="cancelled", reason=Reason.RETIRED, finished_at=bindparam("now"))
)
_SERIAL = _o.origin.in_(sorted(origin.value for origin in SERIAL_ORIGINS))
_SET_SERIAL = tuple(
    update(occurrences).where(_HERE, state, _OF_JOBS, _SERIAL).values(serial=bindparam("is_serial"))
    for state in (PENDING, RUNNING)
)
_PAUSE = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.paused_at.is_(None))
    .values(paused_at=bindparam("now"), paused_by=bindparam("who"), paused_why=bindparam("because"), wake_at=None)
)
_RESUME = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.paused_at.is_not(None))
    .values(
        paused_at=None,
        paused_by=None,
        paused_why=None,
        wake_at=_j.next_due,
        pause_ended_at=bindparam("until"),
    )
)
_INSERT_PAUSE = insert(pauses)
_OPEN_PAUSE = select(pauses.c.id, pauses.c.start).where(pauses.c.job_id == bindparam("job"), pauses.c.end.is_(None))
_END_PAUSE = update(pauses).where(pauses.c.id == bindparam("pause")).values(end=bindparam("until"))


@dataclass(slots=True)
class Declared:
    """What a ``put_jobs`` says, with what was worked out before the write lock is taken."""

    specs: Mapping[str, JobSpec]
    digests: Mapping[str, str]
    release: str
    complete: bool
    by: str
    differing: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    first: dict[str, datetime | None] = field(default_factory=dict)
    """The first nominal time after a moment just before the lock: a search that need not be done while others wait."""


def declare(specs: Sequence[JobSpec], *, release: str, complete: bool, by: str) -> Declared:
    """Check definitions, before anything is begun.

    Raises:
        DuplicateJob: two of them have one name.
        InvalidPayload: arguments are not JSON, or too large.
    """
    by_name: dict[str, JobSpec] = {}
    for spec in specs:
        if spec.name in by_name:
            raise DuplicateJob(f"two jobs are called {spec.name!r}; give one of them name=…")
        write_payload(spec.args, spec.kwargs, what=f"arguments of {spec.name!r}")
        by_name[spec.name] = spec
    return Declared(by_name, {name: spec.digest for name, spec in by_name.items()}, release, complete, by)


def already_so(tx: Transaction, declared: Declared) -> PutResult | None:
    """Return the answer if there is nothing to write; else ``None``, with the names that differ noted."""
    standing = _standing(tx, declared, locked=False)
    declared.differing = [name for name in declared.specs if not _is_same(declared, name, standing.get(name))]
    if declared.differing or tx.value(_RELEASE, space=tx.namespace, name=declared.release) is None:
        return None
    kept: tuple[str, ...] = ()
    if declared.complete:
        kept = tuple(row.name for row in _gone(tx, declared))
        if kept and not _lives(tx, _OTHER_RELEASE_LIVES, name=declared.release):
            return None
    return PutResult(unchanged=tuple(declared.specs), kept=kept)


def prepare(declared: Declared, now: datetime) -> None:
    """Do for the definitions that differ what takes long and needs no lock."""
    for name in declared.differing:
        spec = declared.specs[name]
        declared.texts[name] = _text(spec)
        declared.first[name] = None if spec.trigger is None else spec.trigger.next_after(now)


def put(tx: Transaction, declared: Declared) -> PutResult:
    """Define jobs, all or nothing.

    Safe when two nodes define the same job at the same instant: existing rows are locked before they are compared and
    the UPDATE asks for the revision that was compared; of two INSERTs of one name the unique key of (namespace, name)
    lets one in.
    """
    place = know_release(tx, declared.release)
    superseded = _lives(tx, _LATER_RELEASE_LIVES, place=place)
    standing = _standing(tx, declared, locked=True)
    did: dict[str, list[str]] = {each.name: [] for each in dataclasses.fields(PutResult)}
    for name, spec in declared.specs.items():
        row = standing.get(name)
        if _is_same(declared, name, row):
            did["unchanged"].append(name)
        elif superseded and spec.source == "code":
            did["superseded"].append(name)
        else:
            did["created" if row is None else "changed"].append(name)
    _create(tx, declared, did["created"])
    _redefine(tx, declared, [standing[name] for name in did["changed"]])
    if declared.complete:
        gone = _gone(tx, declared)
        if gone and _lives(tx, _OTHER_RELEASE_LIVES, name=declared.release):
            did["kept"] = [row.name for row in gone]
        else:
            _retire(tx, gone)
            did["retired"] = [row.name for row in gone]
    if declared.by:
        record_all(
            tx,
            [
                entry(tx, declared.by, "define", name, "", did=act, release=declared.release)
                for act in ("created", "changed", "retired")
                for name in did[act]
            ],
        )
    return PutResult(**{act: tuple(names) for act, names in did.items()})


def _standing(tx: Transaction, declared: Declared, *, locked: bool) -> dict[str, AnyRow]:
    statement = _STANDING_LOCKED if locked else _STANDING
    return {row.name: row for row in tx.rows_in(statement, "names", sorted(declared.specs), space=tx.namespace)}


def _is_same(declared: Declared, name: str, row: AnyRow | None) -> bool:
    return row is not None and row.digest == declared.digests[name] and row.retired_at is None


def _gone(tx: Transaction, declared: Declared) -> list[AnyRow]:
    """Return the jobs of code that are not declared any more."""
    return [row for row in tx.rows(_ALL_CODE, space=tx.namespace) if row.name not in declared.specs]


def _lives(tx: Transaction, question: Any, **parameters: Any) -> bool:
    return bool(tx.value(question, space=tx.namespace, **parameters, **tx.clocks))


# --- new and changed definitions --------------------------------------------------------------------------------------


def _create(tx: Transaction, declared: Declared, names: Sequence[str]) -> None:
    """Insert new jobs and their first eras."""
    if not names:
        return
    now = from_micros(tx.now)
    rows: list[dict[str, Any]] = []
    for name in names:
        watermark, next_due = _first(declared, name, now)
        rows.append(
            {
                "namespace": tx.namespace,
                "name": name,
                **_columns(declared, name),
                "revision": 1,
                "watermark": to_micros(watermark),
                "next_due": micros(next_due),
                "wake_at": micros(next_due),
                "created_at": tx.now,
            }
        )
    if tx.change_many(tx.dialect.insert_absent(jobs, ("namespace", "name")), rows) != len(rows):
        raise StoreUnavailable(
            "another node defined the same new jobs at the same instant; nothing was written, try again"
        )
    ids = {row.name: row.id for row in tx.rows_in(_IDS, "names", names, space=tx.namespace)}
    tx.change_many(
        _INSERT_ERAS,
        [_era_row(ids[row["name"]], row["watermark"], 1, declared.specs[row["name"]]) for row in rows],
    )


def _first(declared: Declared, name: str, now: datetime) -> tuple[datetime, datetime | None]:
    """Return the watermark and the next due time of a new job."""
    trigger = declared.specs[name].trigger
    if trigger is None:
        return now, None
    first = declared.first.get(name)
    if first is None or first <= now:
        first = trigger.next_after(now)
    if first is not None:
        return now, first
    last = trigger.latest_until(now, now - _LONG_AGO)
    if last is None:
        return now, None
    return last - _MICROSECOND, last


def _redefine(tx: Transaction, declared: Declared, rows: Sequence[AnyRow]) -> None:
    """Write new revisions; each begins an era now."""
    if not rows:
        return
    known = eras_after(tx, rows)
    began = _last_eras(tx, rows)
    changes: list[dict[str, Any]] = []
    new_eras: list[dict[str, Any]] = []
    serial: dict[int, list[int]] = {0: [], 1: []}
    for row in rows:
        spec = declared.specs[row.name]
        watermark = row.watermark if row.retired_at is None else max(row.watermark, tx.now)
        since = max(tx.now, watermark, began[row.id])
        revision = row.revision + 1
        all_eras = (*known[row.id], Era(from_micros(since), spec.trigger, revision))
        next_due = micros(next_nominal(all_eras, from_micros(watermark)))
        columns = _columns(declared, row.name) | {
            "revision": revision,
            "watermark": watermark,
            "next_due": next_due,
            "wake_at": None if row.paused_at is not None else next_due,
        }
        changes.append(
            {"job": row.id, "of_revision": row.revision} | {f"new_{name}": value for name, value in columns.items()}
        )
        new_eras.append(_era_row(row.id, since, revision, spec))
        if (row.overlap == "allow") != (spec.policies.overlap == "allow"):
            serial[int(spec.policies.overlap != "allow")].append(row.id)
    if tx.change_many(_REDEFINE, changes) != len(changes):
        raise StoreUnavailable("a job changed under a lock; nothing was written; please report this")
    tx.change_many(_INSERT_ERAS, new_eras)
    for is_serial, ids in serial.items():
        for statement in _SET_SERIAL:
            tx.change_in(statement, "ids", ids, space=tx.namespace, is_serial=is_serial)


def _columns(declared: Declared, name: str) -> dict[str, Any]:
    """Return what a row takes over from a definition."""
    spec = declared.specs[name]
    policies = spec.policies
    return {
        "function": spec.function,
        "source": spec.source,
        "digest": declared.digests[name],
        "spec": declared.texts.get(name) or _text(spec),
        "overlap": policies.overlap,
        "concurrency": policies.concurrency,
        "keep": policies.keep // _MICROSECOND,
    }


def _text(spec: JobSpec) -> str:
    # Arguments were checked and bounded in declare(); the rest is ours.
    return json.dumps(spec.to_json(), ensure_ascii=False, separators=(",", ":"))


def _era_row(job: int, since: int, revision: int, spec: JobSpec | None) -> dict[str, Any]:
    trigger = None if spec is None or spec.trigger is None else dumps(spec.trigger.to_json(), what="trigger")
    return {"job_id": job, "since": since, "revision": revision, "trigger": trigger}


def _last_eras(tx: Transaction, rows: Iterable[AnyRow]) -> dict[int, int]:
    """Return when the last era of each job began."""
    return {row.job_id: row.since for row in tx.rows_in(_LAST_ERA, "ids", [row.id for row in rows])}


# --- the end of a job -------------------------------------------------------------------------------------------------


def retire(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop a job for good. Safe: the row is locked when it is read, and the UPDATE asks for its revision."""
    row = tx.row(BY_NAME_LOCKED, space=tx.namespace, name=job)
    if row is None or row.retired_at is not None:
        return False
    _retire(tx, [row])
    record(tx, by, "retire", job, why)
    return True


def _retire(tx: Transaction, rows: Sequence[AnyRow]) -> None:
    """Retire jobs: cancel what waits, write down what nobody decided, and begin an era without a trigger."""
    if not rows:
        return
    now = from_micros(tx.now)
    tx.change_in(_CANCEL_PENDING, "ids", [row.id for row in rows], space=tx.namespace, now=tx.now)
    known = eras_after(tx, rows)
    began = _last_eras(tx, rows)
    ranges: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    new_eras: list[dict[str, Any]] = []
    for row in rows:
        watermark = row.watermark
        undecided = undecided_until(known[row.id], from_micros(watermark), now)
        if undecided is not None:
            ranges.append(verdict_row(tx, row.id, undecided))
            watermark = to_micros(undecided.last)
        changes.append({"job": row.id, "of_revision": row.revision, "now": tx.now, "decided": watermark})
        new_eras.append(_era_row(row.id, max(tx.now, watermark, began[row.id]), row.revision + 1, None))
    if tx.change_many(_RETIRE, changes) != len(changes):
        raise StoreUnavailable("a job changed under a lock; nothing was written; please report this")
    tx.change_many(INSERT_VERDICTS, ranges)
    tx.change_many(_INSERT_ERAS, new_eras)


# --- pauses -----------------------------------------------------------------------------------------------------------


def pause(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop firing a job. Safe: only the UPDATE that found it unpaused goes on."""
    row = living(job, find_locked(tx, job))
    if tx.change(_PAUSE, job=row.id, now=tx.now, who=clean(by), because=clean(why)) != 1:
        return False
    tx.change_many(_INSERT_PAUSE, [{"job_id": row.id, "start": tx.now}])
    record(tx, by, "pause", job, why)
    return True


def resume(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """End a pause. Safe: only the UPDATE that found it paused goes on."""
    row = living(job, find_locked(tx, job))
    if row.paused_at is None:
        return False
    opened = tx.row(_OPEN_PAUSE, job=row.id)
    until = tx.now if opened is None else max(opened.start, tx.now)
    if tx.change(_RESUME, job=row.id, until=max(until, row.pause_ended_at or until)) != 1:
        return False
    if opened is not None:
        tx.change(_END_PAUSE, pause=opened.id, until=until)
    record(tx, by, "resume", job, why)
    return True
