"""Count what happens in nights with faults: ``python -m tests.simulation.counts --seeds 500``.

One line of JSON, to be compared with that of another kernel by the same command: a kernel that keeps all promises may
still run less, take over later, or miss more. The nights of two kernels differ, so the sums are near and not equal.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import product
from multiprocessing import Pool
from typing import Any

import click

from cronsensus.timing.clock import SystemClock
from tests.simulation.cluster import Parts, simulate
from tests.simulation.cluster.batch_night import BatchWorld
from tests.simulation.cluster.diamond_night import DiamondWorld
from tests.simulation.cluster.world import World

KINDS: dict[str, type[World]] = {"nodes": World, "batches": BatchWorld, "diamonds": DiamondWorld}


def play_night(kind_and_seed: tuple[str, int]) -> tuple[str, int, Counter[str]]:
    """Play a night, and count: what it was, and what the store answered."""
    kind, seed = kind_and_seed
    clock = SystemClock()
    began = clock.monotonic()
    result = simulate(seed, Parts(), KINDS[kind])
    counts = Counter(result.counts)
    counts.update(nights=1, broken=int(not result.ok), faults=result.faults, verbs=result.verbs)
    counts["milliseconds"] = int(1000 * (clock.monotonic() - began))
    return kind, seed, counts


@click.command()
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), default=500, show_default=True, help="How many nights of each kind.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only these kinds of nights.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="How many nights at a time.")
def main(first: int, seeds: int, kinds: tuple[str, ...], processes: int) -> None:
    """Play nights with faults and print summed counts, by kind of night; exit 1 if a promise was broken."""
    sums: dict[str, Counter[str]] = {kind: Counter() for kind in kinds or KINDS}
    broken: list[str] = []
    with Pool(processes) as pool:
        for kind, seed, counts in pool.imap_unordered(play_night, product(sums, range(first, first + seeds))):
            sums[kind].update(counts)
            broken += [f"{kind} {seed}"] if counts["broken"] else []
    said: dict[str, Any] = {kind: dict(sorted(counts.items())) for kind, counts in sums.items()}
    click.echo(json.dumps({"first": first, "seeds": seeds, **said, "broken": sorted(broken)}))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
