"""Runs functions in processes of its own, which can really be stopped.

::

    start │ stop │ over time ──▶ inbox ──▶ reactor (one thread) ──commands──▶ child
                                              ▲   │                             │
                                              │   └──SIGTERM, SIGKILL──▶ its group
                                              └── reports, output, death ───────┘

All state belongs to the reactor's thread; others only put things into its inbox. Children are made on demand, serve one
call at a time, and are used again until one is stopped or dies.

Failure handling: a child that dies ends its attempt as raised, in words; the next call gets another child. A stopped
child is killed after a grace, with all that it started, and the attempt is reported when it is dead, so that a retry
does not meet it. When this process dies, its children see the end of their input and leave.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from functools import partial

import msgspec

from cronsensus.clock import Clock
from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import LogLine
from cronsensus.model.states import Reason
from cronsensus.node.executors.attempt import GRACE, Attempts
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.deadlines import Deadlines
from cronsensus.node.executors.ending import describe, failed, never_begun, timed_out
from cronsensus.node.executors.importing import Target, locate
from cronsensus.node.executors.protocol import Begin, Command, End, Leave, Line, Progress, Stop, decode_report
from cronsensus.node.executors.reactor import Reactor
from cronsensus.node.executors.served import Child, ProcessAttempt, Why, verdict
from cronsensus.node.executors.spawned import Broken

POLL = 0.2
"""Seconds between two looks for dead children where the system has no process descriptors."""
IDLE_SECONDS = 300.0
"""How long a child without work stays."""


class ProcessExecutor(Executor):
    """Runs functions in child processes, one call at a time each.

    Calls beyond ``most`` wait for a free child; their timeouts run meanwhile.

    Args:
        done: told of each end, once, on the reactor's thread or the caller's; must not block.
        clock: measures how long attempts take.
        deadlines: the watchdog shared with other executors.
        most: children at a time; the number of processors by default.
        python: the interpreter to start; this process's own by default.
        grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        done: Done,
        clock: Clock,
        deadlines: Deadlines | None = None,
        *,
        most: int | None = None,
        python: str | None = None,
        grace: float = GRACE,
    ) -> None:
        self._clock = clock
        self._attempts: Attempts[ProcessAttempt] = Attempts(done, clock, deadlines)
        self._most = most or os.cpu_count() or 1
        self._python = python or sys.executable
        self._grace = grace
        self._reactor = Reactor("cronsensus-processes", clock, round_off=self._round_off)
        self._waiting: deque[ProcessAttempt] = deque()
        self._children: list[Child] = []
        self._closing = False

    @property
    def children(self) -> list[int]:
        """The process ids of the children."""
        return [child.pid for child in tuple(self._children)]

    def start(self, call: Call) -> None:
        """Hand an attempt to a free child, to a new one, or to the queue."""
        problem = None
        try:
            target = locate(call.registered.function)
        except BaseException as error:  # noqa: BLE001 — a module may have a __getattr__, and that may raise anything
            target, problem = Target("", ""), error
        attempt = ProcessAttempt(call, target)
        self._attempts.begin(attempt, self._over_time)
        if problem is not None:
            self._attempts.end(attempt, Ending(kind="raised", error=describe(problem)))
        else:
            self._reactor.post(partial(self._enter, attempt))

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Set the run's events, here and in the child, and end the child."""
        call.run.stop(reason, lease_lost=lease_lost)
        attempt = self._attempts.find(call)
        if attempt is not None:
            self._reactor.post(partial(self._stop, attempt, "cancelled", reason, lease_lost=lease_lost))

    def close(self) -> None:
        """End all children; by SIGKILL those that do not leave within the grace."""
        for attempt in self._attempts.close():
            attempt.call.run.stop("the node stops")
        if self._reactor.started:
            self._reactor.post(self._close)
            self._reactor.join(2 * self._grace + 1.0)

    def _over_time(self, attempt: ProcessAttempt) -> None:
        self._reactor.post(partial(self._stop, attempt, "timed_out", Reason.TIMEOUT))

    # From here on: the reactor's thread only.

    def _round_off(self) -> None:
        self._dispatch()
        if self._closing and not self._children:
            self._reactor.finish()

    def _enter(self, attempt: ProcessAttempt) -> None:
        self._waiting.append(attempt)

    def _dispatch(self) -> None:
        while self._waiting:
            if not self._attempts.is_open(self._waiting[0]):
                self._waiting.popleft()
                continue
            child = next((child for child in self._children if child.attempt is None and child.stopping is None), None)
            if child is None and (self._closing or len(self._children) >= self._most):
                return
            attempt = self._waiting.popleft()
            if not attempt.call.run.may_begin():
                self._attempts.end(attempt, never_begun(attempt.call.run))
                continue
            try:
                child = child or self._spawn()
                child.number += 1
                child.attempt, attempt.child = attempt, child
                child.greet()
                self._send(
                    child,
                    Begin.of(child.number, attempt.call, attempt.target),
                )
            except Exception as error:  # noqa: BLE001 — no process or no pipe to be had, no such interpreter
                if child is not None:
                    child.attempt = None
                said = describe(error)
                message = f"the node cannot start a process for the job: {said.type}: {said.message}"
                self._attempts.end(attempt, failed(said.type, message))

    def _spawn(self) -> Child:
        child = Child(self._python)
        self._children.append(child)
        self._reactor.watch(child.pipes["reports"], partial(self._listen, child))
        for stream in ("stdout", "stderr"):
            self._reactor.watch(child.pipes[stream], partial(self._output, child, stream))
        if child.death >= 0:
            self._reactor.watch(child.death, partial(self._bury, child))
        else:
            self._reactor.after(POLL, partial(self._look, child))
        return child

    def _look(self, child: Child) -> None:
        """Find out by asking, where no descriptor tells, whether a child is dead."""
        self._bury(child)
        if child in self._children:
            self._reactor.after(POLL, partial(self._look, child))

    def _send(self, child: Child, command: Command) -> None:
        child.send(command)
        self._flush(child)

    def _flush(self, child: Child) -> None:
        child.flush()
        if child.outgoing:
            self._reactor.watch(child.commands, partial(self._flush, child), write=True)
        else:
            self._reactor.unwatch(child.commands)

    def _listen(self, child: Child) -> None:
        try:
            for line in child.read_reports():
                self._hear(child, decode_report(line))
        except (Broken, msgspec.DecodeError, UnicodeDecodeError):
            # A child that is interrupted may leave half a line behind; it ends anyway.
            self._end_child(child, "broken", signal.SIGKILL)
        self._forget_ended(child)

    def _hear(self, child: Child, report: Progress | Line | End) -> None:
        attempt = child.attempt
        if attempt is None or report.number != child.number:
            return
        match report:
            case Progress(done=done, total=total):
                attempt.call.run.progress(done, total)
            case Line(line=line):
                self._keep(attempt, line)
            case End(ending=ending):
                self._output(child, "stdout", finish=True)
                self._output(child, "stderr", finish=True)
                if child.stopping is not None:
                    child.said = ending  # reported when the process is dead, so that a retry cannot meet it
                    return
                child.attempt = None
                self._attempts.end(attempt, ending)
                self._watch_idle(child)

    def _output(self, child: Child, stream: str, *, finish: bool = False) -> None:
        for text in child.read_output(stream, finish=finish):
            if child.attempt is not None:
                self._keep(child.attempt, LogLine(at=self._clock.now(), level=stream, text=text))
        self._forget_ended(child)

    def _keep(self, attempt: ProcessAttempt, line: LogLine) -> None:
        kept = attempt.budget.take(line)
        if kept is not None:
            attempt.call.run.line(kept)

    def _forget_ended(self, child: Child) -> None:
        for pipe in child.ended:
            self._reactor.unwatch(child.pipes[pipe])

    def _stop(self, attempt: ProcessAttempt, why: Why, reason: str, *, lease_lost: bool = False) -> None:
        child, run = attempt.child, attempt.call.run
        if child is None:
            detail = f"it was still waiting for one of {self._most} processes"
            ending = timed_out(attempt.timeout, detail=detail) if why == "timed_out" else never_begun(run)
            self._attempts.end(attempt, ending)
            return
        self._listen(child)  # its end may be in the pipe already
        if child.attempt is not attempt or child.stopping is not None:
            return
        run.stop(reason, lease_lost=lease_lost)
        self._send(child, Stop(child.number, reason, lease_lost))
        self._end_child(child, why, signal.SIGTERM)

    def _end_child(self, child: Child, why: Why, number: signal.Signals | None) -> None:
        """Have a child end, for one reason, the first: by ``number`` now, and by SIGKILL after the grace."""
        if child.stopping is not None:
            return
        child.stopping = why
        if number is not None:
            child.signal(number)
        self._reactor.after(self._grace, partial(self._kill, child))

    def _kill(self, child: Child) -> None:
        if child in self._children:
            child.signal(signal.SIGKILL)
            self._reactor.after(self._grace, partial(self._give_up, child))

    def _give_up(self, child: Child) -> None:
        """Stop waiting for a process that even SIGKILL does not end: it hangs in the kernel."""
        if child in self._children:
            self._part(child)
            child.close()
            self._report(child)

    def _bury(self, child: Child) -> None:
        if child not in self._children or not child.is_dead():
            return
        self._listen(child)
        self._output(child, "stdout", finish=True)
        self._output(child, "stderr", finish=True)
        self._part(child)
        child.bury()
        self._report(child)

    def _part(self, child: Child) -> None:
        self._children.remove(child)
        for descriptor in (child.commands, child.death, *child.pipes.values()):
            self._reactor.unwatch(descriptor)

    def _report(self, child: Child) -> None:
        attempt, child.attempt = child.attempt, None
        if attempt is not None:
            self._attempts.end(attempt, verdict(child, attempt))

    def _watch_idle(self, child: Child) -> None:
        if not child.idle_watched:
            child.idle_watched = True
            self._reactor.after(IDLE_SECONDS, partial(self._retire, child, child.number))

    def _retire(self, child: Child, number: int) -> None:
        child.idle_watched = False
        if child.attempt is None and child.stopping is None and child in self._children:
            if child.number == number:
                self._send(child, Leave())
                self._end_child(child, "leaving", None)
            else:
                self._watch_idle(child)

    def _close(self) -> None:
        self._closing = True
        self._waiting.clear()
        for child in self._children:
            if child.attempt is not None:
                self._send(child, Stop(child.number, "the node stops", lease_lost=False))
                self._end_child(child, "cancelled", signal.SIGTERM)
            else:
                self._send(child, Leave())
                self._end_child(child, "leaving", None)
