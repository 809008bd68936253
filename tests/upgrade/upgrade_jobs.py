"""What nodes of two versions run: only what is written the same way in both. Runs say what they do in a file of theirs.

``UPGRADE_HOST`` names the host that the process is to believe it is on, so that no other one looks for its pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from sqlalchemy import text

from cronsensus import JobDefaults, Run, Scheduler, every


def told() -> str:
    """Return the name of the host."""
    return os.environ["UPGRADE_HOST"]


told.cache_clear = lambda: None  # type: ignore[attr-defined]
if "UPGRADE_HOST" in os.environ:
    for asks in ("cronsensus.lock", "cronsensus.node.node"):
        import_module(asks)
    for name, module in list(sys.modules.items()):
        if name.startswith("cronsensus.") and hasattr(module, "host_identity"):
            setattr(module, "host_identity", told)  # noqa: B010 - a name that a type checker does not know there

scheduler = Scheduler(os.environ.get("UPGRADE_URL"), defaults=JobDefaults(catch_up="all", overlap="allow"))


def say(file: str, **what: object) -> None:
    """Append a line to a file beside the trace, in one write."""
    with (Path(os.environ["UPGRADE_FOLDER"]) / file).open("ab", buffering=0) as lines:
        lines.write(json.dumps(what).encode() + b"\n")


@contextmanager
def around(run: Run) -> Iterator[None]:
    """Write what ``cronsensus.cli.demo.trace`` reads. The form of the version before is not known here."""

    def write(event: str) -> None:
        nominal = run.scheduled_for
        say(
            "runs.jsonl", event=event, at=time.monotonic(), job=run.job, key=run.key,
            scheduled_for=nominal and nominal.isoformat(), node=scheduler.node_name, pid=os.getpid(),
            attempt=run.attempt, token=run.token,
        )  # fmt: skip

    write("start")
    try:
        yield
    except BaseException:
        write("broken")
        raise
    write("end")


@scheduler.job(every("1s"))
def tick(run: Run) -> None:
    """A thread."""
    with around(run):
        threading.Event().wait(0.4)


@scheduler.job(every("1s"))
async def pulse(run: Run) -> None:
    """A coroutine that is nearly always running somewhere."""
    with around(run):
        await asyncio.sleep(0.8)


@scheduler.job(every("2s"), overlap="queue")
def serial(run: Run) -> None:
    """One at a time."""
    with around(run):
        threading.Event().wait(0.3)


@scheduler.job(every("2s"), on_crash="fail")
def at_most_once(run: Run) -> None:
    """Never started again."""
    with around(run):
        threading.Event().wait(0.3)


@scheduler.job()
def order(number: int, run: Run) -> int:
    """Work from a queue, of which there is much: a node claims it ahead."""
    with around(run):
        threading.Event().wait(0.02)
    return number


@scheduler.job(retries=5, retry_delay="0.1s")
def flaky(number: int, run: Run) -> list[int]:
    """Fails the first time."""
    with around(run):
        if run.attempt == 1:
            raise RuntimeError("not yet")
    return [number, run.attempt]


if table := os.environ.get("UPGRADE_EFFECTS"):

    @scheduler.job(every("1s"))
    def effect(run: Run) -> None:
        """Writes a row in the transaction that records its result."""
        with around(run), run.transaction() as connection:
            connection.execute(text(f"INSERT INTO {table} VALUES (:key)"), {"key": run.key})


@scheduler.once(key="charge:{what}")
def charge(what: str) -> str:
    """Done once, by one of the two sides."""
    say("charges.jsonl", what=what)
    return f"{what} by {os.environ['UPGRADE_SIDE']}"
