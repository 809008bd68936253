"""A clock that was set back is noticed, whatever else two clocks disagree about; and no other is suspected."""

import pytest

from cronsensus.stores.clock_watch import ClockReading, ClockWatch, SetBack

HOUR = 3_600_000_000


def look(seconds: float, *, offset: int = HOUR, took: float = 0.0) -> ClockReading:
    """Read, at a moment and in a while of the steady clock, a clock that is ``offset`` microseconds ahead of it."""
    return ClockReading(round((seconds + took / 2) * 1_000_000) + offset, seconds, seconds + took)


def watched(first: ClockReading, then: ClockReading) -> SetBack | None:
    watch = ClockWatch()
    assert watch.compare_reading(first) is None
    watch.keep_reading(first)
    return watch.compare_reading(then)


def test_a_clock_that_goes_on_was_not_set_back():
    assert watched(look(10), look(20)) is None


def test_a_clock_that_was_set_ahead_was_not_set_back():
    assert watched(look(10), look(20, offset=2 * HOUR)) is None


def test_what_came_twice_lies_between_the_two_looks():
    back = watched(look(10), look(12, offset=HOUR - 5_000_000))
    assert back is not None
    assert back.by == 5_000_000
    # It was set back at most two seconds after the one and at most two seconds before the other.
    assert (back.since, back.until) == (HOUR + 5_000_000, HOUR + 12_000_000)
    assert back.why == "by 5s"


def test_a_clock_that_still_shows_more_than_before_may_have_been_set_back():
    assert watched(look(10), look(100, offset=HOUR - 5_000_000)) is not None


@pytest.mark.parametrize("apart", [10.0, 600.0])
def test_two_clocks_may_drift_apart(apart):
    drift = round(apart * 500)  # half a thousandth
    assert watched(look(10), look(10 + apart, offset=HOUR - drift)) is None


@pytest.mark.parametrize("took", [0.1, 2.0])
def test_a_look_that_took_long_proves_nothing_that_it_may_not_have_seen(took):
    slow_then_fast = ClockReading(HOUR + round((10 + took) * 1_000_000), 10, 10 + took), look(20)
    fast_then_slow = look(10), ClockReading(HOUR + (20 * 1_000_000), 20, 20 + took)
    assert watched(*slow_then_fast) is None
    assert watched(*fast_then_slow) is None


def test_a_look_that_was_overtaken_by_a_later_one_is_not_compared():
    assert watched(look(20), look(10, offset=0)) is None
