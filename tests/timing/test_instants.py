from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import InvalidOption
from cronsensus.timing.instants import (
    EPOCH,
    LATEST,
    after,
    as_utc,
    format_instant,
    from_micros,
    parse_instant,
    to_micros,
)

zones = st.sampled_from([UTC, ZoneInfo("Asia/Shanghai"), ZoneInfo("America/New_York"), timezone(timedelta(hours=-9.5))])
instants = st.datetimes(datetime(2, 1, 2), datetime(9998, 12, 30), timezones=zones)  # noqa: DTZ001 - Hypothesis adds it


@given(instants)
def test_microseconds_and_back(instant):
    # Compared in UTC: times within a clock change are by definition (PEP 495) unequal to those of any other zone.
    assert from_micros(to_micros(instant)) == as_utc(instant)
    assert from_micros(to_micros(instant)).tzinfo is UTC


@given(instants)
def test_text_and_back(instant):
    assert parse_instant(format_instant(instant)) == as_utc(instant)


@given(instants, instants)
def test_microseconds_keep_the_order(one, other):
    assert (to_micros(one) < to_micros(other)) == (as_utc(one) < as_utc(other))


def test_before_1970_is_negative():
    assert to_micros(datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)) == -1


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2026, 11, 20, 21, tzinfo=ZoneInfo("Asia/Shanghai")), "2026-11-20T13:00:00Z"),
        (datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "2026-01-01T00:00:00.000005Z"),
        (datetime(33, 4, 3, tzinfo=UTC), "0033-04-03T00:00:00Z"),
    ],
)
def test_the_text_is_utc_and_has_microseconds_only_where_there_are_any(instant, text):
    assert format_instant(instant) == text


def test_the_two_passes_of_a_repeated_hour_are_two_instants():
    paris = ZoneInfo("Europe/Paris")
    first = datetime(2025, 10, 26, 2, 30, tzinfo=paris)
    assert to_micros(as_utc(first.replace(fold=1))) - to_micros(as_utc(first)) == 3600 * 10**6


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-11-20", "2026-11-20T21:00:00", "2026-13-01T00:00:00Z", "2026-11-20T21:00:00+25:00", "0"],
)
def test_what_cannot_be_read_or_names_no_offset_is_refused(text):
    with pytest.raises(InvalidOption, match="since="):
        parse_instant(text, what="since")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_what_leaves_the_calendar_in_utc_is_refused(text):
    with pytest.raises(InvalidOption, match="outside the calendar"):
        parse_instant(text)


def test_a_day_alone_is_said_to_have_no_time_of_day():
    with pytest.raises(InvalidOption, match="at='2026-12-01' has no time of day"):
        parse_instant("2026-12-01", what="at")
    with pytest.raises(InvalidOption, match="at='2026-12-01T09:00' has no time zone"):
        parse_instant("2026-12-01T09:00", what="at")


def test_a_naive_instant_is_refused():
    with pytest.raises(InvalidOption, match=r"start=.* has no time zone"):
        as_utc(datetime(2026, 1, 1), what="start")  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("micros", [2**63 - 1, -(2**63), 2**200, to_micros(datetime.max.replace(tzinfo=UTC)) + 1])
def test_a_number_outside_the_calendar_is_its_end_and_may_be_shown_in_any_zone(micros):
    found = from_micros(micros)
    assert (found > EPOCH) == (micros > 0)
    for zone in (timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))):
        assert abs(found.astimezone(zone) + timedelta(hours=9) - timedelta(hours=18) - found) == timedelta(hours=9)


def test_what_is_later_than_stores_keep_is_never():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert after(now, timedelta.max) == LATEST
    assert after(now, timedelta(seconds=1)) == now + timedelta(seconds=1)
    assert after(now, timedelta.min) < now
    assert to_micros(LATEST) == float(to_micros(LATEST)) == float(to_micros(LATEST) + 1) - 1
