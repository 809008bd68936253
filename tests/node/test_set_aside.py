"""A plan that the store cannot take is set aside; not for what is wrong with the whole store, nor in another one."""

from datetime import timedelta

import pytest

from cronsensus.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreReadOnly, StoreUnavailable
from cronsensus.model.job import JobSpec
from cronsensus.model.step import Done, Step
from cronsensus.node.round import Round
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every
from tests.node.recording_executor import RecordingExecutor, node_by_hand

LEASE = timedelta(minutes=5)
EVERY = timedelta(seconds=10)


class Refusing(MemoryStore):
    """A store that takes no plan while it has an error to raise."""

    error: StoreError | None = None
    refused = 0

    def _step(self, session: str, step: Step) -> Done:
        if step.plans and self.error is not None:
            self.refused += 1
            raise self.error
        return super()._step(session, step)


class Scene:
    """One node with a job every ten seconds, whose store refuses its first plan."""

    def __init__(self, error: StoreError) -> None:
        self.clock = ManualClock()
        self.store = Refusing(clock=self.clock)
        self.store.define_jobs([JobSpec(name="work", function="work", trigger=every("10s"))], release="1")
        self.executor = RecordingExecutor()
        self.round: Round = node_by_hand(self.store, self.clock, self.executor, lease=LEASE)
        self.store.error = error
        self.go_on(2 * EVERY)
        assert self.store.refused
        assert not self.executor.calls
        self.store.error = None

    def go_on(self, time: timedelta) -> None:
        for _ in range(int(time / timedelta(seconds=0.5))):
            self.round.run_round()
            self.clock.advance(0.5)


@pytest.mark.parametrize("kind", [SchemaMismatch, StoreReadOnly, StoreUnavailable])
def test_a_plan_refused_for_what_is_wrong_with_the_store_is_not_set_aside(kind: type[StoreError]) -> None:
    scene = Scene(kind("so it is"))
    scene.go_on(EVERY)
    assert scene.executor.calls


def test_a_plan_refused_by_itself_is_set_aside_for_a_minute() -> None:
    scene = Scene(StoreCorrupt("so it is"))
    scene.go_on(2 * EVERY)
    assert not scene.executor.calls
    scene.go_on(timedelta(minutes=1))
    assert scene.executor.calls


def test_a_session_that_begins_anew_sets_nothing_aside_since_ids_may_be_of_another_store() -> None:
    scene = Scene(StoreCorrupt("so it is"))
    lease = scene.round.lease
    assert lease is not None
    lease.mark_lost()
    scene.store.close_session(lease.session)
    scene.go_on(EVERY)
    assert scene.executor.calls
