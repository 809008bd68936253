"""The usual steps of a scheduled occurrence on PostgreSQL: one trip, and nothing where something is unusual."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronsensus.clock import ManualClock
from cronsensus.errors import StoreUnavailable
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item, Outcome
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.planning import plan
from cronsensus.stores.sql.dialect import TryAgain
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.triggers import every

LEASE = timedelta(seconds=60)
USUAL = [["lock_jobs", "fire_one"]]


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    made = PostgresStore(postgres_url, clock=ManualClock(START))
    made.migrate()
    made.open_session(a_session("s1"), lease=LEASE)
    yield made
    made.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the names of the statements of each trip."""
    trips: list[list[str]] = []
    send = Transaction._send

    def noted(tx: Transaction, *, commit: bool) -> None:
        trips.append([one.query.name for one in tx._queue])
        send(tx, commit=commit)

    monkeypatch.setattr(Transaction, "_send", noted)
    return trips


def define(store: PostgresStore, **policies: Any) -> None:
    spec = JobSpec(
        name="job", function="f", trigger=every("30s", start=START), policies=Policies.read(policies), args=(["x"],)
    )
    store.define_jobs([spec], release="r1")
    store._given[1].advance(30)  # type: ignore[union-attr]


def fire(store: PostgresStore, session: str = "s1", **change: Any) -> Done:
    [job] = store.look().due
    each = replace(plan(job, store.now()), **change)
    return store.step(session, Step(plans=(each,), want=Want(limit=4, functions=("f",), lease=LEASE)))


def end(claim: Claim, **more: Any) -> Step:
    return Step(outcomes=(Outcome(id=claim.id, token=claim.token, session=claim.session, **more),))


def test_a_due_occurrence_is_fired_and_taken_in_one_trip_and_ends_in_another(
    store: PostgresStore, sent: list[list[str]]
) -> None:
    define(store)
    store.look()
    sent.clear()
    done = fire(store)
    assert [trip for trip in sent if "fire_one" in trip] == USUAL
    [claim] = done.claims
    found = store.occurrence(claim.id)
    assert found is not None
    assert (done.carried_out, claim.args, claim.attempt, claim.due_at) == ((True,), (["x"],), 1, store.now())
    assert (found.state, found.token, found.session, found.started_at) == (
        State.RUNNING, claim.token, "s1", claim.claimed_at,
    )  # fmt: skip
    [seen] = store.look().holders
    assert (seen.id, seen.expires_in) == ("s1", LEASE)
    sent.clear()
    assert store.step("s1", end(claim, state=State.SUCCEEDED, result="1")).settled[0].accepted
    assert sent == [["close_one"]]
    [run] = store.runs(claim.id)
    assert (run.token, run.session) == (claim.token, "s1")
    sent.clear()
    again = store.step("s1", end(claim, state=State.SUCCEEDED, result="1"))
    assert again.settled[0].accepted, "the first answer is given again"
    assert len(sent) > 1


UNUSUAL: dict[str, tuple[Callable[[PostgresStore], Any], dict[str, Any], bool]] = {
    "something else waits": (lambda store: store.enqueue([Item(job="job")]), {}, True),
    "it is paused": (lambda store: store.pause("job", by="ann", why="maintenance"), {}, False),
    "the session is over": (lambda store: store.close_session("s1"), {}, False),
    "another node was faster": (lambda store: None, {"watermark_seen": START - LEASE}, False),
    "its time has not come": (lambda store: None, {"not_before": START + 2 * LEASE}, False),
    "an occurrence is active": (lambda store: None, {"active_seen": 1}, False),
    "the definition is another one": (lambda store: None, {"revision": 7}, False),
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_where_something_is_unusual_nothing_is_done_at_once(store: PostgresStore, unusual: str) -> None:
    happens, change, carried_out = UNUSUAL[unusual]
    define(store)
    [job] = store.look().due
    happens(store)
    each = replace(plan(job, store.now()), **change)
    step = Step(plans=(each,), want=Want(limit=4, functions=("f",), lease=LEASE))
    assert store._step_in_one_trip("s1", step) is None
    assert store.step("s1", step).carried_out == (carried_out,)


@pytest.mark.parametrize("policies", [{"concurrency": 1}, {"overlap": "queue"}])
def test_a_job_whose_runs_are_counted_is_taken_as_ever(
    store: PostgresStore, sent: list[list[str]], policies: dict[str, Any]
) -> None:
    define(store, **policies)
    assert len(fire(store).claims) == 1
    assert any("fire_one" in trip for trip in sent) == ("concurrency" not in policies)


def test_a_claim_whose_answer_is_lost_is_not_repeated(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    define(store)
    [job] = store.look().due
    step = Step(plans=(plan(job, store.now()),), want=Want(limit=4, functions=("f",), lease=LEASE))
    take = store._step_in_one_trip

    def lose_the_answer(session: str, step: Step) -> Done | None:
        take(session, step)
        raise TryAgain("cut") from psycopg.OperationalError("the connection is closed")

    monkeypatch.setattr(store, "_step_in_one_trip", lose_the_answer)
    with pytest.raises(StoreUnavailable):
        store.step("s1", step)
    assert len(store.renew("s1", lease=LEASE).held or ()) == 1


def test_a_plan_of_a_job_that_other_nodes_run_is_taken_by_none(store: PostgresStore) -> None:
    define(store)
    [job] = store.look().due
    done = store.step("s1", Step(plans=(plan(job, store.now()),), want=Want(limit=4, functions=("g",), lease=LEASE)))
    assert (done.carried_out, done.claims) == ((True,), ())
