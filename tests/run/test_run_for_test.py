"""A test calls a job function itself."""

import asyncio

import pytest

from cronsensus import Cancel, LeaseLost, Run, Scheduler, cron, current_run
from cronsensus.errors import InvalidOption, UnsupportedTransaction

scheduler = Scheduler("postgresql://nobody@nowhere/shop", tz="Europe/Paris")


@scheduler.job(cron("30 2 * * *"))
def nightly(run: Run) -> str:
    run.progress(1, 2)
    return f"{run.local_time:%d %H:%M} attempt {run.attempt}"


@scheduler.job(after=[nightly])
async def load(run: Run) -> str:
    return run.upstream[nightly].result.upper()


@scheduler.job()
def send(number: int) -> str:
    run = current_run()
    assert run is not None
    run.check()
    return f"{run.idempotency_key} {run.zone} {number}"


def test_a_scheduled_job_is_called_with_a_time_of_its_own_zone_and_no_store():
    run = Run.for_test(nightly, scheduled_for="2027-03-29 02:30", attempt=2)
    assert nightly(run) == "29 02:30 attempt 2"
    assert run.scheduled_for is not None
    assert run.scheduled_for.isoformat() == "2027-03-29T00:30:00+00:00"
    assert run.progress_reports == [(1, 2)]


def test_a_time_at_which_the_job_does_not_run_is_refused_with_the_next_one():
    with pytest.raises(InvalidOption, match=r"no time of 'nightly'.*the next is '2027-03-02 02:30:00\+01:00'"):
        Run.for_test(nightly, scheduled_for="2027-03-01 03:00")
    with pytest.raises(InvalidOption, match="does not exist in Europe/Paris"):
        Run.for_test(nightly, scheduled_for="2027-03-28 02:30")
    nightly(Run.for_test(nightly, scheduled_for="2027-03-28 03:00"))  # the hour was left out: it runs right after


def test_what_an_upstream_returned_is_given_and_what_is_none_refused():
    assert asyncio.run(load(Run.for_test(load, scheduled_for="2027-03-29 02:30", upstream={nightly: "a"}))) == "A"
    with pytest.raises(KeyError, match=r"upstream=\{nightly"):
        asyncio.run(load(Run.for_test(load)))
    with pytest.raises(InvalidOption, match="'load' does not come after 'send'; it comes after nightly"):
        Run.for_test(load, upstream={send: 1})


def test_a_job_that_asks_for_the_current_run_gets_it_within_the_block():
    with Run.for_test(send, key="order:1", namespace="shop"):
        assert send(7) == "shop:send:order:1 Europe/Paris 7"
    assert current_run() is None


def test_a_run_can_be_told_to_stop():
    with Run.for_test(send) as run:
        run.stop("holiday")
        with pytest.raises(Cancel, match="holiday"):
            send(1)
        run.lose_lease()
        with pytest.raises(LeaseLost):
            send(1)


def test_a_transaction_needs_a_store():
    with pytest.raises(UnsupportedTransaction, match=r"Run\.for_test"), Run.for_test(send).transaction():
        pass
