"""The dice that choose when servers are struck."""

import os
import random

import pytest


@pytest.fixture
def dice() -> random.Random:
    """Return random numbers whose seed is printed, so that a failure names it; CHAOS_SEED sets it."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)
