"""How work comes to a node, step by step: a store that answers as told, and a clock of the test."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs

from cronsensus.after.upstreams import Gates
from cronsensus.errors import StoreUnavailable
from cronsensus.membership.lease import SessionLease
from cronsensus.model.claim_order import ignores_classes
from cronsensus.model.gate import After, Gate, Rule
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step
from cronsensus.node.claiming import END_UNKNOWN, Claiming, read_unknown_claims
from cronsensus.node.holding import Waiting
from cronsensus.node.lead_time import ClockSample
from cronsensus.node.settings import NodeSettings
from cronsensus.node.situation import Firing, Work
from cronsensus.node.waking import Waking
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import LEASE, SECOND, START, a_session
from cronsensus.testing.conformance.steps import an_end, take
from cronsensus.timing.clock import ManualClock
from tests.node.test_active_runs import Scene

SOON = timedelta(milliseconds=50)


class Claims:
    """A store that gives what it is told to give."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.given: Any = []
        self.asked: list[Any] = []
        self.oldest: list[bool] = []
        self.running: list[Occurrence] = []
        self.known = True
        self.lost = False
        self.returned: tuple[bool, ...] = ()

    def _give(self, limit: int, functions: Any) -> Any:
        self.asked.append((limit, sorted(functions)))
        self.scene.clock.advance(0.25)
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def step(self, session: str, step: Step) -> Done:
        assert step.want is not None
        self.oldest.append(step.want.oldest)
        claims = self._give(step.want.limit, step.want.functions)
        if self.lost:
            return Done(carried_out=(False,) * len(step.plans), lost=True)
        return Done(carried_out=(True,) * len(step.plans), claims=tuple(claims), returned=self.returned)

    def occurrences(self, where: Any, *, after: int | None = None, limit: int) -> list[Occurrence]:
        return self.running if after is None else []

    def job(self, name: str) -> Any:
        return SimpleNamespace(spec=JobSpec(name=name, function="work")) if self.known else None

    def now(self) -> Any:
        return self.scene.clock.now()


class Bench(Scene):
    def __init__(self) -> None:
        super().__init__()
        self.thread.abandoned_count = self.process.abandoned_count = 0
        self.claims = Claims(self)
        self.claiming = Claiming(
            self.claims,  # type: ignore[arg-type]
            self.clock,
            NodeSettings(name="a", lease=LEASE, concurrency=4),
            self.active_runs,
            registry=self.active_runs._registry,
            run_log=self.run_log,  # type: ignore[arg-type]
            waking=self.waking,
        )

    def takes(self, limit: int = 4, *, lease: SessionLease | None = None, sample: ClockSample | None = None) -> int:
        """Claim; return how many runs were won."""
        return len(self.claiming.carry_out_step(lease or self.lease, Firing(want=limit), sample).claims)

    def taken(self, number: int = 1, *, due_in: timedelta = timedelta(0)) -> Any:
        now = self.clock.now()
        return structs.replace(self.claim(number), due_at=now + due_in, claimed_at=now)

    def waits(self) -> list[float]:
        held = self.active_runs._held.values()
        return [one.at - self.clock.monotonic() for one in held if isinstance(one, Waiting)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_node_asks_for_functions_that_it_can_run(bench):
    bench.takes()
    bench.thread.is_able = False
    bench.takes(2)
    assert bench.claims.asked == [(4, ["apart", "work"]), (2, ["apart"])]


def test_a_node_whose_lease_is_not_trusted_asks_for_nothing(bench, monkeypatch):
    asked: list[Step] = []

    def step(session: str, wanted: Step) -> Done:
        asked.append(wanted)
        return Done()

    monkeypatch.setattr(bench.claims, "step", step)
    bench.clock.advance(LEASE)
    bench.claiming.carry_out_step(bench.lease, Work(want=4, reserve=2))
    assert [one.want for one in asked] == [None]


def test_each_tenth_claim_that_brings_work_is_without_classes(bench):
    brought = 0
    for number in range(40):
        bench.claims.given = [bench.taken(number)] if number % 3 else []  # each third one finds nothing
        expected = ignores_classes(bench.lease.session, brought)
        brought += bench.takes()
        assert bench.claims.oldest[-1] is expected
    assert brought > 20


def test_a_node_claims_for_its_free_slots(bench):
    assert bench.claiming.free_slots == 4
    for number in (7, 8, 9, 10, 11):
        bench.begun(number)
    assert bench.claiming.free_slots == 0


@pytest.mark.parametrize("due_in", [timedelta(0), timedelta(microseconds=1), SOON])
def test_what_was_won_begins_when_it_is_due(bench, due_in):
    bench.claims.given = [bench.taken(due_in=due_in)]
    assert bench.takes() == 1
    assert bench.run_log.of("log_starts") == [(bench.claims.given,)]
    if due_in:
        assert bench.waits() == pytest.approx([due_in.total_seconds()])
    else:
        assert [call.claim.id for call in bench.thread.calls] == [1]
    assert bench.lease.trusted_for < LEASE.total_seconds()


def test_the_better_of_two_readings_tells_when_that_is(bench):
    def fired(seen: ClockSample | None) -> list[float]:
        bench.active_runs._held.clear()
        bench.claims.given = [bench.taken(due_in=SOON)]
        assert bench.takes(1, sample=seen) == 1
        waits: list[float] = bench.waits()
        return waits

    late = SOON.total_seconds()
    assert fired(None) == pytest.approx([late])
    now, here = bench.clock.now(), bench.clock.monotonic()
    # The look said the same some time ago; by it the moment comes sooner than by the claim, which came the longer way.
    assert fired(ClockSample(now, here)) == pytest.approx([late - 0.25])
    now, here = bench.clock.now(), bench.clock.monotonic()
    assert fired(ClockSample(now, here + 5)) == pytest.approx([late]), "the other one is the better then"


def test_what_a_step_asked_after_the_clock_does_not_make_a_start_late(bench, monkeypatch):
    step = bench.claims.step
    monkeypatch.setattr(bench.claims, "step", lambda *said: replace(step(*said), age=0.1))
    bench.claims.given = [bench.taken(due_in=SOON)]
    bench.takes(1)
    assert bench.waits() == pytest.approx([SOON.total_seconds() - 0.1])


def test_nothing_won_is_nothing_told(bench):
    before = bench.lease.trusted_for
    assert bench.takes() == 0
    assert bench.run_log.told == []
    assert bench.lease.trusted_for == before - 0.25


def test_what_was_won_makes_the_lease_as_long_as_a_claim_does(bench):
    lease = bench.leased("s2")
    lease.confirm_renewal(lease.note_request(), LEASE * 10)
    bench.claims.given = [bench.taken()]
    bench.takes(lease=lease)
    assert lease.length == LEASE


def test_a_session_that_is_lost_has_its_runs_stopped(bench):
    bench.begun(7)
    bench.claims.lost = True
    assert bench.takes() == 0
    assert bench.lease.is_lost
    assert bench.thread.stopped == [(7, "lease lost", True)]
    assert not bench.active_runs.in_doubt


def test_what_was_won_begins_although_others_cannot_be_told_what_went_back(bench):
    bench.claims.given = [bench.claim()]
    bench.active_runs.release_claim(bench.claim(2))
    bench.claims.returned = (True,)
    bench.claims.notify = Mock(side_effect=StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        bench.claiming.carry_out_step(bench.lease, Work(want=3))
    assert bench.active_runs.list_open_claims() == {(1, 101)}
    assert [call.claim.id for call in bench.thread.calls] == [1]
    bench.claims.notify.assert_called_once()


def test_an_answer_that_is_lost_leaves_a_doubt_and_a_short_lease(bench):
    lease = bench.leased("s2")
    lease.confirm_renewal(lease.note_request(), LEASE * 10)
    bench.claims.given = StoreUnavailable("lost")
    with pytest.raises(StoreUnavailable):
        bench.takes(lease=lease)
    assert bench.active_runs.in_doubt
    assert lease.trusted_for < LEASE.total_seconds()
    bench.claiming.reset_doubt()
    assert not bench.active_runs.in_doubt


def test_what_the_store_gives_again_that_was_over_is_a_sign(bench):
    signs: list[Any] = []
    bench.claiming.on_forgotten = lambda *told: signs.append(told)
    bench.claims.given = [bench.taken(1), bench.taken(2)]
    over = an_end(id=1, token=50, session="s1", state=State.SUCCEEDED)
    bench.active_runs.accepted_ends.remember_end((1, 50), over)
    bench.takes()
    assert len(signs) == 1
    assert "gave occurrence 1 of 'work' again" in signs[0][0]


# --- claims whose answer was lost -------------------------------------------------------------------------------------


@pytest.fixture
def running() -> Occurrence:
    """Return an occurrence that runs, due at the start."""
    store = MemoryStore("memory://", clock=ManualClock(START))
    store.define_jobs([JobSpec(name="work", function="work")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="work")])
    assert take(store, "s1", 1, ["work"], lease=LEASE)
    return store.occurrences(OccurrenceFilter(), limit=1)[0]


def key(one: Occurrence) -> tuple[int, int]:
    return one.id, one.token


def test_claims_unknown_to_the_node_are_found(bench, running):
    bench.claims.running = [running]
    assert [(one.id, one.token) for one in read_unknown_claims(bench.claims, "s1", set())] == [key(running)]
    assert list(read_unknown_claims(bench.claims, "s1", {key(running)})) == []
    bench.claims.running = [replace(running, started_at=running.due_at + SECOND)]
    assert [one.claimed_at for one in read_unknown_claims(bench.claims, "s1", set())] == [running.due_at + SECOND]
    bench.claims.running = [replace(running, started_at=None)]
    assert [one.claimed_at for one in read_unknown_claims(bench.claims, "s1", set())] == [running.due_at]
    bench.claims.known = False
    assert list(read_unknown_claims(bench.claims, "s1", set())) == []


@pytest.mark.parametrize("due_in", [timedelta(0), SOON])
def test_adoption_starts_claims_at_their_due_time_and_clears_the_doubt(bench, running, due_in):
    bench.claims.running = [replace(running, due_at=START + due_in)]
    bench.active_runs.doubt_claims()
    bench.claiming.adopt_lost(bench.lease)
    assert not bench.active_runs.in_doubt
    assert bench.active_runs.list_open_claims() == {key(running)}
    assert len(bench.run_log.of("log_starts")) == 1
    assert bench.waits() == pytest.approx([due_in.total_seconds()] if due_in else [])


def test_a_look_tells_of_a_claim_only_after_an_answer_was_lost(bench, running):
    mine = SimpleNamespace(id="s1", holds=1, expires_in=SECOND)
    view: Any = SimpleNamespace(holders=[SimpleNamespace(id="s0", holds=9, expires_in=SECOND), mine])
    bench.claims.running = [running]
    bench.claiming.adopt_unknown_claims(bench.lease, view, bench.lease.note_request())
    assert not bench.active_runs.list_open_claims()
    bench.claiming._answers_lost = True
    mine.holds = 0
    bench.claiming.adopt_unknown_claims(bench.lease, view, bench.lease.note_request())
    bench.claiming.adopt_unknown_claims(bench.lease, SimpleNamespace(holders=[]), bench.lease.note_request())
    assert not bench.active_runs.list_open_claims()
    mine.holds = 1
    bench.claiming.adopt_unknown_claims(bench.lease, view, bench.lease.note_request())
    assert bench.active_runs.list_open_claims() == {key(running)}
    assert bench.lease.trusted_for < SECOND.total_seconds()


@pytest.mark.parametrize(
    ("on_crash", "answers_lost", "runs"), [("retry", False, True), ("fail", False, False), ("fail", True, True)]
)
def test_what_the_store_lists_and_may_have_run_already_is_not_run_twice(
    bench, monkeypatch, on_crash, answers_lost, runs
):
    claim = bench.claim(1, on_crash=on_crash)
    other = bench.claim(99)
    monkeypatch.setattr("cronsensus.node.claiming.read_unknown_claims", lambda *_: iter([other, claim]))
    bench.claiming._answers_lost = answers_lost
    bench.claiming.adopt_runs(bench.lease, {(claim.id, claim.token)})
    assert [call.claim.id for call in bench.thread.calls] == [claim.id] * runs
    assert [one.then.reason for one in bench.active_runs.report.unsent_ends] == [f"crashed: {END_UNKNOWN}"] * (not runs)


BEHIND = JobSpec(name="second", function="f", policies=Policies(overlap="allow"), after=After((Rule("first"),)))


@pytest.mark.parametrize("decision", ["wait", "skip"])
def test_claims_of_which_one_cannot_be_asked_about_all_go_back_and_none_is_settled(bench, monkeypatch, decision):
    """Two ends of one claim would be sent, and one of them refused."""
    answers: Iterator[tuple[Gate, dict[str, Any]]] = iter([(Gate(decision, "for first"), {})])

    def decide(*_: Any) -> Any:
        for answer in answers:
            return answer
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(Gates, "decide_gate", decide)
    now = bench.clock.now()
    bench.claims.given = [structs.replace(bench.taken(one), scheduled_for=now, spec=BEHIND) for one in (1, 2)]
    monkeypatch.setattr(Waking, "store", bench.claims)
    bench.waking.on_queued = lambda: None
    bench.takes(2)
    assert (len(bench.active_runs.list_open_claims()), bench.active_runs.starts_in) == (2, None)
    bench.waking.wake_due()
    bench.active_runs.collect_endings()
    assert not bench.active_runs.report.unsent_ends
    assert [one.claim.id for one in bench.active_runs.report.given_back] == [1, 2]
