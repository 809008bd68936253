"""A user tests jobs of a module-level scheduler: in memory, at virtual time, on one node and on three."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronsensus import Alert, Run, RunFailed, Scheduler, State, cron
from cronsensus.errors import ConfigurationError, UnsupportedTransaction
from cronsensus.integrations import check_ins
from cronsensus.testing import Kit, kit, scheduler_kit
from tests.testing import shop

WEEK = """
from cronsensus.testing import kit
from tests.testing import shop
with kit(shop.scheduler, start="2027-03-25 00:00", nodes=3) as one:
    for each in one.travel("5d"):
        print(each.started_at, each.job, each.key, each.attempt, each.node, each.ended_at, repr(each.error))
"""


@pytest.fixture
def week() -> Iterator[Kit]:
    with kit(shop.scheduler, start="2027-03-27 12:30") as one:
        yield one


def test_what_a_view_enqueued_runs_once_in_memory_and_not_in_the_store_of_its_url(week: Kit) -> None:
    shop.sign_up(7)
    shop.sign_up(7)
    (waiting,) = week.enqueued(shop.mail)
    assert (waiting.args, waiting.key) == ((7,), "order:7")
    assert [one.job for one in week.run_due()] == ["mail"]
    assert week.assert_ran_once(shop.mail).key == "order:7"
    assert not week.enqueued()
    week.check()


def test_a_result_and_one_within_a_job_let_time_pass_and_no_more_than_they_must(week: Kit) -> None:
    assert shop.parent.enqueue(4).result("1h") == 9
    assert shop.mail.options(delay="20m").enqueue(1).result("1h") == 2
    assert week.now.strftime("%H:%M") == "12:50"
    with pytest.raises(TimeoutError):
        shop.mail.options(delay="20m").enqueue(1).result("1m")


def test_a_night_of_a_clock_change_runs_once_and_a_wrong_time_is_answered_with_why(week: Kit) -> None:
    week.travel(to="2027-03-29 00:00")
    ran = week.assert_ran_once(shop.nightly, on="2027-03-28")
    assert ran.result == '"2027-03-28 03:00:00+02:00"'
    week.assert_ran_once(shop.nightly, on="2027-03-28 03:00")
    with pytest.raises(
        AssertionError, match=r"(?s)nightly at 2027-03-28 05:00: no verdict, not succeeded.*nearest.*ledger"
    ):
        week.assert_verdict(shop.nightly, "2027-03-28 05:00", "succeeded")


def test_retries_come_after_their_delay_and_an_overlapping_time_is_skipped(week: Kit) -> None:
    week.travel(to="2027-03-28 14:00")
    first, second, third = week.attempts(shop.sync)
    assert [one.attempt for one in (first, second, third)] == [1, 2, 3]
    assert 1800 < (second.started_at - first.started_at).total_seconds() < 3600  # less the jitter
    assert isinstance(first.error, OSError)
    assert third.error is None
    week.assert_verdict(shop.hourly, "2027-03-28 13:00", "skipped", reason="overlap")


def test_an_async_job_sleeps_in_virtual_time_and_ends_at_its_timeout(week: Kit) -> None:
    week.travel("2d")
    (report,) = week.attempts(shop.report)
    assert report.ended_at is not None
    assert (report.ended_at - report.started_at).total_seconds() == pytest.approx(600, abs=1)
    ended = week.attempts(shop.endless)[0]
    assert ended.ended_at is not None
    assert (ended.ended_at - ended.started_at).total_seconds() == pytest.approx(600, abs=1)
    week.assert_verdict(shop.endless, "2027-03-28 04:00", "failed")


def test_the_same_test_gives_the_same_trace_in_another_process() -> None:
    traces = [
        subprocess.run([sys.executable, "-c", WEEK], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert traces[0] == traces[1]
    assert traces[0].count("nightly") == 5
    assert len({line.split()[6] for line in traces[0].splitlines()}) > 1, "more than one node ran something"


def test_a_failed_run_that_the_test_did_not_look_at_fails_it_and_shows_what_it_raised(week: Kit) -> None:
    week.travel(to="2027-03-28 05:00")
    with pytest.raises(AssertionError, match=r"endless.*allow_failures=True"):
        week.check()
    week.assert_verdict(shop.endless, "2027-03-28 04:00", "failed")
    week.check()


def test_a_failed_run_whose_result_was_asked_for_was_looked_at() -> None:
    scheduler = Scheduler("postgresql://nobody@127.0.0.1:1/x")

    @scheduler.job()
    def broken() -> None:
        raise ValueError("out of stock")

    with kit(scheduler) as one:
        broken.enqueue()
        one.run_due()
        with pytest.raises(AssertionError, match="1 failed run of which") as seen:
            one.check()
        assert isinstance(seen.value.__cause__, ValueError)
        with pytest.raises(RunFailed, match="out of stock"):
            broken.options(key="again").enqueue().result("1m")
        one.runs(broken)
        one.check()


def test_a_job_that_enqueues_itself_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_kit, "MOST_RUNS", 300)
    scheduler = Scheduler("memory://")

    @scheduler.job()
    def again() -> None:
        again.enqueue()

    with kit(scheduler) as one:
        again.enqueue()
        with pytest.raises(AssertionError, match=r"'again' has begun 300 times within a minute.*enqueue itself"):
            one.run_due()


def test_jobs_that_sleep_at_once_and_wake_too_late_are_told() -> None:
    scheduler = Scheduler("memory://")

    @scheduler.job(cron("0 3 * * *"))
    def short() -> None:
        time.sleep(600)

    @scheduler.job(cron("5 3 * * *"))
    def long() -> None:
        time.sleep(3600)

    with (
        kit(scheduler, start="2027-01-01 00:00") as one,
        pytest.raises(AssertionError, match="'short' slept for 600 s and woke 3300 s too late"),
    ):
        one.travel("1d")


def test_starting_the_scheduler_starts_nothing_and_afterwards_all_is_as_before() -> None:
    with kit(shop.scheduler), shop.scheduler:
        assert shop.scheduler.started
        assert shop.mail.enqueue(3).result("1m") == 6
        with pytest.raises(ConfigurationError):
            shop.scheduler.configure({"url": "sqlite:///other.db"})
    assert shop.scheduler.stats is None
    assert shop.scheduler.settings.url.startswith("postgresql:")


def test_a_run_is_not_enqueued_into_a_transaction_of_ones_own_where_the_store_is_memory(week: Kit) -> None:
    with pytest.raises(UnsupportedTransaction, match=r"in this test the store is memory.*store=.sqlite"):
        shop.mail.enqueue_in(object(), 1)


def test_a_node_loads_nothing_of_it(tmp_path: Path) -> None:
    program = """
import sys
from cronsensus import Scheduler
scheduler = Scheduler("memory://")
@scheduler.job()
def work() -> int:
    return 1
with scheduler:
    work.enqueue().result("30s")
print([name for name in sys.modules if name.startswith("cronsensus.testing") or name == "cronsensus.run.for_test"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n"


def test_nothing_happens_between_what_is_due_so_that_a_week_is_cheap() -> None:
    scheduler = Scheduler("memory://", tz="Europe/Paris")

    @scheduler.job(cron("30 2 * * *"))
    def nightly() -> None:
        time.sleep(3600)

    for nodes, most in ((1, 300), (3, 1_500)):
        with kit(scheduler, start="2027-03-25 00:00", nodes=nodes) as one:
            assert len(one.travel("7d")) == 7
            assert one.agenda.happened < most


def test_what_comes_after_others_and_all_items_of_a_batch_run_at_once_and_no_alert_goes_out() -> None:
    sent: list[object] = []
    scheduler = Scheduler("memory://", alerts=[Alert(sent.append, on=["failed"])])

    @scheduler.job(cron("0 3 * * *"))
    def extract() -> int:
        return 42

    @scheduler.job(after=[extract])
    def load(run: Run) -> int:
        return run.upstream[extract].result + 1

    @scheduler.job()
    def double(number: int) -> int:
        return number * 2

    @scheduler.job()
    def broken() -> None:
        raise OSError

    with kit(scheduler, start="2027-03-25 02:00", nodes=2) as one:
        one.travel(to="2027-03-25 03:00")
        assert one.assert_ran_once(load).result == "43"
        batch = double.enqueue_batch(range(30))
        one.run_due()
        assert sorted(batch.results()) == list(range(0, 60, 2))
        broken.enqueue()
        one.travel("1h")
        assert [run.state for run in one.runs(broken)] == [State.FAILED]
        one.check()
    assert sent == []


def test_what_alerts_would_send_is_kept_and_no_request_leaves() -> None:
    called: list[object] = []
    scheduler = Scheduler(
        "memory://",
        alerts=[
            Alert("https://hooks.invalid/x", on=["failed", "recovered"], name="hook"),
            Alert(called.append, on=["missed", "node_lost", "overdue"], name="pager"),
        ],
    )

    @scheduler.job(cron("0 3 * * *"))
    def nightly(run: Run) -> None:
        if run.scheduled_for is not None and run.scheduled_for.day == 2:
            raise ValueError("no paper")

    @scheduler.job(cron("0 4 * * *"), catch_up="none", grace="1m", overdue="26h")
    def report() -> None: ...

    with kit(scheduler, start="2027-01-01 00:00") as shop:
        shop.travel(to="2027-01-02 01:00")
        assert shop.alerts == []
        shop.travel(to="2027-01-02 03:30")
        [failed] = shop.alerts
        assert (failed.alert, failed.events[0].job) == ("hook", "nightly")
        assert "no paper" in failed.text
        shop.travel(to="2027-01-03 03:30")
        assert [one.events[0].event for one in shop.alerts] == ["failed", "recovered"]
        shop.kill_all()
        shop.travel("2d")
        shop.start_node()
        shop.travel("1h")
        events = [event.event for one in shop.alerts for event in one.events if one.alert == "pager"]
        assert {"missed", "overdue"} <= set(events)
        shop.check()  # the failed run was seen by its alert
    assert called == []


def test_no_check_in_of_a_test_goes_to_the_monitor_of_the_real_job(monkeypatch: pytest.MonkeyPatch) -> None:
    pings: list[str] = []
    monkeypatch.setattr(check_ins._Pinging, "send", lambda _, url, __: pings.append(url))
    scheduler = Scheduler("memory://")
    check_ins.healthchecks(scheduler, "https://hc.invalid/KEY")

    @scheduler.job(cron("0 3 * * *"))
    def nightly() -> None: ...

    with kit(scheduler) as shop:
        shop.travel("2d")
        shop.assert_ran_once(nightly, on=shop.now.date())
    assert pings == []
