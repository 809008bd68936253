"""What waits on a node for a free slot: begun on the thread that tells of an end, or given back."""

import threading
from datetime import timedelta

import pytest
from msgspec import structs

from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import Note
from cronsensus.node.hooks import ADMITTED
from cronsensus.node.progress import WRITE_EVERY
from tests.node.test_active_runs import RETURNED, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


def reserve(scene: Scene, *numbers: int, lease=None) -> None:
    claims = [structs.replace(scene.claim(number), reserved=True) for number in numbers]
    scene.active_runs.reserve_claims([(claim, ADMITTED) for claim in claims], lease or scene.lease)


def started(scene: Scene) -> list[int]:
    return [call.claim.id for call in scene.thread.calls]


def test_a_slot_passes_to_what_is_reserved_when_an_attempt_ends(scene):
    first = scene.begun()
    reserve(scene, 2, 3, 4, 5)
    scene.events.clear()
    slots = scene.active_runs.slots_taken
    assert started(scene) == [1]
    scene.active_runs.receive_ending(first, RETURNED)
    assert started(scene) == [1, 2]
    assert scene.events == [], "there is enough left to do"
    scene.active_runs.collect_endings()
    assert scene.active_runs.slots_taken == slots
    scene.active_runs.receive_ending(scene.thread.calls[-1], RETURNED)
    assert started(scene) == [1, 2, 3]
    assert scene.events == ["wake"], "half of it is left: time for more"
    assert [one for one in scene.run_log.told if one[0] == "log_reserved_start"]


def test_what_is_reserved_begins_in_free_slots(scene):
    reserve(scene, 1, 2, 3)
    assert scene.events == ["work"], "the lease protects it"
    assert scene.active_runs
    scene.active_runs.start_reserved(2)
    assert started(scene) == [1, 2]
    scene.active_runs.start_reserved(0)
    assert started(scene) == [1, 2]
    scene.active_runs.start_reserved(5)
    assert started(scene) == [1, 2, 3]
    assert scene.active_runs.reserved.start_first(scene.thread.start) is None


def test_a_thread_that_is_over_its_time_keeps_its_slot(scene):
    call = scene.begun()
    reserve(scene, 2)
    scene.active_runs.receive_ending(call, Ending(kind="timed_out"))
    assert started(scene) == [1]
    assert scene.events[-1] == "wake"


def test_nothing_reserved_begins_under_a_lease_that_is_not_trusted(scene):
    lease = scene.leased("s2")
    reserve(scene, 2, lease=lease)
    call = scene.begun()
    lease.mark_lost()
    scene.active_runs.receive_ending(call, RETURNED)
    scene.active_runs.start_reserved(5)
    assert started(scene) == [1]
    assert len(scene.active_runs.reserved) == 1


def test_what_is_reserved_is_known_and_counted(scene):
    scene.begun()
    reserve(scene, 2, 3)
    assert scene.active_runs.list_open_claims() == {(1, 101), (2, 102), (3, 103)}
    assert scene.active_runs.list_held_claims("s1").keys() == scene.active_runs.list_open_claims()
    assert scene.active_runs.count_claims("s1") == 3
    assert scene.active_runs.count_claims("s2") == 0
    assert scene.active_runs.active_count == 3
    assert scene.active_runs.slots_taken == 3, "one that runs, and two that were given up"


def test_what_is_reserved_goes_back_as_if_it_had_not_been_claimed(scene):
    reserve(scene, 1, 2)
    scene.active_runs.release_waiting()
    assert scene.active_runs.reserved.waits_for is None
    assert scene.active_runs.send_report("s1")
    assert scene.gone_back() == [(1, None), (2, None)]
    assert not scene.active_runs


def test_what_a_lost_session_had_reserved_is_dropped_without_a_word(scene):
    reserve(scene, 1, 2)
    scene.active_runs.release_waiting(lost=True)
    assert not scene.active_runs
    assert not scene.active_runs._held


def test_nothing_reserved_begins_when_the_node_has_ended(scene):
    call = scene.begun()
    reserve(scene, 2, 3)
    scene.active_runs.cut_off_all()
    scene.active_runs.receive_ending(call, RETURNED)
    scene.active_runs.start_reserved(5)
    assert started(scene) == [1]
    reserve(scene, 4)
    scene.active_runs.start_reserved(5)
    assert started(scene) == [1], "also what a claim brings that was on its way"
    scene.active_runs.send_report("s1")
    assert {2, 3} <= {number for number, cut in scene.gone_back() if cut is None}


def test_what_is_cancelled_before_it_begins_goes_back_in_the_next_round(scene):
    reserve(scene, 1, 2, 3)
    scene.active_runs.start_claim_at(scene.clock.monotonic() + 1, scene.claim(4), scene.lease)
    scene.events.clear()
    scene.active_runs.cancel_runs({7: "enough"})
    assert scene.events == []
    scene.active_runs.cancel_runs({1: "enough", 2: "enough"}, {(1, 101), (3, 103)})
    assert scene.events == ["wake"]
    scene.active_runs.cancel_runs({4: "enough"})
    assert scene.active_runs.active_count == 4
    assert scene.active_runs.send_report("s1")
    assert sorted(scene.gone_back()) == [(1, None), (4, None)]
    assert scene.active_runs.list_open_claims() == {(2, 102), (3, 103)}


def test_what_is_cancelled_and_begins_before_the_next_round_is_stopped_there(scene):
    reserve(scene, 1, 2)
    scene.active_runs.cancel_runs({1: "enough"})
    scene.active_runs.start_reserved(2)
    scene.active_runs.collect_endings()
    assert scene.thread.stopped == [(1, "enough", False)]
    assert not scene.active_runs.send_report("s1")


def test_what_the_store_does_not_know_as_ours_is_reserved_no_longer(scene):
    reserve(scene, 1, 2)
    assert scene.active_runs.disown_run((1, 101), "taken over").id == 1
    assert scene.active_runs.disown_run((1, 101), "taken over") is None
    assert scene.active_runs.list_open_claims() == {(2, 102)}


def test_what_cannot_be_started_does_not_start_what_comes_after_it(scene, caplog):
    """Each would begin the next one, and the stack would end before the queue."""
    call = scene.begun()
    reserve(scene, *range(2, 1002))
    scene.thread.error = RuntimeError("no more threads")
    scene.active_runs.receive_ending(call, RETURNED)
    assert len(scene.active_runs.reserved) == 999
    scene.active_runs.collect_endings()
    assert scene.active_runs.ends == 2
    caplog.clear()


def test_a_reserved_run_that_goes_on_says_that_it_has_begun(scene):
    reserve(scene, 1, 2)
    scene.active_runs.start_reserved(1)
    assert scene.active_runs.progress_in == pytest.approx(WRITE_EVERY)
    with scene.active_runs.open_report() as said:
        assert said.notes == ()
    scene.clock.advance(2 * WRITE_EVERY)
    assert scene.active_runs.progress_in == 0.0
    assert scene.active_runs.send_report("s1")
    [note] = [note for verb, step in scene.store.told if verb == "step" for note in step.notes]
    assert note == Note(1, 101, session="s1", ran=timedelta(seconds=2 * WRITE_EVERY))
    assert scene.active_runs.progress_in is None


def test_a_reserved_run_that_ends_soon_says_nothing_of_its_beginning(scene):
    reserve(scene, 1)
    scene.active_runs.start_reserved(1)
    scene.active_runs.receive_ending(scene.thread.calls[0], RETURNED)
    scene.clock.advance(WRITE_EVERY)
    scene.active_runs.send_report("s1")
    assert [step.notes for verb, step in scene.store.told if verb == "step"] == [()]
    assert scene.active_runs.progress_in is None


def test_threads_that_end_at_once_begin_each_reserved_run_once(scene):
    calls = [scene.begun(number) for number in range(1, 9)]
    reserve(scene, *range(11, 19))
    barrier = threading.Barrier(8)

    def end(call):
        barrier.wait(30)
        scene.active_runs.receive_ending(call, RETURNED)

    threads = [threading.Thread(target=end, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(started(scene)) == [*range(1, 9), *range(11, 19)]
    scene.active_runs.collect_endings()
    assert scene.active_runs.count_claims("s1") == 16
    assert sorted(scene.active_runs.list_held_claims("s1")) == [(number, 100 + number) for number in range(11, 19)]
