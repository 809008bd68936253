"""Which event a node makes of what the store has answered."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronsensus import State
from cronsensus.bus import Bus
from cronsensus.events import Event, RunEnded, SessionLost, TakenOver
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, RunError, Settled, Takeover
from cronsensus.model.states import Origin
from cronsensus.model.step import GiveBack
from cronsensus.node.round import HALTED_SECONDS
from cronsensus.node.run_events import RunEvents
from cronsensus.testing.conformance.steps import an_end
from tests.membership.test_emptied_under_locks_and_calls import empty
from tests.node.test_emptied_under_nodes import Troubled, unavailable
from tests.node.test_node_crank import Bench

T0 = datetime(2026, 3, 1, tzinfo=UTC)
CLAIM = Claim(
    id=7, spec=JobSpec(name="work", function="work"), key="k", origin=Origin.SCHEDULE, scheduled_for=T0, due_at=T0,
    attempt=2, token=9, session="s", args=(), kwargs={}, claimed_at=T0, created_at=T0,
)  # fmt: skip
ERROR = RunError(type="ValueError", message="no")


class Emitted(Bus):
    """A bus that only notes."""

    def __init__(self, *wanted: str) -> None:
        super().__init__()
        self.events: list[Any] = []
        for name in wanted:
            self.on(name, print)

    def emit(self, event: Event) -> None:
        self.events.append(event)


def ended(**changes: Any) -> RunEnded:
    values: dict[str, Any] = {
        "node": "me", "job": "work", "occurrence": 7, "key": "k", "scheduled_for": T0, "attempt": 2, "token": 9,
        "session": "s", "origin": Origin.SCHEDULE,
    }  # fmt: skip
    return RunEnded(**values | changes)


def test_nothing_is_made_or_kept_where_nobody_subscribed():
    bus = Emitted()
    events = RunEvents(bus, "me")
    events.publish_start(CLAIM)
    events.publish_end(Settled(7, 9, True, State.FAILED), an_end(id=7, token=9, state=State.FAILED))
    events.publish_release(GiveBack(claim=CLAIM), accepted=True)
    events.publish_takeovers([Takeover(7, "work", "k", 9, "s-1", State.PENDING, "crashed")], {})
    events.publish_plans([])
    events.publish_loss("s", [1])
    assert (bus.events, events._begun) == ([], {})


@pytest.mark.parametrize(
    ("said", "accepted", "stands", "told"),
    [
        (State.SUCCEEDED, True, State.SUCCEEDED, "succeeded"),
        (State.FAILED, True, State.FAILED, "failed"),
        (State.CANCELLED, True, State.CANCELLED, "cancelled"),
        (State.SKIPPED, True, State.SKIPPED, "skipped"),
        (State.PENDING, True, State.PENDING, "retry"),
        (State.SUCCEEDED, False, None, "refused"),
        (State.FAILED, False, State.SUCCEEDED, "refused"),
    ],
)
def test_the_end_of_a_run_is_what_the_store_has_made_of_it(said, accepted, stands, told):
    bus = Emitted("run.ended")
    events = RunEvents(bus, "me")
    outcome = an_end(id=7, token=9, state=said, reason="why", error=ERROR, elapsed=timedelta(seconds=3))
    events.publish_start(CLAIM)
    events.publish_end(Settled(7, 9, accepted, stands), outcome)
    events.publish_end(Settled(7, 9, accepted, stands), outcome)  # said again: told once
    as_said = {"reason": "why", "error": ERROR} if said is stands else {}
    assert bus.events == [ended(end=told, seconds=3.0, **as_said)]


def test_a_run_that_had_committed_has_succeeded_without_the_error_that_came_later():
    bus = Emitted("run.ended")
    events = RunEvents(bus, "me")
    events.remember_claim(CLAIM)
    outcome = an_end(id=7, token=9, state=State.FAILED, error=ERROR, elapsed=timedelta(seconds=1))
    events.publish_end(Settled(7, 9, True, State.SUCCEEDED), outcome)
    assert bus.events == [ended(end="succeeded", seconds=1.0)]


@pytest.mark.parametrize(
    ("cut", "accepted", "told"),
    [
        ("crashed", True, "crashed"),
        ("stopped", True, "released"),
        (None, True, "released"),
        ("stopped", False, "refused"),
    ],
)
def test_a_run_that_was_started_and_given_back_has_an_end(cut, accepted, told):
    bus = Emitted("run.ended")
    events = RunEvents(bus, "me")
    events.publish_start(CLAIM)
    events.publish_release(GiveBack(claim=CLAIM, cut=cut), accepted=accepted)
    assert bus.events == [ended(end=told)]


def test_a_claim_that_was_given_back_and_never_started_has_none():
    bus = Emitted("run.ended")
    RunEvents(bus, "me").publish_release(GiveBack(claim=CLAIM), accepted=True)
    assert bus.events == []


def test_each_dead_session_is_a_takeover_with_its_own_runs():
    bus = Emitted("takeover")
    one, two, three = (
        Takeover(number, "work", "k", 9, session, State.PENDING, "crashed")
        for number, session in ((1, "b"), (3, "a"), (2, "a"))
    )
    RunEvents(bus, "me").publish_takeovers([one, two, three], {"a": "web-1"})
    assert bus.events == [
        TakenOver(node="me", session="a", dead_node="web-1", runs=(three, two)),
        TakenOver(node="me", session="b", dead_node=None, runs=(one,)),
    ]


def test_a_lost_session_is_told_once_though_rounds_that_fail_come_by_again():
    bench, bus = Bench(store=Troubled), Emitted("session.lost")
    bench.round._run_events = RunEvents(bus, "me")
    bench.round.run_round()
    assert bench.round.lease is not None
    session = bench.round.lease.session
    bench.round.lease.mark_lost()
    assert isinstance(bench.store, Troubled)
    bench.store.on_open = unavailable
    bench.round.run_round()
    assert bench.round.stats.store_errors == 1
    bench.round.run_round()
    assert bench.round.lease.session != session
    assert bus.events == [SessionLost(node="me", session=session, runs=())]


def test_a_node_that_an_emptied_store_stops_tells_once_that_its_session_is_lost():
    bench, bus = Bench(store=Troubled, stop=True), Emitted("session.lost")
    bench.round._run_events = RunEvents(bus, "me")
    bench.round.run_round()
    assert bench.round.lease is not None
    session = bench.round.lease.session
    bench.round.lease.mark_lost()
    empty(bench.store)
    assert bench.round.run_round() == bench.round.run_round() == HALTED_SECONDS
    assert bus.events == [SessionLost(node="me", session=session, runs=())]
