"""What people type who know another cron: understood where it can mean one thing only, else told what to write."""

import pytest

from cronsensus.errors import InvalidTrigger
from cronsensus.once.slots import read_trigger
from cronsensus.triggers import any_of, cron, every, trigger_from_json


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("0 0 9 * * ? *", "0 9 * * *"),
        ("0 0 9 ? * MON-FRI *", "0 9 * * MON-FRI"),
        ("0 0 9 ? * MON#2", "0 9 * * MON#2"),
        ("0 0 9 15 * ?", "0 9 15 * *"),
        ("30 0 9 ? * * *", "30 0 9 * * *"),
        ("0 9 ? * mon", "0 9 * * MON"),
        ("0 9 * * MONDAY", "0 9 * * MON"),
        ("0 9 * * monday-friday", "0 9 * * MON-FRI"),
        ("0 9 * * Tues,Thurs", "0 9 * * TUE,THU"),
        ("0 9 1 september,JUNE *", "0 9 1 SEP,JUN *"),
    ],
)
def test_other_ways_of_writing_an_expression_are_understood(typed, meant):
    assert cron(typed) == cron(meant)
    assert trigger_from_json(cron(typed).to_json()) == cron(meant)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("0 9 * * fri-mon", "one that wraps is written in two: FRI-SAT,SUN-MON"),
        ("0 9 * * sat-sun", "written in two: SAT,SUN"),
        ("0 22-2 * * *", "written in two: 22-23,0-2"),
        ("0 9 * nov-feb *", "written in two: NOV-DEC,JAN-FEB"),
        ("0 9 28-3 * *", "written in two: 28-31,1-3"),
        ("50-0 * * * *", "written in two: 50-59,0"),
        ("0 22-2/2 * * *", "written in two, such as 'x-y,z'"),
        ("0 0 L/2 * *", "'L/2' is wrong; L is one day and takes no step"),
        ("0 0 * * 5L/2", "'5L/2' is wrong; L is one day and takes no step"),
        ("@every 5m", "is an interval; write every('5m')"),
        ("every 5min", "is an interval; write every('5min')"),
        ("0 9 * * FUNDAY", "'FUNDAY' is wrong in the day-of-week field"),
    ],
)
def test_what_could_mean_several_things_is_answered_with_what_to_write(typed, words):
    with pytest.raises(InvalidTrigger) as refused:
        cron(typed)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("tz", "words"),
    [
        ("Asia/Beijing", "write 'Asia/Shanghai'"),
        ("America/San Francisco", "write 'America/Los_Angeles'"),
        ("Mumbai", "write 'Asia/Kolkata'"),
        ("+08:00", "an offset is no zone, since it does not know when clocks change"),
        ("+08:00", "or 'Etc/GMT-8' for that offset"),
        ("UTC-5", "or 'Etc/GMT+5' for that offset"),
        ("+05:30", "write a name like 'Asia/Kolkata'"),
        ("GMT+0", "or 'UTC' for that offset"),
        ("Z", "write 'UTC'"),
    ],
)
def test_unknown_zone_is_refused_with_a_known_one(tz, words):
    if tz == "GMT+0":
        assert cron("0 0 * * *", tz=tz).to_json()["tz"] == tz  # IANA has it
        return
    with pytest.raises(InvalidTrigger) as refused:
        cron("0 0 * * *", tz=tz)
    assert words in str(refused.value)


def test_a_date_that_no_month_has_is_not_described():
    assert cron("0 0 31 2 MON").describe() == "at 00:00 every Monday in February, UTC"
    assert cron("0 0 31,15 2 *").describe() == "at 00:00 on 15 February, UTC"
    assert cron("0 0 31 1,2 *").describe() == "at 00:00 on the 31st of January and February, UTC"


@pytest.mark.parametrize("period", ["0 3 * * *", "@daily"])
def test_a_cron_text_for_a_period_is_answered_with_what_to_write(period):
    with pytest.raises(InvalidTrigger, match=r"is a cron text, not a period; write once_per\(cron\("):
        read_trigger(period)
    assert read_trigger("1 hour 30 minutes") == every("90m")
    assert read_trigger(any_of(cron("@daily"))) == cron("@daily")
