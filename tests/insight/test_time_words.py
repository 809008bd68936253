"""How values read, and what people may type for a time."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cronsensus.errors import InvalidOption
from cronsensus.insight.time_words import brief_duration, exact_time, format_count, read_time, relative_time, shorten

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("typed", "instant"),
    [
        ("now", NOW),
        ("2026-11-20T21:00:00Z", NOW + timedelta(hours=9)),
        ("2026-11-20 21:00+08:00", NOW + timedelta(hours=1)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2h", NOW - timedelta(hours=2)),
        ("1h30m ago", NOW - timedelta(minutes=90)),
        ("90s", NOW - timedelta(seconds=90)),
    ],
)
def test_a_time_may_be_written_in_several_ways(typed: str, instant: datetime) -> None:
    assert read_time(typed, NOW) == instant


def test_a_time_without_an_offset_is_in_the_zone_that_the_command_says() -> None:
    assert read_time("2026-11-20 13:00", NOW, tz=BERLIN) == NOW


@pytest.mark.parametrize(
    ("typed", "instant"),
    [
        ("13:00", NOW),
        ("13:01", NOW - timedelta(days=1) + timedelta(minutes=1)),
        ("3:00", NOW - timedelta(hours=10)),
        ("03:00:30", NOW - timedelta(hours=10) + timedelta(seconds=30)),
        ("3am", NOW - timedelta(hours=10)),
        ("12 AM", NOW - timedelta(hours=13)),
        ("3:30pm", NOW - timedelta(hours=21, minutes=30)),
        ("today 15:30", NOW + timedelta(hours=2, minutes=30)),
        ("yesterday 03:00", NOW - timedelta(hours=34)),
        ("Yesterday at 3pm", NOW - timedelta(hours=22)),
    ],
)
def test_a_time_of_day_is_the_latest_in_the_zone_of_the_command(typed: str, instant: datetime) -> None:
    assert read_time(typed, NOW, tz=BERLIN) == instant


def test_a_time_of_day_is_read_by_the_walls_offset_of_its_own_day() -> None:
    after = datetime(2026, 10, 25, 11, tzinfo=UTC)  # clocks went back in the night
    assert read_time("03:00", after, tz=BERLIN) == datetime(2026, 10, 25, 2, tzinfo=UTC)
    assert read_time("yesterday 03:00", after, tz=BERLIN) == datetime(2026, 10, 24, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "yesterday",
        "25:00",
        "13pm",
        "0am",
        "3",
        "today 3",
        "3:00am pm",
        "03:60",
        "2026-13-01",
        "2026",
        "90 ago",
        "1e400",
        "-5m",
        "9" * 500,
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_time_that_cannot_be_read_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(InvalidOption, match="is not a time; write 2026-11-20T21:00:00Z"):
        read_time(typed, NOW, what="--from")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0123, "12ms"),
        (1.26, "1.3s"),
        (59, "59s"),
        (60, "1m"),
        (3725, "1h 2m"),
        (90_000, "1d 1h"),
        (-5, "0ms"),
    ],
)
def test_durations_are_brief(seconds: float, text: str) -> None:
    assert brief_duration(timedelta(seconds=seconds)) == text


def test_relative_times_say_before_or_after() -> None:
    assert relative_time(NOW + timedelta(minutes=5), NOW) == "in 5m"
    assert relative_time(NOW - timedelta(hours=2), NOW) == "2h ago"
    assert relative_time(NOW + timedelta(milliseconds=500), NOW) == "now"


def test_local_times_name_weekday_and_offset() -> None:
    assert exact_time(NOW) == "2026-11-20 12:00:00Z"
    assert exact_time(NOW, BERLIN) == "Fri 2026-11-20 13:00:00 +01:00"
    assert exact_time(NOW + timedelta(microseconds=1500)) == "2026-11-20 12:00:00.0015Z"


def test_small_words() -> None:
    assert [format_count(number, "run") for number in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]
    assert shorten("abcdef", 4) == "abc…"
