"""With a hundred thousand jobs and many more occurrences, no statement of a node's round reads more than a few rows.

The server itself is asked: its counters tell how many entries of an index, or rows, a statement has walked over. Once
with good statistics, and once with those of the empty tables that they were when the server looked last.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.mysql import mysql_driver as driver
from cronsensus.stores.sql.mysql.mysql_dialect import MysqlDialect
from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection, run_text
from cronsensus.stores.sql.mysql.packets import Part
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import take
from cronsensus.timing.clock import ManualClock
from cronsensus.timing.instants import to_micros
from cronsensus.triggers import every
from tests.servers.fixtures import mysql_connection
from tests.stores.sql.test_query_plans import a_look_at_batches, a_round_of_everything, with_batches

JOBS = 100_000
LEASE = timedelta(days=100)
HOUR = 3_600_000_000
FEW = 150
"""Most rows that a statement of a round may walk over; a claim's page has five, the round enqueues seven."""
FILL = f"""
CREATE TABLE digits (d INT);
INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
CREATE TABLE many (i INT PRIMARY KEY) SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS i
    FROM digits a, digits b, digits c, digits e, digits f;

INSERT INTO cronsensus_jobs (namespace, name, `function`, source, digest, spec, revision, overlap, keep,
    watermark, next_due, wake_at, created_at)
SELECT namespace, CONCAT('many ', i), `function`, 'runtime', digest, spec, revision, overlap, keep,
    watermark, {HOUR} + next_due + i, {HOUR} + wake_at + i, created_at
FROM cronsensus_jobs, many WHERE name = 'hourly' AND i <= {JOBS};

INSERT INTO cronsensus_eras (job_id, since, revision, `trigger`)
SELECT id, watermark, 1, NULL FROM cronsensus_jobs WHERE name LIKE 'many %';

INSERT INTO cronsensus_occurrences (namespace, job_id, `key`, origin, state, serial, priority, level, due_at, attempt,
    crashes, failures, token, created_at)
SELECT namespace, job_id, CONCAT('later ', i), origin, 'pending', 0, 0, i % 3, due_at + {HOUR} + i, 0,
    0, 0, 0, created_at
FROM cronsensus_occurrences, many WHERE `key` = 'model' AND i <= {JOBS};

INSERT INTO cronsensus_occurrences (namespace, job_id, `key`, origin, state, serial, priority, level, due_at, attempt,
    crashes, failures, token, created_at, finished_at)
SELECT namespace, job_id, CONCAT('done ', i), origin, 'succeeded', 0, 0, 2, due_at, 1,
    0, 0, 1000000 + i, created_at, due_at + i
FROM cronsensus_occurrences, many WHERE `key` = 'model' AND i <= {JOBS};

INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, started_at, finished_at, `end`)
SELECT token, id, 1, 's0', created_at, finished_at, 'succeeded' FROM cronsensus_occurrences WHERE state = 'succeeded';

UPDATE cronsensus_counters SET value = 2000000;
DROP TABLE many, digits;
"""
OURS = ("jobs", "eras", "occurrences", "runs", "sessions", "locks", "verdicts", "trail", "pauses")


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten thousand rows be prepared in the middle of a transaction for longer than a healthy node pauses."""
    monkeypatch.setattr(driver, "VERB_IDLE_SECONDS", 60.0)


class Watcher:
    """Counts what each statement of a handle reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[int, str]] = []
        send = MysqlDialect._send_text
        counting = False

        def counted(dialect: MysqlDialect, cursor: Any, text: str) -> None:
            nonlocal counting
            if counting:
                return send(dialect, cursor, text)
            counting = True
            before = self._so_far(cursor.connection)
            send(dialect, cursor, text)
            self.read.append((self._so_far(cursor.connection) - before, text))
            counting = False
            return None

        monkeypatch.setattr(MysqlDialect, "_send_text", counted)
        packet = MysqlDialect._send_packet

        def counted_packet(dialect: MysqlDialect, driver: BoundedConnection, parts: Sequence[Part]) -> Any:
            found = []
            for part in parts:
                if part.guards:  # it looks at the statement before it, and that is not the last one any more
                    continue
                before = self._so_far(driver)
                found += packet(dialect, driver, [part])
                self.read.append((self._so_far(driver) - before, part.text))
            return found

        monkeypatch.setattr(MysqlDialect, "_send_packet", counted_packet)

    def _so_far(self, driver: Any) -> int:
        return sum(int(value) for _, value in run_text(driver, "SHOW SESSION STATUS LIKE 'Handler_read%'"))

    def reads(self, verb: Callable[[], object]) -> int:
        """Return how many rows a verb reads."""
        self.read.clear()
        verb()
        return sum(number for number, _ in self.read)

    def more_than(self, most: int) -> list[str]:
        return [f"{number} rows: {text[:2000]}" for number, text in self.read if number > most]


@pytest.fixture(scope="module", params=["good statistics", "statistics of empty tables"])
def big(request: pytest.FixtureRequest, mysql_server_url: str) -> Iterator[str]:
    """One database for all tests here that a worker runs, with an hour's quiet before anything is due."""
    yield from filled(mysql_server_url, good=request.param == "good statistics")


def filled(mysql_server_url: str, *, good: bool) -> Iterator[str]:
    """Give the URL of a database that is there until it is no longer wanted."""
    name = f"test_big_{uuid.uuid4().hex[:8]}"
    url = mysql_server_url.rpartition("/")[0] + f"/{name}?timeout=60s"
    with mysql_connection(mysql_server_url) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE {name}")
        cursor.execute(f"USE {name}")
        store = MysqlStore(url, clock=ManualClock(START))
        store.migrate()
        store.define_jobs([JobSpec(name="hourly", function="f", trigger=every("1h", start=START))], release="r1")
        store.define_jobs([JobSpec(name="queue", function="f")], release="r1")
        store.enqueue([Item(job="queue", key="model", delay=timedelta(days=1))])
        store.close()
        for table in OURS:
            cursor.execute(f"ALTER TABLE cronsensus_{table} STATS_AUTO_RECALC=0")
            cursor.execute(f"ANALYZE TABLE cronsensus_{table}")
        for statement in filter(str.strip, FILL.split(";")):
            cursor.execute(statement)
        if good:
            for table in OURS:
                cursor.execute(f"ANALYZE TABLE cronsensus_{table}")
        # A node looks before it does anything else. With the statistics of empty tables MariaDB walks over all that
        # waits until somebody has looked once (why is not known), and any test may be the first of a worker.
        store = MysqlStore(url, clock=ManualClock(START))
        store.look()
        store.close()
        yield url
        cursor.execute(f"DROP DATABASE {name}")


@pytest.fixture
def store(big: str, clock: ManualClock) -> Iterator[MysqlStore]:
    made = MysqlStore(big, clock=clock)
    with made._write_transaction() as tx:  # what the test before has left
        tx.connection.execute_text("DELETE FROM cronsensus_sessions")
        tx.connection.execute_text(
            f"DELETE FROM cronsensus_occurrences WHERE finished_at IS NULL AND due_at <= {to_micros(START)}"
        )
    made.open_session(a_session("s1"), lease=LEASE)
    yield made
    made.close()


@pytest.fixture
def watcher(store: MysqlStore, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    store.now()
    return Watcher(monkeypatch)


@pytest.mark.timeout(400)  # the first one fills the tables
def test_the_cost_of_a_look_does_not_grow_with_what_is_not_due(store, watcher):
    assert watcher.reads(store.look) <= 80


@pytest.mark.timeout(400)
def test_the_cost_of_a_claim_does_not_grow_with_what_is_not_due(store, watcher):
    assert watcher.reads(lambda: take(store, "s1", 50, {"f"}, lease=LEASE)) <= 80
    store.enqueue([Item(job="queue", priority=number) for number in range(3)])
    assert watcher.reads(lambda: take(store, "s1", 2, {"f"}, lease=LEASE)) <= 80


@pytest.mark.timeout(400)
def test_reads_of_operators_scan_no_whole_table(store, watcher):
    store.job("many 1")
    store.jobs(after="many 5")
    store.history("many 1")
    store.ranges("many 1", since=START)
    store.last_of(["queue", "many 1"])
    store.ran_since(START, limit=100)
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
    store.sessions()
    assert watcher.more_than(500) == []
    store.counts(limit=1000)
    assert watcher.more_than(5000) == []


@pytest.mark.timeout(400)
def test_no_verb_of_a_round_reads_more_than_a_few_rows(store, watcher, clock):
    a_round_of_everything(store, clock)
    # To retire a job, what waits in the namespace is walked over, and not the job's whole history.
    kept = [row for row in watcher.more_than(FEW) if "'retired'" not in row and "o.job_id + 0 IN" not in row]
    assert kept == []


@pytest.mark.timeout(400)
def test_what_is_asked_of_batches_reads_neither_all_of_them_nor_all_items(store, watcher):
    def execute(text: str) -> None:
        with store._write_transaction() as tx:
            tx.connection.execute_text(text)

    batches = with_batches(store, execute)
    read: dict[str, int] = {}
    a_look_at_batches(store, batches, lambda name, verb: read.__setitem__(name, watcher.reads(verb)))
    execute(f"DELETE FROM cronsensus_occurrences WHERE id >= {batches[0]}")
    assert {name: count for name, count in read.items() if count > FEW} == {}


# Before those that leave ten thousand occurrences behind: pruning reads them too.
@pytest.mark.timeout(400)
def test_pruning_finds_the_first_thousand_without_walking_over_all(store, watcher, clock):
    clock.advance(timedelta(days=60))
    assert watcher.reads(lambda: store.prune(limit=1000)) <= 8 * 1000
    assert watcher.reads(lambda: store.prune(clock.now() - timedelta(days=59), limit=1000)) <= 8 * 1000
    assert len(store.occurrences(OccurrenceFilter(states=(State.SUCCEEDED,)), limit=1000)) == 1000


@pytest.mark.timeout(400)
@pytest.mark.parametrize("obstacle", ["full", "another node's", "in line"])
def test_a_claim_gets_past_ten_thousand_that_cannot_be_claimed(obstacle, store, watcher):
    """Each is passed over in the index once or twice, and not once more for each page."""
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
    reads = watcher.reads(lambda: claimed.extend(claim.job for claim in take(store, "s1", 10, {"f"}, lease=LEASE)))
    assert sorted(set(claimed) - {"queue"}) == ([] if obstacle == "another node's" else [obstacle])
    assert claimed.count("queue") >= 9
    store.retire(obstacle, by="ann", why="")
    assert reads <= 30_000
