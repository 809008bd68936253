"""Names for the commands of a crontab, and prefixes of commands that become options of a job. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cronsensus.errors import InvalidDuration
from cronsensus.integrations.layout import identifier
from cronsensus.timing.durations import parse_duration

_OPERATOR = re.compile(r"&&|\|\||[;|&\n]")
_REDIRECTION = re.compile(r"\d*>&\d*-?|&>>?|\d*[<>]+&?\d*")
_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|php|node|java|bash|sh|dash|zsh|ksh)[\d.]*")
_WRAPPERS = {"env", "nice", "ionice", "nohup", "time", "chronic", "exec", "flock", "timeout", "setsid", "command"}
_PREPARING_COMMANDS = {
    "cd",
    "test",
    "[",
    "[[",
    ".",
    "source",
    "export",
    "sleep",
    "umask",
    "set",
    "true",
    "ulimit",
    "mkdir",
}
_KEYWORDS = {"if", "then", "else", "do", "while", "!"}
_DISPATCHERS = re.compile(r"(manage\.py|artisan|console|rake|bundle|invoke|fab|make|npm|yarn|run-parts|wp)")
_SUDO = re.compile(r"\bsudo\s+(?:-[nEHi]+\s+)*(?:(?:-u\s*|--user[= ])\S+\s+)?")
_SCRIPT_SUFFIX = re.compile(r"\.(sh|bash|py|pl|rb|php|js|jar)$")
_FLOCK = re.compile(
    r"(?:/usr)?(?:/bin/)?flock\s+((?:(?:-[nxe]+|--nonblock|--nb|--exclusive)\s+)+)([^\s;|&<>'\"$-]\S*)\s+(?!-)"
)
_TIMEOUT = re.compile(
    r"(?:/usr)?(?:/bin/)?timeout\s+(?:(?:-k\s*|--kill-after[= ])\S+\s+)?(\d+(?:\.\d+)?)([smhd]?)\s+(?!-)"
)


@dataclass(frozen=True, slots=True)
class Stripped:
    """A command without the prefixes that are options of a job."""

    command: str
    lock: str | None = None
    """The file of a ``flock -n`` that stood before it."""
    timeout: str | None = None
    """The time of a ``timeout`` that stood before it."""


def strip_prefixes(command: str) -> Stripped:
    """Strip ``flock -n FILE`` and ``timeout TIME`` from a command, if they apply to all of it.

    Before one command of several they stay: ``timeout 5m a && b`` does not limit ``b``.
    """
    if _OPERATOR.search(_REDIRECTION.sub("", command)) is not None:
        return Stripped(command)
    remaining, lock, timeout = command, None, None
    while True:
        if lock is None and (match := _FLOCK.match(remaining)) is not None and "n" in match[1]:
            lock = match[2]
        elif timeout is None and (match := _TIMEOUT.match(remaining)) is not None and _is_duration(match[1] + match[2]):
            timeout = match[1] + (match[2] or "s")
        else:
            return Stripped(remaining, lock, timeout)
        remaining = remaining[match.end() :]


def _is_duration(text: str) -> bool:
    try:
        return bool(parse_duration(text if text[-1].isalpha() else f"{text}s"))
    except InvalidDuration:
        return False


def function_name(command: str, taken: set[str]) -> str:
    """Return a name for a command's function that is not in ``taken``, no keyword and no builtin."""
    return identifier(_program(strip_prefixes(command).command), taken)


def _program(command: str) -> str:
    """Return the word by which a person would call a command: its script, module or subcommand."""
    parts = _OPERATOR.split(_SUDO.sub("", _REDIRECTION.sub(" ", command)))
    candidates = [program for part in parts if (program := _called([word.strip("\"'(){}") for word in part.split()]))]
    return next(
        (program for program in candidates if program not in _PREPARING_COMMANDS), candidates[0] if candidates else ""
    )


def _called(words: list[str]) -> str:
    after_wrapper, after_m, dispatcher = False, False, ""
    for word in words:
        name = _SCRIPT_SUFFIX.sub("", word.rsplit("/", 1)[-1])
        if word == "-m":
            after_m = True
        elif not word or word in _KEYWORDS or word.startswith("-") or "=" in word.split("/")[0]:
            continue
        elif after_m:
            return word.rsplit(".", 1)[-1]
        elif word in _PREPARING_COMMANDS and not dispatcher:
            return word
        elif name in _WRAPPERS or _INTERPRETERS.fullmatch(name):
            after_wrapper = True
        elif after_wrapper and re.fullmatch(r"[\d.]+[smhd]?|\S*\.lock", word):
            continue  # arguments of a wrapper: a time, a priority, a file
        elif _DISPATCHERS.fullmatch(word.rsplit("/", 1)[-1]):
            dispatcher = name
        else:
            return name
    return dispatcher
