"""Whole programs that do to the library what applications do: each is a process with a store of its own."""

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from cronsensus import Scheduler
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter

HEAD = """
import asyncio, faulthandler, logging, os, signal, sys, threading, time, warnings
import multiprocessing
warnings.simplefilter("ignore", DeprecationWarning)  # a fork in a process with threads is what is tested here
from cronsensus import Run, Scheduler, current_run

faulthandler.register(signal.SIGQUIT)  # says where it stands, if a test waits in vain
scheduler = Scheduler("sqlite:///{folder}/jobs.db?synchronous=normal", node="it", {options})

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one write: lines of two processes do not mix
"""


class Program:
    """A program that runs, and the lines that it says."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.lines: list[str] = []
        self.pid = process.pid
        self._coming: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(None)

    def read_until(self, wanted: str, seconds: float = 60) -> str:
        """Return the first line that begins like this."""
        while True:
            try:
                line = self._coming.get(timeout=seconds)
            except Empty:
                line = None
            if line is None:
                raise AssertionError(f"no {wanted!r} in {self.lines}; {self.where_it_stands()}")
            self.lines.append(line)
            if line.startswith(wanted):
                return line

    def tell(self, line: str) -> None:
        """Write a line to the program's input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, seconds: float = 60) -> int:
        """Wait for the program's end, and return its code."""
        code = self.process.wait(seconds)
        with contextlib.suppress(Empty):
            while (line := self._coming.get(timeout=5)) is not None:
                self.lines.append(line)
        return code

    def where_it_stands(self) -> str:
        """Return the stacks of its threads, after what it has said to standard error; or that it ended."""
        if self.process.poll() is not None:
            return f"it ended with {self.process.returncode}; {self.errors()}"
        before = len(self.errors())
        self.process.send_signal(signal.SIGQUIT)
        until = time.monotonic() + 10
        while len(self.errors()) == before and time.monotonic() < until:
            threading.Event().wait(0.1)
        return self.errors()

    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def store(self) -> Scheduler:
        return Scheduler(f"sqlite:///{self.folder}/jobs.db")

    def occurrences(self) -> dict[str, Occurrence]:
        """Return what is in its store, by key."""
        scheduler = self.store()
        try:
            return {one.key: one for one in scheduler.store.occurrences(OccurrenceFilter(), limit=100)}
        finally:
            scheduler.stop()


@contextlib.contextmanager
def started(folder: Path, text: str, *, options: str = "", name: str = "program", **more: Any) -> Iterator[Program]:
    """Start a program of ``text``; it is gone when the block ends."""
    source = folder / f"{name}.py"
    source.write_text(HEAD.format(folder=folder, options=options) + textwrap.dedent(text))
    with (
        (folder / "stderr").open("a") as errors,
        subprocess.Popen(
            [sys.executable, str(source)], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, **more
        ) as process,
    ):
        try:
            yield Program(process, folder)
        finally:
            process.kill()
