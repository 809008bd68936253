"""What does a lock cost on Redis, uncontended and passed among 16 processes, beside redis-py's own? On PostgreSQL?"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any, cast
from unittest.mock import patch

import psycopg
import redis
from redis.lock import Lock as TheirLock

from bench.places import Places
from bench.table import Row, milliseconds, quantile, say
from cronsensus import Lock
from cronsensus.lock import opening
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

PROCESSES = 16
HELD_FOR = 0.002
"""Seconds: long enough for all others to be waiting."""
_spawned = multiprocessing.get_context("spawn")

AnyLock = AbstractContextManager[object]


def bench(places: Places, *, quick: bool) -> list[Row]:
    """Measure both locks in turns, on servers of this benchmark's own."""
    del places
    server = RedisServer(durable=False)
    try:
        server.start()
        rows = _uncontended(server.url, batches=10 if quick else 60)
        rows += _handed_over(server.url, rounds=10 if quick else 60)
    finally:
        opening.close_all()
        server.end()
    return rows + _statements()


def _ours(url: str) -> AnyLock:
    return Lock(url, "bench", ttl="30s")


def _theirs(url: str) -> AnyLock:
    return cast("AnyLock", TheirLock(redis.Redis.from_url(url), "bench-of-redis-py", timeout=30))


# --- nobody else wants it ---------------------------------------------------------------------------------------------


def _uncontended(url: str, *, batches: int, each: int = 200) -> list[Row]:
    """Acquire and release, in batches of each in turns; the medians of batches are compared."""
    ours, theirs = _ours(url), _theirs(url)
    took: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(batches + 1):
        for name, lock in (("ours", ours), ("theirs", theirs)):
            begun = time.perf_counter()
            for _ in range(each):
                with lock:
                    pass
            if number:  # the first of each connects
                took[name].append((time.perf_counter() - begun) / each)
    mine, others = statistics.median(took["ours"]), statistics.median(took["theirs"])
    return [
        Row("lock", "acquire and release on Redis, with a token", f"{mine * 1e6:.0f} µs"),
        Row("lock", "the same by redis-py's Lock, without one", f"{others * 1e6:.0f} µs"),
        Row("lock", "how many of ours in the time of one of redis-py's", f"{others / mine:.2f}", "≥ 0.9",
            others / mine >= 0.9),
    ]  # fmt: skip


# --- 16 want it -------------------------------------------------------------------------------------------------------


def _handed_over(url: str, *, rounds: int) -> list[Row]:
    """In each round each process wants it once, at the same instant; look from each release to the next acquire."""
    gaps = {make.__name__: _gaps(make, url, rounds) for make in (_ours, _theirs)}
    mine, others = gaps["_ours"], gaps["_theirs"]
    ratio = quantile(others, 0.5) / quantile(mine, 0.5)
    return [
        Row("lock", f"from release to the next acquire among {PROCESSES} processes, p50 of {len(mine)}",
            milliseconds(quantile(mine, 0.5)), "≤ 3 ms", quantile(mine, 0.5) <= 0.003),
        Row("lock", "the same, p99", milliseconds(quantile(mine, 0.99))),
        Row("lock", "the same by redis-py's Lock, p50", milliseconds(quantile(others, 0.5))),
        Row("lock", "the same by redis-py's Lock, p99", milliseconds(quantile(others, 0.99))),
        Row("lock", "how many times faster than redis-py's, p50", f"{ratio:.1f}", "≥ 10", ratio >= 10),
        Row("lock", "how many times faster than redis-py's, mean",
            f"{statistics.mean(others) / statistics.mean(mine):.1f}"),
    ]  # fmt: skip


def _gaps(make: Callable[[str], AnyLock], url: str, rounds: int) -> list[float]:
    start, answers = _spawned.Barrier(PROCESSES), _spawned.Queue()
    workers = [
        _spawned.Process(target=_work, args=(make, url, rounds, start, answers), daemon=True) for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    held: list[list[tuple[float, float]]] = [[] for _ in range(rounds)]
    for _ in workers:
        for number, times in enumerate(answers.get(timeout=600)):
            held[number].append(times)
    for worker in workers:
        worker.join()
    gaps = []
    for one in held[1:]:  # in the first all of them connect
        one.sort()
        gaps += [after[0] - before[1] for before, after in itertools.pairwise(one)]
    say(f"  {make.__name__}: {len(gaps)} hand-overs, p50 {quantile(gaps, 0.5) * 1000:.2f} ms")
    return gaps


def _work(make: Callable[[str], AnyLock], url: str, rounds: int, start: Barrier, answers: Queue[Any]) -> None:
    lock, held = make(url), []
    for _ in range(rounds):
        start.wait()
        with lock:
            acquired = time.monotonic()  # one clock for all processes of a host
            signal.sigtimedwait([], HELD_FOR)
            released = time.monotonic()
        held.append((acquired, released))
    answers.put(held)


# --- statements on PostgreSQL -----------------------------------------------------------------------------------------


def _statements() -> list[Row]:
    """Count what goes to the server and is waited for: each statement, and each BEGIN or COMMIT if there were any."""
    server = PostgresServer()
    try:
        server.start()
        lock = Lock(server.url, "bench")
        with lock:  # makes the schema, opens a session
            pass
        asked = [_asked(lock.acquire), _asked(lock.release)]
    finally:
        opening.close_all()
        server.end()
    return [
        Row("lock", f"statements on PostgreSQL to {what}", str(count), "≤ 2", count <= 2)
        for what, count in zip(("acquire", "release"), asked, strict=True)
    ]


def _asked(act: Callable[[], object]) -> int:
    asked: list[int] = []
    wait = psycopg.Connection.wait

    def noted(self: Any, *given: Any) -> Any:
        asked.append(threading.get_ident())  # the keeper's renewals, on its own thread, are not what is counted
        return wait(self, *given)

    with patch.object(psycopg.Connection, "wait", noted):
        act()
    return asked.count(threading.get_ident())
