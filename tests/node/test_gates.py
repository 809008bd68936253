"""A claim that is asked about on another thread: it is known, bounded, and begun or settled once."""

import threading
from typing import Any

import pytest
from msgspec import structs

from cronsensus.after.admission import UpstreamAdmission
from cronsensus.errors import StoreUnavailable
from cronsensus.model.ends import Final, Parked
from cronsensus.model.states import State
from cronsensus.node.active_runs import ActiveRuns
from cronsensus.node.hooks import Admit
from cronsensus.node.waking import Answer, Waking
from tests.node.test_active_runs import KEY, RETURNED, Scene

RUN, WAIT = Admit(), Parked("upstreams", reason="waits for first")
SKIP = Final(State.SKIPPED, "upstream failed: first")


class AtGate(Scene):
    """A claim is being asked about; ``gate`` says what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.claim()
        self.active_runs.start_claim_if_admitted(self.clock.monotonic(), self.asked, self.lease)

    def answer(self, answer: Answer) -> None:
        """Answer on another thread, as the watch does."""
        thread = threading.Thread(target=self.waking.on_answer, args=(self.asked, answer))
        thread.start()
        thread.join()

    def next_round(self) -> None:
        """Do what a round does of it."""
        self.active_runs.start_due()
        self.active_runs.collect_endings()

    @property
    def begun(self) -> list[int]:  # type: ignore[override]
        return [call.claim.id for call in self.thread.calls]

    @property
    def ends(self) -> list[Any]:
        return [one.then for one in self.active_runs.report.unsent_ends]

    @property
    def back(self) -> list[int]:
        return [one.claim.id for one in self.active_runs.report.given_back]


@pytest.fixture
def scene() -> AtGate:
    return AtGate()


def test_a_claim_at_its_gate_is_held_takes_a_slot_and_is_due_never(scene: AtGate) -> None:
    active_runs = scene.active_runs
    assert active_runs.list_open_claims() == set(active_runs.list_held_claims("s1")) == {KEY}
    assert (active_runs.count_claims("s1"), active_runs.bound_run_count("s1"), active_runs.slots_taken) == (
        1,
        (1, 1),
        2 + 1,
    )
    assert (active_runs.starts_in, bool(active_runs)) == (None, True), "or the node would never look again"
    scene.clock.advance(3600)
    scene.next_round()
    assert (scene.begun, scene.ends, scene.back) == ([], [], [])


def test_what_its_gate_lets_through_begins_on_the_thread_that_asked(scene: AtGate) -> None:
    scene.answer(RUN)
    assert scene.begun == [1]
    scene.next_round()
    assert (scene.begun, scene.active_runs.list_open_claims()) == ([1], {KEY})
    assert len(scene.run_log.of("log_starts")) == 1


def test_what_is_claimed_ahead_begins_at_its_time_and_not_when_its_gate_says_yes() -> None:
    scene = AtGate()
    later = scene.claim(2)
    scene.active_runs.start_claim_if_admitted(scene.clock.monotonic() + 5, later, scene.lease)
    scene.waking.on_answer(later, RUN)
    scene.next_round()
    assert (scene.begun, scene.active_runs.starts_in) == ([], 5)
    scene.clock.advance(5)
    scene.active_runs.start_meanwhile()
    assert scene.begun == [2]


@pytest.mark.parametrize("end", [WAIT, SKIP])
def test_what_it_does_not_let_through_is_settled_once_by_the_next_round(scene: AtGate, end: Any) -> None:
    scene.answer(end)
    assert (scene.ends, scene.active_runs.list_open_claims()) == ([], {KEY})
    for _ in range(2):
        scene.next_round()
        assert (scene.ends, scene.begun, scene.active_runs.list_open_claims()) == ([end], [], {KEY})


def test_what_cannot_be_asked_goes_back(scene: AtGate) -> None:
    scene.answer(None)
    scene.next_round()
    assert (scene.back, scene.ends, scene.begun) == ([1], [], [])


@pytest.mark.parametrize("answer", [RUN, WAIT, SKIP, None])
@pytest.mark.parametrize("way", ["cancelled", "disowned", "node ends"])
def test_what_is_withdrawn_while_it_is_asked_about_is_neither_begun_nor_settled_twice(
    scene: AtGate, way: str, answer: Answer
) -> None:
    match way:
        case "cancelled":
            scene.active_runs.cancel_runs({1: "enough"})
        case "disowned":
            assert scene.active_runs.disown_run(KEY, "nobody knows it") is scene.asked
        case _:
            scene.active_runs.cut_off_all()
    scene.next_round()
    scene.answer(answer)
    scene.next_round()
    assert (scene.begun, scene.ends) == ([], [])
    assert scene.back == [1] * (way != "disowned")


def test_what_its_gate_lets_through_under_a_lost_lease_goes_back(scene: AtGate) -> None:
    scene.lease.mark_lost()
    scene.answer(RUN)
    assert (scene.begun, scene.active_runs.list_open_claims()) == ([], {KEY})
    scene.next_round()
    assert (scene.begun, scene.back) == ([], [1])


def test_a_reserved_claim_waits_for_its_gate_and_then_for_a_slot(scene: AtGate) -> None:
    reserved, slots = structs.replace(scene.claim(2), reserved=True), scene.active_runs.slots_taken
    scene.active_runs.start_claim_if_admitted(scene.clock.monotonic(), reserved, scene.lease)
    assert scene.active_runs.slots_taken == slots, "or the node would begin less while the store is asked"
    scene.waking.on_answer(reserved, RUN)
    scene.next_round()
    assert (scene.begun, len(scene.active_runs.reserved)) == ([], 1)
    scene.active_runs.start_reserved(1)
    assert scene.begun == [2]


def test_an_error_of_the_store_at_a_gate_tells_of_each_claim_that_is_left(
    scene: AtGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(UpstreamAdmission, "concerns_claim", lambda *_: True)
    monkeypatch.setattr(UpstreamAdmission, "admit_claims", away)
    monkeypatch.setattr(Waking, "store", scene.store)
    scene.waking.on_queued = lambda: None
    scene.waking.queue_claims([scene.asked], ())
    scene.waking.wake_due()
    scene.next_round()
    assert (scene.back, scene.ends) == ([1], [])


def test_a_claim_is_at_each_moment_known_while_another_thread_begins_it(scene: AtGate) -> None:
    """A claim that is in neither place would be taken for one that the store forgot, and be adopted."""
    active_runs: ActiveRuns = scene.active_runs
    missing: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            if KEY not in active_runs.list_open_claims() or not active_runs.count_claims("s1"):
                missing.append(1)

    thread = threading.Thread(target=look)
    thread.start()
    scene.answer(RUN)
    active_runs.receive_ending(scene.thread.calls[0], RETURNED)
    stop.set()
    thread.join()
    assert (scene.begun, missing) == ([1], [])
