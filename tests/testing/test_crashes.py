"""A process dies between two lines of a job."""

import pytest

from cronsensus import Run, Scheduler, cron
from cronsensus.testing import Kit, kit

scheduler = Scheduler("postgresql://nobody@127.0.0.1:1/x", tz="Europe/Paris", lease="10s")
charges: list[int] = []
database: dict[str, bool] = {}


def send_mail() -> None: ...


@scheduler.job(cron("0 3 * * *"))
def bill(run: Run) -> None:
    if "paid" not in database:
        charges.append(100)
        database["paid"] = True
    send_mail()


@scheduler.job(cron("0 3 * * *"))
async def safe(run: Run) -> None:
    charged = {run.idempotency_key}
    database.update(dict.fromkeys(charged, True))


def clean() -> None:
    charges.clear()
    database.clear()


@pytest.fixture(params=[1, 2])
def night(request: pytest.FixtureRequest) -> Kit:
    clean()
    return kit(scheduler, start="2027-03-24 02:59", nodes=request.param)


def test_killing_a_job_before_each_of_its_lines_finds_the_double_charge(night: Kit) -> None:
    with night:
        doubled = [
            point
            for point in night.crash_everywhere(bill, reset=clean, run=lambda one: one.travel("5m"))
            if len(charges) > 1
        ]
    assert len(doubled) == 1
    assert doubled[0].endswith("""database["paid"] = True (attempt 1 of bill)""")
    assert doubled[0].startswith("killed before line ")


def test_a_job_that_may_be_repeated_stands_each_point_also_the_one_before_its_record(night: Kit) -> None:
    with night:
        points = []
        for point in night.crash_everywhere(safe, reset=clean, run=lambda one: one.travel("5m")):
            points.append(point)
            assert len(database) == 1 + ("paid" in database), point
    assert len(points) == 3
    assert "before its result was recorded" in points[-1]


def test_a_process_that_dies_where_a_job_calls_out_is_taken_over(night: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    with night:
        monkeypatch.setattr(f"{__name__}.send_mail", night.die)
        with night.dies_before(bill, 'database["paid"]') as points:
            night.travel("61s")
        assert len(points) == 1
        monkeypatch.setattr(f"{__name__}.send_mail", lambda: None)
        night.travel("5m")
        assert night.attempts(bill)[-1].attempt >= 2
        night.assert_ran_once(bill)
        night.assert_honest()


def test_a_line_that_is_never_reached_or_not_there_is_an_error(night: Kit) -> None:
    with night:
        with pytest.raises(AssertionError, match="bill has no line with 'refund'"), night.dies_before(bill, "refund"):
            pass
        with pytest.raises(AssertionError, match="never came to its line"), night.dies_before(bill, "charges"):
            night.travel("10s")
