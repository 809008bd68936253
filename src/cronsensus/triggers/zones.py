"""Find a time zone by its name; a wrong name is refused with what to write instead.

Only the name is stored; each node takes the rules from its own time zone data. Names that mean different rules on
different machines are refused, because two nodes would disagree on the nominal times.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, time, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsensus.errors import InvalidOption, InvalidTrigger
from cronsensus.timing.instants import as_utc
from cronsensus.triggers.bounds import names_no_zone, quoted, read_instant

_NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")
_MACHINE_DEPENDENT = {"localtime", "posixrules", "posix", "right"}
_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-])\s*(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_CITIES = {
    city: zone
    for zone, cities in {
        "Asia/Shanghai": "beijing peking guangzhou shenzhen chengdu hangzhou nanjing wuhan tianjin",
        "Asia/Kolkata": "mumbai bombay delhi new_delhi bangalore bengaluru chennai hyderabad",
        "Asia/Tokyo": "osaka kyoto",
        "Asia/Jakarta": "bandung",
        "Asia/Ho_Chi_Minh": "hanoi",
        "Asia/Dubai": "abu_dhabi",
        "Europe/Berlin": "munich hamburg frankfurt cologne",
        "Europe/Paris": "lyon marseille",
        "Europe/Rome": "milan",
        "Europe/Madrid": "barcelona",
        "Europe/Zurich": "geneva bern basel",
        "Europe/London": "edinburgh manchester",
        "Europe/Moscow": "saint_petersburg",
        "America/Los_Angeles": "san_francisco seattle san_diego las_vegas",
        "America/New_York": "boston miami atlanta washington philadelphia",
        "America/Chicago": "houston dallas austin",
        "America/Toronto": "ottawa",
        "America/Sao_Paulo": "rio_de_janeiro brasilia",
        "Africa/Johannesburg": "cape_town",
    }.items()
    for city in cities.split()
}
"""Large cities without a zone of their name."""
_LONGEST_CHAIN = 5
"""Most links from one name to the next."""
_EXAMPLE = "write a name like 'Europe/Paris' or 'UTC'"


class UnknownZone(InvalidTrigger):
    """This machine's zone data has no zone of that name."""


def zone_name(tz: object) -> str:
    """Return the IANA name of ``tz``, a name or a ZoneInfo.

    Raises:
        InvalidTrigger: no such zone, a zone without a name, or a zone that differs between machines.
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
        raise InvalidTrigger(f"tz={quoted(tz)} is not a time zone; {_EXAMPLE}")
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
    raise UnknownZone(_unknown_zone_message(name))


def at_wall(shown_as: datetime, zone: str, what: str) -> datetime:
    """Return the instant at which clocks in ``zone`` show what ``shown_as`` shows in UTC; the first, if it comes twice.

    Raises:
        InvalidTrigger: they never do, because they are put forward over it.
    """
    wall = shown_as.replace(tzinfo=None)
    rules = load_zone(zone)
    instant = wall.replace(tzinfo=rules).astimezone(UTC)
    # A day that begins after a gap, as in Cairo, has its first instant there: a start or end may be only a date.
    is_day = wall.time() == time.min and what in {"start", "end"}
    if instant.astimezone(rules).replace(tzinfo=None) != wall and not is_day:
        raise InvalidTrigger(
            f"{what}={str(wall)!r} does not exist in {zone}, where clocks are put forward over it; write another time, "
            f"or one with its offset, such as {instant.isoformat()!r}"
        )
    return instant


def _unknown_zone_message(name: str) -> str:
    known_names = _known_names()
    if not known_names:
        return (
            f"tz={quoted(name)}: this machine has no time zone data: of the package tzdata, which comes with "
            "cronsensus, nothing is here; run: pip install --force-reinstall tzdata"
        )
    if (target := _link_target(name, known_names)) is not None:
        return f"tz={quoted(name)} is not a known time zone here; write {target!r}, which is the same zone"
    if (instead := _advice_for_name(name)) is not None:
        return f"tz={quoted(name)} is not a known time zone; {instead}"
    matches = _close_names(name[:64], known_names)
    if matches:
        return f"tz={quoted(name)} is not a known time zone; did you mean {' or '.join(map(repr, matches))}?"
    return f"tz={quoted(name)} is not a known time zone; {_EXAMPLE}"


def _advice_for_name(name: str) -> str | None:
    """Return what to write instead of an offset, or of a large city without a zone."""
    text = name.strip()
    if text.upper() in {"Z", "ZULU"}:
        return "write 'UTC'"
    if (offset := _OFFSET.fullmatch(text)) is not None:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if minutes or hours > (14 if offset[1] == "+" else 12):
            return "an offset is no zone, since it does not know when clocks change; write a name like 'Asia/Kolkata'"
        etc = "UTC" if hours == 0 else f"Etc/GMT{'-' if offset[1] == '+' else '+'}{hours}"
        return (
            f"an offset is no zone, since it does not know when clocks change; write a name like 'Asia/Shanghai', or "
            f"{etc!r} for that offset at all times (its sign is turned round)"
        )
    zone = _CITIES.get(text.rsplit("/", 1)[-1].replace(" ", "_").lower())
    return None if zone is None else f"write {zone!r}"


@lru_cache(maxsize=1)
def _known_names() -> frozenset[str]:
    return frozenset(available_timezones())


def _link_target(name: str, known_names: frozenset[str]) -> str | None:
    """Return the zone that an old name stands for; ``None``: it is no old name, or is known in another spelling.

    Some systems leave old names out, such as ``US/Pacific``, and keep the table of them.
    """
    plain_name = _normalize_name(name)
    if not _NAME.fullmatch(plain_name) or plain_name in {zone.lower() for zone in known_names}:
        return None
    for links in _link_tables():
        target = links.get(plain_name)
        for _ in range(_LONGEST_CHAIN):
            if target is None or target in known_names:
                break
            target = links.get(target.lower())
        if target in known_names:
            return "UTC" if target == "Etc/UTC" else target
    return None


def _link_tables() -> Iterator[dict[str, str]]:
    """Yield the links between names, in lower case: of the package, then of each folder of zone files."""
    from importlib.util import find_spec  # only wrong names need it

    package = find_spec("tzdata")
    places = [] if package is None else [Path(place) / "zoneinfo" for place in package.submodule_search_locations or ()]
    for folder in (*places, *map(Path, zoneinfo.TZPATH)):
        with suppress(OSError, ValueError):
            lines = (folder / "tzdata.zi").read_text(encoding="utf-8").splitlines()
            yield {link.lower(): zone for _, zone, link in (line.split() for line in lines if line.startswith("L "))}


def _normalize_name(name: str) -> str:
    return name.strip().replace(" ", "_").lower()


def _close_names(name: str, known_names: frozenset[str]) -> list[str]:
    from difflib import get_close_matches  # only wrong names need it

    plain_name = _normalize_name(name)
    by_text: dict[str, str] = {}
    for zone in sorted(known_names):
        by_text.setdefault(zone.rsplit("/", 1)[-1].lower(), zone)
    by_text.update((zone.lower(), zone) for zone in known_names)
    if plain_name in by_text:
        return [by_text[plain_name]]
    close = get_close_matches(plain_name, by_text, n=3, cutoff=0.8)
    return list(dict.fromkeys(by_text[text] for text in close))


def instant_in(value: object, zone: str, what: str, *, or_else: str = "") -> datetime:
    """Return the instant of a program's ``value`` in UTC, as the trigger ``at`` reads it.

    Args:
        value: an aware datetime, or ISO 8601 text; text without an offset is of ``zone``. A datetime after the last
            instant that every store keeps (``datetime.max``) is returned unchanged: it means never.
        zone: the name of a time zone.
        what: its name in an error.
        or_else: an alternative to write, for the error.

    Raises:
        InvalidOption: it is naive, cannot be read, or is no time; or clocks in ``zone`` never show it.
    """
    if isinstance(value, datetime):
        return as_utc(value, what=what)
    try:
        instant = read_instant(f"{value}+00:00" if names_no_zone(value) else value, what)
        return at_wall(instant, zone, what) if names_no_zone(value) else instant
    except InvalidTrigger as error:
        raise InvalidOption(f"{error}{or_else}") from error
