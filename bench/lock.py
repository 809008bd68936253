"""What does a lock cost on Redis, uncontended and passed among 16 processes, beside others? On PostgreSQL?"""

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
import redis_lock
from redis.lock import Lock as TheirLock

from bench.network import Network
from bench.options import Options
from bench.places import Places
from bench.table import Row, Table, milliseconds, quantile, say
from cronsensus import Lock
from cronsensus.lock import opening
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

PROCESSES = 16
HELD_FOR = 0.002
"""Seconds: long enough for all others to be waiting."""
_spawned = multiprocessing.get_context("spawn")

AnyLock = AbstractContextManager[object]
Make = Callable[[str], AnyLock]


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Measure all locks in turns, on a server of this benchmark's own, as far away as the given one."""
    away = places.network.milliseconds if places.network else 0.0
    server = RedisServer(durable=False)
    network = None
    try:
        server.start()
        network = Network(server.url, away) if away else None
        url = network.by_way(server.url) if network else server.url
        batches, rounds = (10, options.rounds or 10) if options.quick else (60, options.rounds or 60)
        each = 200 if not away else max(4, int(200 / (1 + 2 * away)))
        uncontended = _uncontended(url, network, batches=batches, each=each)
        gaps = {make: _gaps(make, url, rounds) for make in LOCKS}
    finally:
        opening.close_all()
        if network:
            network.close()
        server.end()
    lines: list[tuple[str, ...]] = [
        (name, f"{uncontended[make][0] * 1e6:.0f} µs", f"{uncontended[make][1]:.1f}" if network else "",
         milliseconds(quantile(gaps[make], 0.5)), milliseconds(quantile(gaps[make], 0.99)))
        for make, name in LOCKS.items()
    ]  # fmt: skip
    where = f"Locks on Redis{f', {away:g} ms away' if away else ''}"
    columns = ("", "acquire and release", "round trips", "hand-over p50", "p99")
    note = (
        f"Uncontended: medians of {batches} batches of {each}, in turns. Hand-over: from a release to the next "
        f"acquire, of {PROCESSES} processes that want it at the same time, {rounds} rounds."
    )
    return [
        Table(where, columns, lines, (note,)),
        *_beside(_theirs, "redis-py's", uncontended, gaps, slower=10),
        *_beside(_theirs_quick, "redis-py's with sleep=0.001", uncontended, gaps),
        *_beside(_blocking, "python-redis-lock", uncontended, gaps),
        Row("lock", f"from release to the next acquire among {PROCESSES} processes, p50",
            milliseconds(quantile(gaps[_ours], 0.5)), "≤ 3 ms", quantile(gaps[_ours], 0.5) <= 0.003),
        *([] if away else _statements()),
    ]  # fmt: skip


def _beside(
    make: Make,
    name: str,
    uncontended: dict[Make, tuple[float, float]],
    gaps: dict[Make, list[float]],
    slower: float = 0,
) -> list[Row]:
    """Compare ours with another; ``slower``: so many times has the other to be, when it is handed over."""
    times = uncontended[make][0] / uncontended[_ours][0]
    p50 = quantile(gaps[make], 0.5) / quantile(gaps[_ours], 0.5)
    mean = statistics.mean(gaps[make]) / statistics.mean(gaps[_ours])
    goal = (f"≥ {slower:g}", p50 >= slower) if slower else ("", None)
    return [
        Row("lock", f"how many of ours in the time of one of {name}", f"{times:.2f}",
            *(("≥ 0.9", times >= 0.9) if slower else ("", None))),
        Row("lock", f"how many times faster handed over than {name}, p50 / mean", f"{p50:.1f} / {mean:.1f}", *goal),
    ]  # fmt: skip


def _ours(url: str) -> AnyLock:
    return Lock(url, "bench", ttl="30s")


def _theirs(url: str) -> AnyLock:
    return cast("AnyLock", TheirLock(redis.Redis.from_url(url), "bench-of-redis-py", timeout=30))


def _theirs_quick(url: str) -> AnyLock:
    """It asks again after a millisecond, instead of a tenth of a second."""
    return cast("AnyLock", TheirLock(redis.Redis.from_url(url), "bench-quick", timeout=30, sleep=0.001))


def _blocking(url: str) -> AnyLock:
    """It waits in BLPOP."""
    return cast("AnyLock", redis_lock.Lock(redis.Redis.from_url(url), "bench-blocking", expire=30))


LOCKS: dict[Make, str] = {
    _ours: "cronsensus, with a token",
    _theirs: "redis-py's Lock, which polls each 0.1 s",
    _theirs_quick: "redis-py's Lock with sleep=0.001",
    _blocking: "python-redis-lock",
}


# --- nobody else wants it ---------------------------------------------------------------------------------------------


def _uncontended(url: str, network: Network | None, *, batches: int, each: int) -> dict[Make, tuple[float, float]]:
    """Acquire and release, in batches of each in turns; return the median of the batches, and the round trips."""
    locks = {make: make(url) for make in LOCKS}
    took: dict[Make, list[float]] = {make: [] for make in LOCKS}
    trips = dict.fromkeys(LOCKS, 0)
    for number in range(batches + 1):
        for make, lock in locks.items():
            before = network.round_trips() if network else 0
            begun = time.perf_counter()
            for _ in range(each):
                with lock:
                    pass
            seconds = time.perf_counter() - begun
            if number:  # the first of each connects
                took[make].append(seconds / each)
                trips[make] += network.round_trips() - before if network else 0
    return {make: (statistics.median(took[make]), trips[make] / batches / each) for make in LOCKS}


# --- 16 want it -------------------------------------------------------------------------------------------------------


def _gaps(make: Make, url: str, rounds: int) -> list[float]:
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


def _work(make: Make, url: str, rounds: int, start: Barrier, answers: Queue[Any]) -> None:
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
