"""4 processes, one job each second."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bench.cost import Cost, Meter
from bench.nodes import cluster
from bench.options import Options
from bench.places import Places, Postgres
from bench.table import Row, milliseconds, quantile, say
from cronsensus.audit import audit

NODES = 4


@dataclass(frozen=True, slots=True)
class Cadence:
    """What ran in some seconds, by the jobs' own evidence: which second, how late, by which process.

    Attributes:
        expected: the whole seconds that were measured.
        ran: how often each of them was run.
        late: of each run, in seconds.
        processes: how many runs each process had.
        cost: of each second, for all nodes together.
    """

    expected: int
    ran: Counter[int] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)
    processes: Counter[str] = field(default_factory=Counter)
    cost: Cost | None = None

    @property
    def twice(self) -> int:
        """The runs too many."""
        return sum(self.ran.values()) - len(self.ran)

    @property
    def missed(self) -> int:
        """The seconds without a run."""
        return self.expected - len(self.ran)


def judge(lines: Sequence[Sequence[str]], begun: float, ended: float) -> Cadence:
    """Judge lines of evidence (second, token, pid, lateness) by the whole seconds in ``(begun, ended]``."""
    seconds = range(int(begun) + 1, int(ended) + 1)
    inside = [line for line in lines if int(line[0]) in seconds]
    return Cadence(
        len(seconds),
        Counter(int(line[0]) for line in inside),
        [float(line[3]) for line in inside],
        Counter(line[2] for line in inside),
    )


def ours(places: Places, seconds: int) -> tuple[Cadence, list[float], str]:
    """Measure ours: what ran, bare commits in the same seconds (on SQLite), and what the audit says if not ``ok``."""
    with cluster("ticking", places) as four:
        for _ in range(NODES):
            four.start()
        four.wait_for_sessions(NODES)
        time.sleep(10)  # each node has had its first turns: it compiles its statements in them
        if isinstance(places, Postgres):
            places.forget(four.url)
        begun, raw, cost = time.time(), [], None
        if places.kind == "sqlite":
            raw = _two_commits(four.folder / "raw.db", seconds)
            ended = time.time()
        else:
            meter = Meter(places, four.url)
            time.sleep(seconds)
            ended = time.time()
            cost = meter.read()
        if isinstance(places, Postgres):
            for calls, text in places.most_sent(four.url):
                say(f"  {calls} x {text[:110]}")
        time.sleep(1)
        report = audit(four.store, since=_at(begun), until=_at(ended))
        cadence = judge(four.lines(), begun, ended)
    words = "" if report.ok and not report.duplicates and not report.missed else (
        f"{report.duplicates} duplicates, {report.missed} missed, ok: {report.ok}"
    )  # fmt: skip
    return replace(cadence, cost=cost), raw, words


def bench(places: Places, options: Options) -> list[Row]:
    """Measure lateness inside the job, and count by the job's own evidence beside the audit."""
    seconds = options.seconds or (15 if options.quick else 60)
    cadence, raw, wrong = ours(places, seconds)
    return [
        Row("cadence", f"occurrences in {cadence.expected} s, by the jobs' own count", str(len(cadence.ran))),
        *goals(cadence, wrong),
        *([Row("cadence", "two bare commits meanwhile, p50 / p99",
               f"{milliseconds(quantile(raw, 0.5))} / {milliseconds(quantile(raw, 0.99))}")] if raw else []),
        Row("cadence", "start lateness max", milliseconds(max(cadence.late, default=0))),
        Row("cadence", "runs per node", " ".join(map(str, sorted(cadence.processes.values())))),
        *(costs(places, cadence.cost) if cadence.cost else []),
    ]  # fmt: skip


def goals(cadence: Cadence, wrong: str) -> list[Row]:
    """Return what ours has to reach."""
    p50, p99 = quantile(cadence.late, 0.5), quantile(cadence.late, 0.99)
    return [
        Row("cadence", "run more than once, by evidence", str(cadence.twice), "0", cadence.twice == 0),
        Row("cadence", "missed, by evidence", str(cadence.missed), "0", cadence.missed == 0),
        Row("cadence", "audit", wrong or "clean", "clean", not wrong),
        Row("cadence", "start lateness p50", milliseconds(p50), "≤ 3 ms", p50 <= 0.003),
        Row("cadence", "start lateness p99", milliseconds(p99), "≤ 10 ms", p99 <= 0.010),
    ]


def costs(places: Places, cost: Cost) -> list[Row]:
    """Return what an occurrence costs, a second of all nodes."""
    rows = [Row("cadence", f"statements for each occurrence, {NODES} nodes ({places.counts})", f"{cost.sent:.1f}")]
    if places.kind == "redis":
        rows.append(Row("cadence", "the same with what scripts execute (INFO commandstats)", f"{cost.executed:.1f}"))
    if cost.round_trips:
        rows.append(Row("cadence", "round trips for each occurrence", f"{cost.round_trips:.1f}"))
    return [*rows, Row("cadence", "the server's processor time for each occurrence", f"{cost.milliseconds:.1f} ms")]


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


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
