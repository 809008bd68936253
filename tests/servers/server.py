"""A server of our own in a temporary folder: start it, do bad things to it, and know that it is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import psutil

from tests.scratch import in_memory
from tests.servers import guardian
from tests.servers.programs import user

ROOM = 2048
"""Megabytes that have to be free in memory for one more server there."""
PATIENCE = 30.0
"""Seconds for a server to come up or to leave. A limit, never waited for when all is well."""


class ServerFailed(Exception):
    """The server did not start, or did not end; the end of its log says why."""


class Server(ABC):
    """One server process with its folder and its port, which stays the same over restarts.

    ``durable=False`` is for tests that only ask what a store answers: the server then does not wait for the disk, and
    lies in memory where there is room, so a power cut (not a kill) could lose what was committed. Tests of its faults
    and benchmarks leave it True.
    """

    kind: ClassVar[str]
    users: ClassVar[tuple[str, ...]]

    def __init__(self, *, durable: bool = True, lives_with: int | None = None, folder: Path | None = None) -> None:
        """Prepare; ``start()`` starts.

        Args:
            durable: wait for the disk at each commit.
            lives_with: the pid whose end ends the server too; default: this process.
            folder: where to put everything, existing and empty; default: a new temporary folder. Removed at the end.
        """
        self.durable = durable
        prefix = f"cronsensus-{self.kind}-"
        self.folder = folder or Path(tempfile.mkdtemp(prefix=prefix, dir=None if durable else in_memory(ROOM)))
        self._uid: int | None = None
        self._gid: int | None = None
        self._groups: list[int] | None = None
        if account := user(*self.users):
            self._uid, self._gid, self._groups = account.pw_uid, account.pw_gid, []
            os.chown(self.folder, self._uid, self._gid)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.guardian = _guard(lives_with or os.getpid(), self.folder)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it answers."""

    @abstractmethod
    def make(self) -> None:
        """Make the data directory."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return what starts it in the foreground."""

    @abstractmethod
    def answering(self) -> Path | None:
        """Return the data directory of whoever answers at its port; None if nobody does."""

    def answers(self) -> bool:
        """Tell whether it does a client's bidding: it, and not another server that got the port first."""
        return self.answering() == self.data

    @property
    def stop_signal(self) -> signal.Signals:
        """What makes it leave in order, without waiting for its clients."""
        return signal.SIGTERM

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        if not self.data.exists():
            self.make()
        for _ in range(3):
            if self._came_up():
                return self
            # Between looking for a free port and taking it, somebody else may have taken it.
            self.port = free_port()
        raise ServerFailed(f"{self.kind} did not start:\n{self.log_end}")

    def _came_up(self) -> bool:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=self._environment(), start_new_session=True,
                user=self._uid, group=self._gid, extra_groups=self._groups,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            if self._process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.kind} does not answer after {PATIENCE:.0f} s:\n{self.log_end}")
            threading.Event().wait(0.02)
        return True

    @property
    def pid(self) -> int:
        """The pid of the running server (of PostgreSQL: of the postmaster)."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether the process is there, also if it is stopped by a signal."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Let it leave in order: clients are cut off, data is written out."""
        if not self.is_running:
            return
        self.resume()
        os.kill(self.pid, self.stop_signal)
        self._await_end()

    def kill9(self) -> None:
        """Kill all of its processes in the same moment, without a word."""
        _send(signal.SIGKILL, self._family())
        self._await_end()

    def restart(self) -> Self:
        """Stop it in order, and start it again at the same port."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze all of its processes (SIGSTOP): connections stay open, nobody answers."""
        frozen: set[int] = set()
        # Until none is new: a worker may have been forked before its parent stood still.
        while new := [process for process in self._family() if process.pid not in frozen]:
            _send(signal.SIGSTOP, new)
            frozen.update(process.pid for process in new)
            self._until_stopped(new)

    def _until_stopped(self, processes: list[psutil.Process]) -> None:
        # A signal is sent in a moment and arrives in another.
        deadline = time.monotonic() + PATIENCE
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                while process.status() not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}:
                    assert time.monotonic() < deadline, f"{process} does not stand still"
                    threading.Event().wait(0.001)

    def resume(self) -> None:
        """Let a frozen server go on."""
        _send(signal.SIGCONT, self._family())

    def end(self) -> None:
        """End it at once, whatever state it is in, and remove its folder."""
        guardian.dismiss(self.guardian)
        if self._process is not None:
            self._process.wait(PATIENCE)
        assert not self.folder.exists(), f"the guardian left {self.folder} behind"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.end()
            raise

    def __exit__(self, *_: object) -> None:
        self.end()

    def shrink(self, megabytes: int) -> None:
        """Give it a small disk of its own: a tmpfs in place of its folder. Before the start.

        Raises:
            PermissionError: mounting is not allowed here.
        """
        assert not any(self.folder.iterdir()), "it was started already"
        options = f"size={megabytes}m,mode=0700,uid={self._uid or os.getuid()},gid={self._gid or os.getgid()}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "cronsensus-test", self.folder],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise PermissionError(f"no tmpfs can be mounted here: {done.stderr.strip()}")

    def leave_running(self) -> None:
        """Let it outlive this process (another is watched): it is no child to wait for any more."""
        if self._process is not None:
            self._process.returncode = 0

    # --- within -------------------------------------------------------------------------------------------------------

    def run(self, command: list[str]) -> None:
        """Run a program of the server's, as its user."""
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=self.folder,
            env=self._environment(), user=self._uid, group=self._gid, extra_groups=self._groups,
        )  # fmt: skip
        if done.returncode:
            raise ServerFailed(
                f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )

    @property
    def log_end(self) -> str:
        """The last lines of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def _environment(self) -> dict[str, str]:
        # Nobody's own settings (PGDATA, MYSQL_…) steer it, and messages are in one language. What is temporary lies in
        # its folder: a MariaDB that starts, also one that makes tables for another, removes what looks like temporary
        # tables from where its own would lie.
        home = str(self.folder)
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LC_ALL": "C"}

    def _family(self) -> list[psutil.Process]:
        return guardian.servers_in(self.folder) if self.is_running else []

    def _await_end(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"{self.kind} does not end:\n{self.log_end}") from None
        # PostgreSQL refuses to start while a worker of its predecessor still holds the shared memory.
        if not guardian.are_gone(self.folder, PATIENCE):
            raise ServerFailed(f"workers of {self.kind} do not end:\n{self.log_end}")


def _send(number: signal.Signals, processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker of PostgreSQL may end at any time
            process.send_signal(number)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on.

    Below the range from which the kernel gives ports to outgoing connections: while the server is down, one of those
    could take its port, and a client that connects again and again to a port in that range can meet itself.
    """
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _guard(watched: int, folder: Path) -> int:
    command = [sys.executable, guardian.__file__, str(watched), str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise ServerFailed(f"the guardian of {folder} did not start; its message is above")
    return int(done.stdout)
