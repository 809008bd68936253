"""What nodes run while the servers of their store die. Each run appends to files outside of the store."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from cronsensus import Alert, JobDefaults, Run, Scheduler, every
from cronsensus.alerts.events import Event
from cronsensus.cli.demo.trace import traced
from cronsensus.errors import CronsensusError

ITEMS = 12
NOTES = "HA_NOTES"
"""The variable that names the file for what is no run: locks that were taken, alerts that were told."""


def note(**what: object) -> None:
    """Append one line."""
    with Path(os.environ[NOTES]).open("ab", buffering=0) as file:
        file.write(json.dumps({"at": time.monotonic(), **what}).encode() + b"\n")


def note_alerts(events: Sequence[Event]) -> None:
    """Note what somebody would be told."""
    for event in events:
        note(what="alert", key=event.key, job=event.job, nominal=str(event.scheduled_for))


# Failovers are the weather here: no occurrence is given up because it met too many.
scheduler = Scheduler(
    defaults=JobDefaults(catch_up="all", overlap="allow", max_crashes=1000),
    alerts=[Alert(note_alerts, on=["failed"], jobs="sour", name="notes")],
)


def around(run: Run):
    return traced(run, scheduler.node_name)


@scheduler.job(every("1s"))
def tick(run: Run) -> None:
    """What must begin each second."""
    with around(run):
        threading.Event().wait(0.05)


@scheduler.job()
def order(run: Run, *, number: int, text: str) -> int:
    """Work from a queue, with arguments by name."""
    with around(run):
        threading.Event().wait(0.05)
        assert text == f"order {number}"
    return number


@scheduler.job(every("2s"))
def stock(run: Run) -> None:
    with around(run):
        threading.Event().wait(0.1)


@scheduler.job(after=[stock], concurrency=None)
def ship(run: Run) -> None:
    """Begins after each run of stock."""
    with around(run):
        threading.Event().wait(0.05)


def items_of(run: Run) -> list[str]:
    return [f"{run.key}/{number}" for number in range(ITEMS)]


def count(results: Iterable[object]) -> int:
    return sum(1 for _ in results)


@scheduler.job(items=items_of, collect=count)
def close_day(item: str, run: Run) -> None:
    """A small batch."""
    with around(run):
        threading.Event().wait(0.1)
        note(what="item", item=item)


@scheduler.job(every("2s"), overlap="skip")
def till(run: Run) -> None:
    """One at a time by a lock, which its run cannot have while the store is away."""
    try:
        with scheduler.lock("till", ttl="5s") as lease:
            note(what="lock", token=lease.token)
            threading.Event().wait(0.05)
    except CronsensusError:
        return


@scheduler.job(every("5s"))
def sour(run: Run) -> None:
    """Somebody is told of each failure, once."""
    raise ValueError("sour")
