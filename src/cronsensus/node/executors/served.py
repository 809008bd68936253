"""A call in a child process, and how it ended when the process is no more."""

from __future__ import annotations

from typing import Literal

from cronsensus.model.ending import Ending
from cronsensus.node.executors.attempt import Attempt
from cronsensus.node.executors.base import Call
from cronsensus.node.executors.ending import LONGEST_TRACEBACK, STOPPED, cancelled, clean, failed, timed_out
from cronsensus.node.executors.importing import Target
from cronsensus.node.executors.logs import LineBudget
from cronsensus.node.executors.spawned import Spawned

Why = Literal["timed_out", "cancelled", "leaving", "broken"]


class ProcessAttempt(Attempt):
    """A call, what it calls in the child's words, and the child that serves it, once there is one."""

    __slots__ = ("budget", "child", "target")

    def __init__(self, call: Call, target: Target) -> None:
        super().__init__(call)
        self.target = target
        self.budget = LineBudget()
        self.child: Child | None = None


class Child(Spawned):
    """A process, its present attempt, and why it is to end."""

    def __init__(self, python: str) -> None:
        super().__init__(python)
        self.attempt: ProcessAttempt | None = None
        self.number = 0
        self.idle_watched = False
        self.stopping: Why | None = None
        self.said: Ending | None = None
        """How the stopped call ended, by the child's own account."""


def verdict(child: Child, attempt: ProcessAttempt) -> Ending:
    """Return how an attempt ended whose process is no more."""
    said = child.said
    match child.stopping:
        case "timed_out":
            return timed_out(attempt.timeout, traceback=said.error.traceback if said and said.error else "")
        case "cancelled":
            if said is not None and said.kind in ("returned", "skipped", "retry"):
                return said
            error = said.error if said is not None and said.error is not None and said.error.type != STOPPED else None
            return cancelled(attempt.call.run, error=error)
        case "broken":
            message = "the job's process sent what is no message, so it was ended"
            return failed("ProcessBroken", f"{message}; a job must not write to descriptors it has not opened")
        case _:
            words = clean("\n".join(child.last_words), LONGEST_TRACEBACK)
            return failed("ProcessDied", f"the job's process {child.epitaph()}", traceback=words)
