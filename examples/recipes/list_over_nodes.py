"""A list over three nodes: cronsensus run list_over_nodes:scheduler, in three terminals"""

import os
import time
from collections.abc import Iterable

from cronsensus import Scheduler, cron

scheduler = Scheduler("sqlite:///cronsensus.db", concurrency=2)


def list_shops() -> list[str]:  # called once a night, on one node
    return [f"shop-{number}" for number in range(1, 13)]


def total_up(takings: Iterable[int]) -> int:  # called once, when the last item is done
    return sum(takings)


@scheduler.job(cron("0 2 * * *", tz="Europe/Paris"), items=list_shops, collect=total_up, retries=2)
def close_day(shop: str) -> int:  # called once for each shop, on whichever node has a free slot
    time.sleep(0.3)
    print(f"{shop} in {os.getpid()}", flush=True)
    return 100
