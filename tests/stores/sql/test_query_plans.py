"""With a hundred thousand jobs and many more occurrences, no verb of a node's round reads a whole table.

What SQLite does is asked of SQLite: every statement that a verb sends is given to EXPLAIN QUERY PLAN. Where that cannot
tell enough (an index that is walked too far), its virtual machine's steps are counted.
"""

import functools
import re
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.batch import item_key
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, Note, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.planning import plan
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.sqlite.prepared import Prepared
from cronsensus.stores.sql.sqlite.sqlite_dialect import SqliteDialect
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, say, settle, take, win_named
from cronsensus.timing.clock import ManualClock
from cronsensus.timing.instants import LATEST_MICROS, to_micros
from cronsensus.triggers import every

JOBS = 100_000
LATER, DONE = 100_000, 100_000
LEASE = timedelta(days=100)
TABLES = "jobs|eras|pauses|occurrences|runs|logs|verdicts|trail|locks"
OURS = re.compile(rf"(cronsensus_(?:{TABLES}))\b(?: AS (\w+))?")


def fill(connection: sqlite3.Connection) -> None:
    """Make many more of everything, in SQL; jobs copy the one that is there."""
    hour = 3_600_000_000
    connection.executescript(
        f"""
        CREATE TEMP TABLE many AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {JOBS}) SELECT i FROM n;

        INSERT INTO cronsensus_jobs (namespace, name, function, source, digest, spec, revision, overlap, keep,
            watermark, next_due, wake_at, created_at)
        SELECT namespace, 'many ' || i, function, 'runtime', digest, spec, revision, overlap, keep,
            watermark, {hour} + next_due + i, {hour} + wake_at + i, created_at
        FROM cronsensus_jobs, many WHERE name = 'hourly' AND i <= {JOBS};

        INSERT INTO cronsensus_eras (job_id, since, revision, "trigger")
        SELECT id, watermark, 1, NULL FROM cronsensus_jobs WHERE name LIKE 'many %';

        INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, due_at,
            attempt, crashes, failures, token, created_at)
        SELECT namespace, job_id, 'later ' || i, origin, 'pending', 0, 0, i % 3, due_at + {hour} + i, 0,
            0, 0, 0, created_at
        FROM cronsensus_occurrences, many WHERE cronsensus_occurrences.key = 'model' AND i <= {LATER};

        INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, due_at,
            attempt, crashes, failures, token, created_at, finished_at)
        SELECT namespace, job_id, 'done ' || i, origin, 'succeeded', 0, 0, 2, due_at, 1,
            0, 0, 1000000 + i, created_at, due_at + i
        FROM cronsensus_occurrences, many WHERE cronsensus_occurrences.key = 'model' AND i <= {DONE};

        INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, started_at, finished_at, "end")
        SELECT token, id, 1, 's0', created_at, finished_at, 'succeeded' FROM cronsensus_occurrences
        WHERE state = 'succeeded';

        DROP TABLE many;
        """
    )


class Watcher:
    """Sees what a handle sends to SQLite, and how much work that is."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        store.now()
        self.patch = monkeypatch
        self.seen: dict[str, Any] = {}
        self.ticks = 0
        values = Prepared.order_values

        def noted(prepared: Prepared, parameters: Any) -> list[Any]:
            self.seen.setdefault(prepared.text, values(prepared, parameters))
            return values(prepared, parameters)

        many = SqliteDialect.run_many

        def noted_many(dialect: SqliteDialect, connection: Connection, text: str, rows: list[Any]) -> int:
            self.seen.setdefault(text, rows[0])
            return many(dialect, connection, text, rows)

        monkeypatch.setattr(Prepared, "order_values", noted)
        monkeypatch.setattr(SqliteDialect, "run_many", noted_many)
        for connection in store._connections._idle:
            connection.driver.set_progress_handler(self._tick, 1000)

    def _tick(self) -> int:
        self.ticks += 1
        return 0

    def steps(self, verb: Callable[[], object]) -> int:
        """Return how many steps of SQLite's virtual machine a verb takes, in thousands."""
        self.ticks = 0
        verb()
        return self.ticks


@pytest.fixture(scope="module")
def big(tmp_path_factory) -> str:
    """One file for all tests here, with an hour's quiet before anything is due."""
    path = tmp_path_factory.mktemp("big") / "jobs.db"
    store = SqliteStore(f"sqlite:///{path}?synchronous=normal", clock=ManualClock(START))
    store.migrate()
    store.define_jobs([JobSpec(name="hourly", function="f", trigger=every("1h", start=START))], release="r1")
    store.define_jobs([JobSpec(name="queue", function="f")], release="r1")
    store.enqueue([Item(job="queue", key="model", delay=timedelta(days=1))])
    store.close()
    with sqlite3.connect(path) as connection:
        fill(connection)
    connection.close()
    return str(path)


@pytest.fixture
def store(big: str, clock: ManualClock, open_sqlite, place) -> SqliteStore:
    """A handle on a copy of the big file."""
    source, copy = sqlite3.connect(big), sqlite3.connect(place / "jobs.db")
    source.backup(copy)
    source.close()
    copy.close()
    store: SqliteStore = open_sqlite(clock=clock)
    store.open_session(a_session("s1"), lease=LEASE)
    return store


@pytest.fixture
def watcher(store: SqliteStore, monkeypatch) -> Watcher:
    return Watcher(store, monkeypatch)


def scans(place, statements: dict[str, Any]) -> list[str]:
    """Return the statements that read a whole table, with their plans."""
    connection = sqlite3.connect(place / "jobs.db")
    found = []
    for statement, parameters in statements.items():
        if not statement.startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
            continue
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        tables = {name for table in OURS.findall(statement) for name in table}
        if any(step.startswith("SCAN ") and step.split()[1] in tables for step in steps):
            found.append(statement + "\n    " + "\n    ".join(steps))
    connection.close()
    return found


def a_round_of_everything(store: SqliteStore, clock: ManualClock) -> None:
    """Do once what nodes do all the time."""
    store.look()
    clock.advance(timedelta(hours=1))
    view = store.look()
    assert [job.spec.name for job in view.jobs] == ["hourly"]
    assert carry_out(store, [plan(job, view.now) for job in view.jobs]) == [True]
    store.enqueue([Item(job="queue"), Item(job="queue", key="mine"), *(Item(job="queue") for _ in range(5))])
    claims = take(store, "s1", 5, {"f"}, lease=LEASE)
    assert len(claims) == 5
    say(store, [Note(claims[0].id, claims[0].token, progress=(1, 2))])
    outcomes = [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED) for claim in claims]
    settle(store, [*outcomes[:2], an_end(id=claims[2].id, token=claims[2].token, state=State.PENDING)])
    settle(store, outcomes[:1])
    give_back(store, claims[3:4])
    store.renew("s1", lease=LEASE)
    store.trigger("many 7", by="ann")
    store.cancel(claims[4].id, by="ann", why="")
    store.backfill("many 7", [START], by="ann")
    win_named(store, "s1", "many 8", key="now", lease=LEASE)
    grant = store.lock("name", "me", ttl=LEASE, session="s1")
    assert grant is not None
    store.extend(grant, ttl=LEASE)
    store.unlock(grant)
    store.pause("many 9", by="ann", why="")
    store.resume("many 9", by="ann")
    store.define_jobs([JobSpec(name="many 10", function="g")], release="r1")
    store.retire("many 11", by="ann", why="")
    store.define_jobs(
        [
            JobSpec(name="hourly", function="f", trigger=every("1h", start=START)),
            JobSpec(name="queue", function="f"),
            JobSpec(name="many 10", function="g"),
        ],
        release="r1",
        complete=True,
    )
    store.reclaim(["s1"])


def with_batches(store: SqlStore, execute: Callable[[str], object]) -> list[int]:
    """Have 5,000 batches that sleep, as many that are over, and of the first 10,000 items, half of them over."""
    batches = [one.id for one in store.enqueue([Item(job="queue", origin=Origin.BATCH) for _ in range(10_000)])]
    first, last = batches[0], batches[-1]
    items = store.enqueue(
        [Item(job="queue", key=item_key(first, str(n)), origin=Origin.BATCH, parent=first) for n in range(10_000)]
    )
    asleep, over = (
        f"parked_on = 'items', listed = 1, due_at = {LATEST_MICROS}",
        "state = 'succeeded', finished_at = created_at",
    )
    execute(f"UPDATE cronsensus_occurrences SET {asleep} WHERE id BETWEEN {first} AND {last}")
    execute(f"UPDATE cronsensus_occurrences SET {over} WHERE id BETWEEN {batches[5_000]} AND {last}")
    execute(f"UPDATE cronsensus_occurrences SET {over} WHERE parent = {first} AND id < {items[5_000].id}")
    return batches[:5_000]


def a_look_at_batches(store: SqlStore, batches: list[int], done: Callable[[str, Callable[[], object]], object]) -> None:
    """Ask once what nodes ask of batches; ``done`` does each step."""
    done("children", lambda: store.children(batches[:1]))
    done("parked", lambda: store.parked(limit=20))
    done("parked, farther on", lambda: store.parked(after=batches[4_000], limit=20))
    for state in (State.PENDING, State.SUCCEEDED, State.FAILED):
        where = OccurrenceFilter(parent=batches[0], states=(state,))
        done(state.value, functools.partial(store.occurrences, where, limit=20))
    done("wake", lambda: store.wake(batches[-5:]))
    done("complete", lambda: store.wake([batches[1]], listed=1))


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_is_asked_of_batches_reads_neither_all_of_them_nor_all_items(analyzed, store, watcher, place):
    with sqlite3.connect(place / "jobs.db") as connection:
        batches = with_batches(store, connection.execute)
        if analyzed:
            connection.execute("ANALYZE")
    connection.close()
    store._connections.forget_idle()
    watcher = Watcher(store, watcher.patch)
    assert store.last_of(["queue"])["queue"].glances
    steps: dict[str, int] = {}
    a_look_at_batches(store, batches, lambda name, verb: steps.__setitem__(name, watcher.steps(verb)))
    assert {name: count for name, count in steps.items() if count > 3} == {}
    assert "\n\n".join(scans(place, watcher.seen)) == ""


@pytest.mark.parametrize("analyzed", [False, True])
def test_no_verb_of_a_round_reads_a_whole_table(analyzed, store, watcher, clock, place):
    if analyzed:  # as after PRAGMA optimize: with statistics SQLite may choose other plans
        with sqlite3.connect(place / "jobs.db") as connection:
            connection.execute("ANALYZE")
        connection.close()
        store._connections.forget_idle()
    a_round_of_everything(store, clock)
    assert "\n\n".join(scans(place, watcher.seen)) == ""


def test_reads_of_operators_scan_no_whole_table(store, watcher, place):
    store.job("many 1")
    store.jobs(after="many 5")
    store.history("many 1")
    store.ranges("many 1", since=START)
    store.last_of(["queue", "many 1"])
    store.ran_since(START)
    store.occurrence(1)
    store.runs(1)
    store.logs(1)
    store.occurrences(OccurrenceFilter(job="queue"))
    store.occurrences(OccurrenceFilter(job="queue", scheduled_from=START))
    store.occurrences(OccurrenceFilter(states=(State.FAILED,)))
    store.occurrences(OccurrenceFilter(states=(State.PENDING,)))
    store.trail()
    store.trail(target="queue")
    store.locks()
    store.counts()
    assert "\n\n".join(scans(place, watcher.seen)) == ""


def test_looking_for_due_jobs_goes_along_the_index_of_namespace_and_due_time(store, watcher, place):
    store.look()
    connection = sqlite3.connect(place / "jobs.db")
    [(statement, parameters)] = watcher.seen.items()
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    connection.close()
    assert "SEARCH j USING COVERING INDEX cronsensus_jobs_waking (namespace=? AND wake_at<?)" in steps


def test_the_cost_of_a_look_does_not_grow_with_what_is_not_due(store, watcher):
    assert watcher.steps(store.look) <= 2


def test_the_cost_of_a_claim_does_not_grow_with_what_is_not_due(store, watcher):
    assert watcher.steps(lambda: take(store, "s1", 50, {"f"}, lease=LEASE)) <= 2
    store.enqueue([Item(job="queue", priority=number) for number in range(3)])
    assert watcher.steps(lambda: take(store, "s1", 2, {"f"}, lease=LEASE)) <= 3


@pytest.mark.parametrize("obstacle", ["full", "another node's", "in line"])
def test_a_claim_gets_past_ten_thousand_that_cannot_be_claimed(obstacle, store, watcher):
    """The index of what is pending is walked, their rows are not read: some ten steps each."""
    store.define_jobs(
        [
            JobSpec(name="full", function="f", policies=Policies(concurrency=1)),
            JobSpec(name="another node's", function="g"),
            JobSpec(name="in line", function="f", policies=Policies(overlap="queue")),
        ],
        release="r1",
    )
    parent = 1 if obstacle == "in line" else None  # items go with what is backfilled
    if obstacle == "in line":
        store.backfill(obstacle, [START + timedelta(seconds=number) for number in range(10_000)], by="ann")
    else:
        store.enqueue([Item(job=obstacle) for _ in range(10_000)])
    store.enqueue([Item(job="queue", parent=parent) for _ in range(20)])
    claimed: list[str] = []
    steps = watcher.steps(lambda: claimed.extend(claim.job for claim in take(store, "s1", 10, {"f"}, lease=LEASE)))
    assert sorted(set(claimed) - {"queue"}) == ([] if obstacle == "another node's" else [obstacle])
    assert claimed.count("queue") >= 9
    assert steps <= 300


def test_pruning_finds_the_first_thousand_without_sorting_all(store, watcher, clock):
    clock.advance(timedelta(days=60))
    assert watcher.steps(lambda: store.prune(limit=1000)) <= 40 * JOBS / 1000
    assert store.job("queue") is not None
    assert len(store.occurrences(OccurrenceFilter(states=(State.SUCCEEDED,)), limit=1000)) == 1000


def test_a_handle_does_not_hold_the_jobs_in_memory(store, clock):
    clock.advance(timedelta(hours=1, seconds=1))
    for _ in range(3):
        store.look(limit=100)
    assert len(store._definitions.specs._kept) < 200


def test_the_file_is_the_size_that_was_meant(store):
    counted = store.counts(limit=200_000)
    assert (counted.jobs, counted.pending) == (JOBS + 2, LATER + 1)
    assert to_micros(store.now()) == to_micros(START)
