"""The verb that defines jobs: new ones, new revisions, and those that are not declared any more."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, exists, literal_column, select, union_all, update

from cronsensus.codec import write_payload
from cronsensus.errors import StoreUnavailable
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import Era, JobSpec
from cronsensus.model.states import SERIAL_ORIGINS
from cronsensus.planning import next_nominal
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import INSERT_ERAS, NAMES_OF_DEFINITION, era_row, last_eras, readable_eras
from cronsensus.stores.sql.occurrencerows import LISTED_PENDING, LISTED_RUNNING, OF_JOBS, micros
from cronsensus.stores.sql.retiring import retire_all
from cronsensus.stores.sql.schema import jobs, occurrences, releases, sessions
from cronsensus.stores.sql.sessions import TAKES_TURNS, know_release, one_at_a_time
from cronsensus.stores.sql.trail import entry, record_all
from cronsensus.stores.sql.transaction import Transaction, pieces
from cronsensus.stores.unreadable import MOST_COUNTED, sound, whole
from cronsensus.stores.values import PutResult

_j, _o, _s = jobs.c, occurrences.c, sessions.c
_MICROSECOND = timedelta(microseconds=1)
_AT_ONCE = 1000
_LONG_AGO = timedelta(days=366 * 200)

_IN_NAMESPACE = _j.namespace == bindparam("space")
_STANDING = select(_j.id, _j.name, *NAMES_OF_DEFINITION, _j.overlap, _j.watermark, _j.paused_at, _j.retired_at).where(
    _IN_NAMESPACE, _j.name.in_(bindparam("names", expanding=True))
)
_STANDING_LOCKED = _STANDING.order_by(_j.id).with_for_update()
_ALL_CODE = (
    select(_j.id, _j.name, *NAMES_OF_DEFINITION, _j.watermark)
    # In its own words, not as a parameter: the index has only what is declared in code.
    .where(_IN_NAMESPACE, _j.source == literal_column("'code'"), _j.retired_at.is_(None))
    .order_by(_j.id)
)
_IDS = select(_j.id, _j.name).where(_IN_NAMESPACE, _j.name.in_(bindparam("names", expanding=True)))
_RELEASE = select(releases.c.id).where(
    releases.c.namespace == bindparam("space"), releases.c.release == bindparam("name")
)
_LATER_RELEASE_LIVES = select(
    exists()
    .where(_s.namespace == bindparam("space"), TAKES_TURNS)
    .where(and_(releases.c.namespace == _s.namespace, releases.c.release == _s.release))
    .where(releases.c.id > bindparam("place"))
)
_OTHER_RELEASE_LIVES = select(
    exists().where(_s.namespace == bindparam("space"), TAKES_TURNS, _s.release != bindparam("name"))
)
_REDEFINE = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.revision == bindparam("of_revision"))
    .values(
        {
            column: bindparam(f"new_{column}")
            for column in (
                "function", "source", "digest", "spec", "revision", "overlap", "concurrency", "keep",
                "watermark", "next_due", "wake_at", "defined_at",
            )
        }
        | {"retired_at": None, "waiting_until": None}
    )
)  # fmt: skip
_SERIAL = _o.origin.in_(sorted(origin.value for origin in SERIAL_ORIGINS))
# In one statement, which sees each of them in exactly one state, however they change meanwhile.
_ACTIVE_OF_JOBS = union_all(
    *(
        select(_o.id).where(_o.namespace == bindparam("space"), state, OF_JOBS, _SERIAL, _o.serial != bindparam("to"))
        for state in (LISTED_PENDING, LISTED_RUNNING)
    )
)
_SET_SERIAL = (
    update(occurrences)
    .where(_o.id.in_(bindparam("ids", expanding=True)), _o.finished_at.is_(None))
    .values(serial=bindparam("to"))
)


class Prepared(NamedTuple):
    """What takes long and needs no lock.

    ``first`` is the first nominal time after a moment just before the lock is taken.
    """

    text: str
    trigger: str | None
    first: datetime | None


@dataclass(slots=True)
class Declared:
    """What a ``put_jobs`` says, with what was worked out before the write lock is taken."""

    specs: Mapping[str, JobSpec]
    digests: Mapping[str, str]
    release: str
    complete: bool
    by: str
    retire_after: timedelta
    differing: list[str] = field(default_factory=list)
    prepared: dict[str, Prepared] = field(default_factory=dict)


def declare(specs: Sequence[JobSpec], *, release: str, complete: bool, by: str, retire_after: timedelta) -> Declared:
    """Check definitions, before anything is begun.

    Raises:
        InvalidPayload: arguments are not JSON, or too large.
    """
    for spec in specs:
        write_payload(spec.args, spec.kwargs, what=f"arguments of {spec.name!r}")
    by_name = {spec.name: spec for spec in specs}
    digests = {name: spec.digest for name, spec in by_name.items()}
    return Declared(by_name, digests, release, complete, by, retire_after)


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
        declared.prepared[name] = _prepare(declared.specs[name], now)


def _prepare(spec: JobSpec, now: datetime) -> Prepared:
    # Arguments were checked and bounded in declare(); the rest is ours.
    data = spec.to_json()
    trigger = None if data["trigger"] is None else json.dumps(data["trigger"], separators=(",", ":"))
    first = None if spec.trigger is None else spec.trigger.next_after(now)
    return Prepared(json.dumps(data, ensure_ascii=False, separators=(",", ":")), trigger, first)


def put(tx: Transaction, declared: Declared) -> PutResult:
    """Define jobs, all or nothing.

    Safe when two nodes define the same job at the same instant: in a namespace one defines after the other, and both
    after or before a session begins. Against verbs of operators, rows are locked before they are compared, and the
    UPDATE asks for the revision that was compared.
    """
    place = know_release(tx, declared.release)
    one_at_a_time(tx)
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
    for name in (*did["created"], *did["changed"]):
        if name not in declared.prepared:  # it changed between the look and the lock
            declared.prepared[name] = _prepare(declared.specs[name], from_micros(tx.now))
    _create(tx, declared, did["created"])
    _redefine(tx, declared, [standing[name] for name in did["changed"]])
    if declared.complete:
        gone = _gone(tx, declared)
        if gone and _lives(tx, _OTHER_RELEASE_LIVES, name=declared.release):
            did["kept"] = [row.name for row in gone]
        else:
            retire_all(tx, gone, declared.retire_after)
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
    """Insert new jobs and their first eras, some at a time: a hundred thousand rows at once would fill the memory."""
    for some in pieces(names, _AT_ONCE):
        rows = [_new_row(tx, declared, name) for name in some]
        if tx.change_many(tx.dialect.insert_absent(jobs, ("namespace", "name")), rows) != len(rows):
            raise StoreUnavailable("another node defined the same new jobs just now; nothing was written, try again")
        ids = {row.name: row.id for row in tx.rows_in(_IDS, "names", some, space=tx.namespace)}
        first_eras = [
            era_row(ids[row["name"]], row["watermark"], 1, declared.prepared[row["name"]].trigger) for row in rows
        ]
        tx.change_many(INSERT_ERAS, first_eras)


def _new_row(tx: Transaction, declared: Declared, name: str) -> dict[str, Any]:
    watermark, next_due = _first(declared, name, from_micros(tx.now))
    return {
        "namespace": tx.namespace,
        "name": name,
        **_columns(declared, name),
        "revision": 1,
        "defined_at": to_micros(watermark),
        "watermark": to_micros(watermark),
        "next_due": micros(next_due),
        "wake_at": micros(next_due),
        "created_at": tx.now,
    }


def _first(declared: Declared, name: str, now: datetime) -> tuple[datetime, datetime | None]:
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
    return last - _MICROSECOND, last


def _redefine(tx: Transaction, declared: Declared, rows: Sequence[AnyRow]) -> None:
    """Write new revisions; each begins an era now."""
    rows = tx.unreadable.readable(rows, _numbered, lambda row: f"job {row.name!r} cannot be defined anew, and")
    if not rows:
        return
    known = readable_eras(tx, rows)
    began = last_eras(tx, rows)
    changes: list[dict[str, Any]] = []
    new_eras: list[dict[str, Any]] = []
    serial: dict[int, list[int]] = {0: [], 1: []}
    for row in rows:
        spec = declared.specs[row.name]
        # Defining a job again is also what mends a row that somebody wrote by hand.
        watermark = row.watermark if sound(row.watermark) else tx.now
        if row.retired_at is not None:
            watermark = max(watermark, tx.now)
        since = max(tx.now, watermark, began.get(row.id, watermark))
        revision = row.revision + 1 if sound(row.revision) and 0 < row.revision < MOST_COUNTED else 1
        all_eras = (*known[row.id], Era(from_micros(since), spec.trigger, revision))
        next_due = micros(next_nominal(all_eras, from_micros(watermark)))
        columns = _columns(declared, row.name) | {
            "revision": revision,
            "defined_at": since,
            "watermark": watermark,
            "next_due": next_due,
            "wake_at": None if row.paused_at is not None else next_due,
        }
        changes.append(
            {"job": row.id, "of_revision": row.revision} | {f"new_{name}": value for name, value in columns.items()}
        )
        new_eras.append(era_row(row.id, since, revision, declared.prepared[row.name].trigger))
        if (row.overlap == "allow") != (spec.policies.overlap == "allow"):
            serial[int(spec.policies.overlap != "allow")].append(row.id)
    if tx.change_many(_REDEFINE, changes) != len(changes):
        raise StoreUnavailable("a job changed under a lock; nothing was written; please report this")
    tx.change_many(INSERT_ERAS, new_eras)
    for is_serial, ids in serial.items():
        active = [row.id for row in tx.rows_in(_ACTIVE_OF_JOBS, "ids", ids, space=tx.namespace, to=is_serial)]
        tx.change_in(_SET_SERIAL, "ids", sorted(active), to=is_serial)


def _numbered(row: AnyRow) -> AnyRow:
    """Return a row whose revision is a number, so that an UPDATE may ask for it."""
    whole(row.revision)
    return row


def _columns(declared: Declared, name: str) -> dict[str, Any]:
    """Return what a row takes over from a definition."""
    spec = declared.specs[name]
    policies = spec.policies
    return {
        "function": spec.function,
        "source": spec.source,
        "digest": declared.digests[name],
        "spec": declared.prepared[name].text,
        "overlap": policies.overlap,
        "concurrency": policies.concurrency,
        "keep": policies.keep // _MICROSECOND,
    }
