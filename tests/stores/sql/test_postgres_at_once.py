"""What is usual for an occurrence on PostgreSQL takes one trip; where something is unusual, nothing is done by it."""

import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronsensus.errors import LeaseLost, StoreUnavailable, UnknownJob
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item, Note
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import State
from cronsensus.model.step import Done, GiveBack, Step, Want
from cronsensus.planning import plan
from cronsensus.stores.sql.dialect import TryAgain
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres.postgres_dialect import PostgresDialect, driver_of
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every
from tests.stores.sql.test_postgres_races import holding, in_thread, others_url, until_somebody_waits

LEASE = timedelta(seconds=60)
USUAL = [["lock_jobs", "fire_one"]]


@pytest.fixture
def store(conforming_postgres_url: str) -> Iterator[PostgresStore]:
    made = PostgresStore(conforming_postgres_url, clock=ManualClock(START))
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
    store._url_and_clock[1].advance(30)  # type: ignore[union-attr]


def fire(store: PostgresStore, session: str = "s1", **change: Any) -> Done:
    [job] = store.look().due
    each = replace(plan(job, store.now()), **change)
    return store.step(session, Step(plans=(each,), want=Want(limit=4, functions=("f",), lease=LEASE)))


def end(claim: Claim, **more: Any) -> Step:
    return Step(ends=(an_end(id=claim.id, token=claim.token, session=claim.session, **more),))


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


def test_step_with_one_more_part_is_not_taken_in_one_trip(queue: PostgresStore) -> None:
    define(queue)
    queue.enqueue([Item(job="queue")] * 3)
    mine, other = take(queue, "s1", 2, {"f"}, lease=LEASE)
    [job] = queue.look().due
    each, want = plan(job, queue.now()), Want(limit=1, functions=("f",), lease=LEASE)
    parts: dict[str, Any] = {
        "ends": end(mine, state=State.SUCCEEDED).ends, "notes": (Note(other.id, other.token, (1.0, 2.0)),),
        "give_back": (GiveBack(claim=other),), "plans": (each,), "want": want,
    }  # fmt: skip
    usual = [{"ends"}, {"want"}, {"plans", "want"}]
    for one in usual:
        for more in parts.keys() - one:
            if (names := one | {more}) not in usual:
                assert queue._step_in_one_trip("s1", Step(**{name: parts[name] for name in names})) is None, names
    ends = (*end(mine, state=State.SUCCEEDED).ends, *end(other, state=State.SUCCEEDED).ends)
    for step in (
        Step(),
        Step(ends=ends),
        Step(plans=(each, each), want=want),
        Step(plans=(each,)),
        Step(plans=(each,), want=replace(want, limit=0)),
        Step(want=replace(want, limit=0)),
        Step(want=replace(want, reserve=1)),
        end(mine, state=State.PENDING, retry_in=timedelta(0)),
    ):
        assert queue._step_in_one_trip("s1", step) is None, step
    assert queue.sibling()._step_in_one_trip("s1", Step(plans=(each,), want=want)) is None, "its job is not known"
    assert queue._step_in_one_trip("s1", Step(plans=(each,), want=want)) is None, "something else waits"
    assert (queue.counts().running, queue.counts().pending) == (2, 1)


def test_plan_that_is_more_than_one_occurrence_is_not_taken_in_one_trip(store: PostgresStore) -> None:
    define(store)
    [job] = store.look().due
    each, want = plan(job, store.now()), Want(limit=1, functions=("f",), lease=LEASE)
    store._step_in_one_trip("s1", Step(plans=(replace(each, revision=7),), want=want))  # reads the definition
    verdict = VerdictRange(first=START, last=START, count=1, state=State.MISSED, reason="late")
    for change in ({"occurrences": ()}, {"verdicts": (verdict,)}, {"cancel_previous": True}, {"active_seen": 1}):
        unusual = Step(plans=(replace(each, **change),), want=want)
        assert store._step_in_one_trip("s1", unusual) is None, change
    assert store._step_in_one_trip("s1", Step(plans=(each,), want=want)) is not None


def test_occurrence_that_may_overlap_is_taken_in_one_trip_while_others_run(
    store: PostgresStore, sent: list[list[str]]
) -> None:
    define(store, overlap="allow")
    claims = list(fire(store).claims)
    for _ in range(2):
        store._url_and_clock[1].advance(30)  # type: ignore[union-attr]
        [job] = store.look().due
        sent.clear()
        want = Want(limit=1, functions=("f",), lease=LEASE)
        claims += store.step("s1", Step(plans=(plan(job, store.now()),), want=want)).claims
        assert sent == USUAL
    assert len({claim.token for claim in claims}) == 3
    assert not store.look().due


def test_plan_ahead_is_taken_in_one_trip_once_its_time_is_near(store: PostgresStore) -> None:
    define(store)
    [claim] = fire(store).claims
    store.step("s1", end(claim, state=State.SUCCEEDED))
    store._url_and_clock[1].advance(29)  # type: ignore[union-attr]
    [job] = store.look(ahead=timedelta(seconds=2)).jobs
    assert job.due_at is not None
    each = replace(plan(job, job.due_at), not_before=job.due_at)
    for ahead, claimed in ((0.9, 0), (1.0, 1)):
        want = Want(limit=1, functions=("f",), lease=LEASE, ahead=timedelta(seconds=ahead))
        done = store._step_in_one_trip("s1", Step(plans=(each,), want=want))
        assert len(done.claims if done else ()) == claimed


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


@pytest.mark.parametrize(
    "happens",
    [
        "UPDATE cronsensus_jobs SET watermark = next_due, next_due = NULL, wake_at = NULL WHERE name = 'job'",
        "UPDATE cronsensus_occurrences SET due_at = 1",
    ],
    ids=["another node carries the plan out", "something begins to wait"],
)
def test_a_plan_in_one_trip_that_waits_for_its_job_sees_what_was_committed_meanwhile(
    queue: PostgresStore, happens: str
) -> None:
    queue.enqueue([Item(job="queue", delay=10 * LEASE)])
    define(queue)
    [job] = queue.look().due
    step = Step(plans=(plan(job, queue.now()),), want=Want(limit=4, functions=("f",), lease=LEASE))
    with holding(queue, "SELECT 1 FROM cronsensus_jobs FOR UPDATE") as other:
        fired = in_thread(lambda: queue._step_in_one_trip("s1", step))
        until_somebody_waits(queue)
        other.execute(happens)
    assert fired() is None
    assert (queue.counts().running, queue.counts().pending) == (0, 1)


def test_a_plan_of_a_job_that_other_nodes_run_is_taken_by_none(store: PostgresStore) -> None:
    define(store)
    [job] = store.look().due
    done = store.step("s1", Step(plans=(plan(job, store.now()),), want=Want(limit=4, functions=("g",), lease=LEASE)))
    assert (done.carried_out, done.claims) == ((True,), ())


# --- enqueuing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(store: PostgresStore) -> PostgresStore:
    """Return a store of which the handle knows the job ``queue``, as it does after the first time."""
    store.define_jobs([JobSpec(name="queue", function="f", policies=Policies(priority=3), args=(1,))], release="r1")
    store.enqueue([Item(job="queue")])
    [claim] = take(store, "s1", 4, {"f"}, lease=LEASE)
    settle(store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
    return store


def waiting(store: PostgresStore) -> int:
    return store.counts().pending


def test_a_known_job_is_enqueued_in_one_trip(queue: PostgresStore, sent: list[list[str]]) -> None:
    sent.clear()
    own, [given] = (
        queue.enqueue([Item(job="queue")])[0],
        queue.enqueue([Item(job="queue", key="k", args=(2,), priority=5)]),
    )
    assert sent == [["enqueue_one"], ["enqueue_one"]]
    assert (own.created, given.created, given.key, given.state) == (True, True, "k", State.PENDING)
    found = [queue.occurrence(one.id) for one in (own, given)]
    assert [(one.args, one.priority, one.due_at, one.attempt) for one in found if one] == [
        ((1,), 3, queue.now(), 0), ((2,), 5, queue.now(), 0),
    ]  # fmt: skip


def test_enqueue_in_one_trip_notifies_nodes(queue: PostgresStore) -> None:
    listener = queue.sibling()
    listener.wait(0)
    queue.enqueue([Item(job="queue")])
    assert listener.wait(20)
    listener.close()


UNUSUAL_ITEMS: dict[str, tuple[Callable[[PostgresStore], Any], list[Item]]] = {
    "its key stands already": (lambda store: store.enqueue([Item(job="queue", key="k")]), [Item(job="queue", key="k")]),
    "it is defined anew": (
        lambda store: store.sibling().define_jobs([JobSpec(name="queue", function="f", args=(7,))], release="r1"),
        [Item(job="queue", key="k")],
    ),
    "it comes later": (lambda store: None, [Item(job="queue", key="k", delay=LEASE)]),
    "it expires": (lambda store: None, [Item(job="queue", key="k", expires_in=LEASE)]),
    "there are two": (lambda store: None, [Item(job="queue", key="k"), Item(job="queue")]),
}


@pytest.mark.parametrize("unusual", UNUSUAL_ITEMS)
def test_where_something_is_unusual_nothing_is_enqueued_in_one_trip(queue: PostgresStore, unusual: str) -> None:
    happens, items = UNUSUAL_ITEMS[unusual]
    happens(queue)
    before = waiting(queue)
    assert queue._enqueue_in_one_trip(items) is None
    assert waiting(queue) == before
    made = queue.enqueue(items)[0]
    assert (made.key, made.created) == ("k", unusual != "its key stands already")
    found = queue.occurrence(made.id)
    assert found is not None
    assert found.args == ((7,) if unusual == "it is defined anew" else (1,))


def test_a_retired_job_is_not_enqueued_in_one_trip(queue: PostgresStore) -> None:
    queue.sibling().retire("queue", by="ann", why="")
    with pytest.raises(UnknownJob):
        queue.enqueue([Item(job="queue")])
    assert waiting(queue) == 0


def test_an_enqueue_waits_for_nobody_who_holds_its_job(queue: PostgresStore) -> None:
    with holding(queue, "SELECT 1 FROM cronsensus_jobs FOR UPDATE"):
        for items in ([Item(job="queue")], [Item(job="queue"), Item(job="queue", key="k")]):
            assert all(made.created for made in queue.enqueue(items))
    assert waiting(queue) == 3


def test_a_schedule_goes_on_while_an_enqueue_waits_for_a_key(queue: PostgresStore) -> None:
    with psycopg.connect(others_url(queue)) as users:
        queue.enqueue_in(users, [Item(job="queue", key="k")])
        other = queue.sibling()
        waits = in_thread(lambda: other.enqueue([Item(job="queue", key="k")]))
        until_somebody_waits(queue)
        queue.pause("queue", by="me", why="it locks the job")
        assert queue.enqueue([Item(job="queue", key="another")])[0].created
        users.commit()
    [found] = waits()
    assert not found.created
    other.close()


def cut_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the connection be lost once a statement was carried out, and before it is answered."""
    send = PostgresDialect.send_statements

    def cut(dialect: PostgresDialect, connection: Any, queue: Any, **more: Any) -> Any:
        answer = send(dialect, connection, queue, **more)
        if any(one.query.name == name for one in queue):
            driver_of(connection).close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(PostgresDialect, "send_statements", cut)


def test_an_enqueue_whose_answer_is_lost_is_not_repeated(queue: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after(monkeypatch, "enqueue_one")
    with pytest.raises(StoreUnavailable):
        queue.enqueue([Item(job="queue")])
    assert waiting(queue) == 1


@pytest.mark.parametrize("polls", [True, False])
def test_an_enqueue_on_a_connection_that_was_closed_meanwhile_is_done_once(
    queue: PostgresStore, conforming_postgres_url: str, monkeypatch: pytest.MonkeyPatch, polls: bool
) -> None:
    if not polls:  # as on Windows
        monkeypatch.delattr(select, "poll")
        assert queue.enqueue([Item(job="queue")])[0].created
    with psycopg.connect(conforming_postgres_url.partition("?")[0], autocommit=True) as operator:
        for idle in queue._connections._idle:
            pid = driver_of(idle).info.backend_pid
            operator.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    before = waiting(queue)
    assert queue.enqueue([Item(job="queue")])[0].created
    assert waiting(queue) == before + 1


# --- claiming ---------------------------------------------------------------------------------------------------------


def test_what_is_due_of_known_jobs_is_claimed_in_one_trip(queue: PostgresStore, sent: list[list[str]]) -> None:
    made = [queue.enqueue([Item(job="queue", args=(number,), priority=number)])[0] for number in (0, 5, 5)]
    sent.clear()
    claims = take(queue, "s1", 4, {"f"}, lease=LEASE / 2)
    assert sent == [["claim_due"]]
    assert [one.id for one in claims] == [made[1].id, made[2].id, made[0].id], "the highest priority first, then by age"
    assert [one.args for one in claims] == [(5,), (5,), (0,)]
    assert [one.token for one in claims] == list(range(claims[0].token, claims[0].token + 3))
    for claim in claims:
        found = queue.occurrence(claim.id)
        assert found is not None
        assert (found.state, found.token, found.session, found.started_at, found.attempt) == (
            State.RUNNING, claim.token, "s1", claim.claimed_at, claim.attempt,
        )  # fmt: skip
    [seen] = queue.look().holders
    assert (seen.id, seen.expires_in, seen.holds) == ("s1", LEASE / 2, 3)
    sent.clear()
    assert take(queue, "s1", 4, {"f"}, lease=LEASE) == []
    assert sent == [["claim_due"]]
    assert queue.look().holders[0].expires_in == LEASE / 2, "a claim that takes nothing sets no lease"


def other(store: PostgresStore, how: Callable[[], object] | None = None, **more: Any) -> None:
    """Define another job, and let an occurrence of it wait."""
    store.define_jobs([JobSpec(name="other", **{"function": "f", **more})], release="r1")
    how() if how else store.enqueue([Item(job="other")])


def expires(store: PostgresStore) -> None:
    store.enqueue([Item(job="queue", expires_in=timedelta(seconds=1))])
    store._url_and_clock[1].advance(2)  # type: ignore[union-attr]


def defined_anew(store: PostgresStore) -> None:
    store.define_jobs([JobSpec(name="queue", function="f")], release="r1")


def in_turns(store: PostgresStore) -> None:
    other(store, lambda: store.trigger("other", by="ann"), policies=Policies(overlap="queue"))


UNUSUAL_WORK: dict[str, tuple[Callable[[PostgresStore], Any], int]] = {
    "a job that was not claimed before": (other, 2),
    "a job of other nodes": (lambda store: other(store, function="g"), 1),
    "a job that was defined anew": (defined_anew, 1),
    "a job with turns": (in_turns, 2),
    "an expired one": (expires, 1),
    "more than is wanted": (lambda store: store.enqueue([Item(job="queue")] * 4), 4),
    "a session that is over": (lambda store: store.close_session("s1"), 0),
}


@pytest.mark.parametrize("unusual", UNUSUAL_WORK)
def test_where_something_is_unusual_nothing_is_claimed_in_one_trip(queue: PostgresStore, unusual: str) -> None:
    happens, claimed = UNUSUAL_WORK[unusual]
    queue.enqueue([Item(job="queue")])
    happens(queue)
    before = waiting(queue)
    step = Step(want=Want(limit=4, functions=("f",), lease=10 * LEASE))
    assert queue._step_in_one_trip("s1", step) is None
    assert waiting(queue) == before
    done = queue.step("s1", step)
    assert (len(done.claims), done.lost) == (claimed, claimed == 0)


def test_a_job_whose_runs_are_counted_is_claimed_as_ever(queue: PostgresStore, sent: list[list[str]]) -> None:
    for _ in range(2):
        other(queue, policies=Policies(concurrency=1))
        sent.clear()
        [claim] = take(queue, "s1", 4, {"f"}, lease=LEASE)
        assert ["count_running" in trip for trip in sent].count(True) == 1
        settle(queue, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
        queue._unusual_until = 0.0


def test_work_that_cannot_be_read_goes_back_and_the_rest_is_claimed(queue: PostgresStore) -> None:
    bad, good = (queue.enqueue([Item(job="queue")])[0] for _ in range(2))
    with holding(queue, f"UPDATE cronsensus_occurrences SET payload = '[' WHERE id = {bad.id}"):
        pass
    for _ in range(2):
        claims = take(queue, "s1", 4, {"f"}, lease=LEASE)
        assert [one.id for one in claims] == [good.id]
        settle(queue, [an_end(id=good.id, token=claims[0].token, state=State.SUCCEEDED)])
        [good] = queue.enqueue([Item(job="queue")])
    assert (queue.counts().pending, queue.counts().running) == (2, 0)
    assert len(queue.unreadable) == 1


def test_work_that_another_node_is_claiming_is_passed_over(queue: PostgresStore, sent: list[list[str]]) -> None:
    first, second = (queue.enqueue([Item(job="queue")])[0] for _ in range(2))
    sent.clear()
    with holding(queue, f"SELECT 1 FROM cronsensus_occurrences WHERE id = {first.id} FOR UPDATE"):
        assert [one.id for one in take(queue, "s1", 4, {"f"}, lease=LEASE)] == [second.id]
        assert take(queue, "s1", 4, {"f"}, lease=LEASE) == []
    assert sent == [["claim_due"], ["claim_due"]]
    assert [one.id for one in take(queue, "s1", 4, {"f"}, lease=LEASE)] == [first.id]


def test_a_claim_in_one_trip_that_waits_until_its_session_is_over_takes_nothing(queue: PostgresStore) -> None:
    queue.enqueue([Item(job="queue")])
    with holding(queue, "SELECT 1 FROM cronsensus_sessions FOR UPDATE") as other:
        claim = in_thread(lambda: take(queue, "s1", 4, {"f"}, lease=LEASE))
        until_somebody_waits(queue)
        other.execute("UPDATE cronsensus_sessions SET ended_at = 1, ended_as = 'dead'")
    assert isinstance(claim(), LeaseLost)
    assert waiting(queue) == 1


def test_work_whose_claim_is_not_answered_is_not_claimed_again(
    queue: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue([Item(job="queue")])
    with monkeypatch.context() as patched:
        cut_after(patched, "claim_due")
        with pytest.raises(StoreUnavailable):
            take(queue, "s1", 4, {"f"}, lease=LEASE)
    assert len(queue.renew("s1", lease=LEASE).held or ()) == 1


def test_first_claim_of_a_job_takes_one_trip_on_a_handle_that_found_it_declared(
    queue: PostgresStore, sent: list[list[str]]
) -> None:
    other = queue.sibling()
    other.open_session(a_session("s2"), lease=LEASE)
    [declared] = queue.jobs()
    other.define_jobs([declared.spec], release="r1")
    queue.enqueue([Item(job="queue", args=({"a": (2,)},))])
    sent.clear()
    [claim] = take(other, "s2", 4, {"f"}, lease=LEASE)
    assert sent == [["claim_due"]]
    assert (claim.spec, claim.args) == (declared.spec, ({"a": [2]},))
    sent.clear()
    assert [one.id for one in other.reclaim(["s2"])] == [claim.id]
    assert len(sent) == 2
    other.close()


# --- taking over ------------------------------------------------------------------------------------------------------


def test_a_session_that_is_presumed_dead_is_ended_in_two_trips(queue: PostgresStore, sent: list[list[str]]) -> None:
    queue.enqueue([Item(job="queue")])
    [claim] = take(queue, "s1", 4, {"f"}, lease=LEASE)
    queue.open_session(a_session("s2"), lease=LEASE)
    queue.open_session(a_session("overdue"), lease=LEASE / 2)
    queue._url_and_clock[1].advance(40)  # type: ignore[union-attr]
    sent.clear()
    assert [one.id for one in queue.reclaim(["s1"])] == [claim.id]
    assert sent[0] == ["find_dead", "try_lock_session", "try_lock_runs", "held_runs"]
    assert [name for name in sent[1] if name == "end_session"], "the second trip writes, and commits"
    assert sent[2][0] == "try_lock_session", "that of another one begins"
    assert [one.id for one in queue.sessions() if one.ended_at is None] == ["s2"]
    sent.clear()
    assert queue.reclaim(["s1"]) == []
    assert len(sent) == 1
