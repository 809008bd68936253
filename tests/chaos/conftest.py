"""Clusters of real processes for a test, and the dice that choose their faults."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[[str], Cluster]]:
    """Return what makes a cluster with a given lease; its processes are gone when the test is over."""
    made: list[Cluster] = []

    def make(lease: str = "10s") -> Cluster:
        made.append(Cluster(tmp_path, lease))
        return made[-1]

    yield make
    for cluster in made:
        cluster.end_all()


@pytest.fixture
def dice() -> random.Random:
    """Return random numbers whose seed is printed, so that a failure names it; CHAOS_SEED sets it."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)
