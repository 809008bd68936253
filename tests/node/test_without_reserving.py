"""Nodes that are told to reserve nothing: a long queue ends the same, and no run waits for a slot of one node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step
from cronsensus.node import pace
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock
from tests.node.test_reserved_scenes import RESERVED, SLOTS, WAITING, Node, Scene, answers_get_lost


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(pace.Pace, "reserve_limit", RESERVED)
    clock = ManualClock()
    made = Scene(MemoryStore(clock=clock), clock, reserves=False)
    yield made
    for node in made.nodes:
        node.store.close()


def note_steps(node: Node, steps: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    step = node.store.step

    def stepped(session: str, said: Step) -> Done:
        steps.append(said)
        return step(session, said)

    monkeypatch.setattr(node.store, "step", stepped)


def test_two_nodes_that_reserve_nothing_share_a_long_queue_of_which_each_holds_what_it_runs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, steps = (scene.a, scene.another()), list[Step]()
    for node in nodes:
        note_steps(node, steps, monkeypatch)
    for _ in range(WAITING):
        for node in nodes:
            node.round.run_round()
            held = scene.store.occurrences(OccurrenceFilter(states=(State.RUNNING,)), limit=WAITING)
            assert len(held) <= SLOTS * len(nodes)
            assert not any(one.reserved for one in held)
            node.end(SLOTS)
    scene.go_on()
    scene.each_ran_once()
    assert all(len(node.begun) > WAITING // 4 for node in nodes)
    assert any(step.want for step in steps)
    assert not any(step.want.reserve for step in steps if step.want)


def test_claims_whose_answer_is_lost_run_once_where_nothing_is_reserved(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = answers_get_lost(scene.a, monkeypatch, times=2)
    scene.go_on()
    assert [(bool(step.ends), step.want.reserve) for step in lost if step.want] == [(True, 0)] * 2
    scene.each_ran_once()
