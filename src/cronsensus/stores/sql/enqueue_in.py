"""Enqueue in a transaction of a user's: the run is there when that commits, and never if it does not.

The plans here are generators: they give statements, and are sent the answers. So they are the same for every kind of
connection, also for those that are awaited. What they need to know beforehand is read on the store's own connection.

A transaction of a user's may stay open for minutes. So nothing here locks a job, which would stop its schedule for as
long; what ``enqueue`` learns under that lock is compared in the statements themselves.
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
from cronsensus.stores.sql.occurrence_rows import Key, Keys, Standing, payload_of
from cronsensus.stores.sql.queries import with_pieces
from cronsensus.stores.sql.transaction import Transaction, batches
from cronsensus.stores.sql.users_connection import Answer, Plan, Statement
from cronsensus.timing.instants import LATEST_MICROS, from_micros, to_micros, within_stores

_MICROSECOND = timedelta(microseconds=1)
_DUPLICATE_ENTRY = 1062


# --- what is known beforehand -----------------------------------------------------------------------------------------


class Known(NamedTuple):
    """A job, as it was read last.

    Attributes:
        definition: the text that names its definition.
    """

    id: int
    definition: str
    spec: JobSpec


class Place(NamedTuple):
    """Where a store is.

    Attributes:
        store: the number that was made with the tables.
        started: when the server began, microseconds; 0: it is not compared. A copy of the database has the same number,
            and another beginning.
        database: its name, or the path of the file.
    """

    store: int
    started: int
    database: str


def read_jobs(tx: Transaction, names: Sequence[str]) -> dict[str, Known]:
    """Read jobs, in a transaction of the store's own.

    Raises:
        UnknownJob: there is none, or it is retired.
        InvalidOption: only other programs run it.
    """
    asked = tx.send_in("definitions", "names", names, space=tx.namespace)
    rows = {row.name: row for one in asked for row in one.rows}
    for name in names:
        living_job(name, rows.get(name))
    specs = specs_of(tx, {row.id: row for row in rows.values()})
    for spec in specs.values():
        refuse_run_by_hand(spec)
    for name, row in rows.items():
        tx.definitions.enqueued.note_definition(name, row.id, definition_of(row))
    return {name: Known(row.id, definition_of(row), specs[row.id]) for name, row in rows.items()}


def read_place(tx: Transaction) -> Place:
    """Read where the store is, in a transaction of its own."""
    [row] = tx.send_last("which_place")
    return Place(row.store, row.started, row.place)


def read_standing(tx: Transaction, keys: Sequence[tuple[str, str]]) -> dict[Key, Standing]:
    """Read what stands under keys of jobs, by their names, in a transaction of the store's own."""
    return Keys(tx, keys).list_found()


# --- plans ------------------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """An item, with the key that it gets, and its job."""

    item: Item
    key: str
    job: Known

    @property
    def place(self) -> Key:
        """Return what stands for it in the database."""
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
    """How occurrences are created in a transaction of a user's.

    Args:
        read: jobs by their names, where the store is, and what stands under keys; on the store's own connection.
        where: names the store.
    """

    def __init__(
        self,
        dialect: Dialect,
        definitions: Definitions,
        namespace: str,
        read: tuple[
            Callable[[Sequence[str]], dict[str, Known]],
            Callable[[], Place],
            Callable[[Sequence[tuple[str, str]]], dict[Key, Standing]],
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
            StoreBusy: another open transaction has a key, or what had it went away in this moment.
        """

    def find_jobs(self, items: Sequence[Item], *, anew: bool = False) -> dict[str, Known]:
        """Return the jobs of items as they were met last, or as they stand now.

        Raises:
            UnknownJob: there is none, or it is retired.
        """
        names = sorted({item.job for item in items})
        found: dict[str, Known] = {}
        for name in () if anew else names:
            met = self._definitions.enqueued.get(name)
            spec = None if met is None else self._definitions.specs.get(*met)
            if met is not None and spec is not None:
                found[name] = Known(*met, spec)
        return found if len(found) == len(names) else self._read_jobs(names)

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
        more = f"GRANT USAGE ON SCHEMA {schema[:-1]} TO …; GRANT USAGE ON SEQUENCE {runs}_id_seq TO …; "
        return StoreRefused(
            f"{error.__cause__}: the user of your connection needs a little more to enqueue; as the owner of the "
            f"tables: {more if schema else ''}GRANT SELECT ON {counters} TO …; GRANT SELECT ON {jobs} TO …; "
            f"GRANT SELECT, INSERT ON {runs} TO …"
        )

    def _answers(
        self, wanted: Sequence[Wanted], made: Mapping[Key, int], found: Mapping[Key, Standing], at: int
    ) -> list[Enqueued]:
        """Return what is told of each: that it was made ``at``, once for each key, or what stood there."""
        told: set[Key] = set()
        answers = []
        for one in wanted:
            new = one.place in made
            if not new and one.place not in found:
                raise StoreBusy(
                    f"{self._where}: the run of {one.item.job!r} under the key {one.key!r} was deleted in this moment; "
                    "call again"
                )
            standing = Standing(made[one.place], State.PENDING) if new else found[one.place]
            answers.append(
                Enqueued(
                    standing.id,
                    one.item.job,
                    one.key,
                    created=new and one.place not in told,
                    state=standing.state,
                    payload=standing.payload,
                    created_at=from_micros(at) if new and one.place not in told else None,
                )
            )
            told.add(one.place)
        return answers


def _with_keys(items: Sequence[Item]) -> list[tuple[Item, str]]:
    """Return items with their keys; one without a key gets a new one, which it keeps if the plan begins again."""
    return [(item, new_id() if item.key is None else item.key) for item in items]


def _by_job(places: Sequence[Key]) -> dict[int, list[str]]:
    keys: dict[int, dict[str, None]] = {}
    for job, key in places:
        keys.setdefault(job, {})[key] = None
    return {job: list(found) for job, found in keys.items()}


class InOneStatement(Plans):
    """PostgreSQL: all of it is one statement; where a key was known, another one reads what stands there.

    Args:
        channel: on which nodes are notified.
        patience: seconds to wait for another open transaction that has a key.
    """

    def __init__(self, *args: Any, channel: str, patience: float) -> None:
        super().__init__(*args)
        self._channel, self._patience = channel, patience

    def plan_items(self, items: Sequence[Item], *, notify: bool = True) -> Plan[list[Enqueued]]:
        """Create occurrences."""
        keyed = _with_keys(items)
        is_keyed = any(item.key is not None for item in items)
        pieces = frozenset(name for name, wanted in (("keyed", is_keyed), ("notify", notify)) if wanted)
        query = with_pieces(self._dialect.query_alone("enqueue_in"), pieces)
        anew = False
        while True:
            jobs, place = self.find_jobs(items, anew=anew), self._find_place(anew=anew)
            wanted = [Wanted(item, key, jobs[item.job]) for item, key in keyed]
            values = {
                "now": self._dialect.host_now(), "rows": json.dumps([_as_json(one) for one in wanted]),
                "store": place.store, "started": place.started, "place": place.database, "space": self._namespace,
                "latest": LATEST_MICROS, "sure": anew,
            }  # fmt: skip
            if is_keyed:
                values["patience"] = f"{round(self._patience * 1000)}ms"
            if notify:
                values["channel"] = self._channel
            answer = yield Statement(query, values)
            here, fresh, now, *_ = answer.rows[0]
            if here and fresh:
                break
            if anew:
                raise self.elsewhere_error()
            anew = True
        made = {(job, key): occurrence for _, _, _, occurrence, job, key, *_ in answer.rows if occurrence is not None}
        found: dict[Key, Standing] = {}
        for job, keys in _by_job([one.place for one in wanted if one.place not in made]).items():
            answer = yield Statement(self._dialect.query_alone("find_in"), {"job": job, "keys": keys})
            found |= _standing(job, answer)
        return self._answers(wanted, made, found, now)


def _as_json(one: Wanted) -> dict[str, Any]:
    item = one.item
    return {
        "job": one.job.id,
        "called": one.key,
        "priority": one.priority,
        "level": one.level,
        "delay": within_stores(item.delay // _MICROSECOND),
        "due": None if item.due_at is None else to_micros(when_due(item, item.due_at)),
        "expires": None if item.expires_in is None else within_stores(item.expires_in // _MICROSECOND),
        "payload": payload_of(item, one.job.spec),
        "definition": one.job.definition,
    }


def _standing(job: int, answer: Answer) -> dict[Key, Standing]:
    return {(job, key): Standing(found, State(state), payload) for found, key, state, payload in answer.rows}


class StepByStep(Plans):
    """MySQL and SQLite: facts, what stands under keys that the caller chose, and then the rows.

    Args:
        patience: seconds to wait for another open transaction that has a key; ``None``: the database is not told.
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
                self._dialect.query_alone("facts_in"), {"jobs": sorted(job.id for job in jobs.values())}
            )
            here = bool(answer.rows) and self._is_here(place, Place(answer.rows[0][0], 0, answer.rows[0][1]))
            if here and (anew or _are_fresh(jobs, answer)):
                break
            if anew:
                raise self.elsewhere_error()
            anew = True
        _, _, now, patience, *_ = answer.rows[0]
        host_now = self._dialect.host_now()
        moment = now if host_now is None else host_now
        wanted = [Wanted(item, key, jobs[item.job]) for item, key in keyed]
        chosen = [one.place for one in wanted if one.item.key is not None]
        found = yield from self._find_in(chosen)
        rows = {one.place: self._row(one, moment) for one in wanted if one.place not in found}
        bounded = self._patience is not None and self._patience < patience and any(place in rows for place in chosen)
        if bounded:
            yield Statement(self._dialect.query_alone("wait_at_most"), {"seconds": self._patience})
        try:
            made, met = yield from self._insert_rows(list(rows.values()))
        except Exception:
            if bounded:  # the connection lives longer than this transaction, in a pool perhaps
                with suppress(Exception):
                    yield Statement(self._dialect.query_alone("wait_at_most"), {"seconds": patience})
            raise
        if bounded:
            yield Statement(self._dialect.query_alone("wait_at_most"), {"seconds": patience})
        if met:  # their snapshot may be older than what stands there
            found |= yield from self._find_in(met)
            names = {job.id: name for name, job in jobs.items()}
            unseen = [(names[job], key) for job, key in met if (job, key) not in found]
            found |= self._read_standing(unseen) if unseen else {}
        return self._answers(wanted, made, found, moment)

    def _is_here(self, own: Place, theirs: Place) -> bool:
        if self._dialect.is_a_file:
            return own.store == theirs.store and _is_one_file(own.database, theirs.database)
        return (own.store, own.database) == (theirs.store, theirs.database)

    def _row(self, one: Wanted, now: int) -> tuple[Any, ...]:
        item = one.item
        due_at = to_micros(when_due(item, from_micros(now)))
        expires_at = None if item.expires_in is None else within_stores(due_at + item.expires_in // _MICROSECOND)
        return (
            self._namespace, one.job.id, one.key, item.origin.value, 0, one.priority, one.level,
            due_at, expires_at, now, payload_of(item, one.job.spec),
        )  # fmt: skip

    def _find_in(self, places: Sequence[Key]) -> Plan[dict[Key, Standing]]:
        found: dict[Key, Standing] = {}
        for job, keys in _by_job(places).items():
            for start in range(0, len(keys), self._dialect.most_parameters):
                some = keys[start : start + self._dialect.most_parameters]
                answer = yield Statement(self._dialect.query_alone("find_in"), {"job": job, "keys": some})
                found |= _standing(job, answer)
        return found

    def _insert_rows(self, rows: Sequence[tuple[Any, ...]]) -> Plan[tuple[dict[Key, int], list[Key]]]:
        """Insert; return the ids, and the keys that another transaction has committed meanwhile."""
        made: dict[Key, int] = {}
        met: list[Key] = []
        for piece in batches(rows, self._dialect.most_rows, self._dialect.most_characters):
            places = [(row[1], row[2]) for row in piece]
            try:
                answer = yield Statement(self._dialect.find_query("insert_in"), {}, piece)
            except Exception as error:
                if not _is_duplicate(error):
                    raise
                if len(piece) == 1:
                    met += places
                    continue
                for row in piece:  # which of them it was
                    alone, known = yield from self._insert_rows([row])
                    made |= alone
                    met += known
                continue
            if len(piece) == 1 and answer.last_id:
                made[places[0]] = answer.last_id
            else:
                made |= {place: one.id for place, one in (yield from self._find_in(places)).items()}
        return made, met


def _is_one_file(own: str, theirs: str) -> bool:
    """Whether two paths are of one file; what is in memory has none, and a file may have been removed meanwhile."""
    try:
        return bool(theirs) and Path(own).samefile(theirs)
    except OSError:
        return False


def _are_fresh(jobs: Mapping[str, Known], answer: Answer) -> bool:
    """Whether definitions stand as they were read; one that is younger than their snapshot is not there."""
    known = {job.id: job.definition for job in jobs.values()}
    return all(
        retired_at is None and f"{digest}:{revision}:{defined_at}" == known[job]
        for *_, job, retired_at, digest, revision, defined_at in answer.rows
        if job is not None
    )


def _is_duplicate(error: Exception) -> bool:
    """Whether MySQL said so, through whichever driver."""
    arguments = cause_of(error).args
    return bool(arguments) and arguments[0] == _DUPLICATE_ENTRY


def overtaken_error(error: Exception) -> StoreBusy:
    """Return the error for a transaction that the database ended in favour of another one, or a wait that it ended."""
    return StoreBusy(f"{error}. Your transaction cannot go on: roll it back, and do all of it again")
