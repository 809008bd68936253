"""A node whose store lost its last moment finds out what it holds, and sets it right."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.errors import StoreUnavailable
from cronsensus.membership.lease import IDLE_LEASE
from cronsensus.membership.loss import ENDS_KEPT
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, LogLine, Occurrence
from cronsensus.model.states import Reason, State
from cronsensus.node import accepted_ends
from cronsensus.node.accepted_ends import AcceptedEnds
from cronsensus.node.claiming import END_UNKNOWN
from cronsensus.node.executors.base import Call
from cronsensus.node.reconciling import SETTLE_TIME
from cronsensus.node.session import DECLARE_AGAIN_EVERY
from cronsensus.stores.memory.snapshots import restore_snapshot, take_snapshot
from cronsensus.testing.conformance import steps
from cronsensus.triggers import every
from tests.node.test_node_crank import LEASE, Bench

TICK = 0.01
SOON = 1.0


def job(name: str = "work", trigger: Any = None, **policies: Any) -> JobSpec:
    return JobSpec(name=name, function=name, trigger=trigger, policies=Policies.read(policies))


class Forgetful(Bench):
    """A node on a store that may be set back to what it was a moment ago."""

    def __init__(self, *specs: JobSpec, concurrency: int = 20) -> None:
        super().__init__(*(specs or (job(),)), concurrency=concurrency)
        self.begun: list[Call] = []
        self.step()

    def step(self) -> None:
        """Turn the node's cranks once, and let a moment pass."""
        self.round.run_round()
        self.clock.advance(TICK)
        self.keeper.renew(self.store)
        self.clock.advance(TICK)
        self.begun += [call for call in self.hands.calls if call not in self.begun]

    def go_on(self, seconds: float = SOON) -> None:
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.step()
            self.clock.advance(0.1)

    def enqueue(self, name: str = "work", count: int = 1) -> list[int]:
        return [one.id for one in self.store.enqueue([Item(job=name) for _ in range(count)])]

    def finish(self, call: Call | None = None, ending: Ending | None = None) -> None:
        call = call or self.hands.calls[0]
        self.hands.calls.remove(call)
        self.round.active_runs.receive_ending(call, ending or Ending(kind="returned", result='"done"'))
        self.step()

    def forget(self, since: Any) -> None:
        restore_snapshot(self.store, since)

    def look(self, number: int) -> Occurrence:
        found = self.store.occurrence(number)
        assert found is not None
        return found

    @property
    def session(self) -> str:
        lease = self.round.lease
        assert lease is not None
        return lease.session

    @property
    def running_nowhere(self) -> list[Occurrence]:
        """What the store calls running and this node does not run."""
        here = {(call.claim.id, call.claim.token) for call in self.hands.calls}
        rows = [self.look(number) for number in sorted(self.store._space.running)]
        return [row for row in rows if (row.id, row.token) not in here]


# --- an end that the store forgot ------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_crash", ["retry", "fail"])
def test_an_end_that_the_store_forgot_is_said_again_and_not_run_again(on_crash):
    bench = Forgetful(job(on_crash=on_crash))
    (number,) = bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish()
    assert bench.look(number).state is State.SUCCEEDED
    bench.forget(before)
    assert bench.look(number).state is State.RUNNING
    bench.go_on()
    found = bench.look(number)
    assert (found.state, found.result, found.attempt) == (State.SUCCEEDED, '"done"', 1)
    assert len(bench.begun) == 1


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (Ending(kind="raised"), State.FAILED),
        (Ending(kind="skipped", reason="nothing"), State.SKIPPED),
        (Ending(kind="cancelled", reason="enough"), State.CANCELLED),
    ],
)
def test_each_kind_of_forgotten_end_is_reported_again(ending, state):
    bench = Forgetful()
    (number,) = bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish(ending=ending)
    bench.forget(before)
    bench.go_on()
    assert bench.look(number).state is state
    assert len(bench.begun) == 1


def test_forgotten_retry_is_run_again():
    bench = Forgetful(job(retries=1, retry_delay="0s"))
    (number,) = bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish(ending=Ending(kind="raised"))
    bench.forget(before)
    bench.go_on(LEASE.total_seconds())
    assert (bench.look(number).state, bench.look(number).failures, bench.look(number).attempt) == (State.RUNNING, 1, 2)
    assert bench.running_nowhere == []


def test_a_schedule_behind_a_forgotten_end_goes_on():
    bench = Forgetful(job(trigger=every("2s"), overlap="skip"))
    while not bench.hands.calls:
        bench.go_on()
    before = take_snapshot(bench.store)
    bench.finish()
    bench.forget(before)
    for _ in range(30):
        bench.go_on()
        while bench.hands.calls:
            bench.finish()
    assert len(bench.begun) >= 10
    assert bench.running_nowhere == []


def test_a_node_that_drains_says_a_forgotten_end_again():
    bench = Forgetful()
    (first, second) = bench.enqueue(count=2)
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish()
    bench.round.draining = True
    bench.forget(before)
    bench.go_on(LEASE.total_seconds())
    assert bench.look(first).state is State.SUCCEEDED
    assert bench.look(second).state is State.RUNNING


def test_a_claim_that_was_given_back_and_that_the_store_forgot_is_given_back_again(monkeypatch):
    bench = Forgetful()
    lease = bench.round.lease
    assert lease is not None
    (number,) = bench.enqueue()
    with monkeypatch.context() as patch:
        patch.setattr(bench.round.active_runs, "_registry", {})  # as if the function was not here
        bench.step()
        before = take_snapshot(bench.store)
        bench.round.active_runs.send_report(lease.session)
    assert bench.look(number).state is State.PENDING
    bench.forget(before)
    assert bench.look(number).state is State.RUNNING
    bench.round.draining = True
    bench.go_on(LEASE.total_seconds())
    assert (bench.look(number).state, bench.look(number).attempt) == (State.PENDING, 0)


def test_an_end_that_is_known_no_more_means_that_the_run_is_run_again(monkeypatch):
    monkeypatch.setattr(
        accepted_ends, "MOST_TEXT_CHARACTERS", -1
    )  # while the lease lasts: the run is adopted, and not taken over
    bench = Forgetful()
    (number,) = bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish()
    bench.forget(before)
    bench.go_on()
    first, second = (call.claim for call in bench.begun)
    assert (first.id, first.token, first.session) == (second.id, second.token, second.session)
    assert (second.id, second.session) == (number, bench.session)
    bench.finish()
    assert bench.look(number).state is State.SUCCEEDED


def test_an_at_most_once_run_whose_end_is_known_no_more_is_closed_and_not_run_again(monkeypatch):
    monkeypatch.setattr(accepted_ends, "MOST_TEXT_CHARACTERS", -1)
    bench = Forgetful(job(on_crash="fail"))
    (number,) = bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish()
    bench.forget(before)
    bench.go_on()
    found = bench.look(number)
    assert (found.state, found.reason) == (State.FAILED, f"{Reason.CRASHED}: {END_UNKNOWN}")
    assert len(bench.begun) == 1


# --- a claim that the store forgot -----------------------------------------------------------------------------------


def test_a_run_whose_claim_the_store_forgot_is_stopped_and_run_again_under_another_token():
    bench = Forgetful()
    (number,) = bench.enqueue()
    before = take_snapshot(bench.store)
    bench.step()
    (first,) = bench.hands.calls
    bench.forget(before)
    bench.go_on()
    assert first.run.lease_lost.is_set()
    assert first.run.cancelled.is_set()
    assert "store" in (first.run.cancel_reason or "")
    assert [call.claim.id for call in bench.begun] == [number, number]
    second = bench.begun[1]
    assert second.claim.token > first.claim.token
    bench.finish(first, Ending(kind="returned", result='"first"'))
    assert bench.look(number).state is State.RUNNING
    assert not second.run.cancelled.is_set()
    bench.finish(second, Ending(kind="returned", result='"second"'))
    assert bench.look(number).result == '"second"'
    assert bench.round.stats.settled == 1


def test_a_forgotten_end_and_a_forgotten_claim_are_told_apart_though_the_number_of_runs_is_right():
    bench = Forgetful(concurrency=1)
    (first, second) = bench.enqueue(count=2)
    bench.step()
    before = take_snapshot(bench.store)
    bench.finish()
    bench.step()
    assert [call.claim.id for call in bench.hands.calls] == [second]
    bench.forget(before)
    bench.go_on(LEASE.total_seconds())
    assert bench.look(first).state is State.SUCCEEDED
    assert bench.begun[1].run.lease_lost.is_set()


def test_nominal_times_that_were_forgotten_are_decided_again():
    bench = Forgetful(job(trigger=every("2s"), overlap="allow"))
    before = take_snapshot(bench.store)
    while len(bench.begun) < 2:
        bench.go_on()
    decided = [call.claim.scheduled_for for call in bench.begun]
    bench.forget(before)
    for _ in range(6):
        bench.go_on()
        while bench.hands.calls:
            bench.finish()
    ledger = {row.scheduled_for for row in bench.store._space.occurrences.values()}
    ranges = [one.range for one in bench.store.ranges("work")]
    for time in decided:
        assert time is not None
        assert time in ledger or any(one.first <= time <= one.last for one in ranges)
    assert bench.running_nowhere == []


def test_what_was_claimed_ahead_and_forgotten_is_not_begun():
    bench = Forgetful()
    (number,) = bench.enqueue()
    before = take_snapshot(bench.store)
    (claim,) = steps.take(bench.store, bench.session, 1, ["work"], lease=LEASE)
    lease = bench.round.lease
    assert lease is not None
    bench.round.active_runs.start_claim_at(bench.clock.monotonic() + 30, claim, lease)
    bench.forget(before)
    bench.go_on()
    assert [(call.claim.id, call.claim.token > claim.token) for call in bench.begun] == [(number, True)]


def test_a_claim_made_ahead_whose_answer_was_lost_is_adopted_and_begins_when_it_is_due(monkeypatch):
    bench = Forgetful(job(trigger=every("10s")))
    do: Callable[..., Any] = bench.store.step

    def is_lost(*args: Any) -> Any:
        do(*args)
        monkeypatch.undo()
        raise StoreUnavailable

    monkeypatch.setattr(bench.store, "step", is_lost)
    while not bench.begun:
        bench.round.run_round()
        bench.clock.advance(0.002)
        bench.keeper.renew(bench.store)
        bench.begun += bench.hands.calls
    (call,) = bench.begun
    assert call.claim.due_at <= bench.clock.now()


# --- sessions, leases, notes -----------------------------------------------------------------------------------------


def test_a_session_that_the_store_forgot_is_followed_by_a_new_one():
    bench = Bench(job())
    bench.store.define_jobs(bench.specs, release="1")
    before = take_snapshot(bench.store)
    node = Forgetful.__new__(Forgetful)
    node.__dict__.update(bench.__dict__, begun=[])
    node.step()
    first = node.session
    node.enqueue()
    node.step()
    (call,) = node.hands.calls
    node.forget(before)
    node.go_on(LEASE.total_seconds())
    assert node.session != first
    assert call.run.lease_lost.is_set()
    assert [one.id for one in node.store.sessions()] == [node.session]


def test_an_idle_node_notices_at_its_next_look_that_its_session_is_forgotten():
    bench = Bench(job(trigger=every("10s")))
    bench.store.define_jobs(bench.specs, release="1")
    before = take_snapshot(bench.store)
    node = Forgetful.__new__(Forgetful)
    node.__dict__.update(bench.__dict__, begun=[])
    node.step()
    first = node.session
    node.forget(before)
    assert timedelta(seconds=30) < IDLE_LEASE
    node.go_on()
    assert node.session != first


def test_a_renewal_that_the_store_forgot_costs_nothing():
    bench = Forgetful()
    bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    bench.go_on(2)
    bench.keeper.request_renewal()
    bench.step()
    bench.forget(before)
    bench.go_on(3 * LEASE.total_seconds())
    assert len(bench.begun) == 1
    assert not bench.begun[0].run.cancelled.is_set()


def test_a_note_that_the_store_forgot_changes_nothing_about_the_run():
    bench = Forgetful()
    (number,) = bench.enqueue()
    bench.step()
    before = take_snapshot(bench.store)
    call = bench.hands.calls[0]
    call.run.line(LogLine(bench.clock.now(), "info", "a line"))
    call.run.progress(1, 2)
    bench.go_on()
    bench.forget(before)
    bench.go_on()
    assert not call.run.cancelled.is_set()
    call.run.progress(2, 2)
    bench.go_on()
    assert bench.look(number).progress == (2, 2)


def test_definitions_that_the_store_forgot_are_declared_again(monkeypatch):
    bench = Bench(job(trigger=every("2s")))
    put: Callable[..., Any] = bench.store.define_jobs
    before: list[Any] = []

    def with_a_look_before(*args: Any, **kwargs: Any) -> Any:
        before.append(take_snapshot(bench.store))
        return put(*args, **kwargs)

    monkeypatch.setattr(bench.store, "define_jobs", with_a_look_before)
    node = Forgetful.__new__(Forgetful)
    node.__dict__.update(bench.__dict__, begun=[])
    node.step()
    assert node.store.job("work") is not None
    node.forget(before[0])
    assert node.store.job("work") is None
    node.go_on(DECLARE_AGAIN_EVERY + 5)
    assert node.store.job("work") is not None
    assert node.begun
    declared = len(before)
    node.go_on(2 * DECLARE_AGAIN_EVERY)
    assert declared == len(before) == 2


# --- what is left alone ----------------------------------------------------------------------------------------------


def test_one_renewal_alone_stops_no_run():
    bench = Forgetful()
    bench.enqueue()
    bench.step()
    lease = bench.round.lease
    assert lease is not None
    asked = lease.note_request()
    bench.clock.advance(TICK)
    bench.round.reconciling.compare_held(lease, (), asked)
    bench.round.run_round()
    assert not bench.hands.calls[0].run.cancelled.is_set()


def test_a_renewal_asked_before_a_claim_was_answered_says_nothing_about_that_claim():
    bench = Forgetful()
    lease = bench.round.lease
    assert lease is not None
    early = [lease.note_request(), lease.note_request()]
    bench.clock.advance(TICK)
    bench.enqueue()
    bench.step()
    for asked in early:
        bench.round.reconciling.compare_held(lease, (), asked)
        bench.round.run_round()
    assert not bench.hands.calls[0].run.cancelled.is_set()


def test_a_renewal_asked_before_an_end_was_answered_says_nothing_about_that_run():
    bench = Forgetful()
    bench.enqueue()
    bench.step()
    lease = bench.round.lease
    call = bench.hands.calls[0]
    assert lease is not None
    key = (call.claim.id, call.claim.token)
    early = [lease.note_request(), lease.note_request()]
    bench.clock.advance(TICK)
    bench.finish()
    for asked in early:
        bench.round.reconciling.compare_held(lease, (key,), asked)
        bench.round.run_round()
    assert bench.round.stats.settled == 1


def test_a_node_that_agrees_with_its_store_asks_for_no_renewal(monkeypatch):
    bench = Forgetful(job(trigger=every("1s"), overlap="allow"))
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1

    monkeypatch.setattr(bench.round.reconciling, "_request_renewal", ask)
    for _ in range(20):
        bench.go_on()
        while bench.hands.calls:
            bench.finish()
    assert len(bench.begun) >= 10
    assert asked == 0


def test_an_end_that_the_store_will_not_keep_is_not_said_again_without_a_pause(monkeypatch):
    """A store whose indexes are damaged may list for ever what is over; the node lives with that."""
    bench = Forgetful()
    bench.enqueue()
    bench.step()
    call = bench.hands.calls[0]
    bench.finish()
    ghost = (call.claim.id, call.claim.token)
    renew: Callable[..., Any] = bench.store.renew
    do: Callable[..., Any] = bench.store.step
    said = 0

    def lists_a_ghost(*args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        return replace(renew(*args, **kwargs), held=(ghost,))

    def counts(session: str, step: Any) -> Any:
        nonlocal said
        said += len(step.ends)
        return do(session, step)

    monkeypatch.setattr(bench.store, "renew", lists_a_ghost)
    monkeypatch.setattr(bench.store, "step", counts)
    for _ in range(300):
        bench.keeper.request_renewal()
        bench.step()
        bench.clock.advance(0.1)
    assert 1 <= said <= 300 * (0.1 + 2 * TICK) / SETTLE_TIME + 2
    assert len(bench.begun) == 1


# --- how long an end is kept -----------------------------------------------------------------------------------------


def test_ends_are_kept_for_a_minute_and_no_longer():
    bench = Forgetful()
    accepted: AcceptedEnds = bench.round.active_runs.accepted_ends
    bench.enqueue()
    bench.step()
    bench.finish()
    (key,) = accepted.keys()
    bench.go_on(ENDS_KEPT - 2)
    bench.enqueue()
    bench.step()
    bench.finish()
    assert key in accepted
    bench.go_on(3)
    bench.enqueue()
    bench.step()
    bench.finish()
    assert key not in accepted
    assert len(accepted.keys()) == 2
