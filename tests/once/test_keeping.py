"""How long a key is kept, how it is forgotten, and that no call returns nothing for a reason that is none."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from cronsensus import InvalidOption, InvalidTransition, LeaseLost, Scheduler, State, StoreBusy
from cronsensus.clock import ManualClock
from cronsensus.model.occurrence import OccurrenceFilter, Outcome
from cronsensus.once.claims import Claims
from cronsensus.testing.conformance.steps import settle

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
    look, left = Claims.look, [1]

    def pruned_before(self, wanted, key=None):
        if left:
            left.pop()
            assert self.store.sibling().prune(datetime(9000, 1, 1, tzinfo=UTC)) >= 1
        return look(self, wanted, key)

    monkeypatch.setattr(Claims, "look", pruned_before)
    assert work() == 2, "it said None, and ran nothing"
    monkeypatch.setattr(Claims, "look", lambda *_: None)
    with pytest.raises(StoreBusy, match="comes and goes"):
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


# --- keys of an earlier version ---------------------------------------------------------------------------------------


def former(scheduler, job: str, key: str, state: State = State.SUCCEEDED, result: str = "7") -> None:
    """Do what an earlier version did: run a function under a key in which values were not quoted."""
    claims = scheduler._opened.claims()
    session = claims._host.pin()
    claim = claims.store.acquire(session.session, job, key=key, lease=timedelta(seconds=10))
    assert claim is not None
    settle(claims.store, [Outcome(id=claim.id, token=claim.token, state=state, result=result)])
    claims._host.unpin()


def test_former_key_is_found_while_it_is_kept(timed):
    scheduler, clock = timed
    ran = []

    @scheduler.once("{tenant}:{order}", keep="1h")
    def work(tenant: str, order: str) -> str:
        ran.append(tenant)
        return tenant

    work("x", "y")
    former(scheduler, "once:work", "a:b:c")
    assert work("a:b", "c") == 7, "a deploy repeats nothing"
    clock.advance(3601)
    assert work("a:b", "c") == "a:b"
    assert ran == ["x", "a:b"]


def test_former_key_with_a_fingerprint_is_another_call(scheduler):
    work = scheduler.once("{tenant}:{order}", name="work")(lambda tenant, order: [tenant, order])
    assert work("a", "b:c") == ["a", "b:c"]
    assert work("a:b", "c") == ["a:b", "c"]


def test_former_key_that_failed_is_tried_anew(scheduler):
    work = scheduler.once("{tenant}:{order}", name="work")(lambda tenant, order: tenant)
    work("x", "y")
    former(scheduler, "once:work", "a:b:c", State.PENDING)
    assert work("a:b", "c") == "a:b"


def test_forgetting_finds_the_key_of_an_earlier_version_too(scheduler):
    work = scheduler.once("{tenant}:{order}", name="work")(lambda tenant, order: tenant)
    work("x", "y")
    former(scheduler, "once:work", "a:b:c")
    assert work.forget("a:b", "c")
    assert work("a:b", "c") == "a:b"


def test_former_key_that_runs_is_waited_for(shared_url):
    """In a rolling deploy: the old node has begun with the call, and the message comes again to the new one."""
    old, new = Scheduler(shared_url), Scheduler(shared_url)
    guarded = [one.once("{tenant}:{order}", name="w")(lambda tenant, order: tenant) for one in (old, new)]
    guarded[0]("x", "y")
    claims = old._opened.claims()
    session = claims._host.pin()
    claim = claims.store.acquire(session.session, "once:w", key="a:b:c", lease=timedelta(seconds=10))
    assert claim is not None
    found = []
    caller = threading.Thread(target=lambda: found.append(guarded[1]("a:b", "c")))
    caller.start()
    while not new._opened.claims().waiters:
        threading.Event().wait(0.01)
    settle(claims.store, [Outcome(id=claim.id, token=claim.token, state=State.SUCCEEDED, result="7")])
    caller.join(20)
    assert found == [7]
    claims._host.unpin()
    for one in (old, new):
        one._opened.close()
