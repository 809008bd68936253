"""Thirty sleeping nodes, one job a second: what a crowd that mostly sleeps costs the store, beside four nodes."""

from __future__ import annotations

import time

from bench.cost import Meter
from bench.nodes import cluster
from bench.options import Options
from bench.places import Places
from bench.table import Row, say

FEW, MANY = 4, 30


def bench(places: Places, options: Options) -> list[Row]:
    """Compare the statements for each occurrence."""
    if places.kind == "sqlite":
        return [Row("crowd", "statements for each occurrence", places.counts)]
    seconds = 10 if options.quick else 30
    few, many = _spent(places, FEW, seconds), _spent(places, MANY, seconds)
    return [
        Row("crowd", f"statements for each occurrence, {FEW} nodes ({places.counts})", f"{few:.1f}"),
        Row("crowd", f"the same, {MANY} nodes", f"{many:.1f}"),
        Row("crowd", "ratio", f"{many / few:.1f} times", "≤ 2 times", many <= 2 * few),
    ]


def _spent(places: Places, count: int, seconds: int) -> float:
    """Return the statements sent for each occurrence that ran, by the job's own evidence."""
    with cluster("ticking", places) as nodes:
        for _ in range(count):
            nodes.start()
        nodes.wait_for_sessions(count, seconds=120)
        time.sleep(10 + count / 2)  # each node has had its first turn, and has compiled its statements
        since = time.time(), len(nodes.lines())
        meter = Meter(places, nodes.url)
        if places.kind != "redis":
            time.sleep(seconds)
        each_second = meter.read(watch=seconds).sent
        ran = (len(nodes.lines()) - since[1]) / (time.time() - since[0])
        say(f"  {count} nodes: {each_second:.1f} statements and {ran:.2f} runs a second")
    return each_second / ran
