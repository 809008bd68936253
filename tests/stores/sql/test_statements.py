"""How many statements each verb runs: on a server every one of them is a journey there and back.

BEGIN and COMMIT are not counted; they go to the driver directly. A batch that runs one statement for many rows is one.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item, LogLine, Note
from cronsensus.model.states import Origin, State
from cronsensus.planning import plan
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.sqlite.prepared import Prepared
from cronsensus.stores.sql.sqlite.sqlite_dialect import SqliteDialect
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import (
    an_end,
    carry_out,
    give_back,
    open_planner,
    say,
    settle,
    take,
    win_named,
)
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every

LEASE = timedelta(seconds=60)

BUDGET = {
    "due, nothing due": 1,
    "due, jobs due": 2,  # the jobs; their definitions are known since they were met first
    "due, jobs due and never met": 4,  # their definitions, their eras
    "fire one": 5,  # lock the jobs, count what is active, the session; move the watermarks, insert
    "fire a hundred": 5,
    "fire, verdicts only": 5,
    "claim nothing": 1,
    "claim, nothing for this node": 3,  # a second page, which leaves its jobs out
    "claim one": 7,  # session and priorities, due entries; the session, its lease, tokens, the last of them; start
    "claim a hundred": 7,
    "claim of a limited job": 9,  # lock it, how many of it run
    "claim, all due later": 1,
    "claim as much as one priority has": 7,  # and nothing is asked about the lower ones
    "claim behind a full job": 10,  # its runs and locks, and a second page, which leaves it out, however long its line
    "claim behind a long line": 8,  # a second page, which leaves the line out, however long it is, and its jobs
    "acquire a key": 8,  # the job and the session, the key; insert; the session, its lease, tokens, the id; start
    "acquire a time": 10,  # who kept the job's time then; the watermark
    "acquire a time again": 8,  # neither an insert nor the watermark
    "acquire fifty keys": 8,
    "acquire fifty keys, all lost": 2,
    "acquire fifty times": 11,  # the jobs; runs, eras, keys; insert, watermarks; as "acquire a key"
    "acquire fifty times, all lost": 4,
    "acquire fifty times, all full": 7,  # insert; verdicts, watermarks
    "finish one": 3,  # look, close, record the run
    "finish a hundred": 3,
    "finish, some to be retried": 4,
    "finish again": 2,  # look, and the runs that ended
    "release": 3,
    "note progress": 2,
    "note lines": 3,
    "renew": 3,  # lock the row; who is asked to stop, is the node to drain; set the lease
    "reclaim, nobody dead": 1,
    "enqueue one": 3,  # the job, insert, read the id
    "enqueue one by key": 4,
    "enqueue a hundred": 3,
    "lock": 6,  # the look; insert, the places; the token and its number; take
    "lock that is held": 1,
    "lock beside one that a session holds": 7,  # the look; insert, the places; insert; the token; take
    "lock that is overdue": 6,  # the look; insert, the places; the token; take
    "extend": 1,
    "unlock": 1,
    "define, all the same": 2,
    "define, all the same and complete": 3,
    "prune nothing": 12,
}


class Counter:
    """Counts what one handle sends to the database."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        run = Prepared.run_statement

        def noted(prepared: Prepared, *given: Any) -> sqlite3.Cursor:
            self.statements.append(prepared.text)
            return run(prepared, *given)

        many = SqliteDialect.run_many

        def noted_many(dialect: SqliteDialect, connection: Connection, text: str, rows: list[Any]) -> int:
            self.statements.append(text)
            return many(dialect, connection, text, rows)

        monkeypatch.setattr(Prepared, "run_statement", noted)
        monkeypatch.setattr(SqliteDialect, "run_many", noted_many)

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        self.statements.clear()
        yield
        seen = "\n".join(self.statements)
        assert len(self.statements) == BUDGET[what], f"{what}: {len(self.statements)} statements\n{seen}"


@pytest.fixture
def store(open_sqlite: Callable[..., SqliteStore], clock: ManualClock) -> SqliteStore:
    store = open_sqlite(clock=clock)
    hourly = every("1h", start=START)
    store.define_jobs(
        [
            *(JobSpec(name=f"hourly {number}", function="f", trigger=hourly) for number in range(100)),
            JobSpec(name="queue", function="f"),
            JobSpec(name="limited", function="f", policies=Policies(concurrency=2)),
        ],
        release="r1",
    )
    store.open_session(a_session("s1"), lease=LEASE)
    return store


@pytest.fixture
def counter(store: SqliteStore, monkeypatch) -> Counter:
    return Counter(store, monkeypatch)


def test_looking(store, counter, clock):
    with counter.within("due, nothing due"):
        store.look()
    clock.advance(timedelta(hours=1))
    with counter.within("due, jobs due and never met"):
        assert len(store.look().jobs) == 100
    with counter.within("due, jobs due"):
        assert len(store.look().jobs) == 100


def test_firing(store, counter, clock):
    clock.advance(timedelta(hours=1))
    view = store.look()
    plans = [plan(job, view.now) for job in view.jobs]
    planner = open_planner(store)
    with counter.within("fire one"):
        assert carry_out(store, plans[:1], planner) == [True]
    with counter.within("fire a hundred"):
        assert carry_out(store, plans[1:], planner) == [True] * 99
    clock.advance(timedelta(hours=3))
    view = store.look()
    with counter.within("fire, verdicts only"):
        carry_out(store, [plan(job, view.now) for job in view.jobs], planner)


def test_claiming(store, counter):
    with counter.within("claim nothing"):
        assert take(store, "s1", 10, {"f"}, lease=LEASE) == []
    store.enqueue([Item(job="queue") for _ in range(101)])
    with counter.within("claim, nothing for this node"):
        assert take(store, "s1", 10, set(), lease=LEASE) == []
    take(store, "s1", 1, {"f"}, lease=LEASE)
    store.enqueue([Item(job="queue")])
    with counter.within("claim one"):
        assert len(take(store, "s1", 1, {"f"}, lease=LEASE)) == 1
    with counter.within("claim a hundred"):
        assert len(take(store, "s1", 100, {"f"}, lease=LEASE)) == 100
    store.enqueue([Item(job="limited")])
    take(store, "s1", 1, {"f"}, lease=LEASE)
    store.enqueue([Item(job="limited")])
    with counter.within("claim of a limited job"):
        assert len(take(store, "s1", 1, {"f"}, lease=LEASE)) == 1


def test_claiming_asks_about_no_more_priorities_than_it_has_to(store, counter, clock):
    store.enqueue([Item(job="queue", delay=LEASE / 2)])
    with counter.within("claim, all due later"):
        assert take(store, "s1", 1, {"f"}, lease=LEASE) == []
    store.enqueue([Item(job="queue"), Item(job="queue", priority=1), Item(job="queue", priority=2)])
    take(store, "s1", 1, {"f"}, lease=LEASE)
    with counter.within("claim as much as one priority has"):
        assert len(take(store, "s1", 1, {"f"}, lease=LEASE)) == 1


def test_a_long_queue_of_a_full_job_costs_what_comes_after_it_one_page(store, counter):
    store.enqueue([Item(job="limited"), Item(job="queue")])
    claims = take(store, "s1", 2, {"f"}, lease=LEASE)
    settle(store, [an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in claims])
    store.enqueue([*(Item(job="limited") for _ in range(200)), Item(job="queue")])
    with counter.within("claim behind a full job"):
        assert [one.job for one in take(store, "s1", 3, {"f"}, lease=LEASE)] == ["limited", "limited", "queue"]


def test_acquiring(store, counter):
    win_named(store, "s1", "queue", key="first", lease=LEASE)
    with counter.within("acquire a key"):
        assert win_named(store, "s1", "queue", key="key", lease=LEASE)
    with counter.within("acquire a time"):
        claim = win_named(store, "s1", "queue", scheduled_for=START + LEASE, lease=LEASE)
    assert claim is not None
    assert give_back(store, [claim]) == [True]
    with counter.within("acquire a time again"):
        assert win_named(store, "s1", "queue", scheduled_for=START + LEASE, lease=LEASE)


def test_fifty_keys_cost_no_more_than_one(store, counter):
    win_named(store, "s1", "queue", key="first", lease=LEASE)
    asks = [AskNamed("queue", key=f"{number}") for number in range(50)]
    with counter.within("acquire fifty keys"):
        assert all(isinstance(one, Claim) for [one] in store.acquire("s1", asks, lease=LEASE))
    with counter.within("acquire fifty keys, all lost"):
        assert store.acquire("s1", asks, lease=LEASE) == [(NotWon.LOST,)] * 50


def test_fifty_jobs_at_one_time_cost_no_more_than_one(store, counter):
    policies = Policies(concurrency=1, overlap="allow")
    names = [f"job {number}" for number in range(50)]
    store.define_jobs([JobSpec(name=name, function=name, policies=policies) for name in names], release="r1")
    first, second = ([Ask(name, (START + time * timedelta(milliseconds=1),)) for name in names] for time in (1, 2))
    store.acquire("s1", [Ask(name, (START,), "late") for name in names], lease=LEASE)
    with counter.within("acquire fifty times"):
        assert all(isinstance(one, Claim) for [one] in store.acquire("s1", first, lease=LEASE))
    with counter.within("acquire fifty times, all lost"):
        assert store.acquire("s1", first, lease=LEASE) == [(NotWon.LOST,)] * 50
    with counter.within("acquire fifty times, all full"):
        assert store.acquire("s1", second, lease=LEASE) == [(NotWon.FULL,)] * 50


def test_a_long_line_of_one_job_costs_what_comes_after_it_one_page(store, counter, clock):
    line = JobSpec(
        name="line",
        function="f",
        trigger=every("1s", start=START),
        policies=Policies(overlap="queue", catch_up="all"),
    )
    store.define_jobs([line], release="r1")
    clock.advance(timedelta(seconds=300))
    store.open_session(a_session("s2"), lease=LEASE)
    (waiting,) = (job for job in store.look().jobs if job.spec.name == "line")
    made = plan(waiting, store.now())
    assert len(made.occurrences) > 200
    assert carry_out(store, [made]) == [True]
    store.enqueue([Item(job="queue", origin=Origin.STARTUP)])  # which goes with the schedule
    with counter.within("claim behind a long line"):
        assert [claim.job for claim in take(store, "s2", 2, {"f"}, lease=LEASE)] == ["line", "queue"]


def test_ending(store, counter):
    store.enqueue([Item(job="queue") for _ in range(105)])
    claims = take(store, "s1", 105, {"f"}, lease=LEASE)

    def outcome(claim, state=State.SUCCEEDED):
        return an_end(id=claim.id, token=claim.token, state=state)

    with counter.within("finish one"):
        settle(store, [outcome(claims[0])])
    with counter.within("finish again"):
        assert settle(store, [outcome(claims[0])])[0].accepted
    with counter.within("finish a hundred"):
        settle(store, [outcome(claim) for claim in claims[1:101]])
    with counter.within("note progress"):
        say(store, [Note(claims[101].id, claims[101].token, progress=(1, 2))])
    with counter.within("note lines"):
        say(store, [Note(claims[101].id, claims[101].token, lines=(LogLine(START, "INFO", "hello"),))])
    with counter.within("finish, some to be retried"):
        settle(store, [outcome(claims[101]), outcome(claims[102], State.PENDING)])
    with counter.within("release"):
        assert give_back(store, claims[103:105]) == [True, True]


def test_sessions_and_locks(store, counter, clock):
    with counter.within("renew"):
        assert store.renew("s1", lease=LEASE).alive
    with counter.within("reclaim, nobody dead"):
        store.reclaim()
    with counter.within("lock"):
        grant = store.lock("name", "me", ttl=LEASE)
    with counter.within("lock that is held"):
        assert store.lock("name", "you", ttl=LEASE) is None
    assert store.lock("for two", "me", ttl=LEASE, session="s1", limit=2)
    with counter.within("lock beside one that a session holds"):
        assert store.lock("for two", "you", ttl=LEASE, limit=2)
    with counter.within("extend"):
        assert store.extend(grant, ttl=LEASE)
    with counter.within("unlock"):
        assert store.unlock(grant)
    assert store.lock("name", "me", ttl=LEASE)
    clock.advance(LEASE)
    with counter.within("lock that is overdue"):
        assert store.lock("name", "you", ttl=LEASE)


def test_defining_and_enqueueing(store, counter):
    specs = [JobSpec(name="queue", function="f")]
    with counter.within("define, all the same"):
        store.define_jobs(specs, release="r1")
    everything = [view.spec for view in store.jobs(limit=1000)]
    store.define_jobs(everything, release="r1", complete=True)
    with counter.within("define, all the same and complete"):
        assert store.define_jobs(everything, release="r1", complete=True).changed == ()
    store.enqueue([Item(job="queue")])
    with counter.within("enqueue one"):
        store.enqueue([Item(job="queue")])
    with counter.within("enqueue one by key"):
        store.enqueue([Item(job="queue", key="mine")])
    with counter.within("enqueue a hundred"):
        store.enqueue([Item(job="queue") for _ in range(100)])
    with counter.within("prune nothing"):
        assert store.prune() == 0


def test_an_idle_node_costs_one_statement_a_look(store, counter, clock):
    """With nothing due for an hour a node looks about every ninety seconds, and renews its lease as often."""
    counter.statements.clear()
    store.look()
    assert len(counter.statements) == 1
