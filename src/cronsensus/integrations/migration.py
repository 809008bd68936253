"""Migration from another scheduler: the program that is written, and what differs."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from cronsensus.errors import CronsensusError, InvalidTrigger
from cronsensus.integrations.layout import quoted
from cronsensus.timing.durations import format_duration, parse_duration
from cronsensus.triggers import Trigger, any_of, at, cron, every

_MAKERS = {"any_of": any_of, "at": at, "cron": cron, "every": every}


class NoEquivalent(Exception):
    """A schedule, or a job, without an equivalent; the message says why, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A difference, or something that has no equivalent."""

    job: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Migration:
    """The program, what differs, and which jobs are not in it."""

    code: str
    jobs: int
    left_out: int
    remarks: tuple[Remark, ...]


def made_from(text: str) -> Trigger:
    """Return the trigger of a text that this library wrote.

    Raises:
        NoEquivalent: it makes no trigger, for instance because it never fires.
    """
    try:
        trigger: Trigger = eval(text, {"__builtins__": {}}, dict(_MAKERS))  # noqa: S307 - our own text, to see that it holds
    except InvalidTrigger as error:
        raise NoEquivalent(str(error)) from error
    return trigger


def name_of_zone(zone: Any, *, setting: str) -> str:
    """Return the name of a zone that another program has as an object.

    Args:
        zone: of zoneinfo, pytz or datetime.
        setting: what the user writes where it has no name.

    Raises:
        NoEquivalent: it has none.
    """
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or ("UTC" if zone is UTC else None)
    if name is None:
        raise NoEquivalent(f"timezone={zone!r}: a zone has to have a name; write {setting} there first")
    return str(name)


def write_duration(value: Any, what: str) -> str:
    """Return a duration as the text of a literal; raises ``NoEquivalent`` if it is out of bounds."""
    try:
        return quoted(format_duration(parse_duration(value, what=what)))
    except CronsensusError as error:
        raise NoEquivalent(str(error)) from error


def write_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a call as texts; raises ``NoEquivalent`` if an argument has no text."""
    texts = [write_literal(value, "args") for value in args]
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in kwargs):
        return [*texts, *(f"{name}={write_literal(value, 'kwargs')}" for name, value in kwargs.items())]
    return [*texts, f"**{write_literal(dict(kwargs), 'kwargs')}"]


def write_literal(value: Any, what: str) -> str:
    """Return the text of a value.

    Raises:
        NoEquivalent: it has none, such as an object of the program.
    """
    text = _text_of(value)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError):
        pass
    raise NoEquivalent(f"{what} have {value!r}, which cannot be written as text; let the function fetch it by a key")


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if type(value) is list:
        return f"[{', '.join(map(_text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text_of(key)}: {_text_of(item)}' for key, item in value.items())}}}"
    return repr(value)


def write_comment(text: str) -> str:
    """Return a text as a comment on a single line."""
    return "# " + "".join(sign if sign.isprintable() else "?" for sign in text)
