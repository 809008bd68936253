"""What another scheduler's jobs become here: the program that is written, and what differs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import Any

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import Trigger, any_of, at, cron, every

_MAKERS = {"any_of": any_of, "at": at, "cron": cron, "every": every}


class NoEquivalent(Exception):
    """A schedule, or a job, that cannot be written here; says why, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that is not the same here, or not there at all."""

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
    """Return the trigger that a text of our own makes.

    Raises:
        NoEquivalent: it makes none: here it never fires, say.
    """
    try:
        made: Trigger = eval(text, {"__builtins__": {}}, dict(_MAKERS))  # noqa: S307 - our own text, to see that it holds
    except InvalidTrigger as error:
        raise NoEquivalent(str(error)) from error
    return made


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
