"""Wait until nothing of a scheduler runs in this process any more: no node, no session, no thread of either."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary, WeakSet

from cronsensus import Scheduler

OF_A_NODE = {f"cronsensus-{name}" for name in ("start", "stop", "rounds", "heartbeat", "listener", "timer")}
PATIENCE = 60.0
_before: WeakKeyDictionary[Scheduler, WeakSet[threading.Thread]] = WeakKeyDictionary()


def quiet(scheduler: Scheduler) -> Scheduler:
    """Return a scheduler, having noted which threads are not its own."""
    _before[scheduler] = WeakSet(threading.enumerate())
    return scheduler


def nothing_runs(scheduler: Scheduler) -> None:
    """Return when nothing of it runs, or fail. Other schedulers must not be started meanwhile."""
    for _ in range(int(PATIENCE / 0.01)):
        new = [one for one in threading.enumerate() if one not in _before[scheduler]]
        threads = sorted(one.name for one in new if one.name in OF_A_NODE)
        if not threads and scheduler._part.is_over and not scheduler.store.sessions():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"started: {scheduler.started}, sessions: {scheduler.store.sessions()}, threads: {threads}")


def only_these_run(before: set[threading.Thread], *others: str) -> None:
    """Return when no thread runs but those of ``before`` and those whose names begin like ``others``, or fail.

    Not by ``join``: a thread is listed a moment before it is started, and then it cannot be joined yet.
    """
    for _ in range(int(PATIENCE / 0.01)):
        left = [one.name for one in threading.enumerate() if one not in before and not one.name.startswith(others)]
        if not left:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"threads: {left}")
