"""Which time zone a name means. Floor 1.

Only the name is stored: a rule that a node's own time zone data then gives. Names that mean different rules on
different machines are refused, because two nodes would disagree on the nominal times.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers.bounds import shown

_NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")
_MACHINE_DEPENDENT = {"localtime", "posixrules", "posix", "right"}
_EXAMPLE = "write a name like 'Europe/Paris' or 'UTC'"


def zone_name(tz: object) -> str:
    """Return the IANA name of ``tz``, a name or a ZoneInfo.

    Raises:
        InvalidTrigger: no such zone, one without a name, or one that is not the same on every machine.
    """
    if tz is UTC:
        return "UTC"
    if isinstance(tz, ZoneInfo):
        if not tz.key:
            raise InvalidTrigger(f"tz={tz!r} has no name, so it cannot be stored; {_EXAMPLE}")
        name = tz.key
    elif isinstance(tz, str):
        name = tz
    else:
        raise InvalidTrigger(f"tz={shown(tz)} is not a time zone; {_EXAMPLE}")
    load_zone(name)
    return name


@lru_cache(maxsize=1024)
def load_zone(name: str) -> tzinfo:
    """Return the rules of the zone called ``name``; UTC needs no time zone data."""
    if name == "UTC":
        return UTC
    if _NAME.fullmatch(name):
        if name.split("/", maxsplit=1)[0] in _MACHINE_DEPENDENT:
            raise InvalidTrigger(f"tz={name!r} may differ from one machine to the next; {_EXAMPLE}")
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # a directory such as 'America' is an OSError; all of these mean: no such zone
    raise InvalidTrigger(_unknown(name))


def _unknown(name: str) -> str:
    known = _known_names()
    if not known:
        return f"tz={shown(name)}: this machine has no time zone data; run: pip install tzdata"
    matches = _close_to(name[:64], known)
    if matches:
        return f"tz={shown(name)} is not a known time zone; did you mean {' or '.join(map(repr, matches))}?"
    return f"tz={shown(name)} is not a known time zone; {_EXAMPLE}"


@lru_cache(maxsize=1)
def _known_names() -> frozenset[str]:
    return frozenset(available_timezones())


def _close_to(name: str, known: frozenset[str]) -> list[str]:
    from difflib import get_close_matches  # only wrong names need it

    wanted = name.strip().replace(" ", "_").lower()
    by_text: dict[str, str] = {}
    for zone in sorted(known):
        by_text.setdefault(zone.rsplit("/", 1)[-1].lower(), zone)
    by_text.update((zone.lower(), zone) for zone in known)
    if wanted in by_text:
        return [by_text[wanted]]
    close = get_close_matches(wanted, by_text, n=3, cutoff=0.8)
    return list(dict.fromkeys(by_text[text] for text in close))
