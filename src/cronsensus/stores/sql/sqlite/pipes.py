"""Named pipes beside a database: their place, their permissions, and how to write a notification into one."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
from pathlib import Path

SUPPORTED = hasattr(os, "mkfifo") and hasattr(select, "poll")
"""Whether this system has named pipes, and a way to wait for them."""
NAMELESS = ".new-"
"""Prefix of the names of pipes that are not yet, or no longer, written to. Old ones are removed."""


def directory_of(database: Path) -> Path:
    """Return the directory for a database's pipes."""
    return database.with_name(database.name + "-wake")


def make_pipe(database: Path, name: str) -> Path:
    """Make a named pipe in the database's directory, which is made too. Users of the database may use both.

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
        _give_to_owner(
            directory, owner, mode | (mode & 0o444) >> 2
        )  # to enter a directory one needs x where a file needs r
    pipe = directory / name
    os.mkfifo(pipe)
    _give_to_owner(pipe, owner, mode)
    return pipe


def open_to_listen(pipe: Path) -> int:
    """Open a pipe to read from, and for writing too, so that it never reports end of file and opening never blocks."""
    return os.open(pipe, os.O_RDWR | os.O_NONBLOCK)


def write_notification(pipe: Path) -> bool:
    """Write a notification into a pipe; ``False``: it has no reader. Never blocks.

    Raises:
        OSError: the pipe cannot be used.
    """
    try:
        writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ENXIO, errno.ENOENT}:
            return False
        raise
    try:
        # A reader of our own, for a moment: if the other one closes right now, the write must not raise SIGPIPE, which
        # kills a process that restored the default of that signal.
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.write(writer, b"!")
        except BlockingIOError:
            pass  # it is full of notifications already
        finally:
            os.close(reader)
    finally:
        os.close(writer)
    return True


def share_as(path: Path, owner: os.stat_result) -> None:
    """Give a file beside the database to the users of the database."""
    _give_to_owner(path, owner, stat.S_IMODE(owner.st_mode) & 0o666)


def _give_to_owner(path: Path, owner: os.stat_result, mode: int) -> None:
    with contextlib.suppress(PermissionError):  # only root may change the owner, and only a member the group
        os.chown(path, owner.st_uid if os.geteuid() == 0 else -1, owner.st_gid)
    path.chmod(mode)
