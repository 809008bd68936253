"""SIGSTOP past the lease: taken over, refused on waking, going on as a new session."""

from __future__ import annotations

import contextlib
import signal
import time

from bench.nodes import Cluster, cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State

RUN = 4.0
SHORT = {"CRONSENSUS_LEASE": "2s", "EVIDENCE_OF_DEATH": "none"}


def bench(places: Places, options: Options) -> list[Row]:
    """Stop the node that runs an async and a threaded job; wake it when another has taken both over."""
    del options
    with cluster("working", places) as nodes:
        alive = [nodes.start(SHORT)]
        nodes.wait_for_sessions(1)
        nodes.store.enqueue(
            [Item(job=job, key=f"frozen-{job}", kwargs={"seconds": RUN}) for job in ("work", "work_async")]
        )
        nodes.store.notify()
        wait_until(lambda: len(_events(nodes, "begin", 1)) == 2, 20, "both runs to begin")
        sessions_before = {one.id for one in nodes.store.sessions()}
        # A process that is stopped in the middle of a write keeps SQLite's lock until it wakes or dies: not then.
        time.sleep(0.7)
        stopped_at = time.monotonic()
        alive[0].send_signal(signal.SIGSTOP)
        alive.append(nodes.start(SHORT))
        wait_until(lambda: len(_events(nodes, "begin", 2)) == 2, 30, "both runs to be taken over")
        taken = max(float(line[5]) for line in _events(nodes, "begin", 2)) - stopped_at
        alive[0].send_signal(signal.SIGCONT)
        where = OccurrenceFilter(states=(State.SUCCEEDED,))
        wait_until(lambda: len(nodes.store.occurrences(where)) == 2, 30, "both to succeed")
        wait_until(lambda: len({one.id for one in nodes.store.sessions()} - sessions_before) == 2, 30, "a new session")
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: any(line[0] == "cancelled-lease-lost" for line in nodes.lines()), 10, "the async run")
        results = [run for one in nodes.store.occurrences(where) for run in nodes.store.runs(one.id)]
        cancelled = [line for line in nodes.lines() if line[0] == "cancelled-lease-lost"]
    accepted = [run for run in results if run.end == "succeeded"]
    crashed = [run for run in results if run.end == "crashed"]
    late = sum(run.attempt == 1 for run in accepted)
    fine = len(accepted) == 2 and all(run.attempt == 2 for run in accepted)
    return [
        Row("freeze", "both runs taken over after (lease 2 s)", f"{taken:.2f} s", "≤ lease + 1 s + start of a node",
            taken <= 5),
        Row("freeze", "results accepted / from the frozen node", f"{len(accepted)} / {late}",
            "2 / 0", fine and len(crashed) == 2),
        Row("freeze", "async run cancelled on waking, lease_lost set", str(len(cancelled)), "1", len(cancelled) == 1),
        Row("freeze", "woke as a new session", "yes", "yes", True),
    ]  # fmt: skip


def _events(nodes: Cluster, event: str, attempt: int) -> list[list[str]]:
    return [line for line in nodes.lines() if line[0] == event and line[2] == str(attempt)]
