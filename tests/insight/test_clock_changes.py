"""What clock changes do to an expression, in words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cronsensus.insight.clock_changes import describe_effect, describe_local_time, find_changes, list_crons
from cronsensus.triggers import any_of, cron, every
from cronsensus.triggers.zones import load_zone

SPRING = datetime(2027, 3, 28, 1, tzinfo=UTC)
AUTUMN = datetime(2027, 10, 31, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "dst", "spring", "autumn"),
    [
        ("30 2 * * *", "cron", "02:30 does not exist that day: it runs once, right after the gap, at 03:00.",
         "02:30 comes twice that day: it runs the first time only."),
        ("30 2 * * *", "both", "02:30 does not exist that day: it runs once, right after the gap, at 03:00.",
         "02:30 comes twice that day: it runs both times."),
        ("30 2 * * *", "skip", "02:30 does not exist that day: not run.",
         "02:30 comes twice that day: it runs the first time only."),
        ("0,30 2,3 * * *", "cron", "02:00 and 02:30 do not exist that day: the run at 03:00 stands for them.",
         "02:00 and 02:30 come twice that day: it runs the first time only."),
        ("0,30 2,3 * * *", "skip", "02:00 and 02:30 do not exist that day: not run.",
         "02:00 and 02:30 come twice that day: it runs the first time only."),
        ("*/10 * * * *", "cron",
         "02:00, 02:10, … (6 times before 03:00) do not exist that day: no time passes there, so nothing is lost.",
         "02:00, 02:10, … (6 times before 03:00) come twice that day: it runs both times."),
        ("7 * * * *", "cron", "02:07 does not exist that day: no time passes there, so nothing is lost.",
         "02:07 comes twice that day: it runs both times."),
        ("0 12 * * *", "cron", "Nothing of it falls into the skipped time 02:00-03:00: it runs as on any day.",
         "Nothing of it falls into the repeated time 02:00-03:00: it runs as on any day."),
    ],
)  # fmt: skip
def test_effects_are_read_off_the_trigger(expression: str, dst: Any, spring: str, autumn: str) -> None:
    (part,) = list_crons(cron(expression, tz="Europe/Berlin", dst=dst))
    year = find_changes(load_zone("Europe/Berlin"), datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
    first, second = year
    assert (first.at, second.at) == (SPRING, AUTUMN)
    assert (describe_effect(part, first), describe_effect(part, second)) == (spring, autumn)


def test_a_union_has_the_notes_of_its_cron_parts() -> None:
    trigger = any_of(cron("30 2 * * *", tz="Europe/Berlin"), every("7h"))
    assert len(list_crons(trigger)) == 1
    assert "right after the gap" in str(describe_local_time(trigger, SPRING, None))
    assert describe_local_time(trigger, datetime(2027, 3, 28, 2, tzinfo=UTC), None) is None


def test_the_first_time_after_a_change_says_so() -> None:
    trigger = cron("0 12 * * *", tz="Europe/Berlin")
    before = datetime(2027, 3, 27, 11, tzinfo=UTC)
    assert (
        str(describe_local_time(trigger, datetime(2027, 3, 28, 10, tzinfo=UTC), before))
        == "clocks have changed: from here on +02:00"
    )
