"""``Run``: what a job function may know and say about the attempt that it is, with what each feature adds to it."""

from __future__ import annotations

from typing import cast

from cronsensus.after.run import ComesAfter
from cronsensus.batching.run import OfBatch
from cronsensus.node import run as node_run


class Run(OfBatch, ComesAfter):
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
        namespace: keeps applications on one store apart.
        key: the occurrence's key; with ``job`` it names the occurrence for ever. For a scheduled one it is the nominal
            time, which other jobs have as well: to name this work elsewhere, use ``idempotency_key``.
        scheduled_for: the nominal time, aware, UTC; ``None`` for enqueued work. Its day is not always that of the job's
            zone: for a date use ``local_time``.
        zone: the name of the job's time zone: that of its trigger, else the scheduler's.
        attempt: 1, 2, ….
        token: fencing token: pass it to what you write to elsewhere, and let that refuse smaller ones.
        lease_lost: set when this node can no longer be sure that the run is its own; another node may be running it.
            The result will be refused. Set by the local monotonic clock *before* another node can take the run over,
            unless this process was frozen.
        cancelled: set when the run should stop: an operator asked, the lease is lost, the time is up, or the node
            drains out.
        batch: the number of the batch that this is an item of.
        is_over: whether the function has returned or raised.
    """


def current_run() -> Run | None:
    """Return the run that this code is part of, or ``None``.

    A context variable: it crosses into tasks that the job starts, and into threads started with
    ``contextvars.copy_context`` or ``asyncio.to_thread``.
    """
    return cast("Run | None", node_run.current_run())
