"""``Run``: what a job function may know and say about the attempt that it is. Floor 4."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime

from cronsensus.errors import Cancel, LeaseLost
from cronsensus.model.occurrence import Claim, LogLine
from cronsensus.model.states import Origin

_current: ContextVar[Run | None] = ContextVar("cronsensus_run", default=None)


class Run:
    """One attempt to execute one occurrence. Given to a job function that annotates a parameter with ``Run``.

    Example:
        >>> from cronsensus import Run, Scheduler
        >>> with Scheduler("memory://") as scheduler:
        ...
        ...     @scheduler.job()
        ...     def count(run: Run) -> int:
        ...         for done in range(3):
        ...             run.check()  # raises if the run should stop
        ...             run.progress(done, 3)
        ...         return run.attempt
        ...
        ...     count.enqueue().result("10s")
        1

    Attributes:
        job: the job's name.
        key: the occurrence's key; with ``job`` it names the occurrence for ever and is the natural idempotency key.
        scheduled_for: the nominal time, aware, UTC; ``None`` for enqueued work.
        attempt: 1, 2, ….
        token: fencing token: pass it to what you write to elsewhere, and let that refuse smaller ones.
        lease_lost: set when this node can no longer be sure that the run is its own; another node may be running it.
            The result will be refused. Set by the local monotonic clock *before* another node can take the run over,
            unless this process was frozen.
        cancelled: set when the run should stop: an operator asked, the lease is lost, the time is up, or the node
            drains out.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        on_progress: Callable[[Run, float, float], None] | None = None,
        on_line: Callable[[Run, LogLine], None] | None = None,
    ) -> None:
        self.id: int = claim.id
        self.job: str = claim.job
        self.key: str = claim.key
        self.origin: Origin = claim.origin
        self.scheduled_for: datetime | None = claim.scheduled_for
        self.due_at: datetime = claim.due_at
        self.attempt: int = claim.attempt
        self.token: int = claim.token
        self.session: str = claim.session
        self.lease_lost = threading.Event()
        self.cancelled = threading.Event()
        self.cancel_reason: str | None = None
        self._on_progress = on_progress
        self._on_line = on_line

    def progress(self, done: float, total: float = 100) -> None:
        """Say how far the run is: written within half a second, and refused once the run is not current."""
        if self._on_progress is not None:
            self._on_progress(self, done, total)

    def line(self, line: LogLine) -> None:
        """Keep a log line with the run. Records of the ``logging`` module made by the job arrive here by themselves."""
        if self._on_line is not None:
            self._on_line(self, line)

    def check(self) -> None:
        """Raise if the run should stop; call it between the steps of a long job in a thread.

        Raises:
            LeaseLost: the run may be another node's by now.
            Cancel: somebody asked it to stop.
        """
        if self.lease_lost.is_set():
            raise LeaseLost(f"run {self.id} of {self.job!r} is no longer ours; stop and write nothing more")
        if self.cancelled.is_set():
            raise Cancel(self.cancel_reason or "asked to stop")

    def stop(self, reason: str, *, lease_lost: bool = False) -> None:
        """Ask the run to stop; what the node calls. The first reason stands."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
        if lease_lost:
            self.lease_lost.set()
        self.cancelled.set()

    def __repr__(self) -> str:
        return f"<Run {self.job} {self.key} attempt={self.attempt} token={self.token}>"


def current_run() -> Run | None:
    """Return the run that this code is part of, or ``None``.

    A context variable: it crosses into tasks that the job starts, and into threads started with
    ``contextvars.copy_context`` or ``asyncio.to_thread``.
    """
    return _current.get()


def enter_run(run: Run | None) -> None:
    """Make ``run`` the current one in this context; executors call it at the start of a run's own context."""
    _current.set(run)
