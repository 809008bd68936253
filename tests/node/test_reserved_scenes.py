"""A node has reserved much of a long queue, and then something happens: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from cronsensus.errors import StoreCorrupt, StoreUnavailable
from cronsensus.membership.lease import LeaseRequest, SessionLease
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.session import Renewal
from cronsensus.model.states import Reason, State
from cronsensus.model.step import Done, Step
from cronsensus.node import pace
from cronsensus.node.pace import GATHER_SECONDS, STALLED_AFTER
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every
from tests.node.recording_executor import RecordingExecutor, node_by_hand
from tests.scratch import scratch_folder

LEASE = timedelta(seconds=10)
TICK = 0.01
SLOTS, RESERVED, WAITING = 2, 8, 30


class Node:
    """A node with two slots and a renewer, turned by hand."""

    def __init__(self, store: Store, clock: ManualClock, name: str, *, reserves: bool = True) -> None:
        self.store, self.executor, self.ended = store, RecordingExecutor(), 0
        self.renewer = SessionRenewer(
            clock, lease=LEASE, holds=lambda: bool(self.round.active_runs), on_renewal=self._on_renewal
        )
        self.round = node_by_hand(
            store,
            clock,
            self.executor,
            lease=LEASE,
            name=name,
            concurrency=SLOTS,
            functions=["work", "broken"],
            reserves=reserves,
            on_session=self.renewer.keep_session,
            request_renewal=self.renewer.request_renewal,
        )
        self.round.run_round()

    def _on_renewal(self, lease: SessionLease, renewal: Renewal, asked: LeaseRequest) -> None:
        self.round.active_runs.cancel_runs(renewal.cancel, renewal.held)
        self.round.reconciling.compare_held(lease, renewal.held, asked)

    @property
    def begun(self) -> list[int]:
        return [call.claim.id for call in self.executor.calls]

    @property
    def reserved(self) -> list[int]:
        reserved = self.round.active_runs.reserved
        return [number for number, _ in reserved.list_keys()]

    @property
    def session(self) -> str:
        assert self.round.lease is not None
        return self.round.lease.session

    def end(self, count: int = 1) -> None:
        """End the runs that began first."""
        for call in self.executor.calls[self.ended : self.ended + count]:
            self.ended += 1
            self.round.active_runs.receive_ending(call, Ending(kind="returned"))


class Scene:
    """Thirty occurrences wait; node ``a`` runs two of them and has reserved eight, if nodes reserve."""

    def __init__(
        self, store: Store, clock: ManualClock, *, waiting: int = WAITING, reserves: bool = True, **item: Any
    ) -> None:
        self.store, self.clock, self.reserves = store, clock, reserves
        store.migrate()
        store.define_jobs([JobSpec(name="work", function="work")], release="1")
        self.ids = [one.id for one in store.enqueue([Item(job="work", **item) for _ in range(waiting)])]
        self.a = Node(store.sibling(), clock, "a", reserves=reserves)
        self.nodes = [self.a]
        self.a.end()
        self.a.round.run_round()
        assert self.a.begun == self.ids[:3]
        assert bool(self.a.reserved) is reserves

    def another(self) -> Node:
        self.nodes.append(Node(self.store.sibling(), self.clock, "b", reserves=self.reserves))
        return self.nodes[-1]

    def look(self, number: int) -> Occurrence:
        found = self.store.occurrence(number)
        assert found is not None
        return found

    def go_on(self, *nodes: Node) -> None:
        """Turn nodes, or all, and end what they run, until nothing is active."""
        for _ in range(400):
            for node in nodes or self.nodes:
                node.round.run_round()
                node.renewer.renew(node.store)
                node.end(SLOTS)
            self.clock.advance(TICK)
            active = OccurrenceFilter(states=(State.PENDING, State.RUNNING))
            if not self.store.occurrences(active, limit=1):
                return
        raise AssertionError("something is active for ever")

    def each_ran_once(self, *, but: int = 0) -> None:
        """See that each occurrence but so many began once, and succeeded in the one attempt that counts."""
        begun = Counter(number for node in self.nodes for number in node.begun)
        assert set(begun.values()) == {1}
        found = self.store.occurrences(OccurrenceFilter(), limit=1000)
        assert Counter(one.state is State.SUCCEEDED for one in found) == Counter({True: len(begun), False: but})
        assert {one.crashes for one in found} == {0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with scratch_folder() as folder:
        made: Store = MemoryStore(clock=clock)
        if getattr(request, "param", "") == "sqlite":
            made = SqliteStore(f"sqlite:///{folder}/jobs.db", clock=clock)
        yield made
        made.close()


BOTH = pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)


@pytest.fixture
def scene(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(pace.Pace, "reserve_limit", RESERVED)
    made = Scene(store, clock)
    yield made
    for node in made.nodes:
        node.store.close()


def answers_get_lost(node: Node, monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> list[Step]:
    """Let steps that want work be carried out and their answers get lost; return which those were."""
    step, lost = node.store.step, list[Step]()

    def stepped(session: str, said: Step) -> Done:
        done = step(session, said)
        if said.want is not None and len(lost) < times:
            lost.append(said)
            raise StoreUnavailable("the answer is lost")
        return done

    monkeypatch.setattr(node.store, "step", stepped)
    return lost


# --- answers and leases that are lost ---------------------------------------------------------------------------------


@BOTH
def test_step_with_results_and_reserved_claims_whose_answer_is_lost_is_said_again_and_its_claims_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = answers_get_lost(scene.a, monkeypatch, times=2)
    scene.go_on()
    assert len(lost) == 2
    assert lost[0].ends
    assert lost[0].want is not None
    assert lost[0].want.reserve
    scene.each_ran_once()


@BOTH
def test_reserved_claims_that_a_node_has_not_heard_of_are_adopted_as_reserved(scene: Scene) -> None:
    held, begun = scene.a.reserved, scene.a.begun
    scene.a.round.active_runs.reserved.withdraw_all()
    scene.a.round.active_runs.doubt_claims()
    scene.a.round.run_round()
    assert (sorted(scene.a.reserved), scene.a.begun) == (held, begun)
    scene.go_on()
    scene.each_ran_once()


@BOTH
def test_session_that_is_lost_with_much_reserved_begins_nothing_of_it(scene: Scene) -> None:
    held = scene.a.reserved
    begun = scene.a.begun
    scene.store.reclaim([scene.a.session])
    assert [scene.look(number).crashes for number in held] == [0] * len(held)
    scene.a.renewer.request_renewal()
    scene.a.renewer.renew(scene.a.store)
    scene.a.end(SLOTS)
    assert scene.a.begun == begun
    scene.a.round.run_round()
    other = scene.another()
    scene.go_on()
    assert other.begun
    final = scene.store.occurrences(OccurrenceFilter(), limit=100)
    assert {one.state for one in final} == {State.SUCCEEDED}
    again = Counter(number for node in scene.nodes for number in node.begun)
    assert {number for number, times in again.items() if times > 1} == set(begun[1:]), "what ran when it was lost"


@BOTH
def test_lease_that_runs_out_with_much_reserved_leaves_all_of_it_to_others(scene: Scene) -> None:
    held = scene.a.reserved
    scene.clock.advance(LEASE + timedelta(seconds=1))
    scene.a.end(SLOTS)
    assert scene.a.begun == scene.ids[:3]
    other = scene.another()
    scene.store.reclaim()
    scene.go_on(other)
    assert set(held) <= set(other.begun)
    assert {scene.look(number).crashes for number in held} == {0}


def test_store_that_is_away_takes_back_what_was_reserved_when_it_answers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = scene.a.reserved
    with monkeypatch.context() as patch:
        for verb in ("step", "look", "renew"):
            patch.setattr(scene.a.store, verb, lambda *_, **__: _unavailable())
        scene.clock.advance(STALLED_AFTER + TICK)
        for _ in range(3):
            scene.a.round.run_round()
        assert scene.a.reserved == []
    scene.a.round.run_round()
    assert [scene.look(number).attempt for number in held] == [0] * len(held)
    scene.go_on()
    scene.each_ran_once()


def _unavailable() -> None:
    raise StoreUnavailable("away")


# --- nodes that stop, and nodes that compete --------------------------------------------------------------------------


def test_node_that_drains_begins_nothing_reserved_and_hands_it_back_at_once(scene: Scene) -> None:
    begun = scene.a.begun
    scene.a.round.drain_node()
    scene.a.end()
    assert scene.a.begun == begun, "the slot of a run that ended does not pass on"
    scene.a.round.run_round()
    assert scene.a.reserved == []
    assert scene.another().begun, "the other node has it at once"
    scene.go_on()
    scene.each_ran_once()


def test_node_that_stops_while_much_is_reserved_leaves_it_as_if_it_had_not_been_claimed(scene: Scene) -> None:
    held = scene.a.reserved
    scene.a.end(SLOTS)
    scene.a.round.close_session()
    for call in scene.a.executor.calls:
        scene.a.round.active_runs.receive_ending(call, Ending(kind="returned"))
    waits = [scene.look(number) for number in held if number not in scene.a.begun]
    assert {(one.state, one.attempt, one.session) for one in waits} == {(State.PENDING, 0, None)}
    scene.go_on(scene.another())
    assert {one.state for one in scene.store.occurrences(OccurrenceFilter(), limit=100)} == {State.SUCCEEDED}


def test_slot_that_gets_free_while_all_is_handed_back_begins_a_run_or_leaves_it_never_both(scene: Scene) -> None:
    held, barrier = scene.a.reserved, threading.Barrier(2)

    def end() -> None:
        barrier.wait(30)
        scene.a.end(SLOTS)

    thread = threading.Thread(target=end)
    thread.start()
    barrier.wait(30)
    scene.a.round.active_runs.release_waiting()
    thread.join(30)
    assert not thread.is_alive()
    back = [one.claim.id for one in scene.a.round.active_runs.report.given_back]
    assert sorted(back + scene.a.begun[3:]) == held
    scene.go_on()
    scene.each_ran_once()


def test_two_nodes_share_a_long_queue_of_which_each_reserves_a_part(scene: Scene) -> None:
    scene.another()
    scene.go_on()
    scene.each_ran_once()
    assert all(len(node.begun) > WAITING // 4 for node in scene.nodes)


# --- what people do meanwhile -----------------------------------------------------------------------------------------


@BOTH
def test_run_that_is_cancelled_while_it_is_reserved_never_begins(scene: Scene) -> None:
    first, second, *_ = scene.a.reserved
    scene.store.cancel(first, by="ann", why="wrong")
    scene.a.renewer.request_renewal()
    scene.a.renewer.renew(scene.a.store)
    scene.clock.advance(GATHER_SECONDS)
    scene.a.round.run_round()
    assert (scene.look(first).state, scene.look(first).attempt) == (State.CANCELLED, 0)
    scene.go_on()
    assert first not in scene.a.begun
    assert second in scene.a.begun
    scene.each_ran_once(but=1)


def test_run_that_begins_just_before_its_node_hears_that_it_is_cancelled_is_stopped(scene: Scene) -> None:
    first = scene.a.reserved[0]
    scene.store.cancel(first, by="ann", why="wrong")
    scene.a.renewer.request_renewal()
    scene.a.renewer.renew(scene.a.store)
    scene.a.end()
    assert scene.a.begun[-1] == first
    scene.a.round.run_round()
    assert scene.a.executor.stopped == [(first, "operator: wrong", False)]


def test_job_that_is_paused_while_runs_of_it_are_reserved_runs_what_waits(scene: Scene) -> None:
    scene.store.pause("work", by="ann", why="maintenance")
    scene.go_on()
    scene.each_ran_once()


@BOTH
def test_job_that_is_removed_while_runs_of_it_are_reserved_runs_these_and_no_others(scene: Scene) -> None:
    held = scene.a.begun + scene.a.reserved
    scene.store.retire("work", by="ann", why="gone")
    scene.go_on()
    assert sorted(scene.a.begun) == held
    scene.each_ran_once(but=WAITING - len(held))
    assert {scene.look(number).reason for number in scene.ids[len(held) :]} == {Reason.RETIRED}


def test_higher_priority_that_comes_in_waits_for_no_more_than_what_was_reserved(scene: Scene) -> None:
    held = scene.a.reserved
    [urgent] = scene.store.enqueue([Item(job="work", priority=9)])
    scene.a.round.notified = True
    while urgent.id not in scene.a.begun:
        scene.a.round.run_round()
        scene.clock.advance(TICK)
        scene.a.end()
    assert set(scene.a.begun[3:-1]) <= set(held)


# --- plans and deadlines ----------------------------------------------------------------------------------------------


def test_plan_that_fails_each_time_keeps_no_result_and_no_reserved_run_from_going_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = scene.a.store.step

    def poisoned(session: str, said: Step) -> Done:
        if any(plan.job == "broken" for plan in said.plans):
            assert not said.ends
            raise StoreCorrupt("a row of this job cannot be read")
        return step(session, said)

    monkeypatch.setattr(scene.a.store, "step", poisoned)
    scene.store.define_jobs([JobSpec(name="broken", function="broken", trigger=every("1s"))], release="1")
    scene.clock.advance(1)
    scene.go_on()
    scene.each_ran_once()
    assert caplog.text.count("job 'broken' cannot be fired") == 1


def test_claim_that_fails_each_time_undoes_a_result_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    step, asked = scene.a.store.step, list[Step]()

    def poisoned(session: str, said: Step) -> Done:
        asked.append(said)
        if said.want is not None:
            raise StoreUnavailable("a deadlock each time")
        return step(session, said)

    monkeypatch.setattr(scene.a.store, "step", poisoned)
    for _ in range(40):
        scene.a.end(SLOTS)
        scene.a.round.run_round()
        scene.clock.advance(GATHER_SECONDS)
    undone = [(one, after) for one, after in pairwise(asked) if one.want is not None and one.ends]
    assert undone
    assert all(after.want is None and after.ends[: len(one.ends)] == one.ends for one, after in undone)
    assert len(scene.a.begun) == 3 + RESERVED
    assert {scene.look(number).state for number in scene.a.begun} == {State.SUCCEEDED}


@BOTH
def test_run_that_expires_while_it_is_reserved_is_missed_if_it_is_handed_back(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace.Pace, "reserve_limit", RESERVED)
    scene = Scene(store, clock, expires_in=timedelta(seconds=STALLED_AFTER / 2))
    held = scene.a.reserved
    clock.advance(STALLED_AFTER + TICK)
    scene.go_on()
    found = [scene.look(number) for number in held]
    assert {(one.state, one.reason, one.attempt) for one in found} == {(State.MISSED, Reason.LATE, 0)}
    assert not set(held) & set(scene.a.begun)
