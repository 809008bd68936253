"""The walk over the calendar: against cronsim where time zones play no part, and at the edges of the calendar."""

import re
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import example, given
from hypothesis import strategies as st

from cronsensus.errors import InvalidOption, InvalidTrigger
from cronsensus.triggers import Trigger, cron
from cronsensus.triggers.cron import Cron


def field(low: int, high: int, *extra: str) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    terms = st.one_of(
        st.just("*"),
        value.map(str),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
        st.tuples(pair, st.integers(1, high)).map(lambda parts: f"{parts[0][0]}-{parts[0][1]}/{parts[1]}"),
        *([st.sampled_from(extra)] if extra else []),
    )
    return st.lists(terms, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = (
    st.tuples(
        st.one_of(st.just("0"), field(0, 59)),
        field(0, 59),
        field(0, 23),
        # Days up to the 28th keep almost every combination alive; the rest is covered by the examples below.
        st.one_of(st.just("*"), field(1, 28, "L", "LW", "31")),
        st.one_of(st.just("*"), field(1, 12, "FEB", "JUN-AUG")),
        st.one_of(st.just("*"), field(0, 7, "MON", "MON-FRI", "5L", "TUE#2", "0L", "7#1")),
    )
    .map(" ".join)
    .filter(lambda text: not re.search(r"\b(\w+)-\1/", text))
)  # cronsim forgets the end of 10-10/5
INSTANTS = st.integers(-20 * 366 * 86_400, 90 * 366 * 86_400).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
NAIVE = datetime(2026, 11, 20)  # noqa: DTZ001 - what users forget


def build(expression: str) -> Trigger | None:
    try:
        return cron(expression)
    except InvalidTrigger:
        with pytest.raises((StopIteration, CronSimError)):  # it truly never fires
            next(CronSim(expression, NAIVE))
        return None


@given(EXPRESSIONS, INSTANTS)
@example("0 0 0 31 2 *", NAIVE.replace(tzinfo=UTC))
@example("0 0 0 */28 2 MON#2", NAIVE.replace(tzinfo=UTC))
def test_next_is_what_cronsim_says_in_utc(expression, instant):
    trigger = build(expression)
    if trigger is None:
        return
    expected = islice(CronSim(expression, instant.replace(tzinfo=None)), 5)
    for time in expected:
        found = trigger.next_after(instant)
        assert found == time.replace(tzinfo=UTC)
        instant = found


@given(EXPRESSIONS, INSTANTS, st.integers(0, 500))
def test_counting_by_arithmetic_is_counting_one_by_one(expression, instant, most):
    trigger = build(expression)
    if trigger is None:
        return
    last = instant
    for _ in range(most):
        following = trigger.next_after(last)
        if following is None or following > instant + timedelta(days=3000):
            break
        last = following
    assert isinstance(trigger, Cron)
    for until in (last, last - timedelta(microseconds=1), last + timedelta(microseconds=1)):
        generic = Trigger.count_between(trigger, instant, until, 10_000)
        assert trigger._clock.count(instant, until) == generic


@pytest.mark.parametrize(
    ("expression", "after", "following"),
    [
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29", "2108-02-29"]),
        ("0 0 29 2 */8", "2026-01-01", ["2032-02-29", "2060-02-29", "2088-02-29", "2128-02-29"]),
        ("0 0 29 2 */8", "1872-03-01", ["1880-02-29", "1920-02-29"]),
        ("0 0 * 2 MON#5", "2024-03-01", ["2044-02-29", "2072-02-29", "2112-02-29"]),
        ("0 0 L 2 *", "2023-03-01", ["2024-02-29", "2025-02-28"]),
        ("0 0 LW * *", "2026-01-01", ["2026-01-30", "2026-02-27"]),
        ("0 0 31 * *", "2026-01-31", ["2026-03-31", "2026-05-31"]),
        ("0 0 30 2 MON", "2026-01-31", ["2026-02-02", "2026-02-09"]),
        ("0 0 13 * FRI", "2026-11-06", ["2026-11-13", "2026-11-20"]),
        ("0 0 */13 * FRI", "2026-11-06", ["2026-11-27", "2027-01-01"]),
        ("0 0 * * 5L", "2026-11-20", ["2026-11-27", "2026-12-25"]),
        ("0 0 * * 7", "2026-11-20", ["2026-11-22", "2026-11-29"]),
    ],
)
def test_dates_that_are_rare_or_special(expression, after, following):
    trigger, position = cron(expression), datetime.fromisoformat(f"{after}T00:00Z")
    for day in following:
        midnight = datetime.fromisoformat(f"{day}T00:00Z")
        assert trigger.next_after(position) == midnight
        position = midnight


def test_a_part_of_a_second_counts():
    trigger = cron("* * * * * *")
    at_noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert trigger.next_after(at_noon) == at_noon + timedelta(seconds=1)
    assert trigger.next_after(at_noon - timedelta(microseconds=1)) == at_noon
    assert trigger.next_after(at_noon + timedelta(microseconds=1)) == at_noon + timedelta(seconds=1)


def test_years_and_days_turn():
    last = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    for expression in ("* * * * *", "@hourly", "@daily", "@monthly", "@yearly", "* * * * * *"):
        assert cron(expression).next_after(last) == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("expression", ["* * * * *", "30 2 * * *", "0 0 29 2 */8", "0 0 1 1 *"])
@pytest.mark.parametrize("dst", ["cron", "both", "skip"])
def test_the_ends_of_the_calendar(expression, zone, dst):
    trigger = cron(expression, tz=zone, dst=dst)
    first = trigger.next_after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert first.year <= 30
    assert trigger.next_after(datetime.max.replace(tzinfo=UTC)) is None
    late = trigger.latest_until(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))
    assert late is not None
    assert late.year > 9950
    assert trigger.next_after(late) is None
    assert trigger.count_between(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), 20) is None


def test_start_and_end_are_nominal_times_themselves():
    trigger = cron("0 * * * *", start="2026-11-20T12:00:00Z", end="2026-11-20T14:00:00Z")
    hours = [datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (12, 13, 14)]
    assert trigger.next_after(datetime(2020, 1, 1, tzinfo=UTC)) == hours[0]
    assert trigger.next_after(hours[0]) == hours[1]
    assert trigger.next_after(hours[1]) == hours[2]
    assert trigger.next_after(hours[2]) is None
    assert trigger.latest_until(datetime(2030, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)) == hours[2]
    assert trigger.count_between(datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC), 3) == 3
    assert trigger.count_between(datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC), 10_000) == 3
    assert trigger.count_between(hours[0], hours[1], 10_000) == 1
    assert trigger.count_between(datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC), 2) is None


def test_any_zone_may_ask_and_the_answer_is_in_utc():
    found = cron("0 0 * * *").next_after(datetime.fromisoformat("2026-11-20T12:00:00+09:00"))
    assert found == datetime(2026, 11, 21, tzinfo=UTC)
    assert found.tzinfo is UTC


def test_a_naive_instant_is_refused():
    for call in (cron("* * * * *").next_after, lambda naive: cron("* * * * *").latest_until(naive, naive)):
        with pytest.raises(InvalidOption, match="time zone"):
            call(NAIVE)
