"""The functions that do the usual in one trip ask for everything themselves: where one thing differs, they do nothing.

Only the condition that a case names stands between it and a wrong write; before and after it, all is as usual.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.planning import plan
from cronsensus.stores.sql.postgres import PostgresStore, at_once
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.timing.clock import ManualClock
from cronsensus.timing.instants import to_micros
from cronsensus.triggers import every
from tests.stores.sql.test_postgres_races import holding, in_thread, others_url, until_somebody_waits

LEASE = timedelta(seconds=60)
MOMENT = timedelta(microseconds=1)
WANT = Want(limit=4, functions=("f",), lease=2 * LEASE)
DUE = START + timedelta(seconds=30)
NOW = to_micros(DUE)
NOT_THE_SESSION: list[tuple[str, Any]] = [
    ("id", "other"),
    ("namespace", "theirs"),
    ("ended_at", 1),
    ("epoch", "other"),
    ("lease_until", NOW),
]


@pytest.fixture
def store(conforming_postgres_url: str) -> Iterator[PostgresStore]:
    """Return a store in which an occurrence of ``job`` is due, and of which the handle knows ``job`` and ``queue``."""
    yield from of(conforming_postgres_url)


@pytest.fixture
def its_own(postgres_url: str) -> Iterator[PostgresStore]:
    """Return such a store, of which the tables may be changed."""
    yield from of(postgres_url)


def of(url: str) -> Iterator[PostgresStore]:
    made = PostgresStore(url, clock=ManualClock(START))
    made.migrate()
    made.open_session(a_session("s1"), lease=10 * LEASE)
    made.define_jobs(
        [
            JobSpec(name="job", function="f", trigger=every("30s", start=START), args=("x",)),
            JobSpec(name="queue", function="f", policies=Policies(priority=3)),
        ],
        release="r1",
    )
    made.enqueue([Item(job="queue")])
    [claim] = take(made, "s1", 4, {"f"}, lease=LEASE)
    settle(made, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
    made._url_and_clock[1].advance(30)  # type: ignore[union-attr]
    made._step_in_one_trip("s1", Step(plans=(replace(due(made), revision=7),), want=WANT))  # reads the definition
    run_sql(made, "DELETE FROM cronsensus_runs", "DELETE FROM cronsensus_occurrences")
    yield made
    made.close()


def due(store: PostgresStore) -> Plan:
    [job] = store.look().due
    return plan(job, store.now())


@contextmanager
def operator(store: PostgresStore) -> Iterator[psycopg.Connection]:
    with psycopg.connect(others_url(store), autocommit=True) as connection:
        connection.execute(f"SET search_path = {store._url.schema}")
        yield connection


def run_sql(store: PostgresStore, *statements: str) -> None:
    with operator(store) as connection:
        for one in statements:
            connection.execute(one)


@contextmanager
def differing(store: PostgresStore, table: str, column: str, value: object) -> Iterator[None]:
    """Let the only row of a table differ in one thing, and put it back."""
    with operator(store) as connection:
        [(was,)] = connection.execute(f'SELECT "{column}" FROM cronsensus_{table}').fetchall()
        connection.execute(f'UPDATE cronsensus_{table} SET "{column}" = %s', [value])
        yield
        connection.execute(f'UPDATE cronsensus_{table} SET "{column}" = %s', [was])


def written(store: PostgresStore) -> list[Any]:
    """Return all that a step may write."""
    with operator(store) as connection:
        return [
            connection.execute(f"SELECT * FROM cronsensus_{table} ORDER BY 1").fetchall()
            for table in ("jobs", "sessions", "occurrences", "runs")
        ]


def nothing_is_done(store: PostgresStore, act: Callable[[], object], *what: object) -> None:
    before = written(store)
    store._unusual_until = 0.0
    assert act() is None, what
    assert written(store) == before, what


def without(store: PostgresStore, name: str) -> None:
    run_sql(store, f"DELETE FROM cronsensus_jobs WHERE name = '{name}'")


@pytest.fixture
def no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no statement fail: the log of the server would tell of it, for a session that is over long since."""
    monkeypatch.setattr(at_once, "DivisionByZero", ())


def until_the_session(store: PostgresStore, column: str, value: object, act: Callable[[], object]) -> object:
    """Let an action wait for its session's row while that becomes another one; return its answer."""
    with holding(store, "SELECT 1 FROM cronsensus_sessions FOR UPDATE") as other:
        answer = in_thread(act)
        until_somebody_waits(store)
        other.execute(f"UPDATE cronsensus_sessions SET {column} = %s", [value])
    return answer()


# --- a plan with one occurrence ---------------------------------------------------------------------------------------


def fire(store: PostgresStore, each: Plan, want: Want = WANT) -> Done | None:
    return store._step_in_one_trip("s1", Step(plans=(each,), want=want))


def test_plan_in_one_trip_asks_for_its_job_and_its_session_as_they_were_seen(
    store: PostgresStore, no_failure: None
) -> None:
    each = due(store)
    without(store, "queue")
    for column, value in NOT_THE_SESSION:
        with differing(store, "sessions", column, value):
            nothing_is_done(store, lambda: fire(store, each), column)
    not_the_job: list[tuple[str, Any]] = [
        ("id", 99), ("namespace", "theirs"), ("watermark", NOW - 1), ("digest", "other"), ("defined_at", 1),
        ("paused_at", 1), ("retired_at", 1),
    ]  # fmt: skip
    for column, value in not_the_job:
        with differing(store, "jobs", column, value):
            nothing_is_done(store, lambda: fire(store, each), column)
    with differing(store, "sessions", "lease_until", NOW + 1):
        assert fire(store, each) is not None


@pytest.mark.parametrize(("column", "value"), NOT_THE_SESSION)
def test_plan_in_one_trip_asks_for_its_session_again_once_that_is_locked(
    store: PostgresStore, column: str, value: object
) -> None:
    each, before = due(store), written(store)
    assert until_the_session(store, column, value, lambda: fire(store, each)) is None
    assert [written(store)[table] for table in (0, 2, 3)] == [before[table] for table in (0, 2, 3)]


def test_plan_in_one_trip_holds_from_its_time_on_and_moves_no_watermark_back(store: PostgresStore) -> None:
    each = due(store)
    [planned] = each.occurrences
    changes: tuple[dict[str, Any], ...] = (
        {"revision": 7},
        {"watermark_seen": each.watermark_seen - MOMENT},
        {"not_before": DUE + MOMENT},
        {"occurrences": (replace(planned, due_at=DUE + MOMENT),)},
        {"watermark": each.watermark_seen - MOMENT},
    )
    for change in changes:
        nothing_is_done(store, partial(fire, store, replace(each, **change)), change)
    done = fire(store, replace(each, not_before=DUE, watermark=each.watermark_seen))
    assert done is not None, "what it decides is no less than what was decided before"
    assert len(done.claims) == 1


def enqueued(store: PostgresStore, **changed: Any) -> int:
    """Enqueue, in the same instant, and change the row; return its id."""
    [one] = store.enqueue([Item(job="queue")])
    for column, value in changed.items():
        with operator(store) as connection:
            connection.execute(f'UPDATE cronsensus_occurrences SET "{column}" = %s WHERE id = %s', [value, one.id])
    return one.id


def test_plan_in_one_trip_gives_way_to_what_is_active_or_waits_and_to_nothing_else(store: PostgresStore) -> None:
    each = due(store)
    job = {"job_id": each.job_id, "serial": 1, "state": "running"}
    for active in (job, {}, {"level": -7}):
        one = enqueued(store, **active)
        nothing_is_done(store, lambda: fire(store, each), active)
        run_sql(store, f"DELETE FROM cronsensus_occurrences WHERE id = {one}")
    enqueued(store, **{**job, "job_id": each.job_id + 1000})
    enqueued(store, **{**job, "serial": 0})
    enqueued(store, **{**job, "state": "succeeded", "finished_at": 1})
    enqueued(store, namespace="theirs")
    enqueued(store, due_at=NOW + 1)
    done = fire(store, each)
    assert done is not None
    assert len(done.claims) == 1


def test_plan_in_one_trip_writes_to_its_own_job_and_session_alone(store: PostgresStore) -> None:
    store.open_session(replace(a_session("s2"), node="another"), lease=3 * LEASE)
    neighbour = PostgresStore(store._url_and_clock[0], namespace="theirs", clock=store._url_and_clock[1])
    neighbour.open_session(replace(a_session("s1"), node="another"), lease=3 * LEASE)
    store.renew("s1", lease=LEASE)  # the others' rows come first now
    others = [one for one in store.jobs() if one.spec.name != "job"]
    done = fire(store, due(store))
    assert done is not None
    found = store.occurrence(done.claims[0].id)
    assert found is not None
    assert found.node != "another"
    assert neighbour.sessions()[0].expires_in == 3 * LEASE
    neighbour.close()
    assert [one for one in store.jobs() if one.spec.name != "job"] == others
    assert {one.id: one.expires_in for one in store.sessions()} == {"s1": 2 * LEASE, "s2": 3 * LEASE}


def test_plan_in_one_trip_of_an_occurrence_that_stands_moves_on_and_claims_nothing(store: PostgresStore) -> None:
    each = due(store)
    done = fire(store, each)
    assert done is not None
    [claim] = done.claims
    assert close(store, claim) is not None
    run_sql(store, f"UPDATE cronsensus_jobs SET watermark = {to_micros(each.watermark_seen)} WHERE name = 'job'")
    assert fire(store, each) == Done(carried_out=(True,))
    assert not store.look().due


# --- the end of a run -------------------------------------------------------------------------------------------------


def close(store: PostgresStore, claim: Claim, **more: Any) -> Done | None:
    outcome = an_end(id=claim.id, token=claim.token, session=claim.session, state=State.SUCCEEDED, **more)
    return store._step_in_one_trip("s1", Step(ends=(outcome,)))


def test_end_in_one_trip_asks_for_the_run_the_session_and_the_token(store: PostgresStore) -> None:
    store.enqueue([Item(job="queue")])
    [claim] = take(store, "s1", 4, {"f"}, lease=LEASE)
    not_the_run: list[tuple[str, Any]] = [
        ("id", claim.id + 1), ("namespace", "theirs"), ("token", claim.token + 1), ("session", "s2"),
        ("state", "pending"), ("state", "succeeded"),
    ]  # fmt: skip
    for column, value in not_the_run:
        with differing(store, "occurrences", column, value):
            nothing_is_done(store, lambda: close(store, claim), column)
    assert close(store, claim) is not None


@pytest.mark.parametrize(
    ("reserved", "ran", "started"),
    [(None, 3, 0), (1, 3, 7), (1, 30, 0)],
    ids=["as it was claimed", "when a reserved one began", "never before the claim"],
)
def test_end_in_one_trip_records_when_the_run_began(
    store: PostgresStore, reserved: int | None, ran: int, started: int
) -> None:
    store.enqueue([Item(job="queue")])
    [claim] = take(store, "s1", 4, {"f"}, lease=LEASE)
    store._url_and_clock[1].advance(10)  # type: ignore[union-attr]
    with operator(store) as connection:
        connection.execute("UPDATE cronsensus_occurrences SET reserved = %s", [reserved])
    assert close(store, claim, elapsed=timedelta(seconds=ran)) is not None
    [run] = store.runs(claim.id)
    assert run.started_at == claim.claimed_at + timedelta(seconds=started)


# --- enqueuing --------------------------------------------------------------------------------------------------------


def test_enqueue_in_one_trip_asks_for_the_job_as_it_was_read(store: PostgresStore) -> None:
    store.enqueue([Item(job="queue")])
    without(store, "job")
    not_the_job: list[tuple[str, Any]] = [
        ("id", 99), ("namespace", "theirs"), ("name", "other"), ("retired_at", 1), ("digest", "other"),
        ("revision", 9), ("defined_at", 1),
    ]  # fmt: skip
    for column, value in not_the_job:
        with differing(store, "jobs", column, value):
            nothing_is_done(store, lambda: store._enqueue_in_one_trip([Item(job="queue")]), column)
    assert store._enqueue_in_one_trip([Item(job="queue")]) is not None


# --- claiming ---------------------------------------------------------------------------------------------------------


def claim(store: PostgresStore, **more: Any) -> Done | None:
    store._unusual_until = 0.0
    return store._step_in_one_trip("s1", Step(want=replace(WANT, **more)))


def claims(store: PostgresStore, **more: Any) -> set[int] | None:
    done = claim(store, **more)
    return None if done is None else {one.id for one in done.claims}


def test_claim_in_one_trip_asks_for_its_session(store: PostgresStore, no_failure: None) -> None:
    enqueued(store)
    for column, value in NOT_THE_SESSION:
        with differing(store, "sessions", column, value):
            nothing_is_done(store, lambda: claim(store), column)
    with differing(store, "sessions", "lease_until", NOW + 1):
        assert claim(store) is not None


@pytest.mark.parametrize(("column", "value"), NOT_THE_SESSION)
def test_claim_in_one_trip_asks_for_its_session_again_once_that_is_locked(
    store: PostgresStore, column: str, value: object
) -> None:
    enqueued(store)
    before = written(store)
    assert until_the_session(store, column, value, lambda: claim(store)) is None
    assert written(store)[2] == before[2]


def test_claim_in_one_trip_takes_what_is_due_of_its_namespace_and_leaves_the_rest_as_it_is(
    store: PostgresStore,
) -> None:
    store.open_session(a_session("s2"), lease=3 * LEASE)
    rest = [
        enqueued(store, namespace="theirs"),
        enqueued(store, namespace="theirs", priority=9),
        enqueued(store, due_at=NOW + 1),
        enqueued(store, due_at=NOW + 1, priority=9),
        enqueued(store, state="running", token=77, session="s2"),
        enqueued(store, state="cancelled", finished_at=1),
    ]
    before = [row for row in written(store)[2] if row[0] in rest]
    mine = {enqueued(store, priority=priority) for priority in (9, 3, 3, -2)}
    assert claims(store) == mine
    assert [row for row in written(store)[2] if row[0] in rest] == before
    assert {one.id: one.expires_in for one in store.sessions()} == {"s1": 2 * LEASE, "s2": 3 * LEASE}


def test_claim_in_one_trip_takes_as_much_as_is_wanted_and_is_unusual_where_there_is_more(store: PostgresStore) -> None:
    mine = {enqueued(store) for _ in range(3)}
    nothing_is_done(store, lambda: claim(store, limit=2))
    assert claims(store, limit=3) == mine
    last = max(found.token for one in mine if (found := store.occurrence(one)))
    enqueued(store)
    done = claim(store)
    assert done is not None
    assert done.claims[0].token == last + 1, "no more tokens are taken than runs begin"


@pytest.mark.parametrize(
    ("expires", "attempt", "taken"),
    [(None, 0, True), (NOW, 0, True), (NOW + 1, 0, True), (NOW - 1, 0, False), (NOW - 1, 1, True)],
)
def test_claim_in_one_trip_leaves_what_expired_before_its_first_attempt(
    store: PostgresStore, expires: int | None, attempt: int, taken: bool
) -> None:
    one = enqueued(store, expires_at=expires, attempt=attempt)
    assert claims(store) == ({one} if taken else None)


@pytest.mark.parametrize(
    ("column", "value"), [("serial", 1), ("job_id", 99)], ids=["one in turn", "one of a job that is gone"]
)
def test_claim_in_one_trip_leaves_all_where_one_is_unusual(store: PostgresStore, column: str, value: int) -> None:
    enqueued(store)
    enqueued(store, **{column: value})
    nothing_is_done(store, lambda: claim(store))


GATE = 4711


@pytest.mark.parametrize(
    ("happens", "left"),
    [
        ("state = 'running', token = 99, session = 's2'", (State.RUNNING, 99, "s2")),
        (f"due_at = {NOW + 1}", (State.PENDING, 0, None)),
    ],
    ids=["another node takes it", "it is to come later"],
)
def test_claim_in_one_trip_asks_for_each_occurrence_again_once_that_is_locked(
    its_own: PostgresStore, happens: str, left: tuple[State, int, str | None]
) -> None:
    first, second = enqueued(its_own), enqueued(its_own)
    # The statement stands still where it reads the jobs: it has its snapshot, and has locked nothing yet.
    run_sql(
        its_own,
        "ALTER TABLE cronsensus_jobs RENAME TO kept_jobs",
        "CREATE VIEW cronsensus_jobs AS SELECT * FROM kept_jobs"
        f" WHERE (SELECT pg_advisory_xact_lock_shared({GATE})) IS NOT NULL",
    )
    with operator(its_own) as other:
        other.execute(f"SELECT pg_advisory_lock({GATE})")
        taken = in_thread(lambda: claims(its_own))
        until_somebody_waits(its_own, "advisory")
        other.execute(f"UPDATE cronsensus_occurrences SET {happens} WHERE id = {first}")
    assert taken() == {second}
    found = its_own.occurrence(first)
    assert found is not None
    assert (found.state, found.token, found.session) == left
