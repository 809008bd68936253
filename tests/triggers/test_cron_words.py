"""How triggers read in English."""

from datetime import timedelta

import pytest

from cronsensus.triggers import at, cron, every


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0-59/5 * * * *", "every 5 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("7 * * * *", "at minute 7 of every hour"),
        ("15,45 * * * *", "at minutes 15 and 45 of every hour"),
        ("5-10 * * * *", "at minutes 5 to 10 of every hour"),
        ("*/7 * * * *", "at every 7th minute from 0 to 56 of every hour"),
        ("@hourly", "every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("15 */2 * * *", "every 2 hours from 00:15 to 22:15"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45, Monday to Friday"),
        ("* 2 * * *", "every minute from 02:00 to 02:59"),
        ("0-10 3 * * *", "every minute from 03:00 to 03:10"),
        ("*/10 8,20 * * *", "every 10 minutes of hours 8 and 20"),
        ("@daily", "at 00:00 every day"),
        ("0 21 * * *", "at 21:00 every day"),
        ("0 0,12 * * *", "at 00:00 and 12:00 every day"),
        ("30 9,12,18 * * *", "at 09:30, 12:30 and 18:30 every day"),
        ("0 9 * * MON-FRI", "at 09:00, Monday to Friday"),
        ("0 9 * * 1,2,3,4,5", "at 09:00, Monday to Friday"),
        ("0 9 * * SAT,SUN", "at 09:00 every Saturday and Sunday"),
        ("0 9 * * 5-7", "at 09:00, Friday to Sunday"),
        ("0 9 * * MON,WED,FRI", "at 09:00 every Monday, Wednesday and Friday"),
        ("@weekly", "at 00:00 every Sunday"),
        ("0 9 * 1 TUE", "at 09:00 every Tuesday in January"),
        ("0 12 * * 5L", "at 12:00 on the last Friday of every month"),
        ("0 12 * * MON#2", "at 12:00 on the second Monday of every month"),
        ("0 8 * JAN,JUL MON#1", "at 08:00 on the first Monday of January and July"),
        ("0 0 * * 5L,MON#3,MON#1", "at 00:00 on the first Monday, the third Monday and the last Friday of every month"),
        ("@monthly", "at 00:00 on the 1st of every month"),
        ("30 2 1,15 * *", "at 02:30 on the 1st and 15th of every month"),
        ("0 0 21-23 * *", "at 00:00 on the 21st to 23rd of every month"),
        ("0 0 11,12,13,22 * *", "at 00:00 on the 11th to 13th and 22nd of every month"),
        ("0 0 L * *", "at 00:00 on the last day of every month"),
        ("0 0 LW * *", "at 00:00 on the last day from Monday to Friday of every month"),
        ("0 0 15,L * *", "at 00:00 on the 15th and the last day of every month"),
        ("0 0 */2 * *", "at 00:00 on every 2nd day from the 1st to the 31st of every month"),
        ("@yearly", "at 00:00 on 1 January"),
        ("0 0 29 2 *", "at 00:00 on 29 February"),
        ("0 0 1 */3 *", "at 00:00 on the 1st of January, April, July and October"),
        ("0 12 * 6-8 *", "at 12:00 every day in June to August"),
        ("*/5 * * 6 *", "every 5 minutes in June"),
        ("0 0 13 * FRI", "at 00:00 on the 13th of every month, and every Friday"),
        ("0 0 1-7 * */7", "at 00:00 on the 1st to 7th of every month, if it is a Sunday"),
        ("0 0 1-7 * */3", "at 00:00 on the 1st to 7th of every month, if it is a Wednesday, Saturday or Sunday"),
        ("0 0 1-31 * MON", "at 00:00 every day"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("30 * * * * *", "at second 30 of every minute"),
        ("0,20,50 * * * * *", "at seconds 0, 20 and 50 of every minute"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        ("*/10 * 9-17 * * *", "every 10 seconds from 09:00:00 to 17:59:50"),
        ("5 */5 * * * *", "at second 5 of every 5th minute from 0 to 55 of every hour"),
    ],
)
def test_cron_in_words(text, words):
    assert cron(text).describe() == f"{words}, UTC"


def test_zone_policy_bounds_and_jitter_are_said():
    assert cron("0 21 * * *", tz="Asia/Shanghai").describe() == "at 21:00 every day, Asia/Shanghai"
    nightly = cron(
        "30 2 * * *",
        tz="Europe/Paris",
        dst="both",
        start="2026-01-01T00:00:00Z",
        end="2027-01-01T00:00:00+01:00",
        jitter="90s",
    )
    assert str(nightly) == (
        "at 02:30 every day, Europe/Paris, twice where clocks go back over it, from 2026-01-01T00:00:00Z, "
        "until 2026-12-31T23:00:00Z, delayed by up to 1m30s"
    )
    assert "not where clocks jump over it" in cron("30 2 * * *", tz="Europe/Paris", dst="skip").describe()


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (1, "every second"),
        ("5m", "every 5 minutes"),
        ("60m", "every hour"),
        ("1h30m", "every 1 hour 30 minutes"),
        ("1d", "every day"),
        ("2w", "every 14 days"),
        ("250ms", "every 250 milliseconds"),
        (timedelta(milliseconds=1, microseconds=1), "every 1 millisecond 1 microsecond"),
    ],
)
def test_intervals_in_words(interval, words):
    assert every(interval).describe() == words


def test_the_other_kinds_in_words():
    assert at("2026-11-20T21:00:00Z").describe() == "once at 2026-11-20T21:00:00Z"
    assert every("5m", start="2026-11-20T21:00:00Z").describe() == "every 5 minutes, from 2026-11-20T21:00:00Z"
    union = every("5m", jitter="3s") | cron("@daily")
    assert union.describe() == "at 00:00 every day, UTC; and every 5 minutes, delayed by up to 3s"
