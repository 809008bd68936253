"""Runs functions in processes of its own, which can really be stopped.

::

    start │ stop │ over time ──▶ orders, and a byte ──▶ thread of a child ──commands──▶ child
                                                          ▲   │                           │
                                                          │   └──SIGTERM, SIGKILL──▶ its group
                                                          └──── reports, output, death ───┘

A child and its thread are made on demand, serve one call at a time, and are used again until the child is stopped or
dies. What belongs to one child is its thread's alone; the executor knows which are free and which calls wait.

Failure handling: a child that dies ends its attempt as raised, in words; the next call gets another child. A stopped
child is killed after a grace, with all that it started, and the attempt is reported when it is dead, so that a retry
does not meet it. When this process dies, its children see the end of their input and leave.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque

from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.model.states import Reason
from cronsensus.node.executors.attempt import GRACE, Attempts
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.child_thread import DEATH_SECONDS, ChildThread, ProcessAttempt, Why
from cronsensus.node.executors.importing import Target, locate_function
from cronsensus.node.executors.result import describe_error, never_begun, timed_out
from cronsensus.timing.clock import Clock


class ProcessExecutor(Executor):
    """Runs functions in child processes, one call at a time each.

    Calls beyond ``most`` wait for a free child; their timeouts run meanwhile.

    Args:
        done: told of each end, once, on a child's thread, the watchdog's or the caller's; must not block.
        clock: measures how long attempts take.
        timer: the watchdog shared with other executors.
        most: children at a time; the number of processors by default.
        python: the interpreter to start; this process's own by default.
        grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        on_ending: Done,
        clock: Clock,
        timer: Timer | None = None,
        *,
        most: int | None = None,
        python: str | None = None,
        grace: float = GRACE,
    ) -> None:
        self._clock = clock
        self._attempts: Attempts[ProcessAttempt] = Attempts(on_ending, clock, timer)
        self._most = most or os.cpu_count() or 1
        self._python = python or sys.executable
        self._grace = grace
        self._lock = threading.Lock()
        self._waiting: deque[ProcessAttempt] = deque()
        self._children: list[ChildThread] = []
        self._closed = False

    def start(self, call: Call) -> None:
        """Hand an attempt to a free child, to a new one, or to the queue."""
        problem = None
        try:
            target = locate_function(call.registered.function)
        except BaseException as error:  # noqa: BLE001 — a module may have a __getattr__, and that may raise anything
            target, problem = Target("", ""), error
        attempt = ProcessAttempt(call, target)
        self._attempts.open_attempt(attempt, self._over_time)
        if problem is not None:
            self._attempts.end_attempt(attempt, Ending(kind="raised", error=describe_error(problem)))
            return
        with self._lock:
            self._waiting.append(attempt)
        self._dispatch_calls()

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Set the run's events, here and in the child, and end the child."""
        call.run.request_stop(reason, lease_lost=lease_lost)
        attempt = self._attempts.find_attempt(call)
        if attempt is not None and self._is_without_child(attempt, "cancelled", reason, lease_lost=lease_lost):
            self._attempts.end_attempt(attempt, never_begun(call.run))

    def close(self) -> None:
        """End all children; by SIGKILL those that do not leave within the grace."""
        for attempt in self._attempts.close():
            attempt.call.run.request_stop("the node stops")
        with self._lock:
            self._closed = True
            self._waiting.clear()
            children = [child for child in self._children if not child.gone]
            for child in children:
                child.close()
        until = self._clock.monotonic() + self._grace + max(self._grace, DEATH_SECONDS) + 1.0
        for child in children:
            child.join(until - self._clock.monotonic())

    def _over_time(self, attempt: ProcessAttempt) -> None:
        if self._is_without_child(attempt, "timed_out", Reason.TIMEOUT):
            detail = f"it was still waiting for one of {self._most} processes"
            self._attempts.end_attempt(attempt, timed_out(attempt.timeout, detail=detail))

    def _is_without_child(self, attempt: ProcessAttempt, why: Why, reason: str, *, lease_lost: bool = False) -> bool:
        """Have the child stop an attempt; ``True`` if no child has it, or will get it."""
        with self._lock:
            if attempt.child is None:
                attempt.over = True
                return True
            attempt.child.stop_attempt(attempt, why, reason, lease_lost=lease_lost)
            return False

    def _dispatch_calls(self) -> None:
        """Give the waiting calls to free children, and to new children up to the limit."""
        new: list[ChildThread] = []
        with self._lock:
            self._children = [child for child in self._children if not child.gone]
            while self._waiting and not self._closed:
                child = next((child for child in self._children if child.is_free), None)
                if child is None and len(self._children) >= self._most:
                    break
                attempt = self._waiting.popleft()
                if attempt.over:
                    continue
                if child is None:
                    child = ChildThread(self._attempts, self._lock, self._dispatch_calls, self._python, self._grace)
                    self._children.append(child)
                    new.append(child)
                child.assign_attempt(attempt)
        for child in new:
            child.start()
