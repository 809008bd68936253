"""Daylight saving: measured vectors, and a brute-force oracle that shares nothing with the code that it judges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cronsensus.triggers import Trigger, cron
from cronsensus.triggers.cron import Cron, Dst

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
POLICIES: tuple[Dst, ...] = ("cron", "both", "skip")
EACH = int(os.environ.get("CRONSENSUS_TEST_CHANGES") or 3)
"""Of the changes of a zone every third is walked around: odd, for spring and autumn come in turn; 1: all of them."""


def times(trigger: Trigger, first: datetime, last: datetime) -> list[datetime]:
    """Return the nominal times from ``first`` to ``last``, both included."""
    found, position = [], trigger.next_after(first - timedelta(microseconds=1))
    while position is not None and position <= last:
        found.append(position)
        position = trigger.next_after(position)
    return found


def count(trigger: Trigger, after: datetime, until: datetime) -> int:
    """Return how many nominal times lie in (after, until] by arithmetic, which for so few would not be chosen."""
    assert isinstance(trigger, Cron)
    return trigger._clock.count(after, until)


def day_of(expression: str, zone: str, day: str, dst: Dst = "cron") -> str:
    """Return the local times, with their zone's abbreviation, at which an expression runs on one local day."""
    here = ZoneInfo(zone)
    first = datetime.fromisoformat(day).replace(tzinfo=here)
    last = (first + timedelta(days=1) - timedelta(seconds=1)).replace(fold=1)
    found = times(cron(expression, tz=zone, dst=dst), first.astimezone(UTC), last.astimezone(UTC))
    return ", ".join(f"{time.astimezone(here):%H:%M %Z}" for time in found)


@pytest.mark.parametrize(
    ("expression", "day", "runs"),
    [
        ("30 2 * * *", "2026-03-08", "03:00 EDT"),
        ("30 1 * * *", "2026-11-01", "01:30 EDT"),
        ("0 * * * *", "2026-03-08", None),
        ("30 1-4 * * *", "2026-03-08", "01:30 EST, 03:00 EDT, 03:30 EDT, 04:30 EDT"),
        ("30 0-2 * * *", "2026-11-01", "00:30 EDT, 01:30 EDT, 02:30 EST"),
        ("15,30,45 2 * * *", "2026-03-08", "03:00 EDT"),
        ("0 3 * * *", "2026-03-08", "03:00 EDT"),
        ("0 2,3 * * *", "2026-03-08", "03:00 EDT"),
        ("30 2 * * *", "2026-11-01", "02:30 EST"),
        ("0 30 2 * * *", "2026-03-08", "03:00 EDT"),
        ("0 30 1 * * *", "2026-11-01", "01:30 EDT"),
        ("*/30 1-2 * * *", "2026-03-08", "01:00 EST, 01:30 EST"),
        ("*/30 1 * * *", "2026-11-01", "01:00 EDT, 01:30 EDT, 01:00 EST, 01:30 EST"),
    ],
)
def test_the_measured_vectors_of_new_york(expression, day, runs):
    if runs is None:  # every hour in real time: 23 of them in March
        assert len(day_of(expression, "America/New_York", day).split(",")) == 23
    else:
        assert day_of(expression, "America/New_York", day) == runs


def test_a_frequency_runs_in_real_time_through_gap_and_fold():
    trigger = cron("*/30 * * * *", tz="America/New_York")
    for change in ("2026-03-08T07:00Z", "2026-11-01T06:00Z"):
        around = datetime.fromisoformat(change)
        found = times(trigger, around - 4 * HOUR, around + 4 * HOUR)
        assert found == [around + step * 30 * MINUTE for step in range(-8, 9)]


@pytest.mark.parametrize(
    ("zone", "expression", "day", "by_policy"),
    [
        ("America/New_York", "30 2 * * *", "2026-03-08", ("03:00 EDT", "03:00 EDT", "")),
        ("America/New_York", "30 1 * * *", "2026-11-01", ("01:30 EDT", "01:30 EDT, 01:30 EST", "01:30 EDT")),
        ("Europe/Paris", "30 2 * * *", "2025-03-30", ("03:00 CEST", "03:00 CEST", "")),
        ("Europe/Paris", "30 2 * * *", "2025-10-26", ("02:30 CEST", "02:30 CEST, 02:30 CET", "02:30 CEST")),
        ("Europe/Dublin", "30 1 * * *", "2025-03-30", ("02:00 IST", "02:00 IST", "")),
        ("Europe/Dublin", "30 1 * * *", "2025-10-26", ("01:30 IST", "01:30 IST, 01:30 GMT", "01:30 IST")),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05", ("01:45 +11", "01:45 +11, 01:45 +1030", "01:45 +11")),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", ("02:30 +11", "02:30 +11", "")),
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-04", ("01:00 -02", "01:00 -02", "")),
        ("America/Sao_Paulo", "30 23 * * *", "2019-02-16", ("23:30 -02", "23:30 -02, 23:30 -03", "23:30 -02")),
        ("Asia/Kathmandu", "10 0 * * *", "1986-01-01", ("00:15 +0545", "00:15 +0545", "")),
        ("Africa/Casablanca", "30 2 * * *", "2025-02-23", ("02:30 +01", "02:30 +01, 02:30 +00", "02:30 +01")),
        ("Africa/Casablanca", "30 2 * * *", "2025-04-06", ("03:00 +01", "03:00 +01", "")),
    ],
)
def test_a_time_of_the_day_under_each_policy(zone, expression, day, by_policy):
    assert tuple(day_of(expression, zone, day, dst) for dst in POLICIES) == by_policy


@pytest.mark.parametrize(
    ("expression", "day", "by_policy"),
    [
        ("45 * * * *", "2026-03-08", (23, 23, 23)),
        ("45 * * * *", "2026-11-01", (25, 25, 24)),
        ("*/20 2 * * *", "2026-03-08", (0, 0, 0)),
        ("*/20 1 * * *", "2026-11-01", (6, 6, 3)),
    ],
)
def test_a_frequency_under_each_policy(expression, day, by_policy):
    runs = [day_of(expression, "America/New_York", day, dst) for dst in POLICIES]
    assert tuple(len(run.split(",")) if run else 0 for run in runs) == by_policy


def test_a_day_that_a_zone_leaves_out_is_a_gap():
    # Apia went from Thursday 29 December 2011 to Saturday 31 December, 10:00 UTC on the 30th.
    after_the_gap = datetime(2011, 12, 30, 10, tzinfo=UTC)
    window = (after_the_gap - 30 * HOUR, after_the_gap + 12 * HOUR)
    missing_friday = cron("0 12 * * FRI", tz="Pacific/Apia")
    assert times(missing_friday, *window) == [after_the_gap]
    assert times(cron("0 12 * * FRI", tz="Pacific/Apia", dst="skip"), *window) == []
    assert times(cron("0 0 * * *", tz="Pacific/Apia"), *window) == [after_the_gap - 24 * HOUR, after_the_gap]
    assert len(times(cron("0 */6 * * *", tz="Pacific/Apia"), *window)) == 8


def test_half_an_hour_back_loses_none_and_half_an_hour_forward_skips_none():
    assert day_of("*/15 2 * * *", "Australia/Lord_Howe", "2026-04-05") == (
        "02:00 +1030, 02:15 +1030, 02:30 +1030, 02:45 +1030"
    )
    assert "02:45 +11" in day_of("45 * * * *", "Australia/Lord_Howe", "2026-10-04")


def test_from_within_the_second_pass_the_next_is_never_in_the_past():
    second_pass = datetime(2026, 11, 1, 1, 10, fold=1, tzinfo=ZoneInfo("America/New_York"))
    assert cron("30 1 * * *", tz="America/New_York").next_after(second_pass) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)
    both = cron("30 1 * * *", tz="America/New_York", dst="both")
    assert both.next_after(second_pass) == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


# The oracle: it walks real time in small steps, looks at the wall clock, and remembers what it has seen. It knows
# nothing of PEP 495, of cronsim, or of searching.


@dataclass(frozen=True)
class Step:
    instant: datetime
    wall: datetime
    seen: bool  # this wall-clock time has been on the clock before
    skipped: tuple[datetime, ...]  # wall-clock times that the clock jumped over just before


def walk(zone: ZoneInfo, first: datetime, last: datetime, step: timedelta = MINUTE) -> list[Step]:
    steps: list[Step] = []
    seen: set[datetime] = set()
    instant, before = first, first.astimezone(zone).replace(tzinfo=None)
    while instant <= last:
        wall = instant.astimezone(zone).replace(tzinfo=None)
        skipped = []
        missing = before + step
        while missing < wall:
            skipped.append(missing)
            missing += step
        steps.append(Step(instant, wall, wall in seen, tuple(skipped)))
        seen.add(wall)
        before, instant = wall, instant + step
    return steps


class Pattern:
    """A cron text of lists, ranges and steps with Debian's rules, read in the simplest way."""

    def __init__(self, text: str) -> None:
        parts = text.split()
        if len(parts) == 5:
            parts = ["0", *parts]
        sizes = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
        self.sets = [self._read(part, *size) for part, size in zip(parts, sizes, strict=True)]
        self.fixed = not any(part.startswith("*") for part in parts[:3])
        self.both_days = parts[3].startswith("*") or parts[5].startswith("*")

    @staticmethod
    def _read(part: str, low: int, high: int) -> set[int]:
        values: set[int] = set()
        for term in part.split(","):
            span, _, step = term.partition("/")
            first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
            values.update(range(int(first), int(last or first) + 1, int(step or 1)))
        return values

    def matches(self, wall: datetime) -> bool:
        seconds, minutes, hours, days, months, weekdays = self.sets
        if wall.minute not in minutes or wall.hour not in hours or wall.second not in seconds:
            return False
        day, weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        return wall.month in months and ((day and weekday) if self.both_days else (day or weekday))

    def runs(self, steps: list[Step], first: datetime) -> dict[Dst, list[datetime]]:
        """Return for each policy the instants from ``first`` on at which it runs: the table of cron()."""
        found: dict[Dst, list[datetime]] = {policy: [] for policy in POLICIES}
        for step in steps:
            match = self.matches(step.wall)
            after_gap = self.fixed and any(self.matches(wall) for wall in step.skipped)
            if step.instant < first or not (match or after_gap):
                continue
            now, again = match and not step.seen, match and step.seen
            if now or after_gap or (again and not self.fixed):
                found["cron"].append(step.instant)
            if now or after_gap or again:
                found["both"].append(step.instant)
            if now:
                found["skip"].append(step.instant)
        return found


def changes(zone: ZoneInfo, first_year: int, last_year: int) -> Iterator[datetime]:
    """Yield the whole minutes at which the offset of a zone changes."""
    instant, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC)
    while instant < end:
        later = instant + 6 * HOUR
        offset = instant.astimezone(zone).utcoffset()
        if later.astimezone(zone).utcoffset() != offset:
            change = instant
            while change.astimezone(zone).utcoffset() == offset:
                change += MINUTE
            yield change
        instant = later


EXPRESSIONS = (
    "30 2 * * *",
    "0 0 * * *",
    "45 1 * * *",
    "30 1-4 * * *",
    "0,20,40 0-3,23 * * *",
    "7 * * * *",
    "*/20 * * * *",
    "*/10 2 * * *",
    "15 2 * * 0",
    "30 2 1-7 * 0",
    "*/30 0-3 */2 3,4,10,11 *",
)


@pytest.mark.parametrize(
    ("zone", "least_changes"),
    [
        ("Europe/Paris", 62),
        ("America/New_York", 62),
        ("Australia/Lord_Howe", 62),
        ("America/Sao_Paulo", 19),
        ("Pacific/Apia", 20),
        ("Asia/Kathmandu", 0),
        ("Africa/Casablanca", 60),
        ("Europe/Dublin", 62),
        ("Asia/Shanghai", 0),
    ],
)
def test_no_difference_from_walking_every_minute_around_changes_of_2010_to_2040(zone, least_changes):
    here = ZoneInfo(zone)
    around = list(changes(here, 2010, 2040))
    assert len(around) >= least_changes
    around = around[::EACH]
    around += [datetime(1986, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)]
    triggers = {(text, dst): cron(text, tz=zone, dst=dst) for text in EXPRESSIONS for dst in POLICIES}
    patterns = {text: Pattern(text) for text in EXPRESSIONS}
    for change in around:
        # The walk begins earlier than the comparison, to have seen the first pass of any fold.
        first, last = change - 7 * HOUR, change + 13 * HOUR
        steps = walk(here, first - 2 * HOUR, last)
        for text, pattern in patterns.items():
            for dst, expected in pattern.runs(steps, first).items():
                trigger = triggers[text, dst]
                assert times(trigger, first, last) == expected, (zone, text, dst, change)
                assert trigger.latest_until(last, first - SECOND) == (expected[-1] if expected else None)
                assert count(trigger, first - SECOND, last) == len(expected), (zone, text, dst, change)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "Europe/Paris"])
@pytest.mark.parametrize("text", ["*/20 59,0 1-3 * * *", "15,45 30 1,2 * * *", "7 */10 * * * *", "10-12 0 0-4 * * *"])
def test_no_difference_from_walking_every_second_around_the_changes_of_2026(zone, text):
    here = ZoneInfo(zone)
    for change in changes(here, 2026, 2026):
        first, last = change - 2 * HOUR, change + 3 * HOUR
        steps = walk(here, first - 2 * HOUR, last, SECOND)
        for dst, expected in Pattern(text).runs(steps, first).items():
            trigger = cron(text, tz=zone, dst=dst)
            assert times(trigger, first, last) == expected, (zone, text, dst, change)
            assert count(trigger, first - SECOND, last) == len(expected)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe"])
def test_no_difference_over_a_whole_year_and_counting_agrees(zone):
    here = ZoneInfo(zone)
    first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, tzinfo=UTC)
    steps = walk(here, first - 2 * HOUR, last)
    for text in ("30 2 * * 0", "5 0-23/3 * * *", "0 12 1 * *"):
        for dst, expected in Pattern(text).runs(steps, first).items():
            trigger = cron(text, tz=zone, dst=dst)
            assert times(trigger, first, last) == expected
            assert count(trigger, first - SECOND, last) == len(expected)


def test_the_end_of_a_gap_is_counted_in_the_stretch_that_it_lies_in():
    # Berlin's clocks go from 2:00 to 3:00; 2:30 runs at the end of the gap.
    daily, change = cron("30 2 * * *", tz="Europe/Berlin"), datetime(2026, 3, 29, 1, tzinfo=UTC)
    second = timedelta(seconds=1)
    assert daily.next_after(change - second) == change
    for after, until, expected in (
        (change - second, change, 1),
        (change - second, change + second, 1),
        (change - 2 * second, change - second, 0),
        (change, change + second, 0),
        (change - HOUR, change - second, 0),
        (change, change + HOUR, 0),
        (change - HOUR, change + HOUR, 1),
    ):
        assert daily.count_between(after, until, 100) == expected, (after, until)


@pytest.mark.parametrize("change", ["2026-03-29T01:00Z", "2026-10-25T01:00Z"])
def test_what_ends_shortly_before_a_change_is_counted_up_to_there(change):
    hourly, around = cron("0 * * * *", tz="Europe/Berlin"), datetime.fromisoformat(change)
    assert count(hourly, around - 10 * HOUR, around - 5 * HOUR) == 5


@pytest.mark.parametrize("dst", POLICIES)
def test_from_within_a_fold_the_next_may_be_far_away_and_by_another_offset(dst):
    summer = cron("0 12 1 7 *", tz="Europe/Berlin", dst=dst)
    for minutes in (-30, 30):
        inside = datetime(2026, 10, 25, 1, tzinfo=UTC) + minutes * MINUTE
        assert summer.next_after(inside) == datetime(2027, 7, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize("dst", POLICIES)
def test_from_within_the_last_fold_of_the_calendar_there_may_be_no_next(dst):
    new_year = cron("0 0 1 1 *", tz="Europe/Berlin", dst=dst)
    for minutes in (-30, 30, 90):
        assert new_year.next_after(datetime(9998, 10, 25, 1, tzinfo=UTC) + minutes * MINUTE) is None


def test_what_comes_each_year_comes_in_far_centuries_too():
    new_year = cron("0 0 1 1 *", tz="Europe/Berlin")
    assert new_year.next_after(datetime(3000, 6, 1, tzinfo=UTC)) == datetime(3000, 12, 31, 23, tzinfo=UTC)
