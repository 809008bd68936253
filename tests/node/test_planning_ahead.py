"""The node whose turn it is plans before a due time, tries the way once, and then only fires."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from cronsensus.clock import ManualClock
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.session import SessionSpec
from cronsensus.node.ahead import LEAD, REHEARSAL
from cronsensus.node.conductor import Conductor
from cronsensus.node.executors.base import Call, Executor, Registered
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.memory import MemoryStore
from cronsensus.triggers import every

LEASE = timedelta(minutes=5)


class Hands(Executor):
    """Keeps calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def start(self, call: Call) -> None:
        self.calls.append(call)

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None: ...

    def close(self) -> None: ...


class Bench:
    """One conductor with a job every half minute, which just looked for the first time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.hands = Hands()
        self.verbs: list[str] = []
        self.define("30s")
        self.conductor = Conductor(
            self.store,
            self.clock,
            NodeSettings(name="a", lease=LEASE, concurrency=5),
            registry={"work": Registered("work", lambda: None, "thread")},
            executors={"thread": self.hands},
            new_session=self._session,
            declare=lambda _: False,
        )
        self.conductor.step()

    def define(self, interval: str) -> None:
        spec = JobSpec(name="work", function="work", trigger=every(interval), policies=Policies(overlap="allow"))
        self.store.put_jobs([spec], release="1")

    @staticmethod
    def _session() -> SessionSpec:
        return SessionSpec(
            id=new_id(), node="a", host="h", pid=1, pid_started=1, release="1", concurrency=5, version="0"
        )

    def step_at(self, seconds: float) -> float:
        """Let time pass until ``seconds`` before the due time, and turn the crank."""
        self.clock.advance(timedelta(seconds=30 - seconds) - (self.clock.now() - ManualClock().now()))
        self.verbs.clear()
        return self.conductor.step()

    def started(self) -> list[Any]:
        return [call.claim.scheduled_for for call in self.hands.calls]


@pytest.fixture
def bench(monkeypatch) -> Bench:
    made = Bench()
    for verb in ("due", "upcoming", "fire", "claim", "fire_and_claim"):
        monkeypatch.setattr(made.store, verb, partial(_noted, made.verbs, verb, getattr(made.store, verb)))
    return made


def _noted(verbs: list[str], verb: str, do: Callable[..., Any], *args: Any, **more: Mapping[str, Any]) -> Any:
    verbs.append(verb)
    return do(*args, **more)


def test_the_node_looks_and_plans_shortly_before_the_due_time(bench):
    assert bench.step_at(LEAD) == pytest.approx(LEAD - REHEARSAL)
    assert bench.verbs == ["due", "upcoming"]


def test_a_little_too_early_it_tries_and_nothing_happens(bench):
    bench.step_at(LEAD)
    assert bench.step_at(REHEARSAL) == pytest.approx(REHEARSAL)
    assert bench.verbs == ["fire", "claim"]
    assert bench.started() == []
    assert bench.conductor.tally.lost_races == 0


def test_when_the_time_has_come_it_fires_before_it_looks(bench):
    bench.step_at(LEAD)
    bench.step_at(REHEARSAL)
    bench.step_at(0)
    assert bench.verbs[0] == "fire_and_claim"
    assert bench.started() == [bench.clock.now()]


def test_a_wrong_idea_of_the_time_fires_nothing_early(bench):
    bench.step_at(LEAD)
    bench.clock.step(-1)  # the store's clock; the node counts on by the other
    bench.clock.advance(LEAD)
    bench.conductor.step()
    assert bench.started() == []


def test_a_plan_that_no_longer_holds_is_made_again(bench):
    bench.step_at(LEAD)
    bench.define("15s")
    bench.step_at(0)
    assert bench.conductor.tally.lost_races == 1
    assert bench.started() == [bench.clock.now()]


def test_nothing_is_fired_for_a_job_that_was_paused_meanwhile(bench):
    bench.step_at(LEAD)
    bench.store.pause("work", by="ann", why="maintenance")
    bench.step_at(0)
    assert bench.started() == []
