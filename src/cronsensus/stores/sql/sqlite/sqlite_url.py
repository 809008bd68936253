"""Read the URL of an SQLite store: its options, defaults and errors."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl

from cronsensus.errors import InvalidOption
from cronsensus.model.job import unknown_option
from cronsensus.timing.durations import parse_duration

BUSY_TIMEOUT = 5.0
_OPTIONS = {"busy_timeout", "synchronous", "allow_network_fs"}


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """What a URL says.

    Attributes:
        busy_timeout: seconds to wait for the write lock. synchronous: ``"full"``, or ``"normal"``: faster, and a power
        cut may lose the last commits (a killed process never does). allow_network_fs: open the file although other
        hosts could too; only where none does.
    """

    path: Path
    busy_timeout: float = BUSY_TIMEOUT
    synchronous: str = "full"
    allow_network_fs: bool = False


def read_url(url: str) -> SqliteUrl:
    """Read ``sqlite:///relative.db`` or ``sqlite:////absolute.db``, with options.

    Raises:
        InvalidOption: it names no file, or an option that does not exist.
    """
    rest, _, query = url.removeprefix("sqlite:").partition("?")
    name = rest.removeprefix("///")
    if not name or ":memory:" in name or name == rest:
        if name and not rest.startswith("//") and ":memory:" not in name:
            raise InvalidOption(
                f"{url!r}: write sqlite:///{name.lstrip('/')} (relative) or sqlite:////{name.lstrip('/')} (absolute)"
            )
        if rest.startswith("//") and rest.strip("/") and ":memory:" not in name:
            raise InvalidOption(
                f"{url!r}: a file needs three slashes, or four for an absolute path: sqlite:///{rest.strip('/')}"
            )
        raise InvalidOption(
            f"{url!r} names no file: an SQLite database in memory cannot be shared between processes; "
            "for tests and single processes use memory://, else sqlite:///path/to/file.db"
        )
    if re.match(r"/?[A-Za-z]:[\\/]", name):
        # Here it would be a file of that name in the current folder.
        raise InvalidOption(
            f"{url!r} names a drive of Windows, and this system has none; write sqlite:////absolute/path.db (under WSL "
            f"the drive is /mnt/{name.lstrip('/')[0].lower()})"
        )
    if "\0" in name:
        raise InvalidOption(f"{url!r}: a path cannot hold NUL")
    try:
        # Resolved here and now: a later chdir() must not lead to another file, and two names of one file are one store.
        parsed = SqliteUrl(Path(name).resolve())
    except (OSError, RuntimeError) as error:
        raise InvalidOption(f"{url!r}: the path leads nowhere ({error})") from error
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option == "busy_timeout":
            parsed = replace(parsed, busy_timeout=parse_duration(value, what="busy_timeout").total_seconds())
        elif option == "synchronous":
            if value.lower() not in {"full", "normal"}:
                raise InvalidOption(f"synchronous={value!r}: choose one of 'full', 'normal'")
            parsed = replace(parsed, synchronous=value.lower())
        elif option == "allow_network_fs":
            parsed = replace(parsed, allow_network_fs=value.lower() in {"1", "true", "yes", "on"})
        else:
            raise unknown_option(option, _OPTIONS, where="an SQLite URL")
    return parsed
