"""Which rows a verb of MySQL locks: those that it rests on, and none that it merely passes.

InnoDB locks each entry of an index that a locking statement walks over. So a wrong index, or a scan of a small table,
is not slow but makes nodes wait for each other, or skip what they should have seen.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from cronsensus.model.step import Step
from cronsensus.stores.sql import claiming, firing, operating, pausing, retiring, sessions, stepping
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.mysql.mysql_dialect import driver_of
from cronsensus.stores.sql.mysql.mysql_driver import run_text
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take

LEASE = timedelta(minutes=5)
TABLES = {"jobs": "name", "occurrences": "`key`", "sessions": "id", "counters": "name", "releases": "`release`"}
Locked = dict[str, list[str]]


class Undo(LookupError):
    """Ends a transaction that was only to be looked at."""


@pytest.fixture
def store(mysql_url: str) -> Iterator[MysqlStore]:
    """Six jobs with four occurrences each; ``s0`` runs the first three."""
    made = MysqlStore(mysql_url)
    made.migrate()
    made.define_jobs([JobSpec(name=name, function="f") for name in "abcdef"], release="r1")
    for number in range(3):
        made.open_session(a_session(f"s{number}"), lease=LEASE)
    made.enqueue([Item(job=job, key=f"{job}{number}") for job in "abcdef" for number in range(4)])
    assert [claim.key for claim in take(made, "s0", 3, {"f"}, lease=LEASE)] == ["a0", "a1", "a2"]
    yield made
    made.close()


@pytest.fixture
def other(store: MysqlStore) -> Iterator[MysqlStore]:
    made = store.sibling()
    yield made
    made.close()


@pytest.fixture
def locked(store: MysqlStore, other: MysqlStore) -> Callable[[Callable[[Transaction], object]], Locked]:
    """Return what an act has locked, as another connection sees it."""

    def look(act: Callable[[Transaction], object]) -> Locked:
        found: Locked = {}
        with pytest.raises(Undo), store._write_transaction() as tx:  # noqa: PT012
            act(tx)
            tx.flush()
            with other._write_transaction() as their:
                driver = driver_of(their.connection)
                for table, column in TABLES.items():
                    everything = run_text(driver, f"SELECT {column} FROM cronsensus_{table}")
                    free = run_text(driver, f"SELECT {column} FROM cronsensus_{table} FOR UPDATE SKIP LOCKED")
                    if taken := sorted({str(one) for (one,) in everything} - {str(one) for (one,) in free}):
                        found[table] = taken
            raise Undo
        return found

    return look


def test_a_claim_locks_what_it_takes(locked):
    assert locked(lambda tx: claiming.claim_entries(tx, claiming.ask_for_work(tx, "s1", 5, {"f"}, LEASE))) == {
        "sessions": ["s1"],
        "occurrences": ["a3", "b0", "b1", "b2", "b3"],
        "counters": ["token"],
    }


def test_a_claim_that_finds_nothing_locks_what_it_passed_and_not_its_session(locked):
    assert locked(lambda tx: claiming.claim_entries(tx, claiming.ask_for_work(tx, "s1", 5, {"g"}, LEASE))).keys() == {
        "occurrences"
    }
    assert locked(lambda tx: sessions.require_alive(tx, "s1")) == {"sessions": ["s1"]}


def test_a_claim_locks_the_jobs_that_it_counts(store, locked):
    limited = [JobSpec(name=name, function="f", policies=Policies(concurrency=50)) for name in "bc"]
    store.define_jobs(limited, release="r1")
    assert locked(lambda tx: claiming.claim_entries(tx, claiming.ask_for_work(tx, "s1", 2, {"f"}, LEASE)))["jobs"] == [
        "b"
    ]


def test_two_claims_take_different_work_at_the_same_instant(store, other):
    taken: list[list[str]] = []

    def both(tx: Transaction) -> None:
        mine = claiming.claim_entries(tx, claiming.ask_for_work(tx, "s1", 5, {"f"}, LEASE))
        assert mine is not None
        with other._write_transaction() as their:
            # Short of the session and the tokens, for which one waits for the other.
            theirs = claiming.ask_for_work(their, "s1", 5, {"f"}, LEASE)
            assert theirs.page is not None
            taken.extend([[row.key for row in mine.selection.chosen], [row.key for row in theirs.page.rows]])

    with store._write_transaction() as tx:
        both(tx)
    assert taken == [["a3", "b0", "b1", "b2", "b3"], ["c0", "c1", "c2", "c3", "d0"]]


def test_finishing_locks_what_was_finished(store, locked):
    claim = store.runs(1)[0]
    outcome = an_end(id=1, token=claim.token, state=State.SUCCEEDED)
    assert locked(lambda tx: stepping.take_step(tx, "s1", Step(ends=(outcome,)))) == {"occurrences": ["a0"]}


def test_an_acquire_does_not_hold_up_the_end_of_a_run(store, other):
    """It looks for what is past its expiry; next to that, in the index, lies what runs."""
    run = store.runs(1)[0]
    with store._write_transaction() as tx:
        more = {"session": "s1", "boot": tx.epoch, "moment": tx.moment, "now": tx.now}
        tx.send("lock_asked_jobs", space="default", names=["d"], **more)
        tx.send("lock_named", space="default", job="d", keys=["new"])
        tx.flush()
        outcome = an_end(id=1, token=run.token, session="s0", state=State.SUCCEEDED)
        assert settle(other, [outcome])[0].accepted


def test_a_renewal_locks_its_session(locked):
    assert locked(lambda tx: sessions.renew_session(tx, "s0", LEASE, LEASE)) == {"sessions": ["s0"]}


def test_firing_locks_its_jobs(store, locked):
    ids = [job.id for job in store.jobs()]
    assert locked(lambda tx: firing.LockedJobs(tx, ids[1:3])) == {"jobs": ["b", "c"]}


def test_enqueuing_locks_its_job(locked):
    assert locked(lambda tx: tx.send("lock_named_jobs", names=["c"], space="default")) == {"jobs": ["c"]}


def test_a_takeover_locks_the_session_and_what_it_held(locked):
    assert locked(lambda tx: sessions.reclaim_session(tx, "s0", presumed=True)) == {
        "sessions": ["s0"],
        "occurrences": ["a0", "a1", "a2"],
    }


def test_operators_lock_what_they_touch(locked):
    assert locked(lambda tx: operating.cancel_occurrence(tx, 1, by="ann", why="")) == {"occurrences": ["a0"]}
    assert locked(lambda tx: pausing.pause_job(tx, "d", by="ann", why="")) == {"jobs": ["d"]}
    assert locked(lambda tx: tx.send("lock_job_of", occurrence=1, space="default")) == {"jobs": ["a"]}
    assert locked(lambda tx: tx.send("lock_named", job="c", keys=["c1"], space="default")) == {"occurrences": ["c1"]}


def test_retiring_locks_the_job_and_what_waits(locked):
    assert locked(lambda tx: retiring.retire_job(tx, "f", by="ann", why="")) == {
        "jobs": ["f"],
        "occurrences": ["f0", "f1", "f2", "f3"],
    }
