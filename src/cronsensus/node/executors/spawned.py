"""The node's end of one job process: its pipes, what comes through them, and its death.

Used by one thread only, the reactor's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

import cronsensus.errors
from cronsensus.node.executors.protocol import LONGEST_MESSAGE, Command, Hello, encode

READ = 1 << 16
MOST_PER_TURN = 1 << 20
"""Bytes read from one pipe before the others have their turn: a job may print faster than anybody reads."""
LONGEST_OUTPUT_LINE = 4_096
LAST_WORDS = 40
"""Lines of standard error that are shown when the process dies."""
_PACKAGE_ROOT = str(Path(cronsensus.errors.__file__).parent.parent)


class Broken(Exception):
    """The process sent what is no message."""


class Lines:
    """Cuts a stream of bytes into lines of text of a bounded length."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that ``data`` completes."""
        *parts, rest = data.split(b"\n")
        lines = []
        for part in parts:
            line = self._rest + part
            if not self._skipping:
                lines.append(line)
            self._rest, self._skipping = b"", False
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > LONGEST_OUTPUT_LINE:
                lines.append(self._rest)
                self._rest, self._skipping = b"", True
        return [line[:LONGEST_OUTPUT_LINE].decode("utf-8", "replace").rstrip("\r") for line in lines]

    def finish(self) -> list[str]:
        """Return the last line, if it has no end."""
        has_one = bool(self._rest)
        lines = self.feed(b"\n")
        return lines if has_one else []


class Spawned:
    """A child process that was started for calls.

    Attributes:
        commands: the descriptor to write to.
        pipes: the descriptors to read from.
        ended: those of them that are at their end: readable for ever, so nobody should wait for them.
        death: a descriptor that is readable once the process is dead; -1 where the system has no such thing.
        last_words: the end of its standard error.
    """

    def __init__(self, python: str) -> None:
        options: dict[str, str | bool] = sys._xoptions  # noqa: SLF001 — there is no other way to hand them on
        reports, theirs = os.pipe()
        try:
            self.process = subprocess.Popen(  # noqa: S603 — our own program
                [
                    python,
                    "-P",  # the working directory must not hide modules from the interpreter's own start
                    *("-O" for _ in range(sys.flags.optimize)),
                    *(f"-W{option}" for option in sys.warnoptions),
                    *(f"-X{name}" if value is True else f"-X{name}={value}" for name, value in options.items()),
                    "-m",
                    "cronsensus.node.executors.child",
                    str(theirs),
                    str(os.getpid()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(theirs,),
                start_new_session=True,  # a group of its own, to be killed with everything that the job starts
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(
                        path for path in (_PACKAGE_ROOT, os.environ.get("PYTHONPATH")) if path
                    )
                },
            )
        except BaseException:
            os.close(reports)
            raise
        finally:
            os.close(theirs)
        self.pid = self.process.pid
        assert self.process.stdin is not None  # noqa: S101 — for the type checker: all three are pipes
        assert self.process.stdout is not None  # noqa: S101
        assert self.process.stderr is not None  # noqa: S101
        self.commands = self.process.stdin.fileno()
        self.pipes = {
            "reports": reports,
            "stdout": self.process.stdout.fileno(),
            "stderr": self.process.stderr.fileno(),
        }
        for descriptor in (self.commands, *self.pipes.values()):
            os.set_blocking(descriptor, False)
        self.ended: set[str] = set()
        self.death = _watch_death(self.pid)
        self.last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._output = {"stdout": Lines(), "stderr": Lines()}
        self._incoming = b""
        self.outgoing = b""
        self._greeting: Hello | None = None

    def greet(self) -> None:
        """Tell from where to import; again when that has changed."""
        greeting = Hello([str(path) for path in sys.path], os.environ.get("PYTHONPATH"), logging.root.level)
        if greeting != self._greeting:
            self._greeting = greeting
            self.send(greeting)

    def send(self, command: Command) -> None:
        """Write a command, or as much of it as the pipe takes; ``flush`` writes the rest."""
        self.outgoing += encode(command)
        self.flush()

    def flush(self) -> None:
        """Write what waits. A process that is gone is noticed by its death, not here."""
        try:
            while self.outgoing:
                self.outgoing = self.outgoing[os.write(self.commands, self.outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self.outgoing = b""

    def read_reports(self) -> list[bytes]:
        """Return the reports that have arrived, whole lines only.

        Raises:
            Broken: a line without end.
        """
        *lines, self._incoming = (self._incoming + self._read("reports")).split(b"\n")
        if len(self._incoming) > LONGEST_MESSAGE:
            raise Broken
        return lines

    def read_output(self, stream: str, *, finish: bool = False) -> list[str]:
        """Return the lines that the job has printed; with ``finish``, also the last one, which has no end."""
        lines = self._output[stream].feed(self._read(stream))
        if finish:
            lines += self._output[stream].finish()
        if stream == "stderr":
            self.last_words.extend(lines)
        return lines

    def _read(self, pipe: str) -> bytes:
        parts, total = [], 0
        while total < MOST_PER_TURN and pipe not in self.ended:
            try:
                data = os.read(self.pipes[pipe], READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.ended.add(pipe)
            parts.append(data)
            total += len(data)
        return b"".join(parts)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it started (unless that has left the group).

        Safe until ``bury``: the zombie keeps its number from being given to somebody else.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def is_dead(self) -> bool:
        """Tell whether the process has ended, without reaping it."""
        if self.process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self.process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:  # somebody else in this process reaps all children
            return True

    def bury(self) -> None:
        """Reap a dead process, kill what it leaves behind, and close the pipes."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.ended.update(self.pipes)
        for descriptor in (self.pipes["reports"], self.death):
            if descriptor >= 0:
                os.close(descriptor)
        self.pipes["reports"] = self.death = -1

    def epitaph(self) -> str:
        """Return in words how the process ended."""
        code = self.process.returncode
        if code is None:
            return "does not end, not even by SIGKILL"
        if code >= 0:
            hint = "; its pipes were closed under it" if code == 70 else ""
            return f"ended with exit code {code} in the middle of the run (os._exit, or a library that calls it{hint})"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        words = _SIGNALS.get(name)
        return f"was killed by {name}" + (f" ({words})" if words else "")


_SIGNALS = {
    "SIGSEGV": "a segmentation fault: a bug in an extension module, or recursion too deep in one",
    "SIGABRT": "abort: a library found itself in an impossible state",
    "SIGBUS": "a bus error: often a file that was cut short while mapped, or a full /dev/shm",
    "SIGFPE": "an arithmetic error",
    "SIGILL": "an illegal instruction: a library built for another processor",
    "SIGKILL": "by an operator, or by the kernel because memory ran out; see dmesg",
    "SIGTERM": "by an operator or a service manager",
    "SIGXCPU": "its limit of processor time",
    "SIGALRM": "an alarm that nobody handled",
}


def _watch_death(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends, or -1 where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
