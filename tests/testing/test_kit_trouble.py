"""What happens to the nodes of a kit, and what the ledger says of it: deaths, standstills, wrong clocks."""

import asyncio
import time
from datetime import timedelta

import pytest

from cronsensus import Run, Scheduler, State, cron
from cronsensus.testing import kit


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("postgresql://nobody@127.0.0.1:1/x", lease="10s")


def test_what_a_killed_node_ran_is_the_second_attempt_of_another(scheduler: Scheduler) -> None:
    @scheduler.job(cron("0 3 * * *"))
    def nightly(run: Run) -> int:
        if run.attempt == 1:
            shop.kill(shop.attempts(nightly)[-1].node)
            time.sleep(1)
        return run.attempt

    with kit(scheduler, start="2027-01-01 02:00", nodes=2) as shop:
        shop.travel("2h")
        first, second = shop.attempts(nightly)
        assert first.node != second.node
        shop.assert_verdict(nightly, "2027-01-01 03:00", "succeeded")
        assert shop.assert_ran_once(nightly).result == "2"
        shop.check()


def test_while_all_nodes_are_dead_nothing_runs_and_the_ledger_says_what_was_skipped(scheduler: Scheduler) -> None:
    @scheduler.job(cron("0 * * * *"))
    def hourly() -> None: ...

    with kit(scheduler, start="2027-01-01 00:30", nodes=3) as shop:
        shop.travel("1h")
        shop.kill_all()
        shop.travel("5h")
        assert len(shop.attempts(hourly)) == 1
        shop.start_node()
        shop.travel("10m")
        shop.assert_verdict(hourly, "2027-01-01 06:00", "succeeded")
        for hour in range(2, 6):
            shop.assert_verdict(hourly, f"2027-01-01 0{hour}:00", "skipped", reason="coalesced")
        shop.check()


def test_a_job_whose_process_stood_still_beyond_its_lease_is_fenced_off(scheduler: Scheduler) -> None:
    lost: list[bool] = []

    @scheduler.job()
    def charge(run: Run) -> str:
        if run.attempt == 1:
            shop.stand_still("1m")
            lost.append(run.lease_lost.is_set())
        return f"by attempt {run.attempt}"

    with kit(scheduler, nodes=2) as shop:
        handle = charge.enqueue()
        assert handle.result("5m") == "by attempt 2"
        shop.travel("5m")
        first, second = shop.attempts(charge)
        assert lost == [True]
        assert first.node != second.node
        assert first.ended_at is not None
        assert second.ended_at is not None
        assert first.ended_at > second.ended_at, "it came back after the other had ended"
        assert shop.assert_ran_once(charge).result == '"by attempt 2"'
        shop.check()


def test_a_short_standstill_costs_nothing(scheduler: Scheduler) -> None:
    @scheduler.job()
    def charge() -> str:
        shop.stand_still("9s")
        return "done"

    with kit(scheduler, nodes=2) as shop:
        assert charge.enqueue().result("1m") == "done"
        assert len(shop.attempts(charge)) == 1


def test_an_async_job_of_a_node_that_stands_still_wakes_late_and_is_taken_over(scheduler: Scheduler) -> None:
    @scheduler.job()
    async def charge(run: Run) -> int:
        await asyncio.sleep(20)
        return run.attempt

    async def run_test() -> None:
        with kit(scheduler, nodes=2) as shop:
            charge.enqueue()
            await shop.atravel("1s")
            shop.stand_still("5m", node=shop.attempts(charge)[0].node)
            await shop.atravel("10m")
            assert [one.state for one in shop.runs(charge)] == [State.SUCCEEDED]
            assert shop.assert_ran_once(charge).result == "2"

    asyncio.run(asyncio.wait_for(run_test(), 20))


def test_a_node_whose_clock_is_wrong_runs_nothing_early_late_or_twice(scheduler: Scheduler) -> None:
    @scheduler.job(cron("0 3 * * *"))
    def nightly(run: Run) -> str:
        return str(run.local_time)

    with kit(scheduler, start="2027-01-01 00:00", nodes=2) as shop:
        shop.skew("node-1", "3h")
        shop.skew("node-2", timedelta(hours=-3))
        shop.travel("3d")
        assert [f"{one.started_at:%d %H:%M}" for one in shop.attempts(nightly)] == ["01 03:00", "02 03:00", "03 03:00"]
        for day in (1, 2, 3):
            shop.assert_ran_once(nightly, on=f"2027-01-0{day}")
        shop.check()


def test_a_misspelt_job_and_a_time_as_a_duration_are_refused_with_what_to_write(scheduler: Scheduler) -> None:
    scheduler.job(cron("0 3 * * *"), name="nightly")(lambda: None)
    with kit(scheduler, start="2027-01-01 02:00") as shop:
        assert not shop.attempts("nightly")
        for ask in (shop.attempts, shop.runs, shop.enqueued):
            with pytest.raises(AssertionError, match="no job 'nihgtly'; it has nightly"):
                ask("nihgtly")
        with pytest.raises(TypeError, match=r"travel\(to='2027-01-02 00:00'\)"):
            shop.travel("2027-01-02 00:00")
