"""Where a lock is held, as one text that fits on a command line."""

from typing import Any

from cronsensus import Lock
from cronsensus.lock import in_files
from tests.servers.distance import patience


def be_patient(where: str) -> None:
    """Let this process wait for servers and files that are all alive, and short of processor time at worst."""
    if "," in where:  # importing it takes longer than most of what these processes do
        from cronsensus.integrations import redlock, redlock_client

        redlock_client.ANSWER_SECONDS = redlock.ANSWER_SECONDS = 5.0  # type: ignore[attr-defined]
    in_files.TOKEN_FILE_PATIENCE = 60.0


def shortest(where: str) -> str:
    """Return a TTL that is over soon, and that a busy machine keeps: a master has a quarter of it to answer.

    It begins when the lock is asked for, which is many round trips before it is had.
    """
    return f"{patience(2.0 if ',' in where else 0.2, trips=40):.3f}s"


def lock_at(where: str, name: str, **options: Any) -> Lock:
    """Return a lock at a URL, or at several with commas between."""
    return Lock(where.split(",") if "," in where else where, name, **options)
