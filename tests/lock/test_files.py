"""Locks on files: what is refused and how, and what holds although somebody meddles with the files."""

import errno
import os
import sys
from pathlib import Path

import filelock
import pytest

from cronsensus import LeaseLost, Lock, StoreUnavailable
from cronsensus.errors import InvalidOption, MissingExtra, StoreBusy
from cronsensus.lock import in_files
from cronsensus.timing.clock import ManualClock


def at(folder: Path, **options: object) -> Lock:
    return Lock(f"file://{folder / 'locks'}", "name", **{"blocking": False, **options})  # type: ignore[arg-type]


def the_file(folder: Path, end: str) -> Path:
    [found] = (folder / "locks").glob(f"*{end}")
    return found


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["file:", "file:locks", "file:/var/lock", "file://", "file:///", "file://host/var/lock"]
)
def test_urls_that_name_no_directory(url):
    with pytest.raises(InvalidOption, match="names no directory; write file:///var/lock/app"):
        Lock(url, "name")


def test_file_lock_with_an_unknown_option_is_refused():
    with pytest.raises(InvalidOption, match=r"unknown option 'allow_network' .*did you mean 'allow_network_fs'"):
        Lock("file:///var/lock/app?allow_network=1", "name")


def test_a_directory_that_cannot_be_made(folder):
    with pytest.raises(StoreUnavailable, match=r"there is no directory for .*; make it: mkdir -p .*/nowhere/locks"):
        at(folder / "nowhere").acquire()
    (folder / "locks").write_text("a file")
    with pytest.raises(StoreUnavailable, match="locks"):
        at(folder).acquire()


def test_a_file_system_that_several_hosts_share_is_refused(folder, monkeypatch):
    monkeypatch.setattr(in_files, "kind_of", lambda _: "nfs4")
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\).*a server \(redis://…\).*allow_network"):
        at(folder).acquire()
    assert not (folder / "locks").exists()
    lock = Lock(f"file://{folder / 'locks'}?allow_network_fs=1", "name")
    with lock as lease:
        assert lease.token > 0


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_that_cannot_lock(folder, monkeypatch, code):
    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    for kind, said in (("overlay", "overlay"), (None, "of a kind unknown")):
        monkeypatch.setattr(in_files, "kind_of", lambda _, kind=kind: kind)
        with pytest.raises(StoreUnavailable, match=rf"\({said}\) cannot lock files \(.*\); use a directory on a local"):
            at(folder).acquire()


def test_a_directory_where_this_user_may_not_write(folder, monkeypatch):
    def mkdir(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(StoreUnavailable, match=r"this user may not write in .*; give the directory to the group"):
        at(folder).acquire()


def test_the_library_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "filelock", None)
    monkeypatch.delitem(sys.modules, "cronsensus.lock.in_files")
    with pytest.raises(MissingExtra, match=r'pip install "cronsensus\[files\]"'):
        Lock("file:///var/lock/without", "name")


# --- what holds all the same ------------------------------------------------------------------------------------------


def test_several_may_hold_a_lock_on_files_too(folder):
    locks = [at(folder, limit=2) for _ in range(3)]
    assert [lock.acquire() for lock in locks] == [True, True, False]
    assert locks[2].locked()
    locks[0].release()
    assert locks[2].acquire()
    assert len({lock.token for lock in locks[1:]}) == 2
    for lock in locks[1:]:
        lock.release()


def test_file_lock_is_lost_when_its_file_is_removed(folder):
    lock = at(folder)
    assert lock.acquire()
    the_file(folder, ".lock").unlink()
    assert not lock.owned()
    with at(folder) as other:  # it would be no protection, so its holder learns of it
        assert other.token > lock.token
        with pytest.raises(LeaseLost, match="no longer held under token"):
            lock.release()
        assert other.owned()


def test_file_lock_is_lost_when_its_file_is_unlocked(folder):
    with at(folder) as lease:
        assert lease._backend.is_held(lease)
    assert the_file(folder, ".lock").exists()
    assert not lease._backend.is_held(lease)


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\0" * 31])
def test_file_lock_tokens_grow_after_changes_of_the_token_file(folder, content):
    with at(folder) as lease:
        before = lease.token
    file = the_file(folder, ".token")
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with at(folder) as lease:
        assert lease.token > before


def test_tokens_grow_although_the_clock_is_set_back(folder, monkeypatch):
    tokens = []
    for now in (5_000, 4_000, 4_000):
        monkeypatch.setattr(in_files, "to_micros", lambda _, now=now: now)
        with at(folder) as lease:
            tokens.append(lease.token)
    assert tokens == [5_000, 5_001, 5_002]


def test_file_lock_error_names_a_process_stopped_in_its_turn(folder, monkeypatch):
    monkeypatch.setattr(in_files, "TOKEN_FILE_PATIENCE", 0.05)
    with at(folder):
        pass
    file = the_file(folder, ".token")
    lock = at(folder)
    with filelock.FileLock(file), pytest.raises(StoreBusy, match=rf"see which: fuser {file}"):
        lock.acquire()
    assert lock.lease is None
    assert lock.acquire(), "the lock was left behind"
    lock.release()


def test_a_disk_that_is_full_leaves_nothing_locked(folder, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(in_files, "TOKEN_FILE_PATIENCE", 0.05)
    lock = at(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        # What is raised keeps all that was on the way alive, so nothing is unlocked by being collected.
        with pytest.raises(StoreUnavailable, match="No space left") as kept:
            lock.acquire()
    assert lock.acquire()
    lock.release()
    assert kept.value.__traceback__ is not None


def test_a_turn_is_given_back_and_not_left_to_be_collected(folder, monkeypatch):
    turns: list[filelock.FileLock] = []

    def keep(path: Path, **options: object) -> filelock.FileLock:
        turns.append(filelock.FileLock(path, **options))  # type: ignore[arg-type]
        return turns[-1]

    monkeypatch.setattr(in_files, "TOKEN_FILE_PATIENCE", 0.05)
    monkeypatch.setattr(in_files, "FileLock", keep)
    for _ in range(2):
        with at(folder):
            pass


@pytest.mark.parametrize("limits", [(1, 3), (3, 1)])
def test_file_lock_lower_of_two_limits_counts(folder, limits):
    first, second = (at(folder, limit=limit) for limit in limits)
    with first:
        assert not second.acquire()


def test_a_lock_on_files_goes_by_the_clock_that_it_is_given(folder):
    clock = ManualClock()
    assert in_files.FileLockBackend(f"file://{folder / 'locks'}", clock=clock).clock is clock


def test_file_lock_has_no_ttl_to_extend(folder):
    with at(folder, ttl="1s") as lease:
        assert lease.expires_in == float("inf")
        assert lease.extend(5)
        assert lease.reacquire()
