"""Where the named pipes beside a database live, and who may use them: whoever may use the database. Floor 3."""

from __future__ import annotations

import contextlib
import os
import select
import stat
from pathlib import Path

SUPPORTED = hasattr(os, "mkfifo") and hasattr(select, "poll")
"""Whether this system has named pipes, and a way to wait for them."""


def directory_of(database: Path) -> Path:
    """Return the directory for a database's pipes."""
    return database.with_name(database.name + "-wake")


def make_pipe(database: Path, name: str) -> Path:
    """Make a named pipe in the database's directory, which is made too, with the permissions of the database file.

    Raises:
        OSError: it cannot be made here; ``FileExistsError``: it is there already.
    """
    owner = database.stat()
    mode = stat.S_IMODE(owner.st_mode) & 0o666
    directory = directory_of(database)
    try:
        directory.mkdir()
    except FileExistsError:
        pass
    else:
        _give(directory, owner, mode | (mode & 0o444) >> 2)  # to enter a directory one needs x where a file needs r
    pipe = directory / name
    os.mkfifo(pipe)
    _give(pipe, owner, mode)
    return pipe


def _give(path: Path, owner: os.stat_result, mode: int) -> None:
    with contextlib.suppress(PermissionError):  # only root gives things away, or a member of the group
        os.chown(path, owner.st_uid if os.geteuid() == 0 else -1, owner.st_gid)
    path.chmod(mode)
