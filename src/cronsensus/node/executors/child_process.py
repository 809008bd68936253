"""The node's end of one job process: its pipes, what comes through them, and its death.

Used by one thread only, except for ``wake``. No method waits but ``wait_for_output``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

import cronsensus.errors
from cronsensus.node.executors.protocol import LONGEST_MESSAGE, Command, Hello, encode_message

READ_BYTES = 1 << 16
MOST_BYTES_PER_TURN = 1 << 20
"""Bytes read from one pipe before the others have their turn: a job may print faster than its node reads."""
POLL_SECONDS = 0.2
"""Seconds between two looks whether the process is dead where the system has no process descriptors."""
LONGEST_WAIT = 3600.0
LONGEST_OUTPUT_LINE = 4_096
LAST_STDERR_LINES = 40
"""Lines of standard error that are shown when the process dies."""
_PACKAGE_ROOT = str(Path(cronsensus.errors.__file__).parent.parent)


class Broken(Exception):
    """The process sent what is no message."""


class ChildProcess:
    """A process that was started for calls.

    Attributes:
        last_words: the end of its standard error.
    """

    def __init__(self, python: str) -> None:
        self._own: list[int] = []
        """Descriptors that are closed here; the other pipes are closed by ``subprocess``."""
        reports, childs_end = os.pipe()
        try:
            wake, self._wake = os.pipe()
            self._own += reports, wake, self._wake
            self._process = _start_process(python, childs_end)
        except BaseException:
            for descriptor in self._own or [reports]:
                os.close(descriptor)
            raise
        finally:
            os.close(childs_end)
        self.pid = self._process.pid
        self._streams = [pipe for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if pipe]
        self._commands, stdout, stderr = (pipe.fileno() for pipe in self._streams)
        self._readable = {"reports": reports, "stdout": stdout, "stderr": stderr, "wake": wake}
        for descriptor in (self._commands, self._wake, *self._readable.values()):
            os.set_blocking(descriptor, False)
        self._death = _watch_death(self.pid)
        if self._death >= 0:
            self._own.append(self._death)
        self.last_words: deque[str] = deque(maxlen=LAST_STDERR_LINES)
        self._rest = dict.fromkeys(self._readable, b"")
        self._outgoing = b""
        self._greeting: Hello | None = None

    def wait_for_output(self, seconds: float) -> set[str]:
        """Wait until something can be read, the rest of a command be written, the process is dead, or ``wake``.

        Returns:
            Which pipes can be read.
        """
        poll = select.poll()
        names = {descriptor: name for name, descriptor in self._readable.items()}
        for descriptor in names:
            poll.register(descriptor, select.POLLIN)
        if self._death >= 0:
            poll.register(self._death, select.POLLIN)
        if self._outgoing:
            poll.register(self._commands, select.POLLOUT)
        longest = LONGEST_WAIT if self._death >= 0 else POLL_SECONDS
        ready = {
            names.get(descriptor, "") for descriptor, _ in poll.poll(math.ceil(max(0.0, min(seconds, longest)) * 1000))
        }
        if "wake" in ready:
            self._read_pipe("wake")
        self._flush_commands()
        return ready

    def wake(self) -> None:
        """Wake ``wait_for_output``, now or at its next call. Safe from any thread, until the pipes are closed."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so the wait ends anyway
            os.write(self._wake, b"\0")

    def send_import_path(self) -> None:
        """Send the import path to the child, if it has changed."""
        greeting = Hello([str(path) for path in sys.path], os.environ.get("PYTHONPATH"), logging.root.level)
        if greeting != self._greeting:
            self._greeting = greeting
            self.send_command(greeting)

    def send_command(self, command: Command) -> None:
        """Write a command, or as much of it as the pipe takes; ``wait_for_output`` writes the rest."""
        self._outgoing += encode_message(command)
        self._flush_commands()

    def _flush_commands(self) -> None:
        """Write the pending commands. A dead process is noticed by its death, not here."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self._commands, self._outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing = b""

    def read_reports(self) -> list[bytes]:
        """Return the reports that have arrived, whole lines only.

        Raises:
            Broken: a line without end.
        """
        lines = self._read_lines("reports")
        if len(self._rest["reports"]) > LONGEST_MESSAGE:
            raise Broken
        return lines

    def read_output(self, stream: str, *, finish: bool = False) -> list[str]:
        """Return the lines that the job has printed, cut; with ``finish``, also a last line without its end."""
        lines = self._read_lines(stream)
        incomplete = self._rest[stream]
        if finish and incomplete:
            lines, incomplete = [*lines, incomplete], b""
        self._rest[stream] = incomplete[:LONGEST_OUTPUT_LINE]
        texts = [line[:LONGEST_OUTPUT_LINE].decode("utf-8", "replace").rstrip("\r") for line in lines]
        if stream == "stderr":
            self.last_words.extend(texts)
        return texts

    def _read_lines(self, pipe: str) -> list[bytes]:
        *lines, self._rest[pipe] = (self._rest[pipe] + self._read_pipe(pipe)).split(b"\n")
        return lines

    def _read_pipe(self, pipe: str) -> bytes:
        parts, total = [], 0
        while total < MOST_BYTES_PER_TURN and pipe in self._readable:
            try:
                data = os.read(self._readable[pipe], READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                del self._readable[pipe]  # at its end: readable for ever
            parts.append(data)
            total += len(data)
        return b"".join(parts)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it started (unless that has left the group).

        Safe until ``reap_process``: the zombie keeps its number from being given to another process.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def is_dead(self) -> bool:
        """Whether the process has ended; it is not reaped."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:  # other code in this process reaps all children
            return True

    def reap_process(self) -> None:
        """Reap a dead process, kill what it leaves behind, and close the pipes."""
        self.send_signal(signal.SIGKILL)
        self._process.wait()
        self.close()

    def close(self) -> None:
        """Close the pipes. Once."""
        self._readable.clear()
        for pipe in self._streams:
            with contextlib.suppress(OSError):
                pipe.close()
        for descriptor in self._own:
            os.close(descriptor)

    def describe_end(self) -> str:
        """Return in words how the process ended."""
        code = self._process.returncode
        if code is None:
            return "does not end, not even by SIGKILL"
        if code >= 0:
            hint = "; its pipes were closed under it" if code == 70 else ""
            return f"ended with exit code {code} in the middle of the run (os._exit, or a library that calls it{hint})"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        explanation = _SIGNALS.get(name)
        return f"was killed by {name}" + (f" ({explanation})" if explanation else "")


_SIGNALS = {
    "SIGSEGV": "a segmentation fault: a bug in an extension module, or recursion too deep in one",
    "SIGABRT": "abort: a library found itself in an impossible state",
    "SIGBUS": "a bus error: often a file that was cut short while mapped, or a full /dev/shm",
    "SIGFPE": "an arithmetic error",
    "SIGILL": "an illegal instruction: a library built for another processor",
    "SIGKILL": "by an operator, or by the kernel because memory ran out; see dmesg",
    "SIGTERM": "by an operator or a service manager",
    "SIGXCPU": "its limit of processor time",
    "SIGALRM": "an alarm that was not handled",
}


def _start_process(python: str, reports: int) -> subprocess.Popen[bytes]:
    options: dict[str, str | bool] = sys._xoptions  # noqa: SLF001 — there is no other way to hand them on
    paths = [path for path in (_PACKAGE_ROOT, os.environ.get("PYTHONPATH")) if path]
    return subprocess.Popen(  # noqa: S603 — our own program
        [
            python,
            "-P",  # the working directory must not hide modules from the interpreter's own start
            *("-O" for _ in range(sys.flags.optimize)),
            *(f"-W{option}" for option in sys.warnoptions),
            *(f"-X{name}" if value is True else f"-X{name}={value}" for name, value in options.items()),
            "-m",
            "cronsensus.node.executors.child",
            str(reports),
            str(os.getpid()),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(reports,),
        start_new_session=True,  # a group of its own, to be killed with everything that the job starts
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def _watch_death(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends, or -1 where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
