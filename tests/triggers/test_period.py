"""``cron(…, every="2 weeks", start=…)``: periods of the calendar, compared with a count by days."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from cronsensus import cron
from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import trigger_from_json

BERLIN = ZoneInfo("Europe/Berlin")


def local_times(trigger, start, days):
    """Return all nominal times of so many days, in Berlin."""
    found, at, until = [], start - timedelta(microseconds=1), start + timedelta(days=days)
    while (at := trigger.next_after(at)) is not None and at < until:
        found.append(at.astimezone(BERLIN))
    return found


def counts(day: date, anchor: date, number: int, unit: str) -> bool:
    """Whether a day counts: said once more, without bits."""
    if unit == "months":
        return (day.year * 12 + day.month - anchor.year * 12 - anchor.month) % number == 0
    if unit == "weeks":
        monday, first = (one - timedelta(days=one.weekday()) for one in (day, anchor))
        return (monday - first).days // 7 % number == 0
    return (day - anchor).days % number == 0


@given(
    expression=st.sampled_from(["0 9 * * MON", "30 2 * * *", "0 0 1,15 * *", "15 23 * * MON,THU", "0 12 L * *"]),
    number=st.integers(1, 40),
    unit=st.sampled_from(["days", "weeks", "months"]),
    anchor=st.dates(date(2026, 1, 1), date(2028, 12, 31)),
    ahead=st.integers(0, 3000),
)
def test_the_days_are_those_of_each_period(expression, number, unit, anchor, ahead):
    start = datetime(anchor.year, anchor.month, anchor.day, tzinfo=BERLIN).astimezone(UTC)
    plain = cron(expression, tz="Europe/Berlin")
    try:
        counted = cron(expression, tz="Europe/Berlin", every=f"{number} {unit}", start=anchor.isoformat())
    except InvalidTrigger:  # no 1st and 15th lies in any such period
        reject()
    begin = start + timedelta(days=ahead)
    wanted = [at for at in local_times(plain, begin, 400) if counts(at.date(), anchor, number, unit)]
    assert local_times(counted, begin, 400) == wanted
    assert counted.count_between(begin - timedelta(microseconds=1), begin + timedelta(days=400), 1000) == len(wanted)
    assert trigger_from_json(counted.to_json()) == counted


def test_the_hour_stays_over_a_change_of_clocks():
    biweekly = cron("0 9 * * MON", tz="Europe/Berlin", every="2 weeks", start="2027-01-04")
    times = local_times(biweekly, datetime(2027, 1, 1, tzinfo=UTC), 365)
    assert len(times) == 26
    assert {(at.hour, at.weekday()) for at in times} == {(9, 0)}
    assert {later.date() - earlier.date() for earlier, later in pairwise(times)} == {timedelta(days=14)}


def test_a_time_that_a_zone_leaves_out_moves_no_later_one():
    third_days = cron("30 2 * * *", tz="Europe/Berlin", every="3 days", start="2026-03-26", dst="skip")
    days = [at.date().isoformat() for at in local_times(third_days, datetime(2026, 3, 26, tzinfo=UTC), 10)]
    assert days == ["2026-03-26", "2026-04-01", "2026-04-04"]  # none at 02:30 on March 29


@pytest.mark.parametrize(
    ("expression", "every", "words"),
    [
        ("0 9 * * MON", "2w", "at 09:00 every Monday, every 2nd week from 2027-01-04, Europe/Berlin"),
        ("0 9 * * *", "3 days", "at 09:00, every 3rd day from 2027-01-04, Europe/Berlin"),
        ("0 9 1 * *", "6mo", "at 09:00 on the 1st, every 6th month from 2027-01-04, Europe/Berlin"),
        ("0 9 * * *", "11 days", "at 09:00, every 11th day from 2027-01-04, Europe/Berlin"),
    ],
)
def test_it_is_said_in_words(expression, every, words):
    assert cron(expression, tz="Europe/Berlin", every=every, start="2027-01-04").describe() == words


def test_without_a_zone_of_its_own_it_counts_in_that_of_the_scheduler():
    counted = cron("0 9 * * *", every="2 days", start=date(2027, 1, 4)).in_zone("Pacific/Auckland")
    first = counted.next_after(datetime(2026, 12, 1, tzinfo=UTC))
    assert first is not None
    assert first.astimezone(ZoneInfo("Pacific/Auckland")).isoformat() == "2027-01-04T09:00:00+13:00"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "2 weeks"}, "write start='2027-01-04'"),
        ({"every": 2, "start": "2027-01-04"}, "write every='2 weeks'"),
        ({"every": "2 years", "start": "2027-01-04"}, "write every='2 weeks'"),
        ({"every": "0 days", "start": "2027-01-04"}, "from 1 to 1000"),
        ({"weeks": 2}, "write every='2 weeks', start='2027-01-04'"),
    ],
)
def test_what_cannot_be_counted_is_refused(options, message):
    with pytest.raises(InvalidTrigger, match=message):
        cron("0 9 * * MON", **options)


def test_a_day_without_a_midnight_begins_with_its_first_instant():
    begun = cron("0 9 * * *", tz="Africa/Cairo", every="2 weeks", start="2027-04-30", end=date(2027, 5, 1))
    assert begun.to_json()["start"] == "2027-04-29T22:00:00Z"
