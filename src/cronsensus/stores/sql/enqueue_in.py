"""Enqueue in a user's transaction: the run exists once that commits, and never if it does not.

The plans here are generators: they yield statements and receive the answers. So they are the same for every kind of
connection, sync or async. What they need to know beforehand is read on the store's own connection.

A user's transaction may stay open for minutes. So nothing here locks a job, which would stop its schedule for as long;
the conditions that ``enqueue`` checks under that lock are part of the statements themselves.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cronsensus.errors import StoreBusy, StoreRefused, UnsupportedTransaction
from cronsensus.model.claim_order import level_of
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobSpec, refuse_run_by_hand
from cronsensus.model.occurrence import Enqueued, Item, when_due
from cronsensus.model.states import State
from cronsensus.stores.sql.definitions import Definitions
from cronsensus.stores.sql.dialect import Dialect, cause_of
from cronsensus.stores.sql.job_rows import definition_of, living_job, specs_of
from cronsensus.stores.sql.occurrence_rows import ExistingOccurrence, Key, Keys, payload_of
from cronsensus.stores.sql.queries import with_pieces
from cronsensus.stores.sql.transaction import Transaction, batches
from cronsensus.stores.sql.users_connection import Answer, Plan, Statement
from cronsensus.timing.instants import LATEST_MICROS, from_micros, to_micros, within_stores

_MICROSECOND = timedelta(microseconds=1)
_DUPLICATE_ENTRY = 1062


# --- what is read beforehand ------------------------------------------------------------------------------------------


class CachedJob(NamedTuple):
    """A job, as last read.

    Attributes:
        definition: the text that names its definition.
    """

    id: int
    definition: str
    spec: JobSpec


class Place(NamedTuple):
    """The identity of a store's database.

    Attributes:
        store: the number that was made with the tables.
        started: when the server started, in microseconds; 0: it is not compared. A copy of the database has the same
            number, and another start.
        database: its name, or the path of the file.
    """

    store: int
    started: int
    database: str


def read_jobs(tx: Transaction, names: Sequence[str]) -> dict[str, CachedJob]:
    """Read jobs, in a transaction on the store's own connection.

    Raises:
        UnknownJob: there is none, or it is retired.
        InvalidOption: only other programs run it.
    """
    answers = tx.send_in("definitions", "names", names, space=tx.namespace)
    rows = {row.name: row for answer in answers for row in answer.rows}
    for name in names:
        living_job(name, rows.get(name))
    specs = specs_of(tx, {row.id: row for row in rows.values()})
    for spec in specs.values():
        refuse_run_by_hand(spec)
    for name, row in rows.items():
        tx.definitions.enqueued.note_definition(name, row.id, definition_of(row))
    return {name: CachedJob(row.id, definition_of(row), specs[row.id]) for name, row in rows.items()}


def read_place(tx: Transaction) -> Place:
    """Read the store's identity, in a transaction on its own connection."""
    [row] = tx.send_last("which_database")
    return Place(row.store, row.started, row.place)


def read_standing(tx: Transaction, keys: Sequence[tuple[str, str]]) -> dict[Key, ExistingOccurrence]:
    """Read the occurrences of (job name, key) pairs, in a transaction on the store's own connection."""
    return Keys(tx, keys).list_found()


# --- plans ------------------------------------------------------------------------------------------------------------


class KeyedItem(NamedTuple):
    """An item, with the key that it gets, and its job."""

    item: Item
    key: str
    job: CachedJob

    @property
    def place(self) -> Key:
        """Return the job's id and the key, which identify its row."""
        return self.job.id, self.key

    @property
    def priority(self) -> int:
        """Return the priority of the run."""
        return self.job.spec.policies.priority if self.item.priority is None else self.item.priority

    @property
    def level(self) -> int:
        """Return the level of the run."""
        return level_of(self.priority, self.item.origin)


class Plans(ABC):
    """How occurrences are created in a user's transaction.

    Args:
        read: functions that read jobs by name, the store's place, and occurrences by key, on the store's own
            connection.
        where: the store's name in errors.
    """

    def __init__(
        self,
        dialect: Dialect,
        definitions: Definitions,
        namespace: str,
        read: tuple[
            Callable[[Sequence[str]], dict[str, CachedJob]],
            Callable[[], Place],
            Callable[[Sequence[tuple[str, str]]], dict[Key, ExistingOccurrence]],
        ],
        where: str,
    ) -> None:
        self._dialect, self._definitions, self._namespace = dialect, definitions, namespace
        self._read_jobs, self._read_place, self._read_standing = read
        self._where = where
        self._place: Place | None = None

    @abstractmethod
    def plan_items(self, items: Sequence[Item], *, notify: bool = True) -> Plan[list[Enqueued]]:
        """Create occurrences; ``notify``: nodes are notified by the transaction, where the database can.

        Raises:
            UnknownJob: no such job, or retired.
            UnsupportedTransaction: the connection leads elsewhere.
            StoreBusy: another open transaction has a key, or the occurrence with a key was just deleted.
        """

    def find_jobs(self, items: Sequence[Item], *, anew: bool = False) -> dict[str, CachedJob]:
        """Return the jobs of items, from the cache; ``anew``: as the store has them now.

        Raises:
            UnknownJob: there is none, or it is retired.
        """
        names = sorted({item.job for item in items})
        jobs: dict[str, CachedJob] = {}
        for name in () if anew else names:
            cached = self._definitions.enqueued.get(name)
            spec = None if cached is None else self._definitions.specs.get(*cached)
            if cached is not None and spec is not None:
                jobs[name] = CachedJob(*cached, spec)
        return jobs if len(jobs) == len(names) else self._read_jobs(names)

    def _find_place(self, *, anew: bool) -> Place:
        if self._place is None or anew:
            self._place = self._read_place()
        return self._place

    def elsewhere_error(self) -> UnsupportedTransaction:
        """Return the error for a connection that leads to another database."""
        return UnsupportedTransaction(
            f"this connection leads to another database than the store, which is {self._where}; your rows and the run "
            "can commit together only in one: give a connection to that one, or enqueue with enqueue()"
        )

    def refused_error(self, error: Exception) -> StoreRefused:
        """Return the error for a user of the database who may not enqueue."""
        schema = f'"{self._dialect.schema}".' if self._dialect.schema else ""
        counters, jobs, runs = (f"{schema}cronsensus_{name}" for name in ("counters", "jobs", "occurrences"))
        in_schema = f"GRANT USAGE ON SCHEMA {schema[:-1]} TO …; GRANT USAGE ON SEQUENCE {runs}_id_seq TO …; "
        return StoreRefused(
            f"{error.__cause__}: the user of your connection needs a little more to enqueue; as the owner of the "
            f"tables: {in_schema if schema else ''}GRANT SELECT ON {counters} TO …; GRANT SELECT ON {jobs} TO …; "
            f"GRANT SELECT, INSERT ON {runs} TO …"
        )

    def _answers(
        self,
        keyed_items: Sequence[KeyedItem],
        created: Mapping[Key, int],
        existing: Mapping[Key, ExistingOccurrence],
        now: int,
    ) -> list[Enqueued]:
        """Return the answer for each item: created ``now`` (once for each key), or found."""
        answered_keys: set[Key] = set()
        answers = []
        for keyed in keyed_items:
            is_new = keyed.place in created
            if not is_new and keyed.place not in existing:
                raise StoreBusy(
                    f"{self._where}: the run of {keyed.item.job!r} under the key {keyed.key!r} was deleted in this "
                    "moment; call again"
                )
            occurrence = ExistingOccurrence(created[keyed.place], State.PENDING) if is_new else existing[keyed.place]
            created_here = is_new and keyed.place not in answered_keys
            answers.append(
                Enqueued(
                    occurrence.id,
                    keyed.item.job,
                    keyed.key,
                    created=created_here,
                    state=occurrence.state,
                    payload=occurrence.payload,
                    created_at=from_micros(now) if created_here else None,
                )
            )
            answered_keys.add(keyed.place)
        return answers


def _with_keys(items: Sequence[Item]) -> list[tuple[Item, str]]:
    """Return items with their keys; an item without a key gets a new one, which it keeps if the plan begins again."""
    return [(item, new_id() if item.key is None else item.key) for item in items]


def _by_job(places: Sequence[Key]) -> dict[int, list[str]]:
    keys: dict[int, dict[str, None]] = {}
    for job, key in places:
        keys.setdefault(job, {})[key] = None
    return {job: list(keys_of_job) for job, keys_of_job in keys.items()}


class InOneStatement(Plans):
    """PostgreSQL: a single statement; if a key was taken, another one reads its occurrence.

    Args:
        channel: the channel on which nodes are notified.
        patience: seconds to wait for another open transaction that has a key.
    """

    def __init__(self, *args: Any, channel: str, patience: float) -> None:
        super().__init__(*args)
        self._channel, self._patience = channel, patience

    def plan_items(self, items: Sequence[Item], *, notify: bool = True) -> Plan[list[Enqueued]]:
        """Create occurrences."""
        keyed = _with_keys(items)
        is_keyed = any(item.key is not None for item in items)
        pieces = frozenset(name for name, is_used in (("keyed", is_keyed), ("notify", notify)) if is_used)
        query = with_pieces(self._dialect.find_single_row_query("enqueue_in"), pieces)
        anew = False
        while True:
            jobs, place = self.find_jobs(items, anew=anew), self._find_place(anew=anew)
            keyed_items = [KeyedItem(item, key, jobs[item.job]) for item, key in keyed]
            values = {
                "now": self._dialect.host_now(), "rows": json.dumps([_as_json(item) for item in keyed_items]),
                "store": place.store, "started": place.started, "place": place.database, "space": self._namespace,
                "latest": LATEST_MICROS, "sure": anew,
            }  # fmt: skip
            if is_keyed:
                values["patience"] = f"{round(self._patience * 1000)}ms"
            if notify:
                values["channel"] = self._channel
            answer = yield Statement(query, values)
            is_here, fresh, now, *_ = answer.rows[0]
            if is_here and fresh:
                break
            if anew:
                raise self.elsewhere_error()
            anew = True
        created = {
            (job, key): occurrence for _, _, _, occurrence, job, key, *_ in answer.rows if occurrence is not None
        }
        existing: dict[Key, ExistingOccurrence] = {}
        for job, keys in _by_job([item.place for item in keyed_items if item.place not in created]).items():
            answer = yield Statement(self._dialect.find_single_row_query("find_in"), {"job": job, "keys": keys})
            existing |= _standing(job, answer)
        return self._answers(keyed_items, created, existing, now)


def _as_json(keyed: KeyedItem) -> dict[str, Any]:
    item = keyed.item
    return {
        "job": keyed.job.id,
        "run_key": keyed.key,
        "priority": keyed.priority,
        "level": keyed.level,
        "delay": within_stores(item.delay // _MICROSECOND),
        "due": None if item.due_at is None else to_micros(when_due(item, item.due_at)),
        "expires": None if item.expires_in is None else within_stores(item.expires_in // _MICROSECOND),
        "payload": payload_of(item, keyed.job.spec),
        "definition": keyed.job.definition,
    }


def _standing(job: int, answer: Answer) -> dict[Key, ExistingOccurrence]:
    return {
        (job, key): ExistingOccurrence(occurrence, State(state), payload)
        for occurrence, key, state, payload in answer.rows
    }


class StepByStep(Plans):
    """MySQL and SQLite: read the jobs and the occurrences of the caller's keys, then insert the rows.

    Args:
        patience: seconds to wait for another open transaction that has a key; ``None``: the database's own limit.
    """

    def __init__(self, *args: Any, patience: int | None = None) -> None:
        super().__init__(*args)
        self._patience = patience

    def plan_items(self, items: Sequence[Item], *, notify: bool = True) -> Plan[list[Enqueued]]:  # noqa: ARG002
        """Create occurrences; nobody is notified by the database."""
        keyed = _with_keys(items)
        anew = False
        while True:
            jobs, place = self.find_jobs(items, anew=anew), self._find_place(anew=anew)
            answer = yield Statement(
                self._dialect.find_single_row_query("definitions_in"), {"jobs": sorted(job.id for job in jobs.values())}
            )
            is_here = bool(answer.rows) and self._is_here(place, Place(answer.rows[0][0], 0, answer.rows[0][1]))
            if is_here and (anew or _are_fresh(jobs, answer)):
                break
            if anew:
                raise self.elsewhere_error()
            anew = True
        _, _, database_now, patience, *_ = answer.rows[0]
        host_now = self._dialect.host_now()
        now = database_now if host_now is None else host_now
        keyed_items = [KeyedItem(item, key, jobs[item.job]) for item, key in keyed]
        with_own_key = [item.place for item in keyed_items if item.item.key is not None]
        existing = yield from self._find_in(with_own_key)
        rows = {item.place: self._row(item, now) for item in keyed_items if item.place not in existing}
        may_wait = any(place in rows for place in with_own_key)
        bounded = self._patience is not None and self._patience < patience and may_wait
        if bounded:
            yield Statement(self._dialect.find_single_row_query("wait_at_most"), {"seconds": self._patience})
        try:
            created, duplicates = yield from self._insert_rows(list(rows.values()))
        except Exception:
            if bounded:  # the connection lives longer than this transaction, in a pool perhaps
                with suppress(Exception):
                    yield Statement(self._dialect.find_single_row_query("wait_at_most"), {"seconds": patience})
            raise
        if bounded:
            yield Statement(self._dialect.find_single_row_query("wait_at_most"), {"seconds": patience})
        if duplicates:  # the transaction's snapshot may be older than their rows
            existing |= yield from self._find_in(duplicates)
            names = {job.id: name for name, job in jobs.items()}
            unseen = [(names[job], key) for job, key in duplicates if (job, key) not in existing]
            existing |= self._read_standing(unseen) if unseen else {}
        return self._answers(keyed_items, created, existing, now)

    def _is_here(self, own: Place, users_place: Place) -> bool:
        if self._dialect.is_a_file:
            return own.store == users_place.store and _is_one_file(own.database, users_place.database)
        return (own.store, own.database) == (users_place.store, users_place.database)

    def _row(self, keyed: KeyedItem, now: int) -> tuple[Any, ...]:
        item = keyed.item
        due_at = to_micros(when_due(item, from_micros(now)))
        expires_at = None if item.expires_in is None else within_stores(due_at + item.expires_in // _MICROSECOND)
        return (
            self._namespace, keyed.job.id, keyed.key, item.origin.value, 0, keyed.priority, keyed.level,
            due_at, expires_at, now, payload_of(item, keyed.job.spec),
        )  # fmt: skip

    def _find_in(self, places: Sequence[Key]) -> Plan[dict[Key, ExistingOccurrence]]:
        existing: dict[Key, ExistingOccurrence] = {}
        for job, keys in _by_job(places).items():
            for start in range(0, len(keys), self._dialect.most_parameters):
                page = keys[start : start + self._dialect.most_parameters]
                answer = yield Statement(self._dialect.find_single_row_query("find_in"), {"job": job, "keys": page})
                existing |= _standing(job, answer)
        return existing

    def _insert_rows(self, rows: Sequence[tuple[Any, ...]]) -> Plan[tuple[dict[Key, int], list[Key]]]:
        """Insert rows; return the new ids, and the keys that another transaction has committed meanwhile."""
        created: dict[Key, int] = {}
        duplicates: list[Key] = []
        for piece in batches(rows, self._dialect.most_rows, self._dialect.most_characters):
            places = [(row[1], row[2]) for row in piece]
            try:
                answer = yield Statement(self._dialect.find_query("insert_in"), {}, piece)
            except Exception as error:
                if not _is_duplicate_key_error(error):
                    raise
                if len(piece) == 1:
                    duplicates += places
                    continue
                for row in piece:  # one by one, to find which of them is the duplicate
                    created_alone, duplicate_alone = yield from self._insert_rows([row])
                    created |= created_alone
                    duplicates += duplicate_alone
                continue
            if len(piece) == 1 and answer.last_id:
                created[places[0]] = answer.last_id
            else:
                inserted = yield from self._find_in(places)
                created |= {place: standing.id for place, standing in inserted.items()}
        return created, duplicates


def _is_one_file(own: str, users_path: str) -> bool:
    """Whether two paths are the same file; a database in memory has no path, and a file may have been removed."""
    try:
        return bool(users_path) and Path(own).samefile(users_path)
    except OSError:
        return False


def _are_fresh(jobs: Mapping[str, CachedJob], answer: Answer) -> bool:
    """Whether definitions are still as they were read; a definition newer than the transaction's snapshot is not."""
    definitions = {job.id: job.definition for job in jobs.values()}
    return all(
        retired_at is None and f"{digest}:{revision}:{defined_at}" == definitions[job]
        for *_, job, retired_at, digest, revision, defined_at in answer.rows
        if job is not None
    )


def _is_duplicate_key_error(error: Exception) -> bool:
    """Whether an error is MySQL's "duplicate entry", through any driver."""
    arguments = cause_of(error).args
    return bool(arguments) and arguments[0] == _DUPLICATE_ENTRY


def overtaken_error(error: Exception) -> StoreBusy:
    """Return the error for a transaction, or a wait, that the database ended in favour of another transaction."""
    return StoreBusy(f"{error}. Your transaction cannot go on: roll it back, and do all of it again")
