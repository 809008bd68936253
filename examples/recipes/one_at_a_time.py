"""A lock that does not expire under you: python one_at_a_time.py, in several terminals"""

import os
import time

from cronsensus import Lock


def reindex(token: int) -> None:
    print(f"begin {os.getpid()} token {token}", flush=True)
    time.sleep(0.5)
    print(f"end {os.getpid()}", flush=True)


if __name__ == "__main__":
    with Lock("sqlite:///cronsensus.db", "reindex", ttl="10s") as lease:  # renewed while this process lives
        reindex(lease.token)
