"""``migrate crontab``: what is printed is a program that does what cron did, and the rest is said."""

import calendar
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.crontab.commands import Stripped, function_name, strip_prefixes
from cronsensus.integrations.crontab.lines import Entry, read_crontab, split_command
from cronsensus.integrations.crontab.machine_zone import machine_zone
from cronsensus.integrations.crontab.migrating import Migration, Zone, migrate


def migrated(text: str, *, tz: str = "UTC", system: bool = False) -> Migration:
    return migrate(read_crontab(text, system=system), Zone(tz, "--tz"), system=system)


def program(migration: Migration) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "printed"}
    exec(compile(migration.code, "printed", "exec"), space)
    return space


def jobs_of(text: str, **options: Any) -> dict[str, Any]:
    return dict(program(migrated(text, **options))["scheduler"].jobs)


def remarks_of(migration: Migration) -> str:
    return "\n".join(f"{one.place}: {one.text}" for one in migration.remarks)


# What the lines say.


@pytest.mark.parametrize(
    ("command", "split"),
    [
        ("date +\\%F", ("date +%F", "")),
        ("cat%one%two", ("cat", "one\ntwo\n")),
        ("cat%50\\% of it%", ("cat", "50% of it\n")),
        ("cat%", ("cat", "")),
        ("echo \\n # no comment", ("echo \\n # no comment", "")),
        ("echo \\\\%in", ("echo \\\\", "in\n")),
        ("echo at the end \\", ("echo at the end \\", "")),
    ],
)
def test_percent_sign_begins_the_stdin(command, split):
    assert split_command(command) == split


def test_settings_hold_for_the_lines_below_and_are_not_expanded():
    text = "* * * * * a\nA = \"two  words \"\nB=$A/bin  \n'C'='' \n* * * * * b\nA=\n@daily c\n"
    a, b, c = (one for one in read_crontab(text) if isinstance(one, Entry))
    assert a.settings == {}
    assert b.settings == {"A": "two  words ", "B": "$A/bin", "C": ""}
    assert c.settings == {**b.settings, "A": ""}


def test_comment_right_above_a_line_goes_with_it():
    migration = migrated("# m h  dom mon dow   command\n@daily a\n# nightly\n@daily b\n# old\n\n@daily c\n")
    assert [line for line in migration.code.splitlines() if line.startswith("# line")] == [
        "# line 2",
        "# line 4: nightly",
        "# line 7",
    ]


def test_user_is_read_in_a_system_crontab_alone():
    (entry,) = read_crontab("-*/15 * * * *\troot  test -x /x && /x", system=True)
    assert isinstance(entry, Entry)
    assert (entry.schedule, entry.user, entry.command) == ("*/15 * * * *", "root", "test -x /x && /x")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2 3 4", "has no command"),
        ("@daily", "has no command"),
        ("@fortnightly x", "'@fortnightly' is not known; write @reboot"),
        ("60 * * * * x", "'60' is wrong in the minute field; write 0-59"),
        ("0 22-2 * * * x", "22-23,0-2"),
        ("~ 3 * * * x", "a random time is another one on each machine; write a fixed one, and jitter="),
        ("5/15 * * * * x", "is not the same in all crons; write 5, or a range"),
        ("0 0 4-4/2 * * x", "is not the same in all crons; write 4, or a range"),
        ("0 0 L * * x", "cron knows no 'L'"),
        ("0 0 * * 5L x", "cron knows no 'L'"),
        ("0 0 * * MON#1 x", "cron knows no '#'"),
        ("0 0 ? * MON x", "cron knows no '?'"),
        ("0 0 * * TUESDAY x", "'TUESDAY' is wrong in the day-of-week field"),
        ("*/0 * * * * x", "'*/0' is wrong in the minute field"),
        ("0 5 * * * root /bin/x", "read it with --system"),
        ('A="open', "has no closing quote"),
    ],
)
def test_line_that_cannot_be_read_is_left_out_with_its_number(line, words):
    migration = migrated(f"0 1 * * * before\n{line}\n0 2 * * * after\n")
    assert [*program(migration)["scheduler"].jobs] == ["before", "after"]
    assert (migration.jobs, migration.left_out, migration.unreadable) == (2, 1, 1)
    assert words in migration.remarks[0].text
    assert f"# line 2: not read: {migration.remarks[0].text.removeprefix('not read: ')}" in migration.code


def test_user_that_is_missing_in_a_system_crontab_is_said():
    migration = migrated("0 5 * * * /bin/backup --all", system=True)
    assert "has no user before its command" in remarks_of(migration)


@pytest.mark.parametrize(
    ("line", "words"),
    [("30 2 30 2 * x", "comes in no year"), ("@reboot /bin/agent", "@scheduler.startup(scope='host')")],
)
def test_line_without_an_equivalent_is_left_out_and_no_mistake(line, words):
    migration = migrated(f"{line}\n0 2 * * * after\n")
    assert (migration.jobs, migration.left_out, migration.unreadable) == (1, 1, 0)
    assert words in migration.remarks[0].text


def test_nothing_but_mistakes_is_a_program_too():
    assert dict(program(migrated("nonsense"))["scheduler"].jobs) == {}


# Names, prefixes, zones.


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --all >> /var/log/x 2>&1", "backup"),
        ("cd /srv && FOO=1 venv/bin/python3.11 -u manage.py clearsessions --x", "clearsessions"),
        ("python -m shop.jobs.nightly", "nightly"),
        ("[ -x /bin/x ] && sudo -u www-data php /srv/artisan schedule:run", "schedule_run"),
        ("flock -n /tmp/a timeout 5m nice -n 10 /x/re-index.py", "re_index"),
        ("/bin/print", "print_2"),
        ("test -x /x || { cd / && run-parts --report /etc/cron.daily; }", "cron_daily"),
        ("[ -x /x ] && if [ ! -d /y ]; then /usr/lib/php/sessionclean; fi", "sessionclean"),
        ("/shims/bundle exec rake db:cleanup RAILS_ENV=production", "db_cleanup"),
        ("pg_dump shop | gzip > /b/$(date +%F).gz", "pg_dump"),
        ("sleep 60", "sleep"),
        ("7z a x", "job_7z"),
        ("import", "import_2"),
        ("$(", "job"),
    ],
)
def test_function_is_called_by_what_the_command_calls(command, name):
    assert function_name(command, set()) == name


def test_names_are_unique():
    assert [*jobs_of("@daily backup\n@weekly backup\n@hourly os\n")] == ["backup", "backup_2", "os_2"]


@pytest.mark.parametrize(
    ("command", "stripped"),
    [
        ("flock -n /tmp/a timeout 5m x > /y 2>&1", Stripped("x > /y 2>&1", "/tmp/a", "5m")),
        ("/usr/bin/timeout -k 5 90 /usr/bin/flock -xn /tmp/a x", Stripped("x", "/tmp/a", "90s")),
        *(
            (kept, Stripped(kept))
            for kept in (
                "flock /tmp/a x",
                "flock -w 5 /tmp/a x",
                "flock -n /tmp/a -c 'x'",
                "flock -n /tmp/a x; y",
                "timeout 5m x && y",
                "timeout 5m x | y",
                "timeout 0 x",
                "timeout -s INT 5 x",
            )
        ),
    ],
)
def test_flock_and_timeout_are_taken_off_where_they_are_about_all_of_it(command, stripped):
    assert strip_prefixes(command) == stripped


def test_flock_and_timeout_are_policies_of_the_job():
    (job,) = jobs_of("@hourly flock -n /tmp/a timeout 5m x").values()
    assert job.spec.policies.overlap == "skip"
    assert job.spec.policies.timeout == timedelta(minutes=5)


def test_lock_of_two_lines_stays():
    migration = migrated("@hourly flock -n /tmp/a x\n@daily flock -n /tmp/a y\n")
    assert 'sh("flock -n /tmp/a x")' in migration.code
    assert "line 1: flock on /tmp/a is in other lines, too, and stays" in remarks_of(migration)


def test_zone_is_that_of_the_line_else_the_one_given():
    migration = migrated("0 9 * * * a\nCRON_TZ=Asia/Shanghai\n0 9 * * * b\n", tz="Europe/Berlin")
    assert [job.rule.tz for job in program(migration)["scheduler"].jobs.values()] == [
        "Europe/Berlin",
        "Asia/Shanghai",
    ]
    assert "times are in Europe/Berlin, from --tz" in remarks_of(migration)


def test_lines_below_an_unknown_zone_are_not_read():
    migration = migrated("CRON_TZ=Mars\n0 9 * * * a\nCRON_TZ=UTC\n0 9 * * * b\n")
    assert (migration.jobs, migration.unreadable) == (1, 1)
    assert "line 2: not read: CRON_TZ above it: tz='Mars' is not a known time zone" in remarks_of(migration)


def test_zone_of_the_machine_has_a_name_or_is_asked_for(tmp_path):
    link, file = tmp_path / "localtime", tmp_path / "timezone"
    with pytest.raises(ConfigurationError, match="--tz"):
        machine_zone({"TZ": "CET-1CEST"}, localtime=link, timezone=file)
    file.write_text("Asia/Tokyo\n")
    assert machine_zone({}, localtime=link, timezone=file) == ("Asia/Tokyo", str(file))
    link.symlink_to("../usr/share/zoneinfo/Europe/Berlin")
    assert machine_zone({}, localtime=link, timezone=file) == ("Europe/Berlin", str(link))
    assert machine_zone({"TZ": ":UTC"}, localtime=link, timezone=file) == ("UTC", "TZ")


# The program that is printed.

HARD = r"""
# m h dom mon dow command
SHELL=/bin/bash
MAILTO=ops@example.org
GREETING = "it's	\"\ \x"
# a comment with ] and \ and "quotes"
0 5 * * * echo 'single' "double" `back` \\ $HOME \% é 中文 '''triple''' %line "1"%\%%
5 4 1,15,20-31/2 JAN,mar,5-7 * /a/very/long/folder/of/programs/that/do/not/end/and/go/on/and/on/and/on/backup.sh
CRON_TZ=America/Argentina/ComodRivadavia
0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26 0,1,2,3,4,5 * * * flock -n /a timeout 90 x
1,2 3,4 5-7 8,9 MON-FRI flock -n /tmp/b timeout 90 twelve --options
LAST=1
@hourly x%"y"
"""


@pytest.mark.parametrize("system", [False, True])
def test_printed_program_is_laid_out_and_typed_as_a_linter_wants(system, tmp_path):
    text = re.sub(r"(?m)^((\S+ ){5}|@hourly )", r"\1www-data ", HARD) if system else HARD
    migration = migrated(text, tz="Europe/Berlin", system=system)
    assert migration.jobs == 5, migration.code
    file = tmp_path / "jobs.py"
    file.write_text(migration.code, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "--isolated", "--diff", file], check=True)
    subprocess.run([*ruff, "check", "--isolated", "--select", "E4,E7,E9,F,B,I,UP", file], check=True)


def test_printed_function_runs_the_command_as_cron_does(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CRONSENSUS_URL", "postgresql://with:a-password@db/jobs")
    text = r"""
SHELL=/bin/bash
WHO="a  b"
@daily cat > out; echo "$WHO $0 $CRONSENSUS_URL" >> out; date +\%\% >> out%first%sec\%nd
@weekly exit 3
"""
    space = program(migrated(text))
    space["cat"]()
    assert (tmp_path / "out").read_text() == "first\nsec%nd\na  b /bin/bash \n%\n"
    with pytest.raises(subprocess.CalledProcessError):
        space["exit_2"]()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users here")
def test_printed_function_of_a_system_crontab_runs_as_its_user(monkeypatch):
    calls: list[Any] = []
    space = program(migrated("@daily root x\n@daily nobody y\n", system=True))
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: calls.append((*args, options["env"]["LOGNAME"])))
    space["x"]()
    space["y"]()
    assert calls == [
        (["/bin/sh", "-c", "x"], "root"),
        (["/sbin/runuser", "-u", "nobody", "--", "/bin/sh", "-c", "y"], "nobody"),
    ]


def test_code_that_a_crontab_tries_to_smuggle_in_stays_text():
    migration = migrated('# \r import os; os.abort()\n@daily x" \r); import os; os.abort() #\u2028 \x0c\n@daily y\\\n')
    assert [*program(migration)["scheduler"].jobs] == ["x", "y"]


LINES = st.lists(
    st.one_of(
        st.text(),
        st.builds("{} {}".format, st.sampled_from(["* * * * *", "1 2 3 4 5", "@daily", "0 0 30 2 *"]), st.text()),
        st.builds("{}={}".format, st.sampled_from(["SHELL", "CRON_TZ", "'X", "A B", "é"]), st.text()),
    )
)


@given(LINES, st.booleans())
def test_each_text_becomes_a_program(lines, system):
    migration = migrated("\n".join(lines), system=system)
    assert len(program(migration)["scheduler"].jobs) == migration.jobs


# When it runs, over a year: an independent reckoning of cron(5) and Debian's cron(8), minute by minute.

YEAR = 2027
SCHEDULES = [
    "*/30 * * * *",
    "7 * * * *",
    "0 */5 * * *",
    "30 2 * * *",
    "15 1-3 * * *",
    "0,30 2,3 * * *",
    "*/30 1-4 * * *",
    "0-59/20 2 * * *",
    "*/45 */7 * * *",
    "0 0 1 * *",
    "0 0 13 * 5",
    "0 12 1-7 * MON",
    "0 12 */2 * MON",
    "0 12 1-7 * */2",
    "0 12 *,10 * 1",
    "5 4 31 * *",
    "0 6 29 2 *",
    "0 6 * * 0",
    "0 6 * * 7",
    "0 6 * * 5-7",
    "0 6 * * 1-7/3",
    "0 6 * * */7",
    "0 6 * * 6,sun",
    "0 6 1,15 jan-mar,12 *",
    "10 3 28-31 3,10 SUN",
    "@weekly",
    "@yearly",
]
NAMES = {
    "month": {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name},
    "weekday": {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])},
}
ALIASES = {"@weekly": "0 0 * * 0", "@yearly": "0 0 1 1 *"}


def values(field: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for term in field.lower().split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        ends = (
            [names[one] if one in names else int(one) for one in (first, last or first)]
            if first != "*"
            else [low, high]
        )
        found |= set(range(ends[0], ends[1] + 1, int(step or 1)))
    return found


class Vixie:
    """Which minutes of a wall clock match."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = ALIASES.get(text, text).split()
        self.minutes, self.hours = values(minute, 0, 59, {}), values(hour, 0, 23, {})
        self.days, self.months = values(day, 1, 31, {}), values(month, 1, 12, NAMES["month"])
        self.weekdays = {one % 7 for one in values(weekday, 0, 7, NAMES["weekday"])}
        self.both = day.startswith("*") or weekday.startswith("*")
        self.wildcard = minute.startswith("*") or hour.startswith("*")

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return day and weekday if self.both else day or weekday


class Minute(NamedTuple):
    instant: datetime
    walls: list[datetime]
    """The wall times that pass with it: more than one where clocks are put forward before it."""
    again: bool
    """Whether clocks have shown it before."""


def minutes_of_the_year(zone: str) -> dict[int, list[Minute]]:
    """Return each minute of the year by the minutes that clocks show in it."""
    found: dict[int, list[Minute]] = {number: [] for number in range(60)}
    rules, step, instant = ZoneInfo(zone), timedelta(minutes=1), datetime(YEAR, 1, 1, tzinfo=UTC)
    furthest = instant.astimezone(rules).replace(tzinfo=None) - step
    while instant.year == YEAR:
        wall = instant.astimezone(rules).replace(tzinfo=None)
        walls = [wall]
        while walls[0] - step > furthest:
            walls.insert(0, walls[0] - step)
        for number in {one.minute for one in walls}:
            found[number].append(Minute(instant, walls, wall <= furthest))
        furthest = max(furthest, wall)
        instant += step
    return found


def runs_of_cron(text: str, minutes: dict[int, list[Minute]]) -> list[datetime]:
    rule = Vixie(text)
    candidates = {one.instant: one for number in rule.minutes for one in minutes[number]}
    return sorted(
        one.instant
        for one in candidates.values()
        if (rule.matches(one.walls[-1]) if rule.wildcard else not one.again and any(map(rule.matches, one.walls)))
    )


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "Europe/Berlin"])
def test_printed_schedules_give_the_times_of_cron_over_a_year(zone):
    jobs = jobs_of("\n".join(f"{text} x" for text in SCHEDULES), tz=zone)
    minutes = minutes_of_the_year(zone)
    before, end = datetime(YEAR, 1, 1, tzinfo=UTC) - timedelta(microseconds=1), datetime(YEAR + 1, 1, 1, tzinfo=UTC)
    for text, job in zip(SCHEDULES, jobs.values(), strict=True):
        ours, instant = [], job.rule.next_after(before)
        while instant is not None and instant < end:
            ours.append(instant)
            instant = job.rule.next_after(instant)
        assert ours == runs_of_cron(text, minutes), text


def test_page_shows_what_is_printed():
    page = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
    before, after = re.findall(r"```text\n(.*?)```", page[page.index("## Crontab") :], re.DOTALL)
    code = migrated(before, tz="Europe/Berlin").code
    assert after.removesuffix("# …\n") in code


def fields_of_cron(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    span = st.lists(value, min_size=2, max_size=2, unique=True).map(lambda ends: "{}-{}".format(*sorted(ends)))
    stepped = st.builds("{}/{}".format, st.just("*") | span, st.integers(1, high + 3))
    return st.lists(st.one_of(st.just("*"), value.map(str), span, stepped), min_size=1, max_size=3).map(",".join)


@given(st.tuples(*(fields_of_cron(*ends) for ends in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)))))
def test_drawn_schedules_give_the_first_time_of_each_day_of_cron(fields):
    text = " ".join(fields)
    jobs = jobs_of(f"{text} x")
    rule, first, ours = Vixie(text), datetime(YEAR, 1, 1, tzinfo=UTC), []
    clock = timedelta(hours=min(rule.hours), minutes=min(rule.minutes))
    days = (first + timedelta(days=number) + clock for number in range(365))
    for job in jobs.values():  # none of a day that no month has
        instant = job.rule.next_after(first - timedelta(microseconds=1))
        while instant is not None and instant.year == YEAR:
            ours.append(instant)
            instant = job.rule.next_after(instant.replace(hour=23, minute=59, second=59))
    assert ours == [day for day in days if rule.matches(day)]
