"""Celery's crontab as our text: Celery's own answer over a year is the reference."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from hypothesis import assume, given
from hypothesis import strategies as st

from cronsensus import cron
from cronsensus.integrations.celery.crontab_text import cron_text
from cronsensus.integrations.migration import NoEquivalent

APP = Celery("none", set_as_current=False)
APP.conf.timezone = "UTC"
START = datetime(2027, 1, 1, tzinfo=UTC)
MOST = 500
"""Times that are compared."""


def times_of_celery(fields: dict[str, Any]) -> list[datetime]:
    """Walk the days of a year: one matches when each of the five sets has its part of the time."""
    rule = crontab(**fields, app=APP)
    days = (START + timedelta(days=number) for number in range(365))
    matching = (
        day
        for day in days
        if day.month in rule.month_of_year and day.day in rule.day_of_month and day.isoweekday() % 7 in rule.day_of_week
    )
    clock = [timedelta(hours=hour, minutes=minute) for hour in sorted(rule.hour) for minute in sorted(rule.minute)]
    found: list[datetime] = []
    for day in matching:
        found += [day + time for time in clock]
        if len(found) > MOST:
            break
    return found[:MOST]


def times_of_ours(text: str) -> list[datetime]:
    trigger = cron(text, tz="UTC")
    found: list[datetime] = []
    instant = trigger.next_after(START - timedelta(microseconds=1))
    while instant is not None and instant.year == START.year and len(found) < MOST:
        found.append(instant)
        instant = trigger.next_after(instant)
    return found


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"minute": 0, "hour": "*/3", "day_of_week": "mon-fri"}, "0 */3 * * MON-FRI"),
        ({"minute": "0", "hour": "*/24"}, "0 */24 * * *"),
        ({"hour": 3}, "* 3 * * *"),
        ({"minute": {0, 30}, "hour": [8, 9, 10, 20]}, "0,30 8-10,20 * * *"),
        ({"minute": "*/20,7", "hour": "22-2"}, "*/20,7 0-2,22,23 * * *"),
        ({"minute": 0, "hour": "22-4/3"}, "0 1,4,22 * * *"),
        ({"minute": 0, "hour": 0, "day_of_week": 0}, "0 0 * * SUN"),
        ({"minute": 0, "hour": 0, "day_of_week": "friday-mon"}, "0 0 * * SUN,MON,FRI,SAT"),
        ({"minute": 0, "hour": 0, "day_of_week": "*/2"}, "0 0 * * */2"),
        ({"minute": 0, "hour": 0, "day_of_month": "3"}, "0 0 3 * *"),
        ({"minute": 0, "hour": 0, "day_of_month": "1-31", "day_of_week": "mon"}, "0 0 * * MON"),
        ({"minute": 0, "hour": 0, "month_of_year": "nov-february"}, "0 0 * 1,2,11,12 *"),
        # Both kinds of days, which must match both:
        ({"minute": 0, "hour": 9, "day_of_month": "1-7", "day_of_week": "mon"}, "0 9 * * MON#1"),
        ({"minute": 0, "hour": 9, "day_of_month": "15-21", "day_of_week": 1}, "0 9 * * MON#3"),
        ({"minute": 0, "hour": 9, "day_of_month": "29-31", "day_of_week": 5}, "0 9 * * FRI#5"),
        (
            {"minute": 0, "hour": 9, "day_of_month": "1-14", "day_of_week": "sat,sun"},
            "0 9 * * SUN#1,SAT#1,SUN#2,SAT#2",
        ),
        (
            {"minute": 0, "hour": 9, "day_of_month": "8-21", "day_of_week": "1-5/2"},
            "0 9 * * MON#2,WED#2,FRI#2,MON#3,WED#3,FRI#3",
        ),
        ({"minute": 0, "hour": 9, "day_of_month": "1-28", "day_of_week": "1-5"}, "0 9 */31,2-28 * MON-FRI"),
        ({"minute": 0, "hour": 9, "day_of_month": "*/2", "day_of_week": "mon"}, "0 9 */2 * MON"),
        ({"minute": 0, "hour": 9, "day_of_month": [1, 11, 21, 31], "day_of_week": "mon"}, "0 9 */10 * MON"),
        ({"minute": 0, "hour": 9, "day_of_month": 1, "day_of_week": "mon-fri"}, "0 9 */31 * MON-FRI"),
        ({"minute": 0, "hour": 9, "day_of_month": "1,15", "day_of_week": "mon"}, "0 9 */31,15 * MON"),
        ({"minute": 0, "hour": 9, "day_of_month": "8-15", "day_of_week": "sun"}, "0 9 8-15 * */7"),
        ({"minute": 0, "hour": 9, "day_of_month": 13, "day_of_week": "fri,sun"}, "0 9 13 * */5"),
    ],
)
def test_crontab_of_celery_is_the_text_with_its_times(fields, text):
    assert cron_text(**fields) == text
    assert times_of_ours(text) == times_of_celery(fields)


def test_first_monday_is_what_celery_itself_waits_for():
    rule = crontab(minute=0, hour=9, day_of_month="1-7", day_of_week="mon", app=APP)
    ours = times_of_ours(cron_text(minute=0, hour=9, day_of_month="1-7", day_of_week="mon"))
    assert len(ours) == 12
    for before, after in pairwise(ours):
        rule.nowfun = lambda before=before: before
        assert before + rule.remaining_estimate(before) == after


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"day_of_month": "13", "day_of_week": "fri"}, r"if run.local_time.day not in \{13\}: raise Skip"),
        ({"day_of_month": "2-8", "day_of_week": "mon-fri"}, "Celery wants both to match, a cron text either"),
        ({"minute": "5/15"}, "minute: '5/15' cannot be read"),
        ({"minute": "*/0"}, "cannot be read"),
        ({"minute": 60}, "minute: 60 is not in 0-59"),
        ({"hour": "noon"}, "hour: 'noon' is not in 0-23"),
        ({"hour": {24}}, "hour: 24 is not in 0-23"),
        ({"minute": set()}, "minute: no values"),
    ],
)
def test_what_cannot_be_written_says_what_to_write(fields, words):
    with pytest.raises(NoEquivalent, match=words):
        cron_text(**fields)


def field_texts(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    value = st.integers(low, high)
    word = value.map(str) | st.sampled_from(names) if names else value.map(str)
    step = st.integers(1, high + 5).map("/{}".format)
    term = st.one_of(
        st.builds("*{}".format, st.just("") | step),
        word,
        st.builds("{}-{}{}".format, word, word, st.just("") | step),
    )
    return st.lists(term, min_size=1, max_size=3).map(",".join) | value | st.sets(value, min_size=1)


MONTHS, WEEKDAYS = ("jan", "august", "DEC"), ("sun", "monday", "WED", "sat")


@given(
    st.fixed_dictionaries(
        {
            "minute": field_texts(0, 59),
            "hour": field_texts(0, 23),
            "day_of_week": field_texts(0, 6, WEEKDAYS),
            "day_of_month": field_texts(1, 31),
            "month_of_year": field_texts(1, 12, MONTHS),
        }
    )
)
def test_each_crontab_has_a_text_with_its_times_or_none(fields):
    try:
        rule = crontab(**fields, app=APP)
    except ValueError:
        assume(False)
    try:
        text = cron_text(**fields)
    except NoEquivalent:
        # Said only where both kinds of days say something, and neither has the day with which a star begins.
        assert 1 not in rule.day_of_month
        assert 0 not in rule.day_of_week
    else:
        assert times_of_ours(text) == times_of_celery(fields)  # of the first days, where there are many a day
        daily = {**fields, "minute": 0, "hour": 0}
        assert times_of_ours(cron_text(**daily)) == times_of_celery(daily)  # so each day of the year is compared
