"""How long a transaction of a user's takes: with its one row, and with a job that is enqueued in it, by turns."""

import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

ROW = "INSERT INTO bench_orders (number) VALUES (%s)"
TABLE = "CREATE TABLE IF NOT EXISTS bench_orders (number BIGINT)"
WARM = 30


def measure(times: int, bare: Callable[[int], object], enqueuing: Callable[[int], object]) -> None:
    """Print the seconds of each, one kind after the other so that both meet the same load."""
    took: dict[str, list[float]] = {"bare": [], "enqueuing": []}
    for number in range(WARM + times):
        for name, act in (("bare", bare), ("enqueuing", enqueuing)):
            begun = time.perf_counter()
            act(number)
            if number >= WARM:
                took[name].append(time.perf_counter() - begun)
    _report(took)


async def measure_async(
    times: int, bare: Callable[[int], Awaitable[object]], enqueuing: Callable[[int], Awaitable[object]]
) -> None:
    """Print the same of functions that are awaited."""
    took: dict[str, list[float]] = {"bare": [], "enqueuing": []}
    for number in range(WARM + times):
        for name, act in (("bare", bare), ("enqueuing", enqueuing)):
            begun = time.perf_counter()
            await act(number)
            if number >= WARM:
                took[name].append(time.perf_counter() - begun)
    _report(took)


def _report(took: dict[str, list[float]]) -> None:
    print(json.dumps({name: statistics.median(each) for name, each in took.items()}), file=sys.stdout, flush=True)
