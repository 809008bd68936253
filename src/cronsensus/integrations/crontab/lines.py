"""The lines of a crontab as values, by the rules of vixie cron and its descendants. Pure.

A line is empty, a comment (``#`` at its start, nowhere else), a setting ``NAME = value``, or a schedule with a command.
A setting holds for the lines below it. ``%`` in a command begins its stdin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import cron

_NAME = r"""(?:"[^"]*"|'[^']*'|[^\s"'=]+)"""
_SETTING = re.compile(rf"({_NAME})\s*=\s*(.*)")
_USER = re.compile(r"[A-Za-z_][\w.-]*\$?")
_ALIASES = ("@reboot", "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_TERM = re.compile(r"(?P<all>\*)(/\d+)?|(?P<value>\w+)(?P<range>-\w+(/\d+)?)?")
_STEP_OF_ONE = re.compile(r"(\w+)(-\1)?/\d+")
_LONG_NAME = re.compile(r"[A-Za-z]{4,}|[^\W\d]\d|\d[^\W\d]")
_NOT_OF_CRON = {
    "~": "a random time is another one on each machine; write a fixed one, and jitter= in the code",
    "#": "cron knows no '#'; write the days of the month, such as 1-7",
    "L": "cron knows no 'L'; write a day that each month has",
    "?": "cron knows no '?'; write '*'",
}


class Unreadable(Exception):
    """A line that cron, or cronsensus, cannot read; the message says why, and what to write."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A schedule and its command."""

    place: str
    """Its place: ``line 12``, with the name of its file if there are several."""
    schedule: str
    """Five fields, or a word such as ``@daily``."""
    command: str
    stdin: str
    settings: Mapping[str, str]
    """The settings above it: the environment, with ``CRON_TZ`` and ``MAILTO``."""
    user: str | None = None
    """``None`` in a user's own crontab."""
    comment: str = ""
    """The comment right above it."""
    never: bool = False
    """Whether its schedule is valid and never comes, such as 30 February."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line that cannot be read, and why."""

    place: str
    text: str


def read_crontab(text: str, *, name: str = "", system: bool = False) -> Iterator[Entry | Mistake]:
    """Yield the schedules of a crontab in their order, and the lines that cannot be read.

    Args:
        text: of the whole file.
        name: of the file, for the places.
        system: whether a user stands before each command, as in /etc/crontab and /etc/cron.d.
    """
    settings: dict[str, str] = {}
    comment = ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r").lstrip(" \t")
        place = f"{name}:{number}" if name else f"line {number}"
        if not line or line.startswith("#"):
            comment = line.lstrip("# \t").rstrip()
            if comment.split()[:2] == ["m", "h"]:
                comment = ""  # the heading that Debian puts into a new crontab
            continue
        try:
            if (setting := _read_setting(line)) is not None:
                settings[setting[0]] = setting[1]
            else:
                yield _read_entry(line, place, dict(settings), comment, system=system)
        except Unreadable as error:
            yield Mistake(place, str(error))
        comment = ""


def _read_setting(line: str) -> tuple[str, str] | None:
    """Return name and value; a value is not expanded, and keeps the spaces inside quotes."""
    match = _SETTING.fullmatch(line)
    if match is None:
        return None
    name, value = match[1], match[2].rstrip(" \t")
    if value[:1] in {'"', "'"}:
        if len(value) < 2 or value[-1] != value[0]:
            raise Unreadable(f"the value of {name} has no closing quote; write {name}={value}{value[0]}")
        value = value[1:-1]
    return name.strip("\"'"), value


def _read_entry(line: str, place: str, settings: Mapping[str, str], comment: str, *, system: bool) -> Entry:
    line = line.removeprefix("-")  # before the minutes, in some crons: do not log this
    length = 1 if line.startswith("@") else 5
    parts = line.split(None, length)
    if len(parts) <= length:
        expected = "a word such as @daily" if length == 1 else "five fields"
        raise Unreadable(f"{shown(line)} has no command: a line is {expected}, then a command, or NAME=value")
    schedule, command_text = " ".join(parts[:length]), parts[length]
    never = _never_fires(schedule)
    user = None
    if system:
        user, command_text = _split_user(line, command_text)
    elif command_text.split()[0] == "root":
        raise Unreadable(f"{shown(line)} has a user before its command, as in /etc/crontab; read it with --system")
    command, stdin = split_command(command_text)
    return Entry(place, schedule, command, stdin, settings, user, comment, never)


def _split_user(line: str, text: str) -> tuple[str, str]:
    user, *command = text.split(None, 1)
    if not command or _USER.fullmatch(user) is None:
        raise Unreadable(f"{shown(line)} has no user before its command; a user's own crontab is read without --system")
    return user, command[0]


def split_command(text: str) -> tuple[str, str]:
    r"""Return the command and its stdin.

    The first ``%`` without a backslash ends the command, each further one is a line break of stdin, which gets one at
    its end, too. ``\%`` is a percent sign.
    """
    match = re.fullmatch(r"((?:\\.|[^\\%]|\\$)*)(?:%(.*))?", text, re.DOTALL)
    if match is None:
        raise AssertionError(text)  # the expression matches any text
    command = re.sub(
        r"\\(.)", lambda escaped: "%" if escaped[1] == "%" else escaped[0], match[1], flags=re.DOTALL
    ).rstrip()
    stdin = re.sub(r"(\\?)%", lambda percent: "%" if percent[1] else "\n", match[2] or "")
    return command, stdin + "\n" if stdin and not stdin.endswith("\n") else stdin


def _never_fires(schedule: str) -> bool:
    """Return whether a valid schedule comes on no day of any year.

    Raises:
        Unreadable: it is not valid.
    """
    if schedule.startswith("@"):
        if schedule.lower() not in _ALIASES:
            raise Unreadable(f"{shown(schedule)} is not known; write {', '.join(_ALIASES)}, or five fields")
        return False
    fields = schedule.split()
    for name, field in zip(_FIELDS, fields, strict=True):
        for term in field.split(","):
            _check_term(name, term)
    minute, hour, day, month, weekday = fields
    try:
        for partial_schedule in (f"{minute} {hour} * {month} *", f"* * {day} * *", f"* * * * {weekday}"):
            cron(partial_schedule)
    except InvalidTrigger as error:
        raise Unreadable(str(error)) from error
    try:
        cron(schedule)
    except InvalidTrigger:
        return True  # each of its fields is right, alone
    return False


def _check_term(name: str, term: str) -> None:
    """Refuse terms that only other programs read, and terms that two crons read differently."""
    for sign, instead in _NOT_OF_CRON.items():
        if sign in term.upper() and (sign != "L" or term.upper().rstrip("W").lstrip("0123456789") == "L"):
            raise Unreadable(f"{shown(term)} is wrong in the {name} field; {instead}")
    if (match := _STEP_OF_ONE.fullmatch(term)) is not None:
        # One cron reads it as the value alone, another from the value on, like cronsensus, a third not at all.
        raise Unreadable(
            f"{shown(term)} in the {name} field is not the same in all crons; write {match[1]}, or a range and its step"
        )
    if _TERM.fullmatch(term) is None or _LONG_NAME.search(term) is not None:
        raise Unreadable(f"{shown(term)} is wrong in the {name} field; write a value, 1-5, 1,3, */5 or *")


def shown(text: str) -> str:
    """Return text in quotes, cut after 60 characters."""
    return repr(text if len(text) <= 60 else text[:60] + "…")
