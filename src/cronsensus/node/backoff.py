"""How long a node waits after failures: exponential backoff with jitter. Pure."""

from __future__ import annotations

import hashlib

MOST_DOUBLINGS = 10


def backoff_seconds(failures: int, bounds: tuple[float, float], seed: str) -> float:
    """Return the seconds to wait after so many failures in a row: exponential, with jitter that differs by ``seed``.

    Without jitter all nodes would reconnect in the same instant. It is a hash, so that a simulation can be repeated.
    """
    first, longest = bounds
    wait = min(longest, first * 2.0 ** min(failures, MOST_DOUBLINGS))
    return wait * (0.5 + random_share(f"{seed} {failures}") / 2)


def random_share(seed: str) -> float:
    """Return a number from 0 to 1 that differs by ``seed``."""
    return int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=4).digest()) / 2**32
