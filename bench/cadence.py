"""4 processes, one job each second."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from pathlib import Path

from bench.nodes import cluster
from bench.table import Row, milliseconds, quantile
from cronsensus.audit import audit


def bench(*, quick: bool) -> list[Row]:
    """Measure lateness inside the job, and count by the job's own evidence beside the audit."""
    seconds = 15 if quick else 60
    with cluster("ticking") as four:
        for _ in range(4):
            four.start()
        four.wait_for_sessions(4)
        time.sleep(10)  # each node has had its first turns: it compiles its statements in them
        begun = four.store.now()
        raw = _two_commits(four.folder / "raw.db", seconds)
        ended = four.store.now()
        time.sleep(1)
        report = audit(four.store, since=begun, until=ended)
        between = f"@{begun:%Y-%m-%dT%H:%M:%S}", f"@{ended:%Y-%m-%dT%H:%M:%S}"
        lines = [line for line in four.lines() if between[0] < line[0] <= between[1]]
    ran = Counter(line[0] for line in lines)
    late = [float(line[3]) for line in lines]
    shares = sorted(Counter(line[2] for line in lines).values())
    raw50, raw99 = quantile(raw, 0.5), quantile(raw, 0.99)
    p50, p99 = quantile(late, 0.5), quantile(late, 0.99)
    twice = sum(count > 1 for count in ran.values())
    return [
        Row("cadence", f"occurrences in {seconds} s, by the jobs' own count", str(len(ran))),
        Row("cadence", "run more than once (evidence / audit)", f"{twice} / {report.duplicates}", "0",
            twice == 0 and report.duplicates == 0),
        Row("cadence", "missed (audit)", str(report.missed), "0", report.missed == 0 and report.ok),
        Row("cadence", "start lateness p50", milliseconds(p50), "≤ 3 ms", p50 <= 0.003),
        Row("cadence", "start lateness p99", milliseconds(p99), "≤ 10 ms", p99 <= 0.010),
        Row("cadence", "two bare commits meanwhile, p50 / p99", f"{milliseconds(raw50)} / {milliseconds(raw99)}"),
        Row("cadence", "start lateness max", milliseconds(max(late, default=0))),
        Row("cadence", "runs per node", " ".join(map(str, shares))),
    ]  # fmt: skip


def _two_commits(file: Path, seconds: int) -> list[float]:
    """Do what no store could do without: two small synced commits, half a second after each full one, and time them."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t(x)")
    until, took = time.monotonic() + seconds, []
    while time.monotonic() < until:
        time.sleep((1.5 - time.time() % 1) % 1 or 1)
        begun = time.perf_counter()
        for _ in range(2):
            connection.execute("INSERT INTO t VALUES (1)")
        took.append(time.perf_counter() - begun)
    connection.close()
    return took
