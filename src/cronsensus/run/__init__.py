"""``Run``: the attempt, as its job function sees it, with the parts that features add."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from cronsensus.after.run import ComesAfter
from cronsensus.batching.run import OfBatch
from cronsensus.node import run as node_run

if TYPE_CHECKING:
    from cronsensus.run.for_test import JobLike, TestRun


class Run(OfBatch, ComesAfter):
    """An attempt to execute an occurrence. Passed to a job function that annotates a parameter with ``Run``.

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
        namespace: separates applications on the same store.
        key: the occurrence's key; with ``job`` it identifies the occurrence for ever. For a scheduled occurrence it is
            the nominal time, which other jobs have as well: elsewhere, use ``idempotency_key`` for this work.
        scheduled_for: the nominal time, aware, UTC; ``None`` for enqueued work. Its day may differ from that of the
            job's zone: for a date use ``local_time``.
        zone: the name of the job's time zone: that of its trigger, else the scheduler's.
        attempt: 1, 2, ….
        token: the fencing token: pass it to other systems that you write to, and let them refuse smaller ones.
        lease_lost: set when this node can no longer be sure that it holds the run; another node may be running it. The
            result will be refused. Set by the local monotonic clock *before* another node can take the run over, unless
            this process was frozen.
        cancelled: set when the run should stop: an operator asked for it, the lease is lost, the timeout has passed, or
            the node's drain ends.
        batch: the number of the batch of which this is an item.
        is_over: whether the function has returned or raised.
    """

    @classmethod
    def for_test(
        cls,
        job: JobLike,
        *,
        scheduled_for: datetime | str | None = None,
        key: str | None = None,
        attempt: int = 1,
        upstream: Mapping[Any, Any] | None = None,
        namespace: str = "default",
    ) -> TestRun:
        """Return a run with which a test calls a job function itself: ``nightly(Run.for_test(nightly))``.

        It needs no node and no store. The job's reports are in ``progress_reports`` and ``added_items``;
        ``stop(reason)`` and ``lose_lease()`` ask it to stop; ``with run:`` makes it the current run.

        Args:
            job: the job to call.
            scheduled_for: its nominal time: aware, or text, which without an offset is in the job's zone. ``None``:
                enqueued work, without a nominal time.
            key: of enqueued work.
            attempt: 1, 2, ….
            upstream: the results of its upstreams: ``{extract: 42}``.
            namespace: a part of ``idempotency_key``.

        Raises:
            InvalidOption: the job does not run at that time, that time does not exist, or the job does not come after
                what ``upstream`` names.

        Example:
            >>> from cronsensus import Run, Scheduler, cron
            >>> scheduler = Scheduler("memory://", tz="Asia/Shanghai")
            >>> @scheduler.job(cron("0 3 * * *"))
            ... def nightly(run: Run) -> str:
            ...     return f"report of {run.local_time:%Y-%m-%d}"
            >>> nightly(Run.for_test(nightly, scheduled_for="2027-03-01 03:00"))
            'report of 2027-03-01'
        """
        from cronsensus.run.for_test import make_test_run

        return make_test_run(
            job, scheduled_for=scheduled_for, key=key, attempt=attempt, upstream=upstream, namespace=namespace
        )


def current_run() -> Run | None:
    """Return the run that this code is part of, or ``None``.

    A context variable: it crosses into tasks that the job starts, and into threads started with
    ``contextvars.copy_context`` or ``asyncio.to_thread``.
    """
    return cast("Run | None", node_run.current_run())
