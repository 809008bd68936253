"""With a hundred thousand jobs and more occurrences, no verb of a node's round reads more than what it is about.

PostgreSQL chooses a way by what it knows of the tables, and a connection keeps the choice. So it is asked what it read,
in the situations in which a choice can be a bad one: made when the tables were empty; made without statistics; made by
those of a quiet hour, when nothing was waiting.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item, Note, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.planning import plan
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres import postgres_driver as driver
from cronsensus.stores.sql.postgres.postgres_dialect import PostgresDialect, driver_of
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, say, settle, take, win_named
from cronsensus.timing.clock import ManualClock
from cronsensus.timing.instants import to_micros
from cronsensus.triggers import every
from tests.servers.fixtures import with_query
from tests.servers.postgres import PostgresServer
from tests.stores.sql.test_query_plans import a_look_at_batches, with_batches

JOBS, LATER, DONE = 100_000, 50_000, 100_000
LEASE = timedelta(days=100)
HOUR = 3_600_000_000
FEW = 250
"""Most entries of indexes that a verb may read; each reads or writes a handful of rows."""

DECLARED = [
    *(JobSpec(name=f"many {number}", function="f") for number in range(12)),
    JobSpec(name="limited", function="f", policies=Policies(concurrency=50)),
    JobSpec(name="hourly", function="f", trigger=every("1h", start=START)),
    JobSpec(name="queue", function="f"),
]
FILL = f"""
INSERT INTO cronsensus_jobs (namespace, name, function, source, digest, spec, revision, overlap, keep,
    watermark, next_due, wake_at, created_at)
SELECT namespace, 'many ' || i, function, 'runtime', digest, spec, revision, overlap, keep,
    watermark, {HOUR} * 100 + next_due + i, {HOUR} * 100 + wake_at + i, created_at
FROM cronsensus_jobs, generate_series(100, {JOBS}) AS i WHERE name = 'hourly';
INSERT INTO cronsensus_eras (job_id, since, revision, trigger)
SELECT id, watermark, 1, NULL FROM cronsensus_jobs WHERE name LIKE 'many %' AND next_due > {HOUR} * 100;
INSERT INTO cronsensus_occurrences (namespace, job_id, key, origin, state, serial, priority, level, due_at, attempt,
    crashes, failures, token, created_at, finished_at, scheduled_for)
SELECT namespace, job_id, 'done ' || i, origin, 'succeeded', i % 2, 0, 2, due_at, 1,
    0, 0, 1000000 + i, created_at, due_at + i, due_at + i
FROM cronsensus_occurrences, generate_series(1, {DONE}) AS i WHERE key = 'model';
INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, started_at, finished_at, "end")
SELECT token, id, 1, 's0', created_at, finished_at, 'succeeded' FROM cronsensus_occurrences WHERE state = 'succeeded'
    AND token BETWEEN 1000001 AND 2000000;
"""
BURST = f"""
INSERT INTO cronsensus_occurrences (namespace, job_id, key, origin, state, serial, priority, level, due_at, attempt,
    crashes, failures, token, created_at)
SELECT namespace, job_id, 'later ' || i, origin, 'pending', 0, 0, i % 3, {HOUR} * 1000 + due_at + i, 0, 0, 0, 0,
    created_at
FROM cronsensus_occurrences, generate_series(1, {LATER}) AS i WHERE key = 'model';
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=False, settings={"autovacuum": "off"}) as made:
        yield made


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten thousand rows be prepared in the middle of a transaction for longer than a healthy node pauses."""
    monkeypatch.setattr(driver, "VERB_IDLE_SECONDS", 60.0)


class Reader:
    """Runs verbs of one handle and says how much the server read for each."""

    def __init__(self, store: PostgresStore, url: str) -> None:
        self.store = store
        self._look = psycopg.connect(url, autocommit=True)

    def reads(self, verb: Callable[[], object]) -> int:
        """Return how many entries and rows a verb reads."""
        before = self._count()
        verb()
        return self._count() - before

    def _count(self) -> int:
        for idle in self.store._connections._idle:
            driver_of(idle).execute("SELECT pg_stat_force_next_flush()")
            driver_of(idle).execute("SELECT 1")
        schema = self.store._url.schema
        row = self._look.execute(
            "SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE schemaname = %s)"
            " + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE schemaname = %s)",
            [schema, schema],
        ).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self._look.close()
        self.store.close()


def a_round(store: PostgresStore, clock: ManualClock, done: Callable[[str, Callable[[], object]], object]) -> None:
    """Do once what nodes, people and programs do all the time; ``done`` does each step."""
    got: dict[str, list[Any]] = {}

    def keep(name: str, verb: Callable[[], Sequence[Any]]) -> Callable[[], None]:
        return lambda: got.__setitem__(name, list(verb()))

    clock.advance(timedelta(hours=1))
    done("look", keep("jobs", lambda: store.look().jobs))
    assert "hourly" in [job.spec.name for job in got["jobs"]]
    done("look ahead", lambda: store.look(ahead=timedelta(milliseconds=100)))
    now = clock.now()
    done("fire", keep("fired", lambda: carry_out(store, [plan(job, now) for job in got["jobs"]])))
    assert all(got["fired"])
    done("enqueue", lambda: store.enqueue([Item(job="queue", key=f"{now}"), *(Item(job="queue") for _ in range(5))]))
    done("enqueue limited", lambda: store.enqueue([Item(job="limited") for _ in range(3)]))
    done("claim", keep("claims", lambda: take(store, "s1", 8, {"f"}, lease=LEASE)))
    claims = got["claims"]
    assert len(claims) == 8
    done("claim one", keep("one", lambda: take(store, "s1", 1, {"f"}, lease=LEASE)))
    done("note", lambda: say(store, [Note(claims[0].id, claims[0].token, progress=(1, 2))]))
    outcomes = [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED) for claim in claims]
    done("finish", lambda: settle(store, outcomes[:5]))
    done("finish one", lambda: settle(store, outcomes[5:6]))
    done("finish again", lambda: settle(store, outcomes[:1]))
    done("release", lambda: give_back(store, claims[6:7]))
    done("renew", lambda: store.renew("s1", lease=LEASE))
    done("trigger", lambda: store.trigger("many 7", by="ann"))
    done("cancel", lambda: store.cancel(claims[7].id, by="ann", why=""))
    done("acquire", lambda: win_named(store, "s1", "many 8", key=f"{now}", lease=LEASE))
    done("lock", lambda: store.unlock(store.lock("name", "me", ttl=LEASE, session="s1")))  # type: ignore[arg-type]
    done("pause", lambda: (store.pause("many 9", by="ann", why=""), store.resume("many 9", by="ann")))
    done("put", lambda: store.define_jobs([JobSpec(name="many 10", function=f"g{now:%H}")], release="r1"))
    done("declare", lambda: store.define_jobs(DECLARED, release="r1", complete=True))
    done("declare again", lambda: store.define_jobs(DECLARED, release="r1", complete=True))
    done("open", lambda: store.open_session(a_session(f"s {now}"), lease=LEASE))
    done("close", lambda: store.close_session(f"s {now}"))
    done("reclaim", store.reclaim)
    done("read job", lambda: store.job("many 1"))
    done("read jobs", lambda: store.jobs(after="many 5", limit=20))
    done("read history", lambda: store.history("many 1"))
    done(
        "read occurrence", lambda: (store.occurrence(claims[0].id), store.runs(claims[0].id), store.logs(claims[0].id))
    )
    done("read occurrences", lambda: store.occurrences(OccurrenceFilter(job="queue"), limit=20))
    done("read failed", lambda: store.occurrences(OccurrenceFilter(states=(State.FAILED,)), limit=20))
    done("read trail", lambda: (store.trail(limit=20), store.trail(target="queue", limit=20)))


def prepare(server: PostgresServer, schema: str) -> tuple[PostgresStore, ManualClock]:
    """Return a handle on a new schema with a few jobs."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    clock = ManualClock(START)
    store = PostgresStore(with_query(server.url, schema=schema, timeout="60s"), clock=clock)
    store.migrate()
    store.define_jobs(DECLARED, release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="queue", key="model", delay=timedelta(days=1000))])
    return store, clock


def sql(server: PostgresServer, schema: str, *texts: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}")
        for text in texts:
            connection.execute(text)


SITUATIONS = ["planned while empty", "no statistics", "statistics", "statistics of a quiet hour"]


def bring_about(situation: str, server: PostgresServer, schema: str, use: Callable[[], object]) -> None:
    """Fill the tables; ``use`` has statements prepared."""
    if situation == "planned while empty":
        for _ in range(3):  # a statement is prepared when it comes for the second time
            use()
    sql(server, schema, FILL)
    if situation == "statistics of a quiet hour":
        sql(server, schema, "ANALYZE")
    sql(server, schema, BURST)
    if situation == "statistics":
        sql(server, schema, "ANALYZE")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_verb_of_a_round_reads_much(situation, server):
    store, clock = prepare(server, "plans")
    bring_about(situation, server, "plans", lambda: a_round(store, clock, lambda _, verb: verb()))
    reader = Reader(store, server.url)
    read: dict[str, int] = {}
    for _ in range(3):
        a_round(store, clock, lambda name, verb: read.__setitem__(name, max(read.get(name, 0), reader.reads(verb))))
    reader.close()
    assert {name: count for name, count in read.items() if count > FEW} == {}
    assert sum(read.values()) > 100, "nothing was measured"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_takes_one_trip_reads_little(situation, server, monkeypatch):
    store, _ = prepare(server, "plans")
    read: dict[str, int] = {}
    names: list[str] = []
    send = PostgresDialect.send_statements

    def noted(dialect: PostgresDialect, connection: Any, queue: Any, **more: Any) -> Any:
        names.extend(one.query.name for one in queue)
        return send(dialect, connection, queue, **more)

    def once(done: Callable[[str, Callable[[], object]], object]) -> None:
        claims: list[Claim] = []
        done("enqueue", lambda: store.enqueue([Item(job="queue")]))
        done("claim", lambda: claims.extend(take(store, "s1", 8, {"f"}, lease=LEASE)))
        [claim] = claims
        ends = an_end(id=claim.id, token=claim.token, session="s1", state=State.SUCCEEDED)
        done("end", lambda: settle(store, [ends]))
        done("claim nothing", lambda: take(store, "s1", 8, {"f"}, lease=LEASE))

    once(lambda _, verb: verb())  # from now on the handle knows the job
    monkeypatch.setattr(PostgresDialect, "send_statements", noted)
    bring_about(situation, server, "plans", lambda: once(lambda _, verb: verb()))
    reader = Reader(store, server.url)
    names.clear()
    for _ in range(3):
        once(lambda name, verb: read.__setitem__(name, max(read.get(name, 0), reader.reads(verb))))
    reader.close()
    assert set(names) == {"enqueue_one", "notify_nodes", "claim_due", "close_one"}
    assert {name: count for name, count in read.items() if count > FEW} == {}
    assert sum(read.values()) > 5, "nothing was measured"


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_is_asked_of_batches_reads_neither_all_of_them_nor_all_items(analyzed, server):
    store, _ = prepare(server, "plans")
    for _ in range(3):  # planned while empty
        a_look_at_batches(store, list(range(1, 10_001)), lambda _, verb: verb())
    batches = with_batches(store, lambda text: sql(server, "plans", text))
    if analyzed:
        sql(server, "plans", "ANALYZE")
    store.children(batches[:1])  # the first walks over what the updates left in the index
    reader = Reader(store, server.url)
    read: dict[str, int] = {}
    a_look_at_batches(store, batches, lambda name, verb: read.__setitem__(name, reader.reads(verb)))
    reader.close()
    assert {name: count for name, count in read.items() if count > FEW} == {}
    assert sum(read.values()) > 50, "nothing was measured"


def test_a_look_does_not_cost_more_with_much_that_is_due(server):
    store, clock = prepare(server, "plans")
    sql(server, "plans", FILL, BURST)
    clock.advance(timedelta(hours=2000))
    reader = Reader(store, server.url)
    store.look(limit=10)
    assert reader.reads(lambda: store.look(limit=10)) <= FEW
    assert reader.reads(lambda: take(store, "s1", 10, {"f"}, lease=LEASE)) <= FEW
    assert to_micros(store.now()) > to_micros(START)
    reader.close()


@pytest.mark.parametrize("obstacle", ["full", "another node's", "in line"])
def test_a_claim_gets_past_ten_thousand_that_cannot_be_claimed(obstacle, server):
    store, clock = prepare(server, "plans")
    clock.advance(timedelta(minutes=1))
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
    reader = Reader(store, server.url)
    claimed: list[str] = []
    read = reader.reads(lambda: claimed.extend(one.job for one in take(store, "s1", 10, {"f"}, lease=LEASE)))
    reader.close()
    assert sorted(set(claimed) - {"queue"}) == ([] if obstacle == "another node's" else [obstacle])
    assert claimed.count("queue") >= 9
    assert read <= 15_000  # the index is walked once past them, and no row is read twice
