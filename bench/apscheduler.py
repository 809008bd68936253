"""8 processes with APScheduler, bare and guarded: what runs twice or not at all, and how much later a run starts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.nodes import APPS, QUIET, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile, say

PROCESSES = 8
KILL_EVERY = 10.0
SETTLE = 5.0
"""Seconds in which each process has had its first turns: it compiles its statements in them."""
TOGETHER = 50
APART = 5
"""Seconds between two times of the jobs that are due together."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What ran in some seconds, by the jobs' own evidence.

    Attributes:
        expected: the (job, time) that came due.
        ran: how often each was run.
        late: of each run, in seconds.
        killed: processes.
    """

    expected: int
    ran: Counter[tuple[str, str]]
    late: list[float]
    killed: int

    @property
    def twice(self) -> int:
        """The runs too many."""
        return sum(self.ran.values()) - len(self.ran)

    @property
    def missed(self) -> int:
        """The times without a run."""
        return self.expected - len(self.ran)


def bench(places: Places, options: Options) -> list[Row]:
    """Measure one job each second, with kills, and many due at once; each beside the same program without the guard."""
    seconds = options.seconds or (15 if options.quick else 60)
    bare = measure(places, seconds, jobs=1, guarded=False)
    one = measure(places, seconds, jobs=1, guarded=True, kills=True)
    bare_many = measure(places, seconds, jobs=TOGETHER, guarded=False)
    many = measure(places, seconds, jobs=TOGETHER, guarded=True)
    p50, p99 = (quantile(one.late, q) - quantile(bare.late, q) for q in (0.5, 0.99))
    p99_many = quantile(many.late, 0.99) - quantile(bare_many.late, 0.99)
    each = sum(bare.ran.values()) / max(len(bare.ran), 1)
    return [
        Row("apscheduler", f"bare: runs of each of {bare.expected} times", f"{each:.1f}"),
        Row("apscheduler", f"guarded, {one.killed} killed: times run twice", str(one.twice), "0", one.twice == 0),
        Row("apscheduler", f"guarded, {one.killed} killed: missed of {one.expected}", str(one.missed), "0",
            one.missed == 0),
        Row("apscheduler", "one job, bare: start lateness p50 / p99", both(bare)),
        Row("apscheduler", "one job, guarded: start lateness p50 / p99", both(one)),
        Row("apscheduler", "one job: later than bare, p50", milliseconds(p50), "≤ 6 ms", p50 <= 0.006),
        Row("apscheduler", "one job: later than bare, p99", milliseconds(p99), "≤ 30 ms", p99 <= 0.030),
        Row("apscheduler", f"{TOGETHER} jobs at once, guarded: twice / missed of {many.expected}",
            f"{many.twice} / {many.missed}", "0 / 0", many.twice == many.missed == 0),
        Row("apscheduler", f"{TOGETHER} jobs at once, bare: start lateness p50 / p99", both(bare_many)),
        Row("apscheduler", f"{TOGETHER} jobs at once, guarded: start lateness p50 / p99", both(many)),
        Row("apscheduler", f"{TOGETHER} jobs at once: later than bare, p99", milliseconds(p99_many), "≤ 150 ms",
            p99_many <= 0.150),
    ]  # fmt: skip


def both(kept: Kept) -> str:
    """Return two quantiles of a lateness."""
    return f"{milliseconds(quantile(kept.late, 0.5))} / {milliseconds(quantile(kept.late, 0.99))}"


def measure(
    places: Places, seconds: int, *, jobs: int, guarded: bool, kills: bool = False, processes: int = PROCESSES
) -> Kept:
    """Run plain processes for so long; with ``kills`` one is killed each 10 s, and another one started."""
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-") as folder:
        evidence = Path(folder) / "evidence.txt"
        evidence.touch()
        every = 1 if jobs == 1 else APART
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")},
            **QUIET,
            "CRONSENSUS_URL": places.by_way(places.fresh()),
            "EVIDENCE": str(evidence),
            "GUARDED": "1" if guarded else "",
            "JOBS": str(jobs),
            "SECONDS": f"*/{every}",
        }
        running: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            with (Path(folder) / "log").open("ab") as log:
                running.append(
                    subprocess.Popen([sys.executable, str(APPS / "kept.py")], env=environment, stdout=log, stderr=log)
                )

        try:
            for _ in range(processes):
                start()
            wait_until(lambda: evidence.read_text().count("up\n") == processes, 60, "the start of all processes")
            time.sleep(SETTLE)
            begun, killed = time.time(), 0
            for number in range(1, int(seconds // KILL_EVERY) + 1 if kills else 0):
                # At any moment: also while a run is acquired, runs, or is recorded.
                time.sleep(max(0.0, begun + number * KILL_EVERY - random.uniform(0, 1) - time.time()))
                victim = running.pop(0)
                victim.kill()
                victim.wait()
                killed += 1
                start()
            time.sleep(max(0.0, begun + seconds - time.time()))
            ended = time.time()
            time.sleep(3)  # what a killed process left is run again meanwhile
            lines = [line.split() for line in evidence.read_text().splitlines()]
            if log := (Path(folder) / "log").read_text():
                say(f"  {log[:2000]}")
        finally:
            for one in running:
                one.kill()
            for one in running:
                one.wait()
    due = [second for second in range(int(begun) + 1, int(ended) + 1) if second % every == 0]
    inside = [line for line in lines if line[0] == "ran" and int(line[1]) in due]
    ran = Counter((line[1], line[2]) for line in inside)
    return Kept(len(due) * jobs, ran, [float(line[4]) for line in inside], killed)
