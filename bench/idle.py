"""Nothing runs and nothing is due for an hour: what does a node send?"""

from __future__ import annotations

import time
from collections import Counter

from bench.nodes import cluster
from bench.table import Row, say


def bench(*, quick: bool) -> list[Row]:
    """Count every statement of two nodes, BEGIN and COMMIT included, after they have settled."""
    minutes = 2 if quick else 6
    with cluster("counted") as nodes:
        for _ in range(2):
            nodes.start()
        nodes.wait_for_sessions(2)
        time.sleep(15)
        before = len(nodes.lines())
        time.sleep(minutes * 60)
        lines = nodes.lines()[before:]
    each = len(lines) / 2 / minutes
    for text, count in Counter(" ".join(line[1:])[:70] for line in lines).most_common(5):
        say(f"  {count} x {text}")
    return [Row("idle", f"statements a minute a node, over {minutes} min", f"{each:.2f}", "≤ 2", each <= 2)]
