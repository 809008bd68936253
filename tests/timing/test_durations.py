from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import ConfigurationError, InvalidDuration
from cronsensus.timing.durations import format_duration, parse_duration

HUNDRED_YEARS = timedelta(days=366 * 100)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(days=7)),
        ("500ms", timedelta(milliseconds=500)),
        ("7us", timedelta(microseconds=7)),
        ("1.5h", timedelta(minutes=90)),
        ("0.25s", timedelta(milliseconds=250)),
        (" 1H 30M ", timedelta(minutes=90)),
        ("45", timedelta(seconds=45)),
        ("0.5", timedelta(milliseconds=500)),
        (45, timedelta(seconds=45)),
        (0.1, timedelta(milliseconds=100)),
        (0, timedelta(0)),
        ("0s", timedelta(0)),
        (timedelta(days=3), timedelta(days=3)),
        (HUNDRED_YEARS, HUNDRED_YEARS),
    ],
)
def test_durations_are_read_from_numbers_timedeltas_and_text(written, meant):
    assert parse_duration(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "soon",
        "5 months",
        "5x",
        "-5m",
        "5m-",
        "1h 30",
        "1 000s",
        "m",
        "1e3",
        "1,5h",
        "1.2345678s",
        "9" * 13,
        "1s" * 40,
        "999999999999w",
        -1,
        -0.5,
        timedelta(microseconds=-1),
        HUNDRED_YEARS + timedelta(microseconds=1),
        float("nan"),
        float("inf"),
        1e300,
        10**11,
        10**400,
        -(10**5000),
        True,
        None,
        Decimal(5),
        ["5m"],
        b"5m",
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refused_duration_names_the_option(written):
    with pytest.raises(InvalidDuration, match=r"^timeout="):
        parse_duration(written, what="timeout")


def test_the_error_is_a_configuration_error_and_a_value_error():
    with pytest.raises(ConfigurationError):
        parse_duration("soon")
    with pytest.raises(ValueError, match="soon"):
        parse_duration("soon")


def test_a_long_text_is_not_repeated_in_the_message():
    with pytest.raises(InvalidDuration) as refused:
        parse_duration("x" * 100_000)
    assert len(str(refused.value)) < 300


@given(st.timedeltas(timedelta(0), HUNDRED_YEARS))
def test_a_formatted_duration_reads_back_equal(duration):
    assert parse_duration(format_duration(duration)) == duration


@given(st.text() | st.integers() | st.floats() | st.timedeltas())
def test_anything_else_is_a_duration_or_an_invalid_one(value):
    try:
        duration = parse_duration(value)
    except InvalidDuration:
        return
    assert timedelta(0) <= duration <= HUNDRED_YEARS


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=8), "8d"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
    ],
)
def test_the_text_is_short(duration, text):
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5min", "5m"),
        ("5 minutes", "5m"),
        ("1 hour 30 mins", "1h30m"),
        ("2 Days", "2d"),
        ("1week", "1w"),
        ("90 secs", "90s"),
    ],
)
def test_units_may_be_written_out(written, meant):
    assert parse_duration(written) == parse_duration(meant)
