"""Find the name of a machine's time zone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cronsensus.errors import ConfigurationError, InvalidTrigger
from cronsensus.triggers.zones import load_zone

LOCALTIME, TIMEZONE = Path("/etc/localtime"), Path("/etc/timezone")


def machine_zone(
    environment: Mapping[str, str], *, localtime: Path = LOCALTIME, timezone: Path = TIMEZONE
) -> tuple[str, str]:
    """Return the name of this machine's zone, and its source: ``TZ``, else the link, else the file.

    Raises:
        ConfigurationError: none of them names a zone.
    """
    for name, place in _named(environment, localtime, timezone):
        try:
            load_zone(name)
        except InvalidTrigger:
            continue
        return name, place
    raise ConfigurationError("this machine's time zone has no name; write it: --tz Europe/Berlin")


def _named(environment: Mapping[str, str], localtime: Path, timezone: Path) -> list[tuple[str, str]]:
    named = [(environment.get("TZ", "").lstrip(":"), "TZ")]
    if localtime.is_symlink():
        named.append((str(localtime.readlink()).rpartition("zoneinfo/")[2], str(localtime)))
    if timezone.is_file():
        named.append((timezone.read_text(encoding="utf-8", errors="replace").strip(), str(timezone)))
    return named
