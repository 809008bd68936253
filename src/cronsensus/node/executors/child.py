"""The program of a job's own process: ``python -m cronsensus.node.executors.child``.

::

    main thread:  wait for a call ──▶ import, run ──▶ send its end ──▶ wait …
    watcher:      read commands: begin │ stop ──▶ set the run's events, interrupt the main thread │ leave
                  end of input, or the parent is gone ──▶ kill the own process group

Commands come on what was standard input, reports leave on a pipe of their own, and the job's standard output and error
go to the parent as they are. A job has an empty standard input.

Processes that the job forks may log and report progress, too, and end by SIGTERM like any other; nothing else of this
program is theirs.

Failure handling: the parent may die at any moment, even by ``kill -9``; its end of the command pipe closes with it.
Should some other process have inherited that end, a process descriptor (or the parent's id, looked at each second)
still tells. SIGTERM is obeyed only after a stop: a service manager sends it to every process of a service at once, and
then the node decides which of the two may finish.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import logging
import math
import os
import queue
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from msgspec import structs

from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import LogLine, RunError
from cronsensus.node.executors.attempt import perform_call
from cronsensus.node.executors.importing import Target, load_function, load_name, mark_child_process
from cronsensus.node.executors.logs import LineBudget, RunLogHandler
from cronsensus.node.executors.protocol import (
    Begin,
    Command,
    End,
    Hello,
    Leave,
    Line,
    Progress,
    Report,
    Stop,
    decode_command,
    encode_message,
)
from cronsensus.node.executors.result import STOPPED, cancelled_ending, ending_of_error, stack_at
from cronsensus.node.executors.surroundings import Surroundings
from cronsensus.node.forks import block_signals, unblock_signals
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun
from cronsensus.timing.clock import SystemClock

PROGRESS_EVERY = 0.1
"""Seconds between two reports of progress; in between only the latest is kept."""
PIPE_BROKEN = 70
"""Exit code when nothing can be sent to the parent any more."""


class _Stopped(SystemExit):
    """Raised in the main thread to stop the job: passes ``except Exception``, runs ``finally``."""


class _Reporter:
    """Sends reports to the parent, from any thread."""

    def __init__(self, descriptor: int, clock: SystemClock) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self._lock = threading.Lock()
        self._timer = Timer(clock)
        self._latest: Progress | None = None
        self._waiting = False
        self._sent_at = -math.inf
        self._process = os.getpid()

    def send_report(self, report: Report) -> None:
        """Write a report; a pipe that is broken ends the process, because what it does could never be learned."""
        if self._process != os.getpid():
            self._send_from_a_fork(report)
            return
        data = memoryview(encode_message(report))
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except BrokenPipeError:
                _end_at_once()
            except OSError:
                os._exit(PIPE_BROKEN)  # the job closed what is not its own

    def _send_from_a_fork(self, report: Report) -> None:
        """Write from a process that the job forked, if that can be done without the lock, which may be held there.

        A write of so many bytes is one piece; what is longer could be cut in two by what another process writes.
        """
        data = encode_message(report)
        if len(data) > select.PIPE_BUF and isinstance(report, Line):
            cut = report.line.text.encode()[: select.PIPE_BUF // 8].decode(errors="ignore") + "…"
            data = encode_message(Line(report.number, dataclasses.replace(report.line, text=cut)))
        if len(data) <= select.PIPE_BUF:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, data)

    def send_progress(self, progress: Progress) -> None:
        """Send progress now, or the latest of it a little later: a loop may call this a million times."""
        now = self._clock.monotonic()
        if self._process != os.getpid():
            if now >= self._sent_at + PROGRESS_EVERY:
                self._sent_at = now
                self.send_report(progress)
            return
        with self._lock:
            self._latest = progress
            wait = self._sent_at + PROGRESS_EVERY - now
            if wait > 0 and self._waiting:
                return
            self._waiting = wait > 0
        if wait > 0:
            self._timer.call_after(wait, self.flush_progress)
        else:
            self.flush_progress()

    def flush_progress(self) -> None:
        """Send the progress that waits."""
        with self._lock:
            latest, self._latest = self._latest, None
            self._waiting = False
            self._sent_at = self._clock.monotonic()
        if latest is not None:
            self.send_report(latest)


class Child:
    """The process's two threads and what they share."""

    def __init__(self, commands: int, reports: int, parent: int) -> None:
        self._commands = commands
        self._parent = parent
        self._process = os.getpid()
        self._clock = SystemClock()
        self._reporter = _Reporter(reports, self._clock)
        self._calls: queue.SimpleQueue[Begin | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._number = 0
        self._run: BaseRun | None = None
        self._inside = False
        self._stopping = False
        self._where = ""
        self._targets: dict[Target, Callable[..., Any]] = {}
        self._handler = RunLogHandler(self._clock, last_resort=False)

    def serve_calls(self) -> None:
        """Run calls until the queue of calls is closed."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        threading.Thread(target=self._watch_to_the_end, name="cronsensus-watcher", daemon=True).start()
        while (begin := self._calls.get()) is not None:
            self._serve_call(begin)
            if self._stopping:
                os._exit(0)  # what was interrupted may have left anything behind; no second job runs here

    def _serve_call(self, begin: Begin) -> None:
        number, budget = begin.number, LineBudget()

        def on_progress(_: BaseRun, done: float, total: float) -> None:
            done, total = float(done), float(total)
            if math.isfinite(done) and math.isfinite(total):
                self._reporter.send_progress(Progress(number, done, total))

        def on_line(_: BaseRun, line: LogLine) -> None:
            kept = budget.fit_line(line)
            if kept is not None:
                self._reporter.send_report(Line(number, kept))

        claim, namespace = begin.shown_claim(), begin.namespace
        make_run = load_name(begin.run)
        run = make_run(claim, namespace=namespace, on_progress=on_progress, on_line=on_line, zone=begin.zone)
        with self._lock:
            self._number, self._run = number, run
        process = os.getpid()
        ending = self._perform_call(begin, run)
        if os.getpid() != process:
            os._exit(0)  # a job that forks comes back twice; only the first of the two may speak for it
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with self._lock:
            self._run = None
        if self._where and ending.error is None:
            ending = structs.replace(ending, error=RunError(type=STOPPED, message="", traceback=self._where))
        self._reporter.flush_progress()
        self._reporter.send_report(End(number, ending))

    def _perform_call(self, begin: Begin, run: BaseRun) -> Ending:
        signal.signal(signal.SIGTERM, self._on_terminate)  # again: the job before may have put its own there
        self._inside, before = True, None
        try:
            if self._stopping:
                return cancelled_ending(run, detail="before it began")
            function = self._find_function(begin.target)
            run.extras = {name: load_name(reader)(packed) for name, (reader, packed) in begin.extras.items()}
            before = Surroundings()
            registered = Registered.from_function(begin.job, function, "process", begin.run_parameter, begin.before_run)
            return perform_call(run, registered, begin.args, begin.kwargs)
        except BaseException as error:  # noqa: BLE001 — a module that cannot be imported, or the stop itself
            return ending_of_error(error, run)
        finally:
            self._inside = False
            if before is not None and not self._stopping and os.getpid() == self._process:
                before.put_back()

    def _find_function(self, target: Target) -> Callable[..., Any]:
        function = self._targets.get(target)
        if function is None:
            root = logging.getLogger()
            self._handler.remove_from_root()  # basicConfig in the imported module does nothing while there is a handler
            try:
                function = self._targets[target] = load_function(target)
            finally:
                # What is logged is kept with the run; printed as well, every line would be there twice.
                for handler in root.handlers[:]:
                    if type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr):
                        root.removeHandler(handler)
                self._handler.add_to_root()
        return function

    def _on_terminate(self, signum: int, frame: FrameType | None) -> None:
        """Interrupt the job, at most once, if the parent has sent a stop."""
        if self._stopping and self._inside:
            self._inside = False
            self._where = "" if frame is None else stack_at(frame)
            raise _Stopped(128 + signum)

    def _watch_to_the_end(self) -> None:
        try:
            self._watch_commands()
        except BaseException:  # noqa: BLE001 — a process that hears nothing any more must not go on
            traceback.print_exc()
            _end_at_once()

    def _watch_commands(self) -> None:
        """Read commands until the parent is gone."""
        poll = select.poll()
        poll.register(self._commands, select.POLLIN)
        descriptor = -1
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(self._parent)
                poll.register(descriptor, select.POLLIN)
        buffer = b""
        while True:
            ready = {ready_descriptor for ready_descriptor, _ in poll.poll(None if descriptor >= 0 else 1000)}
            if os.getppid() != self._parent:
                _end_at_once()
            if self._commands not in ready:
                continue
            data = os.read(self._commands, 1 << 16)
            if not data:
                _end_at_once()
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._obey_command(line)

    def _obey_command(self, line: bytes) -> None:
        command: Command = decode_command(line)
        match command:
            case Hello():
                _settle_in(command)
            case Begin():
                self._calls.put(command)
            case Stop():
                with self._lock:
                    run = self._run if self._number == command.number else None
                    self._stopping = True
                if run is not None:
                    run.request_stop(command.reason, lease_lost=command.lease_lost)
                self._calls.put(None)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            case Leave():
                self._calls.put(None)


def _settle_in(hello: Hello) -> None:
    """Import from where the parent imports, and restore what it changed to start this process."""
    sys.path[:] = hello.sys_path
    if hello.pythonpath is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = hello.pythonpath
    logging.getLogger().setLevel(hello.log_level)


def _end_at_once() -> NoReturn:
    """End at once, with everything that the job has started; the parent is gone and nothing waits for a result."""
    if os.getpgid(0) == os.getpid():  # else somebody started this by hand, and the group is theirs
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _before_fork() -> None:
    block_signals([signal.SIGTERM])


def _be_no_child() -> None:
    """Let a process that the job forks end by SIGTERM: ``Pool.terminate`` waits for that, and it has no watcher."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    unblock_signals()


def main(arguments: list[str]) -> int:
    """Run the program; ``arguments`` are the descriptor for reports and the parent's process id."""
    if len(arguments) != 2 or not all(argument.isdecimal() for argument in arguments):
        print("this program is started by a cronsensus node, for jobs with executor='process'", file=sys.stderr)  # noqa: T201
        return 2
    reports, parent = map(int, arguments)
    # What the job starts must not hold our pipes: they would stay open, and be read and written, after we are gone.
    commands = os.dup(0)
    os.set_inheritable(reports, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    mark_child_process()
    os.register_at_fork(before=_before_fork, after_in_parent=unblock_signals, after_in_child=_be_no_child)
    faulthandler.enable()  # a segmentation fault leaves its stack with the run
    child = Child(commands, reports, parent)
    child.serve_calls()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
