"""Nothing runs and nothing is due for an hour: what does a node send?"""

from __future__ import annotations

import time
from collections import Counter

from bench.nodes import Cluster, cluster
from bench.options import Options
from bench.places import Places, Redis
from bench.table import Row, say

NODES = 2
SETTLED = 45
"""Seconds after which a node has said all that belongs to its start: its jobs it declares again after 30 s."""


def bench(places: Places, options: Options) -> list[Row]:
    """Count every statement of two nodes, BEGIN and COMMIT included, after they have settled."""
    minutes = 2 if options.quick else 6
    with cluster("counted", places) as nodes:
        for _ in range(NODES):
            nodes.start()
        nodes.wait_for_sessions(NODES)
        time.sleep(SETTLED)
        each = _sent(places, nodes, minutes * 60) / NODES / minutes
    return [Row("idle", f"statements a minute a node, over {minutes} min", f"{each:.2f}", "≤ 2", each <= 2)]


def _sent(places: Places, nodes: Cluster, seconds: int) -> int:
    if isinstance(places, Redis):
        return places.watch(nodes.url, seconds)[0]
    if places.kind != "sqlite":
        before = places.sent(nodes.url)
        time.sleep(seconds)
        return places.sent(nodes.url) - before
    count = len(nodes.lines())
    time.sleep(seconds)
    lines = nodes.lines()[count:]
    for text, times in Counter(" ".join(line[1:])[:70] for line in lines).most_common(5):
        say(f"  {times} x {text}")
    return len(lines)
