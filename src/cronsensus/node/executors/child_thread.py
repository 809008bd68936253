"""The thread that starts a child process, sends calls to it, reads its messages, and ends it.

Failure handling: an error in an order or in the handling of a report is logged, and the thread goes on.
"""

from __future__ import annotations

import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from typing import Literal

import msgspec

from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import LogLine
from cronsensus.node.executors import result
from cronsensus.node.executors.attempt import Attempt, Attempts
from cronsensus.node.executors.base import Call
from cronsensus.node.executors.child_process import Broken, ChildProcess
from cronsensus.node.executors.importing import Target
from cronsensus.node.executors.logs import LineBudget
from cronsensus.node.executors.printing import print_here
from cronsensus.node.executors.protocol import Begin, End, Leave, Line, Progress, Stop, decode_report
from cronsensus.process.logger import Logger

logger = Logger(__name__)

IDLE_SECONDS = 300.0
"""How long a child without work stays."""
DEATH_SECONDS = 2.0
"""Least seconds after SIGKILL after which a process counts as one that hangs; dying takes time on a busy machine."""

ALL_PIPES = ("stdout", "stderr", "reports")

Why = Literal["timed_out", "cancelled", "leaving", "broken"]


class ProcessAttempt(Attempt):
    """A call, the message that starts it, and the child that serves it, as soon as a child does.

    ``child``, and ``over`` (it ended before it had a child), are guarded by the executor's lock.
    """

    __slots__ = ("budget", "child", "over", "target")

    def __init__(self, call: Call, target: Target) -> None:
        super().__init__(call)
        self.target = target
        self.budget = LineBudget()
        self.child: ChildThread | None = None
        self.over = False

    def keep_line(self, line: LogLine) -> None:
        """Keep a line with the run, unless there are too many."""
        kept = self.budget.fit_line(line)
        if kept is not None:
            self.call.run.line(kept)


class ChildThread:
    """A child process, its thread, and the call that it serves.

    Args:
        attempts: the open ones of the executor.
        lock: the executor's; held for ``assign_attempt``, ``stop_attempt``, ``close`` and ``is_free``, never while an
            end is reported.
        changed: called when the child is free, and when it is gone.
        python: the interpreter.
        grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        attempts: Attempts[ProcessAttempt],
        lock: threading.Lock,
        changed: Callable[[], None],
        python: str,
        grace: float,
    ) -> None:
        self.gone = False
        self._attempts = attempts
        self._lock = lock
        self._changed = changed
        self._python = python
        self._grace = grace
        self._thread = threading.Thread(target=self._run_thread, name="cronsensus-process", daemon=True)
        self._process: ChildProcess
        self._lives = False
        self._given: ProcessAttempt | None = None
        self._orders: deque[Callable[[], None]] = deque()
        self._stopping: Why | None = None
        # Of its own thread only:
        self._served: ProcessAttempt | None = None
        self._number = 0
        self._until = math.inf
        self._killed = False
        self._ending: Ending | None = None
        """How the stopped call ended, by the child's own account."""

    @property
    def is_free(self) -> bool:
        """Whether a call can be given to it."""
        return self._given is None and self._stopping is None and not self.gone

    def assign_attempt(self, attempt: ProcessAttempt) -> None:
        """Have it serve a call."""
        self._given, attempt.child = attempt, self
        self._wake_thread()

    def stop_attempt(self, attempt: ProcessAttempt, cause: Why, reason: str, *, lease_lost: bool = False) -> None:
        """Have it end the process, if it still serves this call."""
        self._orders.append(partial(self._stop_attempt, attempt, cause, reason, lease_lost=lease_lost))
        self._wake_thread()

    def close(self) -> None:
        """Have it end the process, in an orderly way if it serves no call."""
        self._orders.append(self._close_process)
        self._wake_thread()

    def _wake_thread(self) -> None:
        if self._lives:
            self._process.wake()

    def start(self) -> None:
        """Start the thread, and by it the process, for the call that was given."""
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread to be had
            self._leave_process(_not_started(error))

    def join(self, timeout: float) -> None:
        """Wait for the thread's end; not at all on the thread itself."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout))

    # From here on: its own thread only.

    def _run_thread(self) -> None:
        try:
            self._process = ChildProcess(self._python)
        except Exception as error:  # noqa: BLE001 — no process or no pipe to be had, no such interpreter
            self._leave_process(_not_started(error))
            return
        self._lives = True
        while not self.gone:
            self._do_action(self._serve_once)

    def _do_action(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("%s: an action failed", self._thread.name)

    def _serve_once(self) -> None:
        self._send_call()
        while self._orders:
            self._do_action(self._orders.popleft())
        self._read_pipes(self._process.wait_for_output(self._until - self._read_clock()))
        if self._process.is_dead():
            self._read_pipes(finish=True)
            self._part_process(self._process.reap_process)
        elif self._read_clock() >= self._until:
            self._time_is_up()

    def _read_clock(self) -> float:
        return self._attempts.clock.monotonic()

    def _send_call(self) -> None:
        """Send the call that was given."""
        attempt = self._given
        if attempt is None or attempt is self._served or self._stopping is not None:
            return
        self._served, self._until = attempt, math.inf
        if not attempt.call.run.may_begin():
            self._report_end(result.never_begun(attempt.call.run))
            return
        self._number += 1
        try:
            self._process.send_import_path()
            self._process.send_command(Begin.of(self._number, attempt.call, attempt.target))
        except Exception as error:  # noqa: BLE001 — what a message cannot hold
            self._report_end(_not_started(error))

    def _read_pipes(self, pipes: Container[str] = ALL_PIPES, *, finish: bool = False) -> None:
        """Print what the job printed, and read the child's messages. ``finish``: also a line without its end."""
        for stream in ("stdout", "stderr"):
            if stream in pipes:
                for text in self._process.read_output(stream, finish=finish):
                    print_here(stream, text)
                    if self._served is not None:
                        self._served.keep_line(LogLine(at=self._attempts.clock.now(), level=stream, text=text))
        if "reports" not in pipes:
            return
        try:
            for line in self._process.read_reports():
                self._do_action(partial(self._handle_report, decode_report(line)))
        except (Broken, msgspec.DecodeError, UnicodeDecodeError):
            # A child that is interrupted may leave half a line behind; it ends anyway.
            self._end_process("broken", signal.SIGKILL)

    def _handle_report(self, report: Progress | Line | End) -> None:
        attempt = self._served
        if attempt is None or report.number != self._number:
            return
        match report:
            case Progress(done=done, total=total):
                attempt.call.run.progress(done, total)
            case Line(line=line):
                attempt.keep_line(line)
            case End(ending=ending):
                self._read_pipes(("stdout", "stderr"), finish=True)
                if self._stopping is None:
                    self._report_end(ending)
                else:
                    self._ending = ending  # reported when the process is dead, so that a retry cannot meet it

    def _report_end(self, ending: Ending) -> None:
        """Report how the call ended; another may be given from now on."""
        attempt, self._served = self._served, None
        self._until = self._read_clock() + IDLE_SECONDS
        with self._lock:
            self._given = None
        if attempt is not None:
            self._attempts.end_attempt(attempt, ending)
        self._changed()

    def _stop_attempt(self, attempt: ProcessAttempt, cause: Why, reason: str, *, lease_lost: bool) -> None:
        self._send_call()
        self._read_pipes()  # its end may be in the pipe already
        if self._served is attempt and self._stopping is None:
            attempt.call.run.request_stop(reason, lease_lost=lease_lost)
            self._process.send_command(Stop(self._number, reason, lease_lost))
            self._end_process(cause, signal.SIGTERM)

    def _close_process(self) -> None:
        if self._served is not None:
            self._stop_attempt(self._served, "cancelled", "the node stops", lease_lost=False)
        elif self._stopping is None:
            self._process.send_command(Leave())
            self._end_process("leaving")

    def _end_process(self, cause: Why, number: signal.Signals | None = None) -> None:
        """End the process by a signal now, and by SIGKILL after the grace. The first reason counts."""
        if self._stopping is None:
            with self._lock:
                self._stopping = cause
            self._until = self._read_clock() + self._grace
            if number is not None:
                self._process.send_signal(number)

    def _time_is_up(self) -> None:
        self._until = self._read_clock() + self._grace
        if self._stopping is None:
            with self._lock:
                if self._given is not None:  # in this very moment
                    return
                self._stopping = "leaving"
            self._process.send_command(Leave())
        elif not self._killed:
            self._killed = True
            self._until = self._read_clock() + max(self._grace, DEATH_SECONDS)
            self._process.send_signal(signal.SIGKILL)
        else:  # even SIGKILL does not end it: it hangs in the kernel
            self._part_process(self._process.close)

    def _part_process(self, close: Callable[[], None]) -> None:
        with self._lock:
            self._lives = False  # from here on nothing rings
        try:
            close()
        finally:
            self._leave_process()

    def _leave_process(self, ending: Ending | None = None) -> None:
        with self._lock:
            self.gone = True
            attempt = self._given
        if attempt is not None:
            self._attempts.end_attempt(attempt, ending or self._ending_of_dead(attempt))
        self._changed()

    def _ending_of_dead(self, attempt: ProcessAttempt) -> Ending:
        """Return the ending of an attempt whose process has died."""
        ending = self._ending
        match self._stopping:
            case "timed_out":
                trace = ending.error.traceback if ending and ending.error else ""
                return result.timed_out(attempt.timeout, traceback=trace)
            case "cancelled":
                if ending is not None and ending.kind in ("returned", "skipped", "retry", "snoozed"):
                    return ending
                error = ending.error if ending and ending.error and ending.error.type != result.STOPPED else None
                return result.cancelled_ending(attempt.call.run, error=error)
            case "broken":
                message = "the job's process sent what is no message, so it was ended"
                advice = "a job must not write to descriptors it has not opened"
                return result.failed_ending("ProcessBroken", f"{message}; {advice}")
            case _:
                last_lines = result.clean_text("\n".join(self._process.last_words), result.LONGEST_TRACEBACK)
                message = f"the job's process {self._process.describe_end()}"
                return result.failed_ending("ProcessDied", message, traceback=last_lines)


def _not_started(error: BaseException) -> Ending:
    described = result.describe_error(error)
    return result.failed_ending(
        described.type, f"the node cannot start a process for the job: {described.type}: {described.message}"
    )
