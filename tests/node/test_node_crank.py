"""The parts of a node, turned by hand on a clock that moves only when told to."""

from datetime import timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest

from cronsensus import State, StoreUnavailable, every
from cronsensus.errors import StoreBusy, StoreCorrupt
from cronsensus.membership.lease import IDLE_LEASE, LeaseRequest, SessionLease
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item, LogLine, OccurrenceFilter
from cronsensus.model.session import Renewal
from cronsensus.node.progress import ProgressBuffer
from cronsensus.node.round import GRACE_SECONDS
from cronsensus.node.settings import WATCH_SECONDS, NodeSettings
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.steps import say
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import RecordingExecutor, RoundByHand, new_session, registered

LEASE = timedelta(seconds=10)


class Bench:
    """One node's parts on one store."""

    def __init__(
        self, *specs: JobSpec, concurrency: int = 20, store: type[MemoryStore] = MemoryStore, stop: bool = False
    ) -> None:
        self.clock = ManualClock()
        self.store = store(clock=self.clock)
        self.hands = RecordingExecutor()
        self.specs = list(specs)
        self.keeper = SessionRenewer(
            self.clock,
            lease=LEASE,
            holds=lambda: bool(self.round.active_runs),
            on_renewal=self._on_renewal,
        )
        self.round = RoundByHand(
            self.store,
            self.clock,
            NodeSettings(name="a", lease=LEASE, concurrency=concurrency, stop_on_store_loss=stop),
            registry=registered(*(spec.function for spec in specs)),
            executors={"thread": self.hands},
            new_session=new_session(concurrency=20),
            declare=lambda store: bool(store.define_jobs(self.specs, release="1").superseded),
            on_session=self.keeper.keep_session,
            request_renewal=self.keeper.request_renewal,
        )

    def _on_renewal(self, lease: SessionLease, renewal: Renewal, asked: LeaseRequest) -> None:
        self.round.active_runs.cancel_runs(renewal.cancel, renewal.held)
        self.round.reconciling.compare_held(lease, renewal.held, asked)

    def end(self, number: int = 0) -> None:
        self.round.active_runs.receive_ending(self.hands.calls.pop(number), Ending(kind="returned"))

    @property
    def left(self) -> float:
        """What the store says is left of the lease, in seconds."""
        (session,) = self.store.sessions()
        return session.expires_in.total_seconds()


def job(name: str = "work", trigger: Any = None, **policies: Any) -> JobSpec:
    return JobSpec(name=name, function=name, trigger=trigger, policies=Policies.read(policies))


# --- the crank -------------------------------------------------------------------------------------------------------


def test_after_firing_the_node_sleeps_until_that_job_is_due_again():
    bench = Bench(job(trigger=every("30s")))
    started: list[float] = []
    rounds = 0
    while len(started) < 4:
        wait = bench.round.run_round()
        while bench.hands.calls:
            started.append(bench.clock.monotonic())
            bench.end()
            wait = bench.round.run_round()
        bench.clock.advance(wait)
        bench.keeper.renew(bench.store)
        rounds += 1
    assert [later - before for before, later in pairwise(started)] == pytest.approx([30] * 3, abs=1e-3)
    assert rounds <= 4 * 6


def test_a_start_that_jitter_delays_is_neither_early_nor_slept_through():
    bench = Bench(job(trigger=every("60s", jitter="20s")))
    late = []
    for _ in range(30):
        bench.clock.advance(bench.round.run_round())
        bench.keeper.renew(bench.store)
        for call in bench.hands.calls[:]:
            late.append(call.claim.claimed_at - call.claim.due_at)
            bench.end()
    assert len(late) >= 5
    assert set(late) == {timedelta(0)}


def test_a_backlog_larger_than_one_plan_is_fired_by_the_next_rounds_at_once():
    bench = Bench(job(trigger=every("1s"), catch_up="all", overlap="allow"), concurrency=1)
    bench.round.run_round()
    bench.clock.advance(2500)
    rounds = 0
    while bench.round.run_round() == 0.0:
        rounds += 1
    assert rounds == 3, "the first one learns that its session is lost"
    assert bench.round.stats.fired == 2500


def test_jobs_that_only_leave_verdicts_do_not_hide_the_jobs_behind_them():
    bench = Bench(*(job(f"job-{number:03}", trigger=every("10s")) for number in range(450)), concurrency=500)
    bench.round.run_round()
    bench.clock.advance(10)
    while (wait := bench.round.run_round()) < 1.0:
        bench.clock.advance(wait)
    assert bench.round.stats.fired == 450
    bench.clock.advance(10)
    while (wait := bench.round.run_round()) < 1.0:
        bench.clock.advance(wait)
    assert all(len(bench.store.ranges(f"job-{number:03}")) == 1 for number in range(450))


def test_a_call_that_cannot_be_started_fails_and_is_not_forgotten():
    bench = Bench(job())
    bench.round.run_round()
    bench.hands.error = RuntimeError("can't start new thread")
    (item,) = bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    bench.round.run_round()
    one = bench.store.occurrence(item.id)
    assert one is not None
    assert one.error is not None
    assert (one.state, one.error.message) == (
        State.FAILED,
        "the node could not start it: can't start new thread",
    )


def test_work_waiting_for_a_busy_node_is_claimed_when_a_slot_is_free():
    bench = Bench(job(), concurrency=1)
    bench.round.run_round()
    bench.store.enqueue([Item(job="work"), Item(job="work")])
    bench.round.run_round()
    assert len(bench.hands.calls) == 1
    bench.end()
    bench.round.run_round()
    assert len(bench.hands.calls) == 1
    assert bench.round.stats.settled == 1


def test_old_occurrences_are_pruned_in_slices_that_hold_nothing_up():
    bench = Bench(job(keep="1h"), concurrency=3000)
    bench.round.run_round()
    bench.store.enqueue([Item(job="work") for _ in range(2500)])
    bench.round.run_round()
    for _ in range(2500):
        bench.end()
    bench.round.run_round()
    bench.clock.advance(7300)
    bench.keeper.renew(bench.store)
    # The session slept for two hours, so the first of these rounds opens another.
    rounds = 1
    while bench.round.run_round() == 0.0:
        rounds += 1
    assert rounds >= 3
    assert bench.store.occurrences(OccurrenceFilter()) == []


# --- the keeper ------------------------------------------------------------------------------------------------------


def turn(bench: Bench, seconds: float) -> list[float]:
    """Let the keeper do its rounds for ``seconds``; return what was left of the lease before each."""
    end = bench.clock.monotonic() + seconds
    left: list[float] = []
    while bench.clock.monotonic() + (wait := bench.keeper.renew(bench.store)) < end:
        bench.clock.advance(wait)
        left.append(bench.left)
    return left


def test_an_idle_session_is_renewed_rarely_and_never_runs_out():
    bench = Bench(job())
    bench.round.run_round()
    assert bench.left == IDLE_LEASE.total_seconds()
    left = turn(bench, 3600)
    assert len(left) <= 40
    assert min(left) > 0


def test_a_working_session_is_renewed_every_third_of_its_lease_until_it_is_idle():
    bench = Bench(job())
    bench.round.run_round()
    bench.store.enqueue([Item(job="work")])
    turn(bench, 200)
    bench.round.run_round()
    assert bench.left == LEASE.total_seconds()
    left = turn(bench, 60)
    assert min(left) >= LEASE.total_seconds() * 0.6
    assert max(left) <= LEASE.total_seconds()
    bench.end()
    bench.round.run_round()
    left = turn(bench, 3600)
    assert min(left) > 0
    assert max(left) > 100


def test_a_long_lease_whose_answer_comes_after_that_of_a_claim_is_not_trusted():
    bench = Bench(job())
    bench.round.run_round()
    lease = bench.round.lease
    assert lease is not None
    bench.clock.advance(250)
    asked = lease.note_request()
    renewal = bench.store.renew(lease.session, lease=LEASE, idle_lease=IDLE_LEASE)
    assert renewal.lease == IDLE_LEASE
    bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    lease.confirm_renewal(asked, renewal.lease)
    assert lease.length == LEASE
    assert 0 < lease.trusted_for < bench.left == LEASE.total_seconds()


def test_a_short_lease_counts_whatever_was_answered_meanwhile():
    bench = Bench(job())
    bench.round.run_round()
    bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    lease = bench.round.lease
    assert lease is not None
    slow_claim = lease.note_request()
    bench.clock.advance(5)
    renewal = lease.note_request()
    lease.confirm_renewal(renewal, LEASE)
    trusted_for = lease.trusted_for
    lease.confirm_claim(slow_claim, LEASE)
    assert lease.trusted_for == trusted_for
    lease.confirm_renewal(renewal, LEASE)
    assert lease.trusted_for == trusted_for


def test_a_renewal_that_is_carried_out_after_a_claim_leaves_the_lease_short():
    bench = Bench(job())
    bench.round.run_round()
    lease = bench.round.lease
    assert lease is not None
    bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    bench.store.renew(lease.session, lease=LEASE, idle_lease=IDLE_LEASE)
    assert bench.left == LEASE.total_seconds()


def test_a_node_that_does_not_know_what_it_claimed_trusts_no_long_lease(monkeypatch):
    bench = Bench(job())
    bench.round.run_round()
    bench.store.enqueue([Item(job="work")])

    def away(*_: object, **__: object) -> list[Claim]:
        raise StoreUnavailable

    monkeypatch.setattr(bench.store, "step", away)
    bench.round.run_round()
    bench.clock.advance(5)
    bench.keeper.renew(bench.store)
    lease = bench.round.lease
    assert lease is not None
    assert bench.left == IDLE_LEASE.total_seconds()
    assert 0 < lease.trusted_for < LEASE.total_seconds()


def test_a_hint_makes_a_working_node_ask_soon_whether_to_cancel():
    bench = Bench(job())
    bench.round.run_round()
    bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    bench.keeper.renew(bench.store)
    bench.keeper.renew_soon()
    bench.keeper.renew(bench.store)
    bench.store.cancel(bench.hands.calls[0].claim.id, by="ada", why="enough")
    bench.keeper.renew_soon()
    wait = bench.keeper.renew(bench.store)
    assert 0 < wait <= 0.5
    assert not bench.hands.stopped
    bench.clock.advance(wait)
    bench.keeper.renew(bench.store)
    assert [reason for _, reason, _ in bench.hands.stopped] == ["operator: enough"]


# --- notes -----------------------------------------------------------------------------------------------------------


def test_notes_wake_the_node_once_and_are_written_at_most_twice_a_second(monkeypatch):
    bench = Bench(job())
    bench.round.run_round()
    (item,) = bench.store.enqueue([Item(job="work")])
    bench.round.run_round()
    run = bench.hands.calls[0].run
    woken: list[int] = []
    notes = ProgressBuffer(bench.clock, lambda: woken.append(1))
    notes.note_progress(run, 1, 10)
    notes.note_progress(run, 2, 10)
    notes.note_line(run, LogLine(bench.clock.now(), "INFO", "one"))
    assert (len(woken), notes.wanted_in) == (1, 0.0)

    def away(*_: object) -> list[bool]:
        notes.note_line(run, LogLine(bench.clock.now(), "INFO", "two"))
        raise StoreUnavailable

    with pytest.raises(StoreUnavailable), notes.open_writing():
        away()
    notes.note_progress(run, 3, 10)
    with notes.open_writing() as said:
        say(bench.store, said)
    wanted: list[float | None] = [notes.wanted_in]
    notes.note_progress(run, 4, 10)
    wanted.append(notes.wanted_in)
    assert wanted == [None, 0.5]
    one = bench.store.occurrence(item.id)
    assert one is not None
    assert one.progress == (3.0, 10.0)
    assert [line.text for _, _, line in bench.store.logs(item.id)] == ["one", "two"]


def test_a_run_that_cannot_be_stopped_keeps_its_slot_until_it_returns():
    bench = Bench(JobSpec(name="work", function="work", trigger=None), concurrency=2)
    bench.round.open_session()
    bench.store.enqueue([Item(job="work", key=str(number)) for number in range(3)])
    bench.hands.abandoned_count = 2
    assert bench.round.run_round() <= WATCH_SECONDS  # nobody tells when a slot comes free
    assert bench.hands.calls == []
    bench.hands.abandoned_count = 1
    bench.round.run_round()
    assert len(bench.hands.calls) == 1


def test_a_store_that_cannot_be_used_is_told_of_again_when_the_reason_is_another_and_each_minute(monkeypatch, caplog):
    caplog.set_level("INFO", "cronsensus.node")
    bench = Bench(job())
    bench.round.run_round()
    why = "refused"

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable(why)

    monkeypatch.setattr(bench.store, "look", away)
    for second in range(120):
        why = "refused" if second < 70 else "full"
        bench.round.run_round()
        bench.clock.advance(1)
    monkeypatch.undo()
    bench.round.run_round()
    # Not what a keeper of the test before has logged on a thread of its own.
    messages = [record.message for record in caplog.records if record.message.startswith("the store")]
    told = [text for text in messages if "cannot be used" in text or "again" in text]
    assert [text.rpartition(": ")[2] for text in told[:-1]] == ["refused", "refused", "refused", "full"]
    assert told[0].startswith("the store did not answer, and is asked again")
    assert told[2].startswith("the store still cannot be used, after 61 failed rounds")
    assert told[-1].startswith("the store answers again after 120 failed rounds")


def test_one_round_that_failed_is_no_error(monkeypatch, caplog):
    caplog.set_level("INFO", "cronsensus.node")
    bench = Bench(job())
    bench.round.run_round()
    for error, levels in ((StoreUnavailable("cut"), {"WARNING"}), (StoreCorrupt("bad"), {"ERROR"})):
        caplog.clear()
        with monkeypatch.context() as patched:
            patched.setattr(bench.store, "look", Mock(side_effect=error))
            bench.round.run_round()
        bench.round.run_round()
        told = [record for record in caplog.records if record.message.startswith("the store")]
        assert {record.levelname for record in told} == levels | {"INFO"}


class CannotTake(MemoryStore):
    """Fails each step in which a plan of ``broken`` is."""

    def _step(self, session, step):
        if any(plan.job == "broken" for plan in step.plans):
            raise StoreCorrupt("a row of this job cannot be read")
        return super()._step(session, step)


def test_a_plan_that_the_store_cannot_take_keeps_no_other_job_from_running(caplog):
    bench = Bench(*(job(name, trigger=every("10s")) for name in ("a", "broken", "c", "d")), store=CannotTake)
    bench.round.run_round()
    bench.clock.advance(10)
    for _ in range(8):
        bench.clock.advance(min(1.0, bench.round.run_round()))
    assert sorted(call.claim.job for call in bench.hands.calls) == ["a", "c", "d"]
    assert caplog.text.count("job 'broken' cannot be fired") == 1


class CannotClaimBesideResults(MemoryStore):
    """Fails each step that has results and wants work, as a lock that is waited for too long does."""

    failed = 0

    def _step(self, session, step):
        if step.ends and step.want is not None:
            self.failed += 1
            raise StoreBusy("locked by another process")
        return super()._step(session, step)


def test_a_claim_that_fails_each_time_keeps_no_result_from_the_store():
    bench = Bench(job(), concurrency=1, store=CannotClaimBesideResults)
    bench.round.run_round()
    bench.store.enqueue([Item(job="work")] * 4)
    for ended in range(1, 5):
        bench.round.run_round()
        bench.end()
        for _ in range(2):
            bench.round.run_round()
        assert bench.round.stats.settled == ended
    assert isinstance(bench.store, CannotClaimBesideResults)
    assert bench.store.failed >= 3


# --- whether it decides ----------------------------------------------------------------------------------------------


def decides(bench: Bench) -> bool:
    return bench.round.decides


def test_a_node_decides_until_twice_the_sleep_that_it_planned_has_passed():
    bench = Bench(job(trigger=every("1h")))
    assert not decides(bench)
    planned = bench.round.run_round()
    bench.clock.advance(planned + max(planned, GRACE_SECONDS) - 0.01)
    assert decides(bench)
    bench.clock.advance(0.02)
    assert not decides(bench)
    bench.round.run_round()
    assert decides(bench)


def test_a_round_that_hangs_is_late_however_long_the_sleep_before_it_was(monkeypatch):
    bench = Bench(job(trigger=every("1h")))
    assert bench.round.run_round() > GRACE_SECONDS
    turned = []

    def hang() -> float:
        for seconds in (GRACE_SECONDS - 0.01, 0.02):
            bench.clock.advance(seconds)
            turned.append((bench.round.turns, decides(bench)))
        return 60.0

    with monkeypatch.context() as patched:
        patched.setattr(bench.round, "_try_round", hang)
        bench.round.run_round()
    assert turned == [(True, True), (False, False)]


def test_a_node_whose_store_is_gone_or_that_drains_decides_nothing(monkeypatch):
    bench = Bench(job(trigger=every("1h")))
    bench.round.run_round()
    assert decides(bench)

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "_look", away)
        bench.clock.advance(60)
        bench.round.run_round()
        assert not decides(bench)
        assert (bench.round.turns, bench.round.status) == (True, "the store cannot be used; trying again")
    bench.clock.advance(60)
    bench.round.run_round()
    assert decides(bench)
    bench.round.drain_node()
    assert not decides(bench)


def test_what_ends_on_a_node_that_drains_is_told_to_those_that_may_claim_what_waits_for_it(monkeypatch):
    bench = Bench(job())
    bench.store.define_jobs([job()], release="1")
    bench.round.run_round()
    bench.store.enqueue([Item(job="work"), Item(job="work")])
    bench.round.run_round()
    notify = Mock()
    monkeypatch.setattr(bench.store, "notify", notify)
    bench.end()
    bench.round.run_round()
    notify.assert_not_called()
    bench.round.drain_node()
    bench.end()
    bench.round.run_round()
    notify.assert_called_once_with()
