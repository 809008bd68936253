"""How long a key is kept, how it is forgotten, and that no call returns nothing for a reason that is none."""

import asyncio
from datetime import UTC, datetime

import pytest

from cronsensus import LeaseLost, Scheduler
from cronsensus.errors import InvalidOption, InvalidTransition, StoreBusy
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.once.claims import Claims
from cronsensus.timing.clock import ManualClock

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def timed(url):
    """Return a scheduler whose store's clock is moved by hand, and the clock."""
    clock = ManualClock(START)
    made = Scheduler(url, clock=clock)
    yield made, clock
    made._opened.close()


# --- keep -------------------------------------------------------------------------------------------------------------


def test_a_repeat_runs_anew_once_it_was_kept_long_enough_and_not_before(timed):
    scheduler, clock = timed
    ran = []

    @scheduler.once("k", keep="1h")
    def work() -> int:
        ran.append(1)
        return len(ran)

    assert work() == 1
    clock.advance(3600)
    assert work() == 1, "kept for an hour, and not less"
    clock.advance(0.001)
    assert work() == work() == 2, "nobody had pruned"
    assert len(scheduler.store.occurrences(OccurrenceFilter(job="once:work"))) == 1


def test_a_call_that_is_pruned_between_the_two_looks_runs_or_says_so(scheduler, monkeypatch):
    ran = []

    @scheduler.once("k")
    def work() -> int:
        ran.append(1)
        return len(ran)

    assert work() == 1
    look, left = Claims.read_occurrence, [1]

    def pruned_before(self, wanted):
        if left:
            left.pop()
            assert self.store.sibling().prune(datetime(9000, 1, 1, tzinfo=UTC)) >= 1
        return look(self, wanted)

    monkeypatch.setattr(Claims, "read_occurrence", pruned_before)
    assert work() == 2, "it said None, and ran nothing"
    monkeypatch.setattr(Claims, "read_occurrence", lambda *_: None)
    with pytest.raises(StoreBusy, match="acquired and freed again and again"):
        work()


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_forgotten_key_runs_anew_and_the_trail_names_the_operator(scheduler):
    ran = []

    @scheduler.once("charge:{order_id}")
    def charge(order_id: int, amount: float) -> int:
        ran.append(order_id)
        return len(ran)

    assert [charge(1, 2.0), charge(2, 2.0)] == [1, 2]
    assert charge.forget(1), "the arguments that are not in the key may be left out"
    assert not charge.forget(order_id=1)
    assert [charge(1, 3.0), charge(2, 2.0)] == [3, 2]
    assert charge.forget_key("charge:2", by="ann", why="wrong amount")
    assert charge(2, 2.0) == 4
    trail = [entry for entry in scheduler.store.trail(target="once:charge") if entry.action == "forget"]
    assert [entry.details["key"] for entry in trail] == ["charge:2", "charge:1"]
    assert (trail[0].by, trail[0].why, trail[1].by) == ("ann", "wrong amount", scheduler.node_name)


def test_forgetting_has_a_twin(local):
    @local.once("k:{n}")
    async def work(n: int) -> int:
        return n

    async def main() -> list[object]:
        return [await work(1), await work.aforget(1), await work.aforget(1)]

    assert asyncio.run(main()) == [1, True, False]


def test_forget_deletes_a_running_occurrence_only_on_request(scheduler):
    ran = []

    @scheduler.once("k")
    def work() -> int:
        ran.append(1)
        if len(ran) == 1:
            with pytest.raises(InvalidTransition, match="is running under the key 'k'"):
                work.forget()
            assert work.forget_key("k", running=True)
        return len(ran)

    with pytest.raises(LeaseLost):
        work()
    assert work() == work() == 2


def test_a_key_that_cannot_be_made_is_not_forgotten(local):
    charge = local.once("charge:{order_id}", name="charge")(lambda order_id, amount: amount)
    with pytest.raises(InvalidOption, match="cannot be filled in"):
        charge.forget()
    slot = local.once_per("1h", name="slot")(lambda: 1)
    slot()
    with pytest.raises(InvalidOption, match="decided once for ever"):
        slot.forget()


def test_a_start_up_task_may_be_forgotten_and_runs_at_the_next_start(local):
    ran = []
    task = local.startup(name="task")(lambda: ran.append(1))
    local.run_startup()
    local.run_startup()
    assert task.forget()
    local.run_startup()
    assert ran == [1, 1]
