"""What the SQLite driver's errors mean: what happened, why, and the next thing to type."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from cronsensus.errors import (
    SchemaMissing,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)

_PRIMARY = 0xFF
"""SQLite's extended codes carry the plain one in their lowest byte."""
_LITTLE = 64 * 1024
"""A file system with fewer free bytes is full for our purposes."""


def primary_code(error: BaseException | None) -> int:
    """Return SQLite's plain error code; 0 if there is none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else 0


def is_busy(error: BaseException | None) -> bool:
    """Whether another connection is in the way, for now."""
    return primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def busy_error(path: Path, seconds: float) -> StoreBusy:
    """Return the error for a write lock that did not come free in time."""
    return StoreBusy(
        f"{path} stayed locked by another process for {seconds:g} s; if none is hung (see: fuser -v '{path}'), "
        f"allow more time with ?busy_timeout={max(10, round(seconds * 2))}"
    )


def translate_error(error: BaseException, path: Path, seconds: float) -> StoreError | None:
    """Return what ``error``, met while working on ``path``, means to the user; ``None``: it is a mistake of ours."""
    text = str(error)
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:  # a user's: ours begin otherwise
        return StoreBusy(
            f"{path}: this transaction had read before another one wrote, so it cannot write any more; roll it back, "
            "and begin it with BEGIN IMMEDIATE"
        )
    match primary_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return busy_error(path, seconds)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return cannot_open(path, text)
        case sqlite3.SQLITE_READONLY:
            return read_only(path)
        case sqlite3.SQLITE_FULL:
            return disk_full_error(path)
        case sqlite3.SQLITE_IOERR:
            return disk_full_error(path) if _free_bytes(path) < _LITTLE else _io_error(path, error)
        case sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(
                f"{path} is not an SQLite database; give another path in the URL, "
                "or move that file away if it is not needed"
            )
        case sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(
                f"{path} is damaged ({text}); restore a backup, or salvage what can be read: sqlite3 '{path}' .recover"
            )
        case sqlite3.SQLITE_ERROR if "no such table: cronsensus_" in text or "no such column" in text:
            return no_schema(path)
        case sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_TOOBIG | sqlite3.SQLITE_INTERRUPT | sqlite3.SQLITE_SCHEMA:
            return StoreUnavailable(f"{path}: SQLite gave up: {text}; try again")
        case _:
            return None


def cannot_open(path: Path, text: str) -> StoreError:
    """Return the error for a file that cannot be opened, with the reason that can be seen from here."""
    if path.is_dir():
        return StoreRefused(f"{path} is a directory; name a file in it: sqlite:///{path / 'jobs.db'}")
    if not path.parent.exists():
        return StoreUnavailable(
            f"{path} cannot be opened: there is no directory {path.parent}; create it: mkdir -p '{path.parent}'"
        )
    if not path.parent.is_dir():
        return StoreRefused(f"{path} cannot be opened: {path.parent} is not a directory; correct the path in the URL")
    if not path.exists():
        if not _is_allowed(path.parent, os.W_OK) or _mounted_read_only(path.parent):
            return StoreReadOnly(
                f"{path} cannot be created: {path.parent} is read-only for this user; "
                "choose another path or allow writing"
            )
        return no_schema(path)
    if not _is_allowed(path, os.R_OK):
        return StoreRefused(f"{path} may not be read by this user; allow it: chmod u+rw '{path}' (or chown)")
    if is_read_only(path):
        return read_only(path)
    if _free_bytes(path) < _LITTLE:
        return disk_full_error(path)
    return StoreUnavailable(
        f"{path} cannot be opened ({text}); check the limit of open files (ulimit -n) and the file's owner"
    )


def is_read_only(path: Path) -> bool:
    """Whether this process may only read the file: by its rights or those of the directory, or by the mount."""
    return not _is_allowed(path, os.W_OK) or not _is_allowed(path.parent, os.W_OK) or _mounted_read_only(path)


def read_only(path: Path) -> StoreReadOnly:
    """Return the error for a file, directory or mount that cannot be written."""
    if path.exists() and not _is_allowed(path, os.W_OK):
        return StoreReadOnly(
            f"{path} can be read but not written by this user; allow it: chmod u+w '{path}' (or chown)"
        )
    if not _is_allowed(path.parent, os.W_OK):
        return StoreReadOnly(
            f"{path} cannot be written: SQLite keeps its journal beside it and {path.parent} is read-only for "
            f"this user; allow it: chmod u+w '{path.parent}' (or chown)"
        )
    return StoreReadOnly(
        f"{path} can be read but not written; is {path.parent} on a read-only mount? Remount it, or choose another path"
    )


def disk_full_error(path: Path) -> StoreFull:
    """Return the error for a disk without space."""
    return StoreFull(
        f"{path}: no space left to write (df -h '{path.parent}'); free some, or keep less: cronsensus db prune. "
        "Nothing was half written"
    )


def no_schema(path: Path) -> SchemaMissing:
    """Return the error for a file that holds no tables of ours, or only some, or is not there."""
    if not path.exists():
        # Made by mistake, it would be a second store, on which everything looks as if nothing had ever run.
        return SchemaMissing(
            f"there is no file {path}, which nodes make when they start; see that the path is right; if it is, make "
            "the file: cronsensus db upgrade"
        )
    return SchemaMissing(
        f"{path} holds no cronsensus schema, or an older one; create or upgrade it: cronsensus db upgrade"
    )


def replaced_error(path: Path) -> StoreUnavailable:
    """Return the error for a file that was deleted or exchanged while it was in use."""
    return StoreUnavailable(
        f"{path} was deleted or replaced while in use, so what is written now would be lost; restart this process "
        "(after: cronsensus db upgrade, if the file is gone)"
    )


def _io_error(path: Path, error: BaseException) -> StoreUnavailable:
    name = getattr(error, "sqlite_errorname", "I/O error")
    return StoreUnavailable(
        f"{path}: the disk or its file system failed ({name}); look at the system's log: dmesg | tail"
    )


def _is_allowed(path: Path, mode: int) -> bool:
    """Whether this process may do that, by the user that it acts as."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _free_bytes(path: Path) -> int:
    try:
        filesystem = os.statvfs(path if path.exists() else path.parent)
    except (OSError, AttributeError):
        return _LITTLE
    return filesystem.f_bavail * filesystem.f_frsize


def _mounted_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):
        return False
