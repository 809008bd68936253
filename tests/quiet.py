"""Wait until nothing of a scheduler runs in this process any more: no node, no session, no thread of either."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary, WeakSet

from cronsensus import Scheduler

OF_A_NODE = {f"cronsensus-{name}" for name in ("start", "stop", "conductor", "keeper", "listener", "deadlines")}
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
        if not threads and scheduler._part.over and not scheduler.store.sessions():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"started: {scheduler.started}, sessions: {scheduler.store.sessions()}, threads: {threads}")
