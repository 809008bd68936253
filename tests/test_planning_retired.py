"""What a retirement leaves undecided, against the oracle that walks every nominal time."""

from datetime import timedelta

from hypothesis import given

from cronsensus.model.job import Era
from cronsensus.model.states import Reason, State
from cronsensus.planning import MOST_COUNTED, undecided_until
from cronsensus.triggers import at, every
from tests.planning_oracle import T0, jobs, moments, nominals, seconds


@given(jobs(), moments)
def test_a_retirement_decides_each_time_up_to_it_once_under_the_trigger_that_held_then(job, now):
    times = [nominal for nominal, _ in nominals(job, now)]
    found = undecided_until(job.eras, job.watermark, now)
    if not times:
        assert found is None
        return
    assert found is not None
    assert (found.first, found.last, found.count) == (times[0], times[-1], len(times))
    assert (found.state, found.reason) == (State.MISSED, Reason.RETIRED)


def test_a_retirement_counts_two_eras_once_each_and_one_without_a_trigger_not_at_all():
    eras = (
        Era(T0, every("10s", start=T0), 1),
        Era(T0 + seconds(30), None, 2),
        Era(T0 + seconds(60), every("1m", start=T0), 3),
    )
    found = undecided_until(eras, T0, T0 + seconds(180))
    assert found is not None
    assert (found.first, found.last, found.count) == (T0 + seconds(10), T0 + seconds(180), 3 + 2)
    assert undecided_until(eras, T0, T0 + seconds(9)) is None
    at_once = undecided_until(eras, T0, T0 + seconds(10))
    assert at_once is not None
    assert (at_once.first, at_once.last, at_once.count) == (T0 + seconds(10), T0 + seconds(10), 1)


def test_a_retirement_keeps_the_last_time_of_an_era_after_which_nothing_came():
    eras = (Era(T0, every("10s", start=T0), 1), Era(T0 + seconds(30), at(T0 + timedelta(days=9)), 2))
    found = undecided_until(eras, T0, T0 + seconds(300))
    assert found is not None
    assert (found.last, found.count) == (T0 + seconds(30), 3)


def test_a_retirement_does_not_count_further_than_a_plan_does():
    eras = (Era(T0, every("1s", start=T0), 1),)
    for times, count in ((MOST_COUNTED, MOST_COUNTED), (MOST_COUNTED + 1, None)):
        found = undecided_until(eras, T0, T0 + seconds(times))
        assert found is not None
        assert (found.last, found.count) == (T0 + seconds(times), count)


def test_a_retirement_leaves_out_what_lies_before_the_watermark_also_of_an_era_that_is_over():
    eras = (Era(T0, every("10s", start=T0), 1), Era(T0 + seconds(30), every("1m", start=T0), 2))
    found = undecided_until(eras, T0 + seconds(100), T0 + seconds(180))
    assert found is not None
    assert (found.first, found.last, found.count) == (T0 + seconds(120), T0 + seconds(180), 2)
