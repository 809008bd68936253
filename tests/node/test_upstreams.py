"""What the gates of those that sleep cost: reads of the store, counted."""

from collections import Counter
from typing import Any

import pytest

from cronsensus.after.room import make_after_hooks
from cronsensus.after.upstreams import Gates
from cronsensus.after.waking import Ended, ParkedAtGate
from cronsensus.model.ends import End, Parked
from cronsensus.model.gate import After, Rule
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.parking import Sleeper
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.node.waking import Waking
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import LEASE, SECOND, START, a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every

NIGHTS = 50
TIMES = [START + number * SECOND for number in range(1, NIGHTS + 1)]
SPECS = [
    JobSpec(name="first", function="first", trigger=every("1s"), policies=Policies(overlap="allow")),
    JobSpec(
        name="second",
        function="second",
        trigger=every("1s"),
        policies=Policies(overlap="allow"),
        after=After((Rule("first"),)),
    ),
]
SECOND_JOB = SPECS[1]


class Counted(MemoryStore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reads: Counter[str] = Counter()

    def occurrences(self, *args: Any, **kwargs: Any) -> Any:
        self.reads["occurrences"] += 1
        return super().occurrences(*args, **kwargs)

    def parked(self, *args: Any, **kwargs: Any) -> Any:
        self.reads["sleeping"] += 1
        return super().parked(*args, **kwargs)

    def ranges(self, *args: Any, **kwargs: Any) -> Any:
        self.reads["ranges"] += 1
        return super().ranges(*args, **kwargs)

    def sibling(self) -> "Counted":
        return self


@pytest.fixture
def store() -> Counted:
    """Nights of a job that has not ended, and of one that sleeps behind it."""
    clock = ManualClock(START)
    store = Counted(clock=clock)
    store.define_jobs(SPECS, release="r1")
    clock.advance(NIGHTS + 1)
    store.open_session(a_session("node"), lease=LEASE)
    for spec in SPECS:
        store.backfill(spec.name, TIMES, by="test")
    held = take(store, "node", NIGHTS, ("second",), lease=LEASE)
    settle(store, [End.of(one, Parked("upstreams")) for one in held])
    store.reads.clear()
    return store


def watch(store: Counted, woken: list[None]) -> Waking:
    found = Waking(store, ManualClock(START), {}, lambda: woken.append(None), [make_after_hooks])
    found.on_queued = lambda: None  # each test turns it by hand: its own thread would be quicker at times
    found.learn_view(store.look())
    store.reads.clear()
    return found


def tell(waking: Waking, *told: Any) -> None:
    [waker] = waking.wakers
    waking.queue_triggers([(waker, what) for what in told])


def test_all_nights_of_one_upstream_are_read_together_and_the_newest_of_each_counts(store):
    [again] = [one for one in store.parked(limit=NIGHTS) if one.scheduled_for == TIMES[3]]
    ends = [one for one in take(store, "node", NIGHTS, ("first",), lease=LEASE) if one.scheduled_for in TIMES[3:5]]
    settle(store, [an_end(id=one.id, token=one.token, session="node", state=State.FAILED) for one in ends])
    store.retry(next(one.id for one in ends if one.scheduled_for == again.scheduled_for), by="test")
    store.reads.clear()
    gates, sleepers = Gates(store), store.parked(limit=NIGHTS)
    gates.read_upstreams([(SECOND_JOB, one) for one in sleepers])
    decided = {one.scheduled_for: gates.decide_gate(SECOND_JOB, one)[0].decision for one in sleepers}
    assert store.reads["occurrences"] == 1
    assert [time for time, decision in decided.items() if decision != "wait"] == [TIMES[4]]


def test_what_is_known_to_be_active_is_not_asked_for(store):
    sleeper = Sleeper(1, "second", "upstreams", TIMES[0], TIMES[0])
    assert Gates(store, {("first", TIMES[0])}).decide_gate(SECOND_JOB, sleeper)[0].reason == "for first"
    assert store.reads["occurrences"] == 0


def test_one_that_waits_for_nothing_else_is_woken_by_one_read_however_many_sleep(store):
    woken: list[None] = []
    waking = watch(store, woken)
    tell(waking, Ended("first", TIMES[7]))
    waking.wake_due()
    assert (store.reads["occurrences"], store.reads["sleeping"]) == (1, 0)
    assert TIMES[7] not in {one.scheduled_for for one in store.parked(limit=NIGHTS)}
    assert len(store.parked(limit=NIGHTS)) == NIGHTS - 1
    assert woken


def test_many_that_may_go_on_are_found_by_one_look_at_all_that_sleep(store):
    waking = watch(store, [])
    tell(waking, *(Ended("first", time) for time in TIMES[:20]))
    waking.wake_due()
    assert (store.reads["occurrences"], store.reads["sleeping"]) == (0, 1)
    assert len(store.parked(limit=NIGHTS)) == NIGHTS - 20


def test_what_has_just_ended_goes_before_a_second_look_at_what_fell_asleep(store):
    [waker] = watch(store, []).wakers
    told: dict[Any, None] = {ParkedAtGate(one): None for one in store.parked(limit=NIGHTS)}
    waker.find_wakeable(store, told)
    assert len(told) == NIGHTS - 8
    told[Ended("first", TIMES[0])] = None
    assert len(waker.find_wakeable(store, told)) == 1
    assert len(told) == NIGHTS - 8


@pytest.mark.parametrize(("after", "decision"), [(0.4, "run"), (2.0, None)])
def test_a_claim_that_stood_at_its_gate_while_its_upstream_ended_is_claimed_anew(store, after, decision):
    """Its record would say that it began before; the audit, which sees no gate, would accuse it."""
    found, told = watch(store, []), list[tuple[int, str | None]]()
    found.on_answer = lambda claim, answer: told.append((claim.id, None if answer is None else "run"))
    [parked] = [one for one in store.parked(limit=NIGHTS) if one.scheduled_for == TIMES[0]]
    store.wake([parked.id])
    [claim] = take(store, "node", 9, ("second",), lease=LEASE)
    [first] = [one for one in take(store, "node", NIGHTS, ("first",), lease=LEASE) if one.scheduled_for == TIMES[0]]
    store._world.clock.advance(after)
    settle(store, [an_end(id=first.id, token=first.token, session="node", state=State.SUCCEEDED)])
    found.queue_claims([claim], ())
    found.wake_due()
    assert told == [(claim.id, decision)]


def test_what_became_of_many_nights_is_read_in_some_ten_reads(store):
    """Of an upstream that coalesced them: each night without a row was looked at alone, by four reads."""
    skipped = VerdictRange(TIMES[-1] + SECOND, TIMES[-1] + NIGHTS * SECOND, State.SKIPPED, Reason.COALESCED, NIGHTS)
    job = store._space.jobs["first"]
    job.ranges.append(LedgerRange(1, "first", skipped, TIMES[-1]))
    job.watermark = skipped.last
    times = [TIMES[-1] + number * SECOND for number in range(1, NIGHTS + 1)]
    gates = Gates(store)
    sleepers = [Sleeper(number, "second", "upstreams", time, time) for number, time in enumerate(times, 1)]
    gates.read_upstreams([(SECOND_JOB, one) for one in sleepers])
    assert {gates.decide_gate(SECOND_JOB, one)[0].reason for one in sleepers} == {"upstream skipped: first"}
    assert sum(store.reads.values()) <= 2
