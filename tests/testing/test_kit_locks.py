"""Locks, guarded functions and start-up tasks in a kit: held, renewed, lost and waited for in virtual time."""

import asyncio
import time

import pytest

from cronsensus import LockHeld, Run, Scheduler, cron
from cronsensus.testing import Kit, kit


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("postgresql://nobody@127.0.0.1:1/x", lease="10s")


def test_a_lock_is_kept_over_hours_and_refuses_another_node_meanwhile(scheduler: Scheduler) -> None:
    lock = scheduler.lock("ledger", ttl="30s", blocking=False)
    refused: list[str] = []

    @scheduler.job(cron("0 3 * * *"))
    def close_books() -> None:
        with lock as lease:
            time.sleep(2 * 3600)
            lease.check()

    @scheduler.job(cron("0 4 * * *"))
    def book() -> None:
        try:
            with lock:
                pass
        except LockHeld as error:
            refused.append(str(error))

    with kit(scheduler, start="2027-01-01 00:00", nodes=2) as shop:
        shop.travel("6h")
        shop.assert_ran_once(close_books)
        assert len(refused) == 1
        with lock:  # the test is a process, too, and it is free by now
            pass


def test_a_lock_of_a_node_that_died_is_free_when_its_lease_has_ended_in_virtual_time(scheduler: Scheduler) -> None:
    lock = scheduler.lock("ledger", ttl="5m")
    took: list[float] = []

    @scheduler.job(max_crashes=5)
    def work(run: Run) -> None:
        asked = shop.clock.monotonic()
        with lock:
            took.append(shop.clock.monotonic() - asked)
            if run.attempt == 1:
                shop.die()

    with kit(scheduler, nodes=2) as shop:
        work.enqueue()
        shop.travel("1h")
        shop.assert_ran_once(work)
    assert took[0] == 0
    assert 295 <= took[1] <= 301


def test_a_wait_for_what_sleeps_below_on_the_same_thread_fails_and_says_so(scheduler: Scheduler) -> None:
    lock = scheduler.lock("ledger")

    @scheduler.job(cron("0 3 * * *"))
    def first() -> None:
        with lock:
            time.sleep(600)

    @scheduler.job(cron("5 3 * * *"))
    def second() -> None:
        with lock:
            pass

    with (
        kit(scheduler, start="2027-01-01 00:00") as shop,
        pytest.raises(AssertionError, match=r"the lock 'ledger' is waited for.*'first'"),
    ):
        shop.travel("1d")


def test_a_lock_that_nobody_frees_is_not_waited_for_for_ever(scheduler: Scheduler) -> None:
    with kit(scheduler), scheduler.lock("ledger"), pytest.raises(AssertionError, match="nobody frees it"):
        scheduler.lock("ledger").acquire(blocking_timeout="30d")


def test_async_jobs_wait_for_each_other_in_the_right_order(scheduler: Scheduler) -> None:
    lock = scheduler.lock("ledger")
    order: list[str] = []

    @scheduler.job(cron("0 3 * * *"))
    async def first() -> None:
        async with lock:
            await asyncio.sleep(600)
            order.append("first")

    @scheduler.job(cron("5 3 * * *"))
    async def second() -> None:
        async with lock:
            order.append("second")

    async def run_test() -> None:
        with kit(scheduler, start="2027-01-01 00:00", nodes=2) as shop:
            await shop.atravel("4h")
            [one] = shop.attempts(second)
            assert one.ended_at is not None
            assert (one.ended_at - one.started_at).total_seconds() == pytest.approx(300, abs=1)

    asyncio.run(asyncio.wait_for(run_test(), 20))
    assert order == ["first", "second"]


def test_a_guarded_call_of_a_node_that_died_is_made_by_the_next_after_the_lease(scheduler: Scheduler) -> None:
    sent: list[float] = []

    @scheduler.once(key="order:{order}")
    def send(order: int) -> str:
        sent.append(shop.clock.monotonic())
        if len(sent) == 1:
            shop.die()
        time.sleep(120)  # longer than the lease: it is renewed
        return f"sent {order}"

    @scheduler.job(max_crashes=5)
    def work() -> str:
        return send(7)

    with kit(scheduler, nodes=2) as shop:
        handle = work.enqueue()
        assert handle.result("1h") == "sent 7"
        assert send(7) == "sent 7"  # recorded
        shop.check()
    assert len(sent) == 2
    assert 5 < sent[1] - sent[0] < 15


def test_start_up_tasks_run_once_for_all_nodes_where_they_are_wanted(scheduler: Scheduler) -> None:
    ran: list[int] = []

    @scheduler.startup(wait=True)
    def migrate() -> None:
        time.sleep(3600)
        ran.append(1)

    with kit(scheduler, nodes=3):
        assert ran == []
    with kit(scheduler, nodes=3, startup=True), kit(scheduler, nodes=1, startup=True) as other:
        assert isinstance(other, Kit)
    assert len(ran) == 2, "each kit has a memory of its own"


def test_waiting_for_a_cancel_takes_no_real_time(scheduler: Scheduler) -> None:
    @scheduler.job(timeout="1h")
    def idle(run: Run) -> str:
        run.cancelled.wait(1800)
        return "woke"

    with kit(scheduler):
        before = time.perf_counter()
        assert idle.enqueue().result("1h") == "woke"
        assert time.perf_counter() - before < 1
