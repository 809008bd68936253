"""What a look shows, made by hand: of one moment, ``NOW``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cronsensus.model.job import Era, JobSpec, JobState, Policies
from cronsensus.model.session import SessionView
from cronsensus.stores.values import NO_DELAY, View
from cronsensus.triggers import every

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def job(due_in: timedelta = NO_DELAY, *, number: int = 1, active: int = 0, overlap: str = "skip") -> JobState:
    """Return a job of each half minute that is due so long after ``NOW``."""
    trigger = every("30s", start=NOW + due_in)
    policies = Policies.read({"overlap": overlap})
    return JobState(
        id=number,
        spec=JobSpec(name=f"job-{number}", function="work", trigger=trigger, policies=policies),
        revision=1,
        watermark=NOW + due_in - 30 * SECOND,
        eras=(Era(since=NOW - 60 * SECOND, trigger=trigger, revision=1),),
        active=active,
        due_at=NOW + due_in,
    )


def jobs(count: int) -> tuple[JobState, ...]:
    """Return so many jobs that are due at ``NOW``."""
    return tuple(job(number=number) for number in range(count))


def holder(session: str = "b", *, left: timedelta = 9 * SECOND) -> SessionView:
    """Return a live session that holds one run, and whose lease ends so long after ``NOW``."""
    return SessionView(
        id=session, node=session, host="h", pid=1, pid_started=1, release="r1", version="1", concurrency=1, functions=1,
        state="alive", started_at=NOW, renewed_at=NOW, ended_at=None, ended_why=None, expires_in=left, holds=1,
    )  # fmt: skip


def view(*due: JobState, sessions: tuple[str, ...] = ("a",), coming: timedelta | None = None, **more: Any) -> View:
    """Return a look at a store where these jobs are due, and the next one so long after ``NOW``."""
    seen: dict[str, Any] = {
        "more": False,
        "backlog": False,
        "next_job": None if coming is None else NOW + coming,
        "next_pending": None,
        "holders": (),
    }
    return View(now=NOW, jobs=due, sessions=sessions, **seen | more)
