"""What a look shows, made by hand: of one moment, ``NOW``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cronsensus.model.job import JobState
from cronsensus.model.session import SessionView
from cronsensus.stores.values import View

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


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
