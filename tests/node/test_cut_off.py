"""A run that its own node cuts off, because its lease is gone, is a crash; one that never began is nothing."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from cronsensus.membership.lease import SessionLease
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.states import Origin, State
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.loop import LoopExecutor
from cronsensus.node.executors.processes import ProcessExecutor
from cronsensus.node.executors.threads import ThreadExecutor
from cronsensus.node.registered import Registered
from cronsensus.run import Run
from cronsensus.testing.conformance.steps import take
from cronsensus.timing.clock import Clock, ManualClock, SystemClock
from tests.node.test_node_crank import LEASE, Bench

PATIENCE = 60.0


def job(**policies: object) -> JobSpec:
    return JobSpec(name="work", function="work", trigger=None, policies=Policies.read(policies))


# --- a crash is counted where the node itself notices ----------------------------------------------------------------


def stand_still_beyond_the_lease(bench: Bench) -> None:
    """Let nothing happen for longer than the lease, tell what runs, and let it end for that."""
    bench.clock.advance(LEASE * 2)
    lease = bench.round.lease
    assert lease is not None
    bench.round.active_runs.lose_session(lease)
    for call in list(bench.hands.calls):
        bench.hands.calls.remove(call)
        bench.round.active_runs.receive_ending(call, Ending(kind="cancelled", reason="lease lost"))


def test_a_job_that_makes_its_node_lose_the_lease_is_started_as_often_as_max_crashes_allows():
    bench = Bench(job(max_crashes=2))
    bench.round.run_round()
    (made,) = bench.store.enqueue([Item(job="work")])
    attempts = []
    for _ in range(10):
        for _ in range(3):
            bench.round.run_round()
            bench.keeper.renew(bench.store)
            bench.clock.advance(0.1)
        attempts += [call.claim.attempt for call in bench.hands.calls]
        stand_still_beyond_the_lease(bench)
    found = bench.store.occurrence(made.id)
    assert found is not None
    assert (found.state, found.crashes) == (State.FAILED, 2)
    assert (found.reason or "").startswith("crashed")
    assert attempts == [1, 2]
    assert [(run.attempt, run.end) for run in bench.store.runs(made.id)] == [(1, "crashed"), (2, "crashed")]


def test_a_claim_that_was_never_begun_is_no_crash_and_gives_its_attempt_back():
    bench = Bench(job(max_crashes=1))
    bench.round.run_round()
    (made,) = bench.store.enqueue([Item(job="work")])
    lease = bench.round.lease
    assert lease is not None
    asked = lease.note_request()
    (claim,) = take(bench.store, lease.session, 1, ["work"], lease=LEASE)
    lease.confirm_claim(asked, LEASE)
    bench.clock.advance(LEASE * 2)
    bench.round.active_runs.start_claim(claim, lease)
    assert bench.hands.calls == []
    bench.round.active_runs.send_report(lease.session)
    found = bench.store.occurrence(made.id)
    assert found is not None
    assert (found.state, found.attempt, found.crashes) == (State.PENDING, 0, 0)


@pytest.mark.parametrize("begun", [True, False])
def test_what_was_stopped_before_its_function_was_called_did_not_begin(begun):
    bench = Bench(job(max_crashes=1))
    bench.round.run_round()
    (made,) = bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    (call,) = bench.hands.calls
    lease = bench.round.lease
    assert lease is not None
    bench.round.active_runs.lose_session(lease)
    bench.round.active_runs.receive_ending(call, Ending(kind="cancelled", reason="lease lost", begun=begun))
    bench.round.active_runs.send_report(lease.session)
    found = bench.store.occurrence(made.id)
    assert found is not None
    if begun:
        assert (found.state, found.attempt, found.crashes) == (State.FAILED, 1, 1)
    else:
        assert (found.state, found.attempt, found.crashes) == (State.PENDING, 0, 0)


def test_what_a_node_that_stops_cuts_off_is_no_crash_and_keeps_its_number():
    bench = Bench(job(max_crashes=1))
    bench.round.run_round()
    (made,) = bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    bench.round.close_session()
    found = bench.store.occurrence(made.id)
    assert found is not None
    assert (found.state, found.attempt, found.crashes) == (State.PENDING, 1, 0)


# --- the last look before a function is called -----------------------------------------------------------------------

calls: list[str] = []


def note_that_it_was_called() -> None:
    calls.append("called")


async def note_that_it_was_awaited() -> None:
    calls.append("awaited")


def a_claim(number: int = 1) -> Claim:
    at = ManualClock().now()
    return Claim(
        id=number, spec=job(), key=str(number), origin=Origin.ENQUEUE, scheduled_for=None, due_at=at, attempt=1,
        token=number, session="s", args=(), kwargs={}, claimed_at=at, created_at=at,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["thread", "async", "process"])
def test_a_function_is_not_called_when_its_lease_ran_out_before_it_could_begin(kind):
    calls.clear()
    ended: list[Ending] = []
    told = threading.Event()

    def done(_: Call, ending: Ending) -> None:
        ended.append(ending)
        told.set()

    makers: dict[str, Callable[[Done, Clock], Executor]] = {
        "thread": ThreadExecutor,
        "async": LoopExecutor,
        "process": ProcessExecutor,
    }
    executor = makers[kind](done, SystemClock())
    function = note_that_it_was_awaited if kind == "async" else note_that_it_was_called
    clock = ManualClock()
    lease = SessionLease("s", clock)
    lease.confirm_renewal(lease.note_request(), timedelta(seconds=10))
    run = Run(a_claim(), trusted=lambda: lease.is_trusted)
    clock.advance(60)  # as after a SIGSTOP: the claim was handed over before it, and nobody has looked since
    try:
        executor.start(Call(a_claim(), run, Registered("work", function, kind)))
        assert told.wait(PATIENCE)
    finally:
        executor.close()
    assert [(one.kind, one.begun) for one in ended] == [("cancelled", False)]
    assert run.lease_lost.is_set()
    assert calls == []
