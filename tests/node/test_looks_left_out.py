"""A node woken by the end of a run looks only where a look may show something new."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import RecordingExecutor, node_by_hand

LEASE = timedelta(minutes=5)


class Scene:
    """One node that runs one of ``waiting`` occurrences of a job of which one may run at a time."""

    def __init__(self, waiting: int, **policies: Any) -> None:
        self.store = MemoryStore(clock=ManualClock())
        spec = JobSpec(name="work", function="work", policies=Policies.read({"concurrency": 1} | policies))
        self.store.define_jobs([spec], release="1")
        self.store.enqueue([Item(job="work", key=str(number)) for number in range(waiting)])
        self.started = RecordingExecutor()
        self.round = node_by_hand(self.store, ManualClock(), self.started, lease=LEASE)
        self.round.run_round()
        self.round.run_round()
        assert len(self.started.calls) == 1
        self.verbs: list[str] = []

    def end(self, kind: Any = "returned") -> list[str]:
        """End the first run; return which verbs the round took that this woke the node for."""
        with pytest.MonkeyPatch.context() as patch:
            for verb in ("look", "step"):
                patch.setattr(self.store, verb, _noting(self.verbs, verb, getattr(self.store, verb)))
            self.round.active_runs.receive_ending(self.started.calls[0], Ending(kind=kind))
            self.round.run_round()
        return self.verbs


def test_the_end_of_a_run_is_recorded_without_a_look() -> None:
    scene = Scene(waiting=1)
    assert scene.end() == ["step"]


def test_a_node_that_was_woken_by_something_else_too_looks() -> None:
    scene = Scene(waiting=1)
    scene.round.woken = True
    assert scene.end() == ["step", "look"]


def test_end_of_a_run_with_a_backlog_is_followed_by_a_look() -> None:
    scene = Scene(waiting=2)
    assert scene.end()[:2] == ["step", "look"]
    assert len(scene.started.calls) == 2


def test_a_run_that_is_tried_again_is_looked_for() -> None:
    scene = Scene(waiting=1, retries=3)
    assert scene.end("raised") == ["step", "look"]


def test_what_a_dead_node_left_is_claimed_right_after_it_was_taken_back() -> None:
    scene = Scene(waiting=1)
    verbs: list[str] = []
    hands = RecordingExecutor()
    other = node_by_hand(
        scene.store, ManualClock(), hands, lease=LEASE, name="b", evidence=lambda view: view.node == "a"
    )
    with pytest.MonkeyPatch.context() as patch:
        for verb in ("look", "reclaim", "step"):
            patch.setattr(scene.store, verb, _noting(verbs, verb, getattr(scene.store, verb)))
        other.run_round()
        other.run_round()
    assert len(hands.calls) == 1
    assert [verb for verb in verbs if verb != "look"][-2:] == ["reclaim", "step"]
    assert verbs[verbs.index("reclaim") + 1] == "step"


def _noting(verbs: list[str], verb: str, do: Any) -> Any:
    def noted(*args: Any, **more: Any) -> Any:
        verbs.append(verb)
        return do(*args, **more)

    return noted
