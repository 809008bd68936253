"""What a node holds, step by step: a store that answers as told, executors that only note, and a clock of the test."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from cronsensus.bus import Bus
from cronsensus.errors import StoreUnavailable
from cronsensus.membership.lease import SessionLease
from cronsensus.model.ending import Ending
from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Settled
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Done, GiveBack, Step
from cronsensus.node.active_runs import LOOP_PAUSE, ActiveRuns
from cronsensus.node.executors.base import Call
from cronsensus.node.holding import Running
from cronsensus.node.registered import Registered
from cronsensus.node.run_events import RunEvents
from cronsensus.node.waking import Waking
from cronsensus.rooms import ROOMS
from cronsensus.testing.conformance.fixtures import LEASE, START
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import RecordingExecutor


class Noted:
    """Notes by what name it was called, and with what."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **_: self.told.append((name, *args))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [one[1:] for one in self.told if one[0] == name]


class Answers:
    """A store that accepts what it is told to."""

    namespace = "default"

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.accepts = True
        self.error: Exception | None = None

    def step(self, session: str, step: Step) -> Done:
        assert not step.plans
        assert step.want is None
        self._ask("step", step)
        return Done(
            settled=tuple(Settled(one.id, one.token, accepted=self.accepts, state=one.state) for one in step.ends),
            returned=(self.accepts,) * len(step.give_back),
        )

    def notify(self) -> None:
        self._ask("notify", None)

    def _ask(self, verb: str, what: Any) -> None:
        self.told.append((verb, what))
        if self.error is not None:
            raise self.error


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.store = Answers()
        self.thread, self.process = RecordingExecutor(), RecordingExecutor()
        self.thread.abandoned_count = self.process.abandoned_count = 1
        self.run_log = Noted()
        self.events: list[str] = []
        registry = {"work": Registered("work", print, "thread"), "apart": Registered("apart", print, "process")}
        self.waking = Waking(self.store, self.clock, registry, lambda: None, ROOMS)  # type: ignore[arg-type]
        self.active_runs = ActiveRuns(
            self.store,  # type: ignore[arg-type]
            self.clock,
            registry=registry,
            executors={"thread": self.thread, "process": self.process},
            wake=lambda: self.events.append("wake"),
            on_work=lambda: self.events.append("work"),
            run_log=self.run_log,  # type: ignore[arg-type]
            run_events=RunEvents(Bus(self.clock), "me"),
            waking=self.waking,
        )
        self.lease = self.leased("s1")

    def leased(self, session: str) -> SessionLease:
        lease = SessionLease(session, self.clock)
        lease.confirm_claim(lease.note_request(), LEASE)
        return lease

    def claim(self, number: int = 1, *, session: str = "s1", function: str = "work", **policies: Any) -> Claim:
        spec = JobSpec(name=function, function=function, policies=Policies.read(policies))
        return Claim(
            id=number, spec=spec, key="k", origin=Origin.ENQUEUE, scheduled_for=None, due_at=START, attempt=1,
            token=100 + number, session=session, args=(), kwargs={}, claimed_at=START, created_at=START,
        )  # fmt: skip

    def begun(self, number: int = 1, *, lease: SessionLease | None = None, **more: Any) -> Call:
        claim = self.claim(number, **more)
        self.active_runs.start_claim(
            claim, lease or (self.lease if claim.session == "s1" else self.leased(claim.session))
        )
        held = self.active_runs._held[claim.id, claim.token]
        assert isinstance(held, Running)
        return held.call

    @property
    def interrupted(self) -> set[tuple[int, int]]:
        return {key for key, held in self.active_runs._held.items() if isinstance(held, Running) and held.interrupted}

    def finished(self) -> list[End]:
        return [one for verb, step in self.store.told if verb == "step" for one in step.ends]

    def gone_back(self) -> list[tuple[int, str | None]]:
        steps = [step for verb, step in self.store.told if verb == "step"]
        return [(one.claim.id, one.cut) for step in steps for one in step.give_back]


def committed(call: Call, *, surely: bool = True) -> None:
    """Let a run have committed a transaction of its own, or perhaps."""
    call.run._run_transaction = SimpleNamespace(  # type: ignore[assignment]
        committed=surely, may_have_committed=True, effective_ending=lambda ending: ending
    )


@pytest.fixture
def scene() -> Scene:
    return Scene()


KEY = (1, 101)
RETURNED = Ending(kind="returned", result="7")
CANCELLED = Ending(kind="cancelled", reason="asked to")


# --- what is held -----------------------------------------------------------------------------------------------------


def test_what_a_node_holds_is_held_from_its_start_until_the_store_has_its_end(scene):
    active_runs = scene.active_runs
    assert (bool(active_runs), active_runs.has_unsent_ends, active_runs.active_count, active_runs.slots_taken) == (
        False,
        False,
        0,
        2,
    )
    call = scene.begun()
    assert (bool(active_runs), active_runs.has_unsent_ends, active_runs.active_count, active_runs.slots_taken) == (
        True,
        False,
        1,
        3,
    )
    assert scene.events == ["work"]
    assert scene.thread.calls == [call]
    scene.begun(2)
    assert scene.events == ["work"], "told once, where there was nothing"
    active_runs.receive_ending(call, RETURNED)
    assert scene.events == ["work", "wake"]
    scene.store.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        active_runs.send_report("s1")
    assert (active_runs.has_unsent_ends, active_runs.active_count, active_runs.slots_taken) == (True, 2, 3)
    assert active_runs.list_open_claims() == {KEY, (2, 102)}
    scene.store.error = None
    assert active_runs.send_report("s1")
    assert (bool(active_runs), active_runs.has_unsent_ends, active_runs.list_open_claims()) == (True, False, {(2, 102)})
    assert not active_runs.send_report("s1")
    assert [one.state for one in scene.finished()] == [State.SUCCEEDED] * 2
    assert [one for one in scene.run_log.told if one[0] == "log_end"]
    assert KEY not in active_runs._held


def test_each_kind_of_thing_alone_is_protected_by_the_lease(scene):
    active_runs = scene.active_runs
    assert not active_runs
    for place, attribute, something in (
        (active_runs, "_held", {KEY: 1}),
        (active_runs.report, "owed", {KEY: 1}),
        (active_runs, "in_doubt", True),
    ):
        nothing = getattr(place, attribute)
        setattr(place, attribute, something)
        assert active_runs
        assert active_runs.has_unsent_ends is (attribute == "owed")
        scene.events.clear()
        active_runs.doubt_claims()
        assert scene.events == []
        active_runs.in_doubt = False
        setattr(place, attribute, nothing)
        assert not active_runs
    active_runs.doubt_claims()
    assert (active_runs.in_doubt, scene.events) == (True, ["work"])


def test_only_what_is_no_thread_can_be_stopped(scene):
    active_runs = scene.active_runs
    scene.begun()
    assert not active_runs.can_be_stopped
    call = scene.begun(2, function="apart")
    assert scene.process.calls == [call]
    assert active_runs.can_be_stopped
    active_runs.receive_ending(call, RETURNED)
    assert not active_runs.can_be_stopped


def test_an_executor_that_can_run_nothing_is_told_once(scene, caplog):
    assert scene.active_runs.find_unable_executors() == set()
    scene.thread.is_able = False
    assert scene.active_runs.find_unable_executors() == {"thread"}
    scene.clock.advance(LOOP_PAUSE)
    assert scene.active_runs.find_unable_executors() == {"thread"}
    assert scene.active_runs.find_unable_executors() == {"thread"}
    assert len(caplog.records) == 1
    scene.thread.is_able = True
    assert scene.active_runs.find_unable_executors() == set()
    assert len(caplog.records) == 1


def test_a_loop_that_pauses_as_granian_does_before_it_serves_is_not_told(scene, caplog):
    scene.thread.is_able = False
    assert scene.active_runs.find_unable_executors() == {"thread"}
    scene.clock.advance(0.02)
    scene.thread.is_able = True
    assert scene.active_runs.find_unable_executors() == set()
    scene.clock.advance(LOOP_PAUSE)
    scene.thread.is_able = False
    assert scene.active_runs.find_unable_executors() == {"thread"}
    assert not caplog.records


def test_a_session_must_hold_what_runs_or_waits_and_was_not_given_up(scene):
    active_runs = scene.active_runs
    first, lost, done = scene.begun(1), scene.begun(2), scene.begun(3)
    scene.begun(4, session="s2")
    scene.clock.advance(1)
    active_runs.start_claim_at(99.0, scene.claim(5), scene.lease)
    active_runs.start_claim_at(99.0, scene.claim(6, session="s2"), scene.lease)
    lost.run.lease_lost.set()
    committed(done)
    now = scene.clock.monotonic()
    assert active_runs.list_held_claims("s1") == {KEY: now - 1, (5, 105): now}
    assert active_runs.list_held_claims("s2") == {(4, 104): now - 1, (6, 106): now}
    assert active_runs.bound_run_count("s1") == (2, 4)
    assert active_runs.bound_run_count("s2") == (2, 2)
    assert (active_runs.count_claims("s1"), active_runs.count_claims("s2"), active_runs.count_claims("s3")) == (4, 2, 0)
    assert active_runs.is_running(first.run)
    assert not active_runs.is_running(structs.replace(first, run=object()).run)
    active_runs.receive_ending(first, RETURNED)
    active_runs.collect_endings()
    assert (active_runs.count_claims("s1"), active_runs.count_claims("s3")) == (4, 1)
    assert not active_runs.is_running(first.run)


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["unknown", "not trusted", "unable"])
def test_what_cannot_be_started_here_goes_back_as_never_begun(scene, why):
    if why == "not trusted":
        scene.lease.mark_lost()
    scene.thread.is_able = why != "unable"
    scene.active_runs.start_claim(scene.claim(function="nobody has it" if why == "unknown" else "work"), scene.lease)
    assert scene.thread.calls == []
    assert scene.events == ["work"]
    assert scene.active_runs.send_report("s1")
    assert scene.gone_back() == [(1, None)]
    assert [verb for verb, _ in scene.store.told] == ["step", "notify"]


def test_what_an_executor_refuses_to_start_has_failed(scene, caplog):
    scene.thread.error = RuntimeError("no more threads")
    scene.active_runs.start_claim(scene.claim(), scene.lease)
    scene.active_runs.send_report("s1")
    (outcome,) = scene.finished()
    assert outcome.state is State.FAILED
    assert outcome.error is not None
    assert "could not start it: no more threads" in outcome.error.message
    assert "cannot start" in caplog.text


def test_what_was_claimed_ahead_begins_at_its_time_and_in_its_order(scene):
    active_runs, now = scene.active_runs, scene.clock.monotonic()
    active_runs.start_due()
    active_runs.start_claim_at(now + 2, scene.claim(1), scene.lease)
    assert scene.events == ["work"]
    active_runs.start_claim_at(now + 1, scene.claim(2), scene.lease)
    assert scene.events == ["work"], "told once, where there was nothing"
    assert (active_runs.active_count, active_runs.slots_taken) == (2, 4)
    assert active_runs.starts_in == 1
    active_runs.start_due()
    assert scene.thread.calls == []
    scene.clock.advance(1)
    active_runs.start_due()
    assert [call.claim.id for call in scene.thread.calls] == [2]
    assert active_runs._held[2, 102].since == now
    scene.clock.advance(3)
    assert active_runs.starts_in == 0
    active_runs.start_due()
    assert [call.claim.id for call in scene.thread.calls] == [2, 1]
    assert active_runs.starts_in is None


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_cancel_stops_only_runs_of_the_listed_tokens(scene):
    active_runs = scene.active_runs
    scene.begun(1), scene.begun(2), scene.begun(3)
    active_runs.cancel_runs({1: "enough", 2: "enough"}, held=[(1, 101), (2, 999), (3, 103)])
    assert scene.thread.stopped == [(1, "enough", False)]
    active_runs.cancel_runs({1: "again", 2: "enough"})
    assert scene.thread.stopped == [(1, "enough", False), (2, "enough", False)]
    assert scene.interrupted == set()


def test_a_lost_session_stops_its_runs_once_and_those_of_no_other(scene):
    active_runs = scene.active_runs
    scene.begun(1), scene.begun(2, session="s2")
    assert active_runs.lose_session(scene.lease) == 1
    assert scene.thread.stopped == [(1, "lease lost", True)]
    assert scene.interrupted == {KEY}
    assert active_runs.lose_session(scene.lease) == 0
    assert len(scene.thread.stopped) == 1
    active_runs.stop_all("the node stops")
    assert scene.thread.stopped[1:] == [(1, "the node stops", False), (2, "the node stops", False)]
    assert scene.interrupted == {KEY, (2, 102)}


def test_run_asked_to_stop_by_an_operator_is_not_interrupted_by_the_node(scene):
    scene.begun()
    scene.active_runs.cancel_runs({1: "enough"})
    scene.active_runs.stop_all("the node stops")
    assert scene.interrupted == set()


def test_what_the_store_disowns_is_stopped_or_never_begins(scene):
    active_runs = scene.active_runs
    call = scene.begun(1)
    active_runs.start_claim_at(99.0, scene.claim(2), scene.lease)
    assert active_runs.disown_run(KEY, "nobody knows it") is call.claim
    assert scene.thread.stopped == [(1, "lease lost: nobody knows it", True)]
    found = active_runs.disown_run((2, 102), "nobody knows it")
    assert found is not None
    assert (found.id, active_runs.starts_in) == (2, None)
    assert (2, 102) not in active_runs._held
    assert active_runs.disown_run((2, 102), "nobody knows it") is None


# --- what follows an ending -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "before", "becomes"),
    [
        (RETURNED, "", "succeeded"),
        (RETURNED, "interrupted", "succeeded"),
        (RETURNED, "lost", "crashed"),
        (RETURNED, "lost and committed", "succeeded"),
        (CANCELLED, "", "cancelled"),
        (CANCELLED, "interrupted", "stopped"),
        (CANCELLED, "lost", "crashed"),
        (structs.replace(CANCELLED, cut_off=True), "", "stopped"),
        (structs.replace(CANCELLED, begun=False), "interrupted", "None"),
        (structs.replace(CANCELLED, begun=False), "lost", "None"),
        (structs.replace(RETURNED, cut_off=True), "", "succeeded"),
        (Ending(kind="raised"), "interrupted", "failed"),
    ],
)
def test_outcome_of_each_ending(scene, ending, before, becomes):
    call = scene.begun()
    if "interrupted" in before:
        scene.active_runs.stop_all("the node stops")
    if "lost" in before:
        scene.active_runs.lose_session(scene.lease)
    if "committed" in before:
        committed(call)
    scene.active_runs.receive_ending(call, ending)
    assert scene.active_runs.send_report("s1")
    assert scene.interrupted == set()
    assert not scene.active_runs
    outcomes = [one.state.value for one in scene.finished()]
    if outcomes:
        assert outcomes == [becomes]
        assert [told[1].state.value for told in scene.run_log.of("remember_end")] == [becomes]
    else:
        assert scene.gone_back() == [(1, None if becomes == "None" else becomes)]
        assert [verb for verb, _ in scene.store.told] == ["step", "notify"]
        told = [] if becomes == "None" else [(call.claim, call.run.cancel_reason or "the node stops")]
        assert scene.run_log.of("log_release") == told


def test_an_end_that_comes_twice_counts_once(scene):
    call = scene.begun()
    scene.active_runs.receive_ending(call, RETURNED)
    scene.active_runs.receive_ending(call, CANCELLED)
    scene.active_runs.send_report("s1")
    assert [one.state for one in scene.finished()] == [State.SUCCEEDED]


@pytest.mark.parametrize(("on_crash", "lost"), [("retry", False), ("retry", True), ("fail", False)])
def test_what_still_runs_when_the_node_ends_is_cut_off_and_what_waits_never_began(scene, on_crash, lost):
    call = scene.begun(1, on_crash=on_crash)
    ends = scene.begun(3)
    scene.active_runs.start_claim_at(99.0, scene.claim(2), scene.lease)
    if lost:
        call.run.lease_lost.set()
    scene.active_runs.receive_ending(ends, RETURNED)
    scene.active_runs.cut_off_all()
    scene.active_runs.send_report("s1")
    assert not scene.active_runs
    assert scene.active_runs.active_count == 0
    states = {one.id: one for one in scene.finished()}
    assert states.pop(3).state is State.SUCCEEDED
    if on_crash == "fail":
        assert (states[1].state, states[1].then.reason) == (State.FAILED, "crashed: the node stops")
        assert [told[1].id for told in scene.run_log.of("remember_end")] == [3, 1]
        assert scene.gone_back() == [(2, None)]
    else:
        assert states == {}
        assert sorted(scene.gone_back()) == [(1, "crashed" if lost else "stopped"), (2, None)]
        assert scene.run_log.of("log_release") == [(call.claim, "the node stops")]


# --- what the store has accepted --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("accepts", "how"), [(True, "plain"), (True, "commits"), (True, "fails"), (False, "plain")])
def test_an_end_that_was_accepted_can_be_said_again(scene, accepts, how):
    call = scene.begun()
    scene.store.accepts = accepts
    if how != "plain":
        committed(call, surely=False)
    scene.active_runs.receive_ending(call, RETURNED if how != "fails" else Ending(kind="raised"))
    scene.active_runs.send_report("s1")
    again = scene.active_runs.report.send_again(KEY)
    assert again is accepts
    if not again:
        assert not scene.active_runs.has_unsent_ends
    elif how == "commits":
        assert scene.active_runs.report.given_back == [GiveBack(claim=call.claim, cut="stopped")]
    else:
        (outcome,) = scene.active_runs.report.unsent_ends
        assert outcome.state is (State.FAILED if how == "fails" else State.SUCCEEDED)


def test_claims_go_back_in_one_step_however_they_were_cut_off(scene):
    for number, cut in ((1, "crashed"), (2, None), (3, "crashed"), (4, "stopped")):
        claim = scene.claim(number)
        scene.active_runs.report.record_release(claim, cut)
    scene.active_runs.send_report("s1")
    assert scene.gone_back() == [(1, "crashed"), (2, None), (3, "crashed"), (4, "stopped")]
    assert [verb for verb, _ in scene.store.told] == ["step", "notify"]
    assert not scene.active_runs
    assert scene.active_runs.report.send_again((4, 104))
    assert scene.active_runs.report.given_back == [GiveBack(claim=scene.claim(4), cut="stopped")]


def test_what_may_have_gone_back_is_no_refusal_and_is_remembered(scene):
    scene.active_runs.report.record_release(scene.claim(), None)
    scene.store.error = StoreUnavailable("the answer is lost")
    with pytest.raises(StoreUnavailable):
        scene.active_runs.send_report("s1")
    scene.store.error, scene.store.accepts = None, False
    scene.active_runs.send_report("s1")
    assert scene.run_log.of("log_refusal") == []
    assert scene.active_runs.report.send_again(KEY)
    scene.active_runs.report.owed.clear()
    scene.active_runs.report.record_release(scene.claim(), None)
    scene.active_runs.send_report("s1")
    assert scene.run_log.of("log_refusal") == [(1, 101, State.PENDING)]
    assert not scene.active_runs.report.send_again(KEY)


def test_what_may_have_run_unheard_of_has_failed(scene):
    claim = scene.claim()
    scene.active_runs.fail_unknown_claim(claim, "nobody knows")
    (outcome,) = scene.active_runs.report.unsent_ends
    assert (outcome.state, outcome.then.reason) == (State.FAILED, "crashed: nobody knows")
    assert scene.run_log.of("remember_end") == [(claim, outcome, None)]


def test_a_result_that_came_before_the_lease_was_lost_counts(scene):
    call = scene.begun()
    scene.active_runs.receive_ending(call, RETURNED)
    scene.active_runs.lose_session(scene.lease)
    scene.active_runs.send_report("s1")
    assert [one.state for one in scene.finished()] == [State.SUCCEEDED]
    assert (
        scene.clock.monotonic() - scene.active_runs.accepted_ends.accepted_at(KEY)
        < timedelta(seconds=1).total_seconds()
    )
