"""Texts of other programs: none changes its meaning without a word."""

import re

import pytest

from cronsensus import Scheduler
from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import Trigger, any_of, at, cron, every
from cronsensus.triggers.notes import notes_on

REFUSED = [
    # AWS EventBridge: minute hour day month weekday year, where 1 is Sunday
    ("0 10 * * ? *", "'0 10 * * *'"),
    ("15 12 * * ? *", "'15 12 * * *'"),
    ("0 8 1 * ? *", "'0 8 1 * *'"),
    ("0/15 * * * ? *", "'*/15 * * * *'"),
    ("0 18 ? * MON-FRI *", "'0 18 * * MON-FRI'"),
    ("0 18 ? * 2-6 *", "'0 18 * * MON-FRI'"),
    ("0 22 ? * 6-2 *", "'0 22 * * FRI,SAT,SUN,MON'"),
    ("0 10 ? * 6#3 *", "'0 10 * * FRI#3'"),
    ("0 10 ? * 6L *", "'0 10 * * 5L'"),
    ("0 8 1 1 ? 2027", "cron('0 8 1 1 *', start='2027-01-01 00:00', end='2027-12-31 23:59:59')"),
    ("cron(0 10 * * ? *)", "'0 10 * * *'"),
    ("rate(5 minutes)", "every('5m')"),
    ("at(2026-11-20T13:00:00)", "at('2026-11-20T13:00:00')"),
    # the year last, without AWS' question mark
    ("0 18 * * MON-FRI *", "'0 18 * * MON-FRI'"),
    ("0 9 1 1 * 2026", "cron('0 9 1 1 *', start='2026-01-01 00:00', end='2026-12-31 23:59:59')"),
    # Quartz counts days from 1 for Sunday, Spring from 0
    ("0 0 9 ? * 2", "'0 9 * * MON' (Quartz), or '0 9 * * TUE' (Spring)"),
    ("0 0 9 ? * MON,3 ?", "'0 9 * * MON,TUE'"),
    ("0 0 9 ? * 0", "'0 9 * * SUN'"),
    ("0 0 3 ? * L", "'0 3 * * SAT'"),
    ("0 0 9 ? * 2 *", "'0 9 * * MON'"),
    ("0 0 9 ? * MON-FRI 2027", "cron('0 9 * * MON-FRI', start='2027-01-01 00:00', end='2027-12-31 23:59:59')"),
    ("0 0 9 1 1 * 2026-2028", "cron('0 9 1 1 *', start='2026-01-01 00:00', end='2028-12-31 23:59:59')"),
    ("0 15 10 L-2 * ?", "'15 10 26-29 * *', and let the function raise Skip unless "),
    ("0 0 12 1W * ?", "'0 12 1-3 * *', and let the function raise Skip unless "),
    ("0 0 15W * *", "'0 0 14-16 * *', and let the function raise Skip unless "),
    ("0 9 ? * 2", "'0 9 * * TUE' (Kubernetes), or '0 9 * * MON' (AWS EventBridge without the year)"),
    # croniter: seconds last
    ("0 9 * * 1 30", "'30 0 9 * * MON'"),
    # a value that the program draws
    ("H H * * *", "cron('0 0 * * *', jitter='23h59m')"),
    ("H/15 * * * *", "cron('*/15 * * * *', jitter='14m')"),
    ("H H(0-7) * * 1-5", "cron('0 0 * * 1-5', jitter='7h59m')"),
    ("0~30 4 * * *", "cron('0 4 * * *', jitter='30m')"),
    # systemd
    ("Mon..Fri *-*-* 09:00:00", "'0 9 * * Mon-Fri'"),
    ("*-*-01 04:30", "'30 4 1 * *'"),
    ("*:0/15", "'*/15 * * * *'"),
    ("weekly", "'0 0 * * MON'"),
    # pg_cron, Celery, robfig, plain cron
    ("30 seconds", "every('30s')"),
    ("0 0 $ * *", "'0 0 L * *'"),
    ("<crontab: 0 9 * * mon (m/h/dM/MY/d)>", "'0 9 * * mon'"),
    ("<crontab: 0 9 mon * * (m/h/d/dM/MY)>", "'0 9 * * mon'"),
    ("crontab(minute=0, hour='*/3', day_of_week='mon-fri')", "'0 */3 * * mon-fri'"),
    ("crontab(minute=0, hour=9, day_of_month='1-7', day_of_week='mon')", "'0 9 * * MON#1'"),
    ("Fri *-*-13 00:00", "'0 0 * * FRI', and in the function if run.local_time.day != 13: raise Skip"),
    ("@every 5m", "every('5m')"),
    ("@reboot", "@scheduler.startup("),
]


@pytest.mark.parametrize(("text", "right"), REFUSED)
def test_a_text_that_only_another_program_has_is_refused_with_ours(text: str, right: str) -> None:
    with pytest.raises(InvalidTrigger) as refused:
        cron(text)
    assert f"write {right}" in str(refused.value)
    for typed in re.findall(r"(?:every|at|cron)\(.*?\)|(?<!=)'[^']*\*[^']*'", right):
        made = eval(typed, {"every": every, "at": at, "cron": cron})
        assert isinstance(made if isinstance(made, Trigger) else cron(made), Trigger)


NOTED = [
    # six fields: ours begin with seconds, theirs end with seconds or a year
    ("* * * * * */10", "'*/10 * * * * *' (croniter, with seconds last)"),
    ("0 9 * * 1 0", "'0 9 * * MON' (croniter, with seconds last); if it is meant as it reads here, write '9 * * 1 0'"),
    ("35 10 * * * 3", "'3 35 10 * * *' (croniter, with seconds last)"),
    ("0 3 * * * *", "'0 3 * * *' (a cron with the year last); if it is meant as it reads here, write '3 * * * *'"),
    ("0 18 * * 2-6 *", "'0 18 * * MON-FRI' (AWS EventBridge with * for ?)"),
    # both day fields: either here and in crontab, both in Celery
    ("0 9 1-7 * mon", "for both write '0 9 * * MON#1'"),
    ("0 9 8-14 * 1", "for both write '0 9 * * MON#2'"),
    ("0 0 13 * FRI", "'0 0 * * FRI', and in the function if run.local_time.day != 13: raise Skip"),
    ("0 0 1-5 * 1-5", "'0 0 * * MON-FRI', and in the function if run.local_time.day not in range(1, 6): raise Skip"),
    ("0 9 L * FRI", "'0 9 * * FRI', and let the function raise Skip"),
    ("0 0 13 * FRI", "any_of(cron('0 0 13 * *'), cron('0 0 * * FRI'))"),
    ("0 3 */2 * MON", "any_of(cron('0 3 */2 * *'), cron('0 3 * * MON'))"),
    # steps that are not even
    ("*/45 * * * *", "write every('45m')"),
    ("0 0 */21 * * *", "write every('21h')"),
    ("30 3 */2 * *", "write cron('30 3 * * *', every='2 days', start='2027-01-01')"),
    ("0 3 1 */5 *", "list the months"),
    ("0 3 * * */2", "list the days"),
    ("0 */24 * * *", "write every('24h')"),
]


@pytest.mark.parametrize(("text", "right"), NOTED)
def test_a_text_that_may_be_meant_otherwise_has_a_note(text: str, right: str) -> None:
    assert right in " ".join(map(str, notes_on(cron(text))))


PLAIN = [
    # crontab, GitHub Actions, Kubernetes
    ("0 9 * * 1-5", "at 09:00, Monday to Friday, UTC"),
    ("*/15 * * * *", "every 15 minutes, UTC"),
    ("0 0 * * 0", "at 00:00 every Sunday, UTC"),
    ("0 0 * * 7", "at 00:00 every Sunday, UTC"),
    ("30 4 1,15 * *", "at 04:30 on the 1st and 15th of every month, UTC"),
    ("0 */2 * * *", "every 2 hours, UTC"),
    ("5 4 * * sun", "at 04:05 every Sunday, UTC"),
    ("0 11 */1 * FRI", "at 11:00 every Friday, UTC"),
    ("@daily", "at 00:00 every day, UTC"),
    ("CRON_TZ=Asia/Tokyo 0 9 * * *", "at 09:00 every day, Asia/Tokyo"),
    # Celery, whose own answers these are
    ("*/10 3,17,22 * * thu,fri", "every 10 minutes of hours 3, 17 and 22 every Thursday and Friday, UTC"),
    ("0 8-17/3 * * *", "at 08:00, 11:00, 14:00 and 17:00 every day, UTC"),
    ("0 0 2-31/2 * *", "at 00:00 on every 2nd day from the 2nd to the 30th of every month, UTC"),
    ("0 0 1 */3 *", "at 00:00 on the 1st of January, April, July and October, UTC"),
    ("0 0 11 5 *", "at 00:00 on 11 May, UTC"),
    ("30 7 * * 1", "at 07:30 every Monday, UTC"),
    ("0 5 * * 6,0", "at 05:00 every Saturday and Sunday, UTC"),
    ("0 */3 * * mon-fri", "every 3 hours, Monday to Friday, UTC"),
    ("* 3 * * *", "every minute from 03:00 to 03:59, UTC"),
    ("0 0 * * sunday", "at 00:00 every Sunday, UTC"),
    # seconds first, as Spring, node-cron, Azure and Quartz have them
    ("0 0 9 * * *", "at 09:00 every day, UTC"),
    ("0 30 9 * * 1-5", "at 09:30, Monday to Friday, UTC"),
    ("*/10 * * * * *", "every 10 seconds, UTC"),
    ("0 */5 * * * *", "every 5 minutes, UTC"),
    ("0 0 */2 * * *", "every 2 hours, UTC"),
    ("0 0 9 ? * MON#1", "at 09:00 on the first Monday of every month, UTC"),
    ("0 0 12 LW * ?", "at 12:00 on the last day from Monday to Friday of every month, UTC"),
]


@pytest.mark.parametrize(("text", "words"), PLAIN)
def test_a_text_that_means_the_same_everywhere_is_taken_without_a_word(text: str, words: str) -> None:
    assert (cron(text).describe(), notes_on(cron(text))) == (words, [])


def test_each_note_on_other_programs_names_a_text_without_one() -> None:
    assert notes_on(cron("3 * * * *")) == []
    assert notes_on(any_of(cron("0 9 1-7 * *"), cron("0 9 * * MON"))) == []


def test_a_job_is_declared_with_one_warning_of_what_other_programs_would_do(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler("memory://dialects")
    for text in ("0 9 1-7 * mon", "0 9 * * 1-5", "*/45 * * * *"):
        scheduler.job(cron(text), name=text.replace(" ", "_"))(print_nothing)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "job '0_9_1-7_*_mon': day-of-month and day-of-week are both given" in record.getMessage()


def print_nothing() -> None: ...


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("0/90 * * * *", "is only 0"),
        ("0 0 1/31 * *", "is only 1"),
        ("0 */2 */2 * *", "cron('0 */2 * * *', every='2 days'"),
        ("0 9 01 * MON", "run.local_time.day != 1:"),
        ("0 9 1 * 0-7", "for both write '0 9 * * *'"),
    ],
)
def test_a_note_says_what_is_right(text, note):
    assert note in " ".join(map(str, notes_on(cron(text))))


@pytest.mark.parametrize("text", ["0 0 31 12 *", "0 0 29 2 *", "0 0 30 4,6 *"])
def test_months_that_have_the_day_have_no_note(text):
    assert not notes_on(cron(text))


@pytest.mark.parametrize("text", ["H(0-9999999999999) * * * *", "50~10 * * * *", "60~ * * * *", "H/0 * * * *"])
def test_what_nobody_can_have_written_is_refused_without_advice(text):
    with pytest.raises(InvalidTrigger, match="in the minute field"):
        cron(text)
