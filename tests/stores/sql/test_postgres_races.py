"""What only happens where several write at the same time: waits for rows, and what was read before them."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronsensus.errors import LeaseLost, StoreBusy
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, Note
from cronsensus.model.session import LockGrant
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.planning import plan
from cronsensus.stores.sql import defining
from cronsensus.stores.sql.migrations import MIGRATIONS
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres.postgres_locks import turn_of
from cronsensus.stores.sql.schema import metadata
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, say, settle, take, win_named
from cronsensus.triggers import every

SHORT = timedelta(milliseconds=600)
LONG = timedelta(minutes=5)
PROCESSES = 6
STARTING = """
import os, sys
from datetime import timedelta
from cronsensus.model.job import JobSpec
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.triggers import every

store = PostgresStore(sys.argv[1])
store.now()
print("ready", flush=True)
sys.stdin.readline()
applied = store.migrate()
store.check()
store.open_session(a_session(str(os.getpid())), lease=timedelta(minutes=5))
store.define_jobs([JobSpec(name="job", function="f", trigger=every("1h"))], release="r1", complete=True)
print(" ".join(applied) or "nothing", flush=True)
store.close()
"""


def others_url(store: PostgresStore) -> str:
    return str(store._url_and_clock[0].partition("?")[0])


@contextmanager
def holding(store: PostgresStore, what: str) -> Iterator[psycopg.Connection]:
    """Hold rows as another node's transaction would; let go at the end of the block."""
    with psycopg.connect(others_url(store)) as connection:
        connection.execute(f"SET search_path = {store._url.schema}")
        connection.execute(what)
        yield connection


def in_thread(act: Callable[[], Any]) -> Callable[[], Any]:
    """Start; what is returned waits for the end, and gives its answer or its error."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(act())
        except Exception as error:  # noqa: BLE001 - handed on
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> Any:
        thread.join(30)
        assert answers, "it hangs"
        return answers[0]

    return ended


def until_somebody_waits(store: PostgresStore, event: str = "%") -> None:
    """Wait until a transaction waits for a row of another, or for the lock that ``event`` names."""
    deadline = time.monotonic() + 20
    with psycopg.connect(others_url(store), autocommit=True) as connection:
        while (
            connection.execute(
                "SELECT 1 FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND wait_event LIKE %s AND query LIKE %s",
                [event, f"%{store._url.schema}%"],
            ).fetchone()
            is None
        ):
            assert time.monotonic() < deadline, "nobody waits"
            threading.Event().wait(0.005)


def until_over(store: PostgresStore, session: str) -> None:
    deadline = time.monotonic() + 20
    while next(one for one in store.sessions() if one.id == session).expires_in > timedelta(0):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", ["made", "there already"])
def test_processes_that_start_in_the_same_instant_find_the_store_ready(schema, postgres_url, open_postgres):
    url = postgres_url if schema == "there already" else postgres_url + "_new"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", STARTING, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    try:
        assert [child.stdout and child.stdout.readline().strip() for child in children] == ["ready"] * PROCESSES
        for child in children:
            assert child.stdin
            child.stdin.write("go\n")
            child.stdin.flush()
        said = " ".join(child.stdout.readline() for child in children if child.stdout).split()
        assert sorted(word for word in said if word != "nothing") == [name for _, name, _ in MIGRATIONS]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    store = open_postgres(at=url, migrated=False)
    assert len(store.sessions()) == PROCESSES
    assert len(store.history("job").eras) == 1
    if schema == "made":
        store.close()
        with psycopg.connect(others_url(store), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {store._url.schema} CASCADE")


def test_every_table_and_index_that_is_declared_is_there(open_postgres):
    store = open_postgres()
    with psycopg.connect(others_url(store)) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s",
            [store._url.schema],
        ).fetchall()
    there = {name for (name,) in rows}
    declared = {table.name for table in metadata.tables.values()}
    declared |= {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    assert declared | {"cronsensus_tokens", "cronsensus_occurrences_by_key", "cronsensus_jobs_by_name"} <= there


# --- clocks that were read before a wait ------------------------------------------------------------------------------


def test_renewal_that_waited_past_its_lease_revives_no_session(open_postgres):
    store = open_postgres()
    store.open_session(a_session("s1"), lease=SHORT)
    with holding(store, "SELECT 1 FROM cronsensus_sessions FOR UPDATE"):
        renewal = in_thread(lambda: store.renew("s1", lease=LONG))
        until_somebody_waits(store)
        until_over(store, "s1")
    assert not renewal().alive


def test_a_session_that_is_opened_again_after_a_wait_is_not_revived(open_postgres):
    store = open_postgres()
    store.open_session(a_session("s1"), lease=SHORT)
    with holding(store, "SELECT 1 FROM cronsensus_sessions FOR UPDATE"):
        again = in_thread(lambda: store.open_session(a_session("s1"), lease=LONG))
        until_somebody_waits(store)
        until_over(store, "s1")
    assert isinstance(again(), LeaseLost)


def test_a_claim_that_had_to_wait_takes_nothing_for_the_dead(open_postgres):
    store = open_postgres()
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=SHORT)
    store.enqueue([Item(job="job")])
    with holding(store, "SELECT 1 FROM cronsensus_sessions FOR UPDATE"):
        claim = in_thread(lambda: take(store, "s1", 1, {"f"}, lease=LONG))
        until_somebody_waits(store)
        until_over(store, "s1")
    assert isinstance(claim(), LeaseLost)
    assert store.counts().pending == 1


def test_a_renewal_that_had_to_wait_for_a_moment_is_a_renewal(open_postgres):
    store = open_postgres()
    store.open_session(a_session("s1"), lease=LONG)
    with holding(store, "SELECT 1 FROM cronsensus_sessions FOR UPDATE"):
        renewal = in_thread(lambda: store.renew("s1", lease=LONG))
        until_somebody_waits(store)
        threading.Event().wait(0.1)  # longer than what counts as prompt: it is judged once more
    assert renewal().alive


# --- who is about to be renewed is not dead ---------------------------------------------------------------------------


def test_runs_of_a_session_that_may_be_renewing_count_towards_concurrency(open_postgres):
    store = open_postgres()
    store.define_jobs([JobSpec(name="job", function="f", policies=Policies(concurrency=1))], release="r1")
    store.open_session(a_session("s1"), lease=LONG)
    store.open_session(a_session("s2"), lease=LONG)
    store.enqueue([Item(job="job"), Item(job="job")])
    assert len(take(store, "s1", 1, {"f"}, lease=SHORT)) == 1
    until_over(store, "s1")
    with holding(store, "SELECT 1 FROM cronsensus_sessions WHERE id = 's1' FOR UPDATE"):
        assert take(store, "s2", 1, {"f"}, lease=LONG) == []
    assert len(take(store, "s2", 1, {"f"}, lease=LONG)) == 1


def test_runs_of_a_session_that_another_node_has_locked_are_not_locked(open_postgres):
    store = open_postgres()
    store.migrate()
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=LONG)
    store.enqueue([Item(job="job")])
    [claim] = take(store, "s1", 1, ["f"], lease=LONG)
    mine = {"session": "s1", "space": store.namespace}
    with holding(store, "SELECT 1 FROM cronsensus_sessions FOR UPDATE") as other:
        with store._write_transaction() as tx:
            assert not tx.send("try_lock_session", **mine, boot=tx.epoch, moment=tx.moment).rows
            assert not tx.send("try_lock_runs", **mine).rows
            assert tx.send("held_runs", **mine).rows
            [free] = other.execute("SELECT id FROM cronsensus_occurrences FOR UPDATE SKIP LOCKED").fetchall()
            assert free == (claim.id,)
        assert store.reclaim(["s1"]) == []
    assert [one.id for one in store.reclaim(["s1"])] == [claim.id]


def test_lock_of_a_session_that_is_renewing_is_not_taken(open_postgres):
    store = open_postgres()
    store.open_session(a_session("s1"), lease=SHORT)
    assert store.lock("name", "one", ttl=LONG, session="s1") is not None
    until_over(store, "s1")
    renewed = "UPDATE cronsensus_sessions SET lease_until = lease_until + 300000000 WHERE id = 's1'"
    with holding(store, renewed):
        taken = in_thread(lambda: store.lock("name", "two", ttl=LONG))
        until_somebody_waits(store)
    assert taken() is None


# --- orders of things -------------------------------------------------------------------------------------------------


def test_tokens_of_a_lock_grow_in_the_order_of_its_holders(open_postgres):
    """Who has taken a token and is held up before its row keeps the others from taking theirs meanwhile."""
    first, second = open_postgres(), open_postgres()
    before = first.lock("name", "before", ttl=timedelta(microseconds=1))
    assert before is not None

    def one() -> LockGrant | None:
        grant: LockGrant | None = first.lock("name", "first", ttl=LONG)
        assert grant is not None
        assert first.unlock(grant)
        return grant

    with holding(first, "SELECT 1 FROM cronsensus_locks FOR UPDATE"):
        one_ends = in_thread(one)
        until_somebody_waits(first)
        two_ends = in_thread(lambda: second.lock("name", "second", ttl=LONG))
        until_somebody_waits(second, "advisory")
    held_up, next_holder = one_ends(), two_ends() or second.lock("name", "third", ttl=LONG)
    assert before.token < held_up.token < next_holder.token


def test_an_old_release_that_defines_jobs_while_a_newer_one_begins_does_not_win(open_postgres, monkeypatch):
    """Otherwise the newer looks before the change, finds its definitions as they should be, and says nothing."""
    old, new = open_postgres(), open_postgres()
    theirs, ours = JobSpec(name="job", function="old"), JobSpec(name="job", function="new")
    old.define_jobs([theirs], release="r1")
    new.open_session(a_session("s2", release="r2"), lease=LONG)
    new.define_jobs([ours], release="r2")
    new.close_session("s2")
    looked, go_on = threading.Event(), threading.Event()
    is_superseded = defining._is_superseded

    def slowly(release: Any) -> bool:
        answer = is_superseded(release)
        if threading.current_thread() is not threading.main_thread() and not looked.is_set():
            looked.set()
            go_on.wait(20)
        return answer

    monkeypatch.setattr(defining, "_is_superseded", slowly)
    old_puts = in_thread(lambda: old.define_jobs([theirs], release="r1"))
    assert looked.wait(60)

    def begin() -> None:
        new.open_session(a_session("s3", release="r2"), lease=LONG)
        new.define_jobs([ours], release="r2")

    new_begins = in_thread(begin)
    threading.Event().wait(0.1)  # it may go through here, or wait for the old one
    go_on.set()
    old_puts(), new_begins()
    view = old.job("job")
    assert view is not None
    assert view.spec.function == "new"


def test_the_victim_of_a_deadlock_does_it_again(open_postgres):
    store = open_postgres()
    store.define_jobs([JobSpec(name="a", function="f"), JobSpec(name="b", function="f")], release="r1")
    job = "SELECT 1 FROM cronsensus_jobs WHERE name = '{}' FOR UPDATE"
    with holding(store, job.format("b")) as other:
        other.execute("SET deadlock_timeout = '60s'")  # so that the other one finds it, and is the victim
        answer = in_thread(lambda: store.trigger("a", downstream=["b"], by="me", why=""))
        until_somebody_waits(store)
        other.execute(job.format("a"))
    assert answer().created
    assert store.counts().pending == 2


# --- a transaction of the user's own ----------------------------------------------------------------------------------


def test_progress_that_was_stored_meanwhile_ends_a_repeatable_read_transaction_with_a_reason(open_postgres):
    store = open_postgres()
    store.define_jobs([JobSpec(name="job", function="f", trigger=None)], release="r1")
    store.open_session(a_session("s1"), lease=LONG)
    store.enqueue([Item(job="job", key="k")])
    [claim] = take(store, "s1", 1, ["f"], lease=LONG)
    with psycopg.connect(others_url(store)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1 FROM pg_class LIMIT 1")
        assert say(store, [Note(claim.id, claim.token, progress=(1.0, 2.0))]) == [True]
        with pytest.raises(StoreBusy, match="report it before, or use READ COMMITTED"):
            store.complete_in(connection, claim)
        connection.rollback()
    assert store.occurrence(claim.id).state is State.RUNNING


def test_a_lock_that_waited_its_turn_counts_the_places_taken_meanwhile(open_postgres):
    """Its statement began, and saw nobody, before another one took a place that it does not want itself."""
    store = open_postgres()
    first = store.lock("name", "first", ttl=LONG, limit=3)
    other = store.lock("name", "other", ttl=timedelta(microseconds=1), limit=3)
    assert first is not None
    assert other is not None
    assert (store.unlock(first), other.place) == (True, 1)
    turn = turn_of(store._place[0], store._place[1], "name")
    with holding(store, f"SELECT pg_advisory_xact_lock({turn})") as connection:
        alone = in_thread(lambda: store.lock("name", "alone", ttl=LONG, limit=1))
        until_somebody_waits(store, "advisory")
        connection.execute("UPDATE cronsensus_locks SET lease_until = lease_until + 300000000")
    assert alone() is None


def test_a_lock_that_waited_until_its_session_ended_is_refused(open_postgres):
    store, other = open_postgres(), open_postgres()
    store.open_session(a_session("s1"), lease=LONG)
    turn = turn_of(store._place[0], store._place[1], "name")
    with holding(store, f"SELECT pg_advisory_xact_lock({turn})"):
        asked = in_thread(lambda: store.lock("name", "h", ttl=LONG, session="s1"))
        until_somebody_waits(store, "advisory")
        other.reclaim(["s1"])
    assert isinstance(asked(), LeaseLost)
    with psycopg.connect(others_url(store)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {store._url.schema}.cronsensus_locks").fetchone() == (0,)


# --- the order of locks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["jobs", "occurrences"])
def test_step_locks_jobs_then_runs_then_its_session(open_postgres, held):
    store = open_postgres()
    jobs = [JobSpec(name="queue", function="f"), JobSpec(name="job", function="f", trigger=every("2s"))]
    store.define_jobs(jobs, release="r1")
    store.open_session(a_session("s1"), lease=LONG)
    store.enqueue([Item(job="queue"), Item(job="queue")])
    [claim] = take(store, "s1", 1, {"f"}, lease=LONG)
    [job] = store.look(ahead=4 * SHORT).jobs
    step = Step(
        ends=(an_end(id=claim.id, token=claim.token, session="s1", state=State.SUCCEEDED),),
        plans=(plan(job, job.due_at),),
        want=Want(limit=1, functions=("f",), lease=LONG),
    )
    with holding(store, f"SELECT 1 FROM cronsensus_{held} FOR UPDATE") as other:
        done = in_thread(lambda: store.step("s1", step))
        until_somebody_waits(store)
        # What comes later in the order is not in its hands while it waits, or two steps would wait for each other.
        for later in ("occurrences", "sessions") if held == "jobs" else ("sessions",):
            other.execute(f"SELECT 1 FROM cronsensus_{later} FOR UPDATE NOWAIT")
    assert done().settled[0].accepted
    assert len(done().claims) == 1


# --- pruning ----------------------------------------------------------------------------------------------------------


def test_prune_locks_the_job_before_its_runs_as_acquire_does(open_postgres):
    store = open_postgres()
    store.define_jobs([JobSpec(name="job", function="f", trigger=None)], release="r1")
    store.open_session(a_session("s1"), lease=LONG)
    claim = win_named(store, "s1", "job", scheduled_for=store.now(), lease=LONG)
    assert claim is not None
    settle(store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
    with holding(store, "SELECT 1 FROM cronsensus_jobs FOR UPDATE") as acquiring:
        pruned = in_thread(lambda: store.prune(store.now() + LONG))
        until_somebody_waits(store)
        # What it wants next is not in prune's hands, which waits for it: that would be a deadlock.
        acquiring.execute("SELECT 1 FROM cronsensus_occurrences FOR UPDATE NOWAIT")
        acquiring.commit()
    assert pruned() == 1
