"""A job is enqueued while nothing else is to do: when does it begin, from before the call to its first line?"""

from __future__ import annotations

import os
import random
import time

from bench.nodes import cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile
from cronsensus import Scheduler

NODES = 2
TIMES, QUICK_TIMES = 60, 20
SETTLED = 6
"""Seconds that nodes have after they are up."""
WARM = 5
"""The first ones connect, and are not counted."""


def bench(places: Places, options: Options) -> list[Row]:
    """Enqueue some, one after the other."""
    late = ours(places, QUICK_TIMES if options.quick else TIMES)
    return [
        Row("enqueue", f"from enqueue to its first line, p50 of {len(late)}", milliseconds(quantile(late, 0.5))),
        Row("enqueue", f"from enqueue to its first line, p99 of {len(late)}", milliseconds(quantile(late, 0.99))),
    ]


def ours(places: Places, times: int) -> list[float]:
    """Return the seconds from each enqueue to the beginning, by two nodes with their defaults and a client beside."""
    with cluster("arriving", places) as nodes:
        for _ in range(NODES):
            nodes.start(concurrency=None)
        nodes.wait_for_sessions(NODES)
        # What the server's making left to be written (initdb does not wait for the disk, nor do benches before this
        # one that took theirs away) would be waited for by some COMMIT: single ones took 300 ms by that.
        os.sync()
        time.sleep(SETTLED)
        dice = random.Random(1)
        client = Scheduler(nodes.way)
        try:
            for _ in range(WARM + times):
                time.sleep(dice.uniform(0.1, 0.3))  # no rhythm with which a poll could keep step
                client.enqueue("arrive", time.monotonic())
            wait_until(lambda: len(nodes.lines()) >= WARM + times, 30, "the last to begin")
        finally:
            client.stop()
        return [float(line[0]) for line in nodes.lines()[WARM:]]
