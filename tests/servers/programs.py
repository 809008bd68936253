"""Which server programs are on this machine, and as whom they run."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

OUTSIDE_PATH = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/sbin", "/usr/libexec", "/usr/local/sbin")
"""Where systems put servers that people do not type: Debian, Red Hat."""


class ServiceMissing(Exception):
    """No such server on this machine. Its words make a skipped test fail in CI."""


def program(package: str, *names: str) -> str:
    """Return the path of the first of ``names`` that is here.

    What is in the folder CRONSENSUS_TEST_SERVERS, made by scripts/other-servers, goes before the system's own.

    Raises:
        ServiceMissing: none is.
    """
    for name in names:
        if found := _in_another_place(name):
            return found
    for name in names:
        # The newest PostgreSQL first; Debian keeps several beside one another, none of them on PATH.
        folders = [folder for pattern in OUTSIDE_PATH for folder in sorted(Path("/").glob(pattern[1:]), key=_number)]
        path = os.pathsep.join([*map(os.fspath, reversed(folders)), os.environ.get("PATH", os.defpath)])
        if found := shutil.which(name, path=path):
            return found
    raise ServiceMissing(
        f"service missing: {names[0]} is not on this machine (Debian's package {package}); scripts/servers installs it"
    )


def _in_another_place(name: str) -> str | None:
    if not (named := os.environ.get("CRONSENSUS_TEST_SERVERS")):
        return None
    root = Path(named).resolve()
    if not root.is_dir():
        raise ServiceMissing(f"service missing: CRONSENSUS_TEST_SERVERS={root} is no folder; see scripts/other-servers")
    folders = [folder for pattern in (*OUTSIDE_PATH, "/usr/bin") for folder in root.glob(pattern[1:])]
    return shutil.which(name, path=os.pathsep.join(map(os.fspath, folders)))


def _number(folder: Path) -> float:
    digits = "".join(filter(str.isdigit, folder.parent.name + folder.name))
    return float(digits or 0)


def user(*names: str) -> pwd.struct_passwd | None:
    """Return the account for a server that must not run as root; None if we are not root, and need no other."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in (*names, "nobody") if name in known)
