"""10,000 enqueued no-op jobs, 2 processes: ours and the bare limit, and on SQLite huey, in turns."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.nodes import APPS, cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.steady import Drained, drained, with_enough
from bench.table import Row, quantile, say
from cronsensus.model.occurrence import Item

CONCURRENCY = 200
WORKERS = 2
HUEY_THREADS = (1, 8, 32)


RAW = Path(__file__).parent / "raw.py"
RAW_BATCHES = (10, 50, 200)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to have ours work off a queue. ``defaults``: with no option set, so with a line logged for each run."""

    name: str
    job: str
    defaults: bool = False


OURS = (
    Way(f"cronsensus, async jobs, {CONCURRENCY} at a time", "noop"),
    Way("cronsensus, the same on threads", "plain"),
    Way("cronsensus, on threads, no option set", "plain", defaults=True),
)
PROBE = 3_000
"""So many jobs tell how fast one is, roughly."""
SECONDS = 4
"""How long one measurement should last."""
FEWEST, MOST = 1_000, 100_000
RAW_JOBS = 120_000


def bench(places: Places, options: Options) -> list[Row]:
    """Measure ours and the bare limit; beside huey where the store is SQLite, which peers elsewhere have to match."""
    if places.kind == "sqlite":
        return _on_sqlite(places, quick=options.quick)
    rounds = options.rounds or (1 if options.quick else 3)
    sizes = {way: size(ours(places, probe(options), way).rate, options) for way in OURS}
    drains: dict[Way, list[Drained]] = {way: [] for way in OURS}
    limits: list[dict[int, float]] = []
    for _ in range(rounds):
        for way, jobs in sizes.items():
            drains[way].append(ours(places, jobs, way))
            say(f"  {way.name}: {drains[way][-1]}")
        if places.kind != "mysql":
            limits.append(raw(places, options))
    return [
        *(row for way in OURS for row in _rows(way, drains[way])),
        *(share_of_raw(limits, rate_of(drains[OURS[0]])) if limits else []),
    ]


def _rows(way: Way, drains: list[Drained]) -> list[Row]:
    rows = [Row("drain", f"{way.name}, {WORKERS} processes, {drains[0].jobs:,} jobs", f"{rate_of(drains):,.0f}/s")]
    if trips := drains[-1].round_trips:
        rows.append(Row("drain", "its round trips for each job", f"{trips:.2f}"))
    return rows


def probe(options: Options) -> int:
    """Return how many jobs to find out with how fast one is."""
    return min(PROBE, options.jobs or PROBE)


def size(rate: float, options: Options) -> int:
    """Return how many jobs to drain, so that one measurement at this rate lasts some seconds."""
    if options.jobs or options.quick:
        return options.jobs or PROBE
    return int(min(MOST, max(FEWEST, rate * SECONDS))) // 1000 * 1000


def rate_of(drains: list[Drained]) -> float:
    """Return the median; 0 if there is none."""
    return quantile([each.rate for each in drains], 0.5) if drains else 0.0


def ours(places: Places, jobs: int, way: Way) -> Drained:
    """Drain ours: enqueued first, then both nodes started, as the peers are; until the ledger has all of them.

    Raises:
        Stuck: it could not be measured.
    """
    return with_enough(lambda jobs: _once(places, jobs, way), jobs)


def _once(places: Places, jobs: int, way: Way) -> Drained:
    with cluster("noop", places) as nodes:
        first = nodes.start()  # declares the jobs
        nodes.wait_for_sessions(1)
        first.terminate()
        first.wait()
        for start in range(0, jobs, 5000):
            nodes.store.enqueue([Item(job=way.job, args=(number,)) for number in range(start, min(jobs, start + 5000))])
        before = places.round_trips()
        for _ in range(WORKERS):
            level = {"CRONSENSUS_LOG_LEVEL": "info"} if way.defaults else {}
            nodes.start({"RAN": str(nodes.folder), **level}, concurrency=None if way.defaults else CONCURRENCY)

        def recorded() -> bool:
            counts = nodes.store.counts(limit=1)
            return counts.pending == counts.running == 0

        measured = drained(nodes.folder, WORKERS, jobs, seconds=max(300, jobs / 1000), ended=recorded)
        return replace(measured, round_trips=(places.round_trips() - before) / jobs)


def raw(places: Places, options: Options) -> dict[int, float]:
    """Return the jobs a second of two processes that only claim and finish, by the size of their batches."""
    jobs = options.jobs or (PROBE if options.quick else RAW_JOBS)
    return {batch: _raw(places, jobs, batch) for batch in RAW_BATCHES}


def share_of_raw(rounds: list[dict[int, float]], own: float) -> list[Row]:
    """Return the medians of the bare limit, and what share of the best one ours has."""
    rates = {batch: quantile([each[batch] for each in rounds], 0.5) for batch in RAW_BATCHES}
    sizes, measured = " / ".join(map(str, rates)), " / ".join(f"{rate:,.0f}" for rate in rates.values())
    return [
        Row(
            "drain",
            f"bare limit: {WORKERS} processes that only claim and finish in batches of {sizes}",
            f"{measured}/s",
        ),
        Row("drain", "share of the bare limit", f"{own / max(rates.values()):.0%}"),
    ]


def _raw(places: Places, jobs: int, batch: int) -> float:
    url = places.fresh()
    subprocess.run([sys.executable, RAW, url, "fill", str(jobs)], check=True)
    return _released(jobs, [sys.executable, str(RAW), places.by_way(url), "work", str(batch)])


def _released(jobs: int, command: list[str]) -> float:
    """Start the workers, let them go at once, and return the jobs a second until both have ended."""
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(WORKERS)]
    time.sleep(0.5)
    begun = time.perf_counter()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.close()
    codes = [worker.wait() for worker in workers]
    seconds = time.perf_counter() - begun
    if any(codes):
        raise RuntimeError(f"the bare limit's workers ended with {codes}")
    return jobs / seconds


def _on_sqlite(places: Places, *, quick: bool) -> list[Row]:
    jobs = 1_000 if quick else 10_000
    rates: dict[str, list[float]] = {}
    for _ in range(1 if quick else 3):
        for name, seconds in (
            ("ours", _ours(places, jobs, "noop")),
            ("plain", _ours(places, jobs, "plain")),
            *((f"huey {threads}", _huey(jobs, threads)) for threads in HUEY_THREADS),
            ("bare", jobs / _bare(jobs)),
        ):
            rates.setdefault(name, []).append(jobs / seconds)
    median = {name: quantile(each, 0.5) for name, each in rates.items()}
    threads = max(HUEY_THREADS, key=lambda number: median[f"huey {number}"])
    we, huey, bare = median["ours"], median[f"huey {threads}"], median["bare"]
    return [
        Row("drain", f"cronsensus, {WORKERS} processes x {CONCURRENCY}, {jobs:,} async jobs", f"{we:,.0f}/s"),
        Row("drain", "the same with jobs on threads", f"{median['plain']:,.0f}/s"),
        Row("drain", f"huey, SQLite storage, {WORKERS} processes x {threads} threads (best of {HUEY_THREADS})",
            f"{huey:,.0f}/s"),
        Row("drain", "ratio to huey, both fully synced", f"{we / huey:.1f} times", "≥ 3 times", we / huey >= 3),
        Row("drain", f"bare limit: the same writes, batches of {CONCURRENCY}, {WORKERS} processes", f"{bare:,.0f}/s"),
        Row("drain", "share of the bare limit", f"{we / bare:.0%}"),
    ]  # fmt: skip


def _ours(places: Places, jobs: int, job: str) -> float:
    with cluster("noop", places) as nodes:
        scheduler_jobs = [Item(job=job, args=(number,)) for number in range(jobs)]
        for _ in range(WORKERS):
            nodes.start(concurrency=CONCURRENCY)
        nodes.wait_for_sessions(WORKERS)
        time.sleep(1)
        nodes.store.enqueue([Item(job=job, args=(-1,))])  # warm, as huey's consumers are
        nodes.store.notify()
        done = sqlite3.connect(nodes.url.removeprefix("sqlite:///"), isolation_level=None)
        succeeded = "SELECT count(*) FROM cronsensus_runs"
        wait_until(lambda: done.execute(succeeded).fetchone()[0] == 1, 20, "the first job")
        # Enqueued in one step, so that the clock measures draining and not enqueueing.
        nodes.store.enqueue(scheduler_jobs)
        begun = time.perf_counter()
        nodes.store.notify()
        _wait_for_count(done, succeeded, jobs + 1)
        seconds = time.perf_counter() - begun
        done.close()
        return seconds


def _wait_for_count(connection: sqlite3.Connection, query: str, count: int) -> None:
    deadline = time.monotonic() + 300
    while connection.execute(query).fetchone()[0] < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{query}: fewer than {count} after 300 s")
        time.sleep(0.01)


def _huey(jobs: int, threads: int) -> float:
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-") as folder:
        file = Path(folder) / "huey.db"
        environment = {**os.environ, "HUEY_FILE": str(file), "PYTHONPATH": str(APPS)}
        fill = f"import huey_noop as h\nfor i in range({jobs}): h.noop(i)"
        subprocess.run([sys.executable, "-c", fill], env={**environment, "HUEY_FILL": "1"}, check=True)
        begun = time.perf_counter()
        consumers = [
            subprocess.Popen(
                [sys.executable, "-m", "huey.bin.huey_consumer", "huey_noop.huey", "-w", str(threads), "-n", "-q"],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(WORKERS)
        ]  # fmt: skip
        done = sqlite3.connect(file, isolation_level=None, timeout=30)
        try:
            wait_until(lambda: _count(done, "SELECT count(*) FROM kv") > 0, 30, "huey to begin")
            begun, already = time.perf_counter(), _count(done, "SELECT count(*) FROM kv")
            _wait_for_count(done, "SELECT count(*) FROM kv", jobs)
            return (time.perf_counter() - begun) * jobs / (jobs - already)
        finally:
            done.close()
            for consumer in consumers:
                consumer.terminate()
            for consumer in consumers:
                consumer.wait()


def _count(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


BARE = """
import sqlite3, sys, time
file, batch = sys.argv[1], int(sys.argv[2])
c = sqlite3.connect(file, isolation_level=None, timeout=30)
c.execute('PRAGMA synchronous=FULL')
sys.stdin.readline()
while True:
    c.execute('BEGIN IMMEDIATE')
    rows = c.execute("SELECT id FROM o WHERE state='pending' ORDER BY due, id LIMIT ?", (batch,)).fetchall()
    token = c.execute('UPDATE n SET v = v + ? RETURNING v', (batch,)).fetchone()[0]
    claimed = [(token - k, row[0]) for k, row in enumerate(rows)]
    c.executemany("UPDATE o SET state='running', token=?, attempt=attempt+1 WHERE id=? AND state='pending'", claimed)
    c.execute('COMMIT')
    if not rows: break
    c.execute('BEGIN IMMEDIATE')
    c.executemany("UPDATE o SET state='succeeded' WHERE token=? AND id=? AND state='running'", claimed)
    c.executemany("INSERT INTO r(token, occurrence) VALUES (?, ?)", claimed)
    c.execute('COMMIT')
"""


def _bare(jobs: int) -> float:
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-") as folder:
        file = str(Path(folder) / "bare.db")
        connection = sqlite3.connect(file, isolation_level=None)
        connection.executescript(
            "PRAGMA journal_mode=WAL;"
            "CREATE TABLE o(id INTEGER PRIMARY KEY, state TEXT, due INTEGER, token INTEGER, attempt INTEGER);"
            "CREATE INDEX p ON o(due, id) WHERE state='pending'; CREATE TABLE n(v INTEGER); INSERT INTO n VALUES (0);"
            "CREATE TABLE r(id INTEGER PRIMARY KEY, token INTEGER, occurrence INTEGER);"
            "CREATE INDEX ro ON r(occurrence)"
        )
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO o(state, due, token, attempt) VALUES ('pending', ?, 0, 0)", ((n,) for n in range(jobs))
        )
        connection.execute("COMMIT")
        connection.close()
        return _released(jobs, [sys.executable, "-c", BARE, file, str(CONCURRENCY)])
