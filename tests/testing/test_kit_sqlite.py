"""A kit on a SQLite file: a job's rows commit with its end, and a run with a view's rows, at the time of the test."""

import sqlite3
from pathlib import Path

import pytest

from cronsensus import Run, Scheduler, cron
from cronsensus.errors import InvalidOption
from cronsensus.testing import kit


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("postgresql://nobody@127.0.0.1:1/x")


def make_tables(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE IF NOT EXISTS bills (day TEXT)")
        database.execute("DELETE FROM bills")


def count_bills(path: Path) -> int:
    with sqlite3.connect(path) as database:
        [[count]] = database.execute("SELECT count(*) FROM bills")
    return int(count)


def test_wherever_the_process_dies_the_rows_of_a_transaction_are_there_once(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    @scheduler.job(cron("0 3 * * *"))
    def bill(run: Run) -> None:
        with run.transaction() as connection:
            connection.exec_driver_sql("INSERT INTO bills VALUES (?)", (str(run.local_time),))
            connection.exec_driver_sql("UPDATE bills SET day = day")

    path = tmp_path / "shop.db"
    points = 0

    def begin_anew() -> None:
        path.unlink()
        make_tables(path)

    with kit(scheduler, start="2027-01-01 02:59", store=f"sqlite:///{path}") as shop:
        for point in shop.crash_everywhere(bill, reset=begin_anew, run=lambda one: one.travel("5m")):
            assert count_bills(path) == 1, point
            points += 1
    assert points >= 4


def test_a_run_that_was_enqueued_in_a_transaction_of_ones_own_runs_after_the_commit(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    make_tables(path)

    @scheduler.job()
    def mail(day: str) -> str:
        return day

    with kit(scheduler, start="2027-01-01 02:59", nodes=2, store=f"sqlite:///{path}") as shop:
        view = sqlite3.connect(path)
        view.execute("INSERT INTO bills VALUES ('monday')")
        mail.enqueue_in(view, "monday")
        assert not shop.enqueued(mail)
        view.commit()
        shop.run_due()
        assert shop.assert_ran_once(mail).result == '"monday"'
        view.execute("INSERT INTO bills VALUES ('tuesday')")
        mail.enqueue_in(view, "tuesday")
        view.rollback()
        shop.travel("1d")
        assert len(shop.runs(mail)) == 1
        view.close()
    assert count_bills(path) == 1


def test_a_week_on_a_file_of_the_kit_is_as_in_memory_and_leaves_nothing_behind(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    @scheduler.job(cron("30 2 * * *"))
    def nightly() -> None: ...

    with kit(scheduler, start="2027-03-25 00:00", nodes=2, store="sqlite") as shop:
        assert len(shop.travel("7d")) == 7
        shop.check()
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_store_whose_clock_no_test_moves_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidOption, match="have clocks that no test moves"):
        kit(scheduler, store="postgresql://nobody@127.0.0.1:1/x")
