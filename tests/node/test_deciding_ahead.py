"""The node whose turn it is decides before a due time, and at the due time it only starts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from cronsensus.audit import audit
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Overlap, Policies
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node.decide import SHORTEST_SLEEP
from cronsensus.node.executors.base import Call
from cronsensus.node.lead_time import (
    EARLY_SLACK,
    FIRST_LEAD,
    LEAST_AND_MOST_LEAD,
    LONGEST_LEAD,
    LOOKS_MEASURED,
    MOST_ROUND_TRIPS,
    RESERVE_FACTOR,
    LeadTime,
)
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every
from tests.node.recording_executor import RecordingExecutor, node_by_hand

LEASE = timedelta(minutes=5)
LEAD = FIRST_LEAD


class TimedExecutor(RecordingExecutor):
    """Notes also how late each run began."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.late: list[timedelta] = []

    def start(self, call: Call) -> None:
        super().start(call)
        self.late.append(self.clock.now() - call.claim.due_at)


class Bench:
    """One node with a job every half minute, which just looked for the first time."""

    def __init__(self, *, overlap: Overlap = "allow", concurrency: int = 5) -> None:
        self.overlap = overlap
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.hands = TimedExecutor(self.clock)
        self.verbs: list[str] = []
        self.define("30s")
        self.round = node_by_hand(self.store, self.clock, self.hands, lease=LEASE, concurrency=concurrency)
        self.round.run_round()

    def define(self, interval: str) -> None:
        spec = JobSpec(name="work", function="work", trigger=every(interval), policies=Policies(overlap=self.overlap))
        self.store.define_jobs([spec], release="1")

    def step_at(self, seconds: float) -> float:
        """Let time pass until ``seconds`` before the due time, and turn the crank."""
        self.clock.advance(timedelta(seconds=30 - seconds) - (self.clock.now() - ManualClock().now()))
        self.verbs.clear()
        return self.round.run_round()

    def play(self, runs: int) -> list[timedelta]:
        """Turn the crank until so many runs have begun, each of which ends at once; return how late each began."""
        for _ in range(40 * runs):
            ended = len(self.hands.late)
            wait = self.round.run_round()
            for call in self.hands.calls[ended:]:
                self.round.active_runs.receive_ending(call, Ending(kind="returned"))
            if len(self.hands.late) >= runs:
                return self.hands.late
            self.clock.advance(max(wait, SHORTEST_SLEEP) if ended == len(self.hands.late) else 0.0)
        raise AssertionError(f"only {self.hands.late} began")

    def end(self) -> None:
        """Let every run succeed."""
        for call in self.hands.calls:
            self.round.active_runs.receive_ending(call, Ending(kind="returned"))
        self.round.run_round()

    def started(self) -> list[Any]:
        return [call.claim.scheduled_for for call in self.hands.calls]


@pytest.fixture
def bench(monkeypatch) -> Bench:
    made = Bench()
    for verb in ("look", "step"):
        monkeypatch.setattr(made.store, verb, partial(_noted, made.verbs, verb, getattr(made.store, verb)))
    return made


def _noted(verbs: list[str], verb: str, do: Callable[..., Any], *args: Any, **more: Mapping[str, Any]) -> Any:
    verbs.append(verb)
    return do(*args, **more)


def test_the_node_decides_shortly_before_the_due_time(bench):
    assert bench.step_at(LEAD) == pytest.approx(LEAD)
    assert bench.verbs == ["look", "step"]
    assert bench.round.stats.fired == 1
    assert bench.round.active_runs.active_count == 1


def test_round_that_begins_within_the_slack_decides_ahead(bench):
    bench.step_at(LEAD + EARLY_SLACK / 2)
    assert bench.round.stats.fired == 1


def test_run_decided_ahead_starts_at_its_due_time_and_not_before(bench):
    due_at = bench.clock.now() + timedelta(seconds=30)
    bench.step_at(LEAD)
    bench.step_at(0.001)
    assert bench.started() == []
    bench.step_at(0)
    assert bench.started() == [due_at] == [bench.clock.now()]


def test_due_run_starts_before_the_first_verb_of_the_round(bench, monkeypatch):
    bench.step_at(LEAD)
    monkeypatch.setattr(bench.store, "look", partial(_noted, bench.verbs, "look", bench.store.look))
    monkeypatch.setattr(bench.hands, "start", lambda _: bench.verbs.append("start"))
    bench.step_at(0)
    assert bench.verbs[0] == "start"


def test_a_round_starts_what_was_decided_and_does_not_look(bench, monkeypatch):
    def slowly(verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
        answer = verb(*args, **more)
        bench.clock.advance(0.004)
        return answer

    for verb in ("look", "step"):
        monkeypatch.setattr(bench.store, verb, partial(slowly, getattr(bench.store, verb)))
    bench.clock.advance(bench.step_at(LEAD))
    bench.verbs.clear()
    bench.round.run_round()
    assert len(bench.started()) == 1
    assert bench.verbs == []


def test_a_job_of_each_second_takes_a_look_and_a_step_ahead_and_a_step_for_its_end(bench):
    bench.define("1s")
    bench.play(2)
    bench.verbs.clear()
    late = bench.play(30)
    assert set(late[2:]) == {timedelta(0)}
    assert bench.round.stats.lost_races == 0
    assert (bench.verbs.count("look"), bench.verbs.count("step")) == (28, 2 * 28)


def test_a_wrong_idea_of_the_time_fires_nothing_early(bench):
    bench.step_at(1)
    bench.clock.step(-1)  # the store's clock; the node counts on by the other
    bench.clock.advance(1)
    bench.round.run_round()
    assert bench.started() == []
    assert bench.round.stats.fired == 0


def test_a_job_that_was_changed_shortly_before_is_run_as_it_is_now(bench, monkeypatch):
    look = bench.store.look

    def changed_after_the_look(**asked):
        found = look(**asked)
        bench.define("15s")
        return found

    monkeypatch.setattr(bench.store, "look", changed_after_the_look)
    bench.step_at(LEAD)
    assert bench.round.stats.lost_races == 1
    bench.step_at(0)
    assert bench.started() == [bench.clock.now()]


def test_nothing_is_fired_for_a_job_that_was_paused_before_it_was_decided(bench):
    bench.step_at(1)
    bench.store.pause("work", by="ann", why="maintenance")
    bench.step_at(LEAD)
    bench.step_at(0)
    assert bench.started() == []


def test_a_pause_that_comes_after_the_decision_comes_after_the_run(bench):
    bench.step_at(LEAD)
    bench.store.pause("work", by="ann", why="maintenance")
    bench.step_at(0)
    assert bench.started() == [bench.clock.now()]
    assert audit(bench.store).ok


def test_plan_that_depends_on_the_previous_occurrence_is_left_to_the_due_time():
    bench = Bench(overlap="skip")
    bench.step_at(0)
    bench.step_at(LEAD - 30)
    assert (bench.round.stats.fired, bench.round.stats.lost_races) == (1, 0), "a plan that the store refuses"
    bench.end()
    bench.step_at(-30)
    assert len(bench.started()) == 2


def test_node_without_a_free_slot_decides_nothing_ahead():
    bench = Bench(concurrency=1)
    bench.step_at(0)
    bench.step_at(LEAD - 30)
    assert (bench.round.stats.fired, bench.round.stats.lost_races) == (1, 0), "a plan that the store refuses"


def test_what_was_fired_in_the_same_round_is_looked_at_again_before_it_is_decided_ahead(bench):
    bench.define("10ms")
    assert bench.step_at(0) == pytest.approx(0.0)
    bench.verbs.clear()
    assert bench.round.run_round() == pytest.approx(0.01)
    assert bench.verbs == ["look", "step"]
    assert bench.round.stats.lost_races == 0


def test_a_session_that_is_lost_between_decision_and_start_starts_nothing(bench):
    bench.step_at(LEAD)
    bench.store.reclaim([bench.round.lease.session])
    bench.round.lease.mark_lost()
    bench.step_at(0)
    assert bench.started() == [bench.clock.now()]
    assert [call.claim.session for call in bench.hands.calls] == [bench.round.lease.session]


def test_a_node_that_leaves_gives_back_what_has_not_begun(bench):
    bench.step_at(LEAD)
    bench.round.close_session()
    [one] = bench.store.occurrences(OccurrenceFilter())
    assert (one.state, one.attempt) == (State.PENDING, 0)


def test_slow_store_lengthens_the_lead_time(bench, monkeypatch):
    step = bench.store.step

    def slow(*args, **kwargs):
        bench.clock.advance(0.02)
        return step(*args, **kwargs)

    monkeypatch.setattr(bench.store, "step", slow)
    bench.step_at(LEAD)
    bench.step_at(-1)
    bench.end()
    assert bench.round.run_round() == pytest.approx(29 - 0.02 - RESERVE_FACTOR * 0.02), (
        "the end of the run took a step, too"
    )


@pytest.mark.parametrize(
    ("trip", "took", "seconds"),
    [
        (0.001, 0.0, LEAST_AND_MOST_LEAD[0]),
        (0.001, 10.0, LEAST_AND_MOST_LEAD[1]),
        (0.040, 0.0, 0.120),
        (0.040, 0.120, 0.180),
        (0.040, 10.0, MOST_ROUND_TRIPS * 0.040),
        (0.100, 0.200, 0.300),
        (0.300, 10.0, LONGEST_LEAD),
    ],
)
def test_the_lead_time_is_as_long_as_deciding_takes_and_bounded_by_the_round_trip(trip, took, seconds):
    lead = LeadTime()
    for _ in range(50):
        lead = lead.after_look(trip).measured_after(took)
    assert lead.seconds == pytest.approx(seconds)
    assert timedelta(seconds=lead.longest_seconds + EARLY_SLACK) < MOST_AHEAD


def test_lead_time_shrinks_gradually_after_one_slow_step():
    first = LeadTime().measured_after(0.05)
    assert LEAST_AND_MOST_LEAD[0] < first.measured_after(0.001).seconds < first.seconds


def test_one_slow_look_does_not_lengthen_the_lead_time():
    lead = LeadTime()
    for _ in range(LOOKS_MEASURED):
        assert lead.longest_seconds == LEAST_AND_MOST_LEAD[1]
        lead = lead.after_look(0.04)
    assert lead.longest_seconds == pytest.approx(MOST_ROUND_TRIPS * 0.04)
    assert lead.after_look(5.0).trip_seconds == 0.04
    assert lead.after_look(0.001).longest_seconds == LEAST_AND_MOST_LEAD[1]


def test_lead_time_is_as_long_as_a_look_and_a_step_took_and_bounded_by_the_round_trip():
    lead = LeadTime()
    for _ in range(50):
        lead = lead.after_look(0.04).measured_after(0.12 + 0.04)
    assert lead.seconds == pytest.approx(RESERVE_FACTOR * (0.12 + 0.04))
    assert lead.measured_after(10.0).seconds == lead.longest_seconds == pytest.approx(MOST_ROUND_TRIPS * 0.04)


@pytest.mark.parametrize(("trip", "most"), [(0.01, LEAST_AND_MOST_LEAD[1]), (0.04, MOST_ROUND_TRIPS * 0.04)])
def test_lead_time_where_a_look_that_shows_jobs_takes_three_trips_is_bounded_by_nine(bench, monkeypatch, trip, most):
    """What a look asks after the clock is no distance: a pause must not come earlier for it."""
    bench.define("1s")
    monkeypatch.setattr(bench.store, "look", partial(_in_trips, bench.clock, trip, 3, bench.store.look))
    monkeypatch.setattr(bench.store, "step", partial(_in_trips, bench.clock, trip, 5, bench.store.step))
    bench.play(12)
    claimed = [call.claim.due_at - call.claim.claimed_at for call in bench.hands.calls]
    assert max(claimed[4:]) <= timedelta(seconds=most + EARLY_SLACK)
    assert bench.round._memory.lead.trip_seconds == pytest.approx(trip)


@pytest.mark.parametrize("trips", [1, 4])
def test_run_begins_half_a_round_trip_late_however_many_its_look_and_its_step_took(bench, monkeypatch, trips):
    trip = 0.04
    bench.define("1s")
    monkeypatch.setattr(bench.store, "look", partial(_in_trips, bench.clock, trip, 3, bench.store.look))
    monkeypatch.setattr(bench.store, "step", partial(_in_trips, bench.clock, trip, trips, bench.store.step))
    late = bench.play(16)[12:]  # four looks tell the distance
    assert timedelta(0) <= min(late)
    assert max(late) <= timedelta(seconds=trip / 2 + 10 * SHORTEST_SLEEP)


def _in_trips(clock: ManualClock, trip: float, count: int, verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Answer after so many round trips, of which the first one brings the clock."""
    clock.advance(trip / 2)
    answer = verb(*args, **more)
    clock.advance(trip / 2 + (count - 1) * trip)
    return replace(answer, age=(count - 1) * trip)


def test_far_from_the_store_a_pause_within_the_longer_lead_time_comes_too_late(bench, monkeypatch):
    trip = 0.04
    for verb in ("look", "step"):
        monkeypatch.setattr(bench.store, verb, partial(_from_afar, bench.clock, trip, getattr(bench.store, verb)))
    for _ in range(LOOKS_MEASURED):
        bench.round.run_round()
    bench.clock.advance(bench.round.run_round())
    lead = bench.round._memory.lead.seconds
    assert lead == pytest.approx(RESERVE_FACTOR * 2 * trip)
    assert lead > LEAST_AND_MOST_LEAD[1]
    bench.round.run_round()
    bench.store.pause("work", by="ann", why="maintenance")
    assert bench.started() == []
    bench.clock.advance(bench.round.active_runs.starts_in)
    bench.round.run_round()
    (started,) = bench.started()
    assert timedelta(0) <= bench.clock.now() - started <= timedelta(seconds=1.5 * trip)
    assert audit(bench.store).ok


def _from_afar(clock: ManualClock, trip: float, verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
    clock.advance(trip / 2)
    answer = verb(*args, **more)
    clock.advance(trip / 2)
    return answer


def test_what_a_look_asked_after_the_clock_does_not_make_a_start_late(bench, monkeypatch):
    """A look that finds due jobs asks for them, too; the clock came with its first answer."""
    look, age = bench.store.look, LEAD / 4

    def in_two_trips(**question):
        view = look(**question)
        bench.clock.advance(timedelta(seconds=age))
        return replace(view, age=age)

    monkeypatch.setattr(bench.store, "look", in_two_trips)
    monkeypatch.setattr(bench.store, "step", _with_an_old_clock(bench.store.step, age))
    assert bench.step_at(LEAD) == pytest.approx(LEAD - age)


def _with_an_old_clock(step, age):
    """Let the clock of claims be older, as it is at the end of a step of some round trips."""

    def stepped(*args, **kwargs):
        done = step(*args, **kwargs)
        claims = tuple(
            structs.replace(one, claimed_at=one.claimed_at - timedelta(seconds=2 * age)) for one in done.claims
        )
        return replace(done, claims=claims)

    return stepped
