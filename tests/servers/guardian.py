"""Ends a server and removes its folder when the process that it is for has ended, however that ended.

A fixture's clean-up does not run when pytest is killed. So a process of its own, which no signal to the terminal's
group reaches, waits for that end:

    python guardian.py PID FOLDER

It goes to the background as soon as it is watching, and prints its own pid. SIGTERM lets it do its work at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

PROGRAMS = {
    "postgres", "initdb", "mariadbd", "mysqld", "redis-server", "redis-check-rdb", "valkey-server", "valkey-check-rdb",
    "pgbouncer", "beam.smp", "erl_child_setup", "inet_gethost", "etcd", "patroni", "pg_basebackup", "pg_rewind",
    "rsync", "wsrep_sst_rsync", "haproxy",
}  # fmt: skip
PATIENCE = 3.0
"""Seconds for a server to leave by itself."""


def servers_in(folder: Path) -> list[psutil.Process]:
    """Return the servers whose working directory is in ``folder``.

    By folder and not by pid: PostgreSQL's workers lead groups of their own and survive their parent for a moment; and
    a pid that was written down may belong to somebody else by now.
    """
    found = []
    for process in psutil.process_iter():
        # What ends meanwhile, or belongs to others, is not ours to end.
        with contextlib.suppress(psutil.Error, OSError):
            # A script (Patroni) has its own name, and that of Python as its program.
            mine = {Path(process.exe()).name, process.name()} & PROGRAMS
            if mine and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


def mappers_of(folder: Path) -> list[psutil.Process]:
    """Return the epmd of a RabbitMQ in ``folder``: a daemon that leaves the folder, and stays when its node ends."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name() == "epmd" and process.environ().get("HOME") == str(folder):
                found.append(process)
    return found


def are_gone(folder: Path, within: float = PATIENCE) -> bool:
    """Wait until no server in ``folder`` is left but, perhaps, as a name that its parent has not asked after yet."""
    deadline = time.monotonic() + within
    while servers_in(folder):
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True


def end(folder: Path) -> None:
    """End the servers in ``folder`` for good, and remove it."""
    for process in servers_in(folder):
        with contextlib.suppress(psutil.Error):
            # At SIGQUIT PostgreSQL gives its shared memory back, which outlives a process that is killed.
            process.send_signal(signal.SIGQUIT if process.name() == "postgres" else signal.SIGKILL)
            process.send_signal(signal.SIGCONT)
    if not are_gone(folder):
        for process in servers_in(folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
        are_gone(folder)
    for process in mappers_of(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()
    _free_shared_memory(folder)
    if os.path.ismount(folder):  # by ``Server.shrink``
        subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def dismiss(pid: int, within: float = 30.0) -> bool:
    """Let a guardian do its work at once; wait until it has."""
    try:
        guardian = psutil.Process(pid)
        guardian.terminate()
        deadline = time.monotonic() + within
        # It is nobody's child: after its end it may keep its name until the system's first process asks after it.
        while guardian.is_running() and guardian.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            threading.Event().wait(0.01)
    except psutil.NoSuchProcess:
        pass
    return True


def _free_shared_memory(folder: Path) -> None:
    """Remove the segment of a PostgreSQL that was killed; the last line but one of its lock file names it."""
    for lock in folder.glob("**/postmaster.pid"):
        lines = lock.read_text().splitlines()
        if len(lines) >= 7 and len(words := lines[6].split()) == 2 and shutil.which("ipcrm"):
            subprocess.run(["ipcrm", "-m", words[1]], capture_output=True, check=False)


def main() -> None:
    """Watch, in the background."""
    watched, folder = int(sys.argv[1]), Path(sys.argv[2])

    def at_once(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit

    try:
        process = psutil.Process(watched)  # before the fork: whoever asked for us still lives
        if pid := os.fork():
            print(pid, flush=True)
            os._exit(0)
        os.setsid()
        signal.signal(signal.SIGTERM, at_once)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # whoever started us reads until the last copy is closed
            os.dup2(null, stream)
        process.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end(folder)


if __name__ == "__main__":
    main()
