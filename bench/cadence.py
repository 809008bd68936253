"""4 processes, one job each second."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.nodes import cluster
from bench.places import Places, Postgres, Redis
from bench.table import Row, milliseconds, quantile, say
from cronsensus.audit import audit

NODES = 4


@dataclass(frozen=True, slots=True)
class Cadence:
    """What ran in some seconds, by the jobs' own evidence: which second, how late, by which process.

    ``commands`` is how many statements were sent for each second, idle ones of all nodes included; ``inside``, on
    Redis, how many more were executed within scripts.
    """

    expected: int
    ran: Counter[int] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)
    processes: Counter[str] = field(default_factory=Counter)
    commands: float = float("nan")
    inside: float | None = None

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


def commands_each_second(
    places: Places, url: str, since: tuple[int, float], seconds: float
) -> tuple[float, float | None]:
    """Return the statements sent for each second: since a count at a time, or on Redis in ``seconds`` from now on."""
    if isinstance(places, Redis):
        sent, inside = places.watch(url, seconds)
        return sent / seconds, inside / seconds
    count, at = since
    return (places.sent(url) - count) / (time.time() - at), None


def ours(places: Places, seconds: int) -> tuple[Cadence, list[float], str]:
    """Measure ours: what ran, bare commits in the same seconds (on SQLite), and what the audit says if not ``ok``."""
    with cluster("ticking", places) as four:
        for _ in range(NODES):
            four.start()
        four.wait_for_sessions(NODES)
        time.sleep(10)  # each node has had its first turns: it compiles its statements in them
        if isinstance(places, Postgres):
            places.forget(four.url)
        begun, raw = time.time(), []
        count = 0 if places.kind in {"sqlite", "redis"} else places.sent(four.url)
        if places.kind == "sqlite":
            raw = _two_commits(four.folder / "raw.db", seconds)
        else:
            time.sleep(seconds)
        ended = time.time()
        counted: tuple[float, float | None] = (float("nan"), None)
        if places.kind != "sqlite":
            counted = commands_each_second(places, four.url, (count, begun), min(seconds, 20))
        if isinstance(places, Postgres):
            for calls, text in places.most_sent(four.url):
                say(f"  {calls} x {text[:110]}")
        time.sleep(1)
        report = audit(four.store, since=_at(begun), until=_at(ended))
        cadence = judge(four.lines(), begun, ended)
    words = "" if report.ok and not report.duplicates and not report.missed else (
        f"{report.duplicates} duplicates, {report.missed} missed, ok: {report.ok}"
    )  # fmt: skip
    return (
        Cadence(cadence.expected, cadence.ran, cadence.late, cadence.processes, *counted),
        raw,
        words,
    )


def bench(places: Places, *, quick: bool) -> list[Row]:
    """Measure lateness inside the job, and count by the job's own evidence beside the audit."""
    seconds = 15 if quick else 60
    cadence, raw, wrong = ours(places, seconds)
    return [
        Row("cadence", f"occurrences in {cadence.expected} s, by the jobs' own count", str(len(cadence.ran))),
        *goals(cadence, wrong),
        *([Row("cadence", "two bare commits meanwhile, p50 / p99",
               f"{milliseconds(quantile(raw, 0.5))} / {milliseconds(quantile(raw, 0.99))}")] if raw else []),
        Row("cadence", "start lateness max", milliseconds(max(cadence.late, default=0))),
        Row("cadence", "runs per node", " ".join(map(str, sorted(cadence.processes.values())))),
        *([] if places.kind == "sqlite" else [
            Row("cadence", f"statements for each occurrence, {NODES} nodes ({places.counts})", spent(cadence))]),
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


def spent(cadence: Cadence) -> str:
    """Say the statements for each occurrence."""
    return f"{cadence.commands:.1f}" + (f" (+ {cadence.inside:.0f} inside scripts)" if cadence.inside else "")


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
