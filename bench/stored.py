"""100,000 stored jobs, one due each second."""

from __future__ import annotations

import time
from datetime import timedelta

import psutil

from bench.nodes import cluster
from bench.places import Places
from bench.table import Row, milliseconds, quantile, say
from cronsensus import at, cron
from cronsensus.model.job import JobSpec


def bench(places: Places, *, quick: bool) -> list[Row]:
    """Compare a node among few jobs with one among very many."""
    seconds = 10 if quick else 60
    many = 10_000 if quick else 100_000
    few_late, few_memory, _, _ = _run(places, 10, seconds)
    late, memory, put, cpu = _run(places, many, seconds)
    each = (memory - few_memory) / many
    p99 = quantile(late, 0.99)
    return [
        Row("stored", f"putting {many:,} jobs", f"{put:.1f} s"),
        Row("stored", "lateness p50 with 10 jobs", milliseconds(quantile(few_late, 0.5))),
        Row("stored", "lateness p99 with 10 jobs", milliseconds(quantile(few_late, 0.99))),
        Row("stored", f"lateness p50 with {many:,} jobs", milliseconds(quantile(late, 0.5))),
        Row("stored", f"lateness p99 with {many:,} jobs, {len(late)} runs", milliseconds(p99), "≤ 50 ms",
            p99 <= 0.050 and len(late) >= seconds - 2),
        Row("stored", "processor time of the node meanwhile, of one core", f"{cpu:.1%}", "≤ 3 %", cpu <= 0.03),
        Row("stored", "memory of a node for each stored job", f"{each:.0f} bytes", "≤ 1 KB", each <= 1024),
    ]  # fmt: skip


def _run(places: Places, jobs: int, seconds: int) -> tuple[list[float], float, float, float]:
    with cluster("stored", places) as nodes:
        begun = time.perf_counter()
        first = nodes.store.now().replace(microsecond=0) + timedelta(seconds=30 + jobs // 2000 if jobs > 1000 else 6)
        specs = [JobSpec(name=f"due-{i}", function="report", trigger=at(first + timedelta(seconds=i)), source="runtime")
                 for i in range(seconds)]  # fmt: skip
        specs += [
            JobSpec(
                name=f"quiet-{i}",
                function="report",
                trigger=cron(f"{i % 60} {i // 60 % 24} 1 1 *"),
                args=(i,),
                source="runtime",
            )
            for i in range(jobs)
        ]
        for start in range(0, len(specs), 5000):
            nodes.store.put_jobs(specs[start : start + 5000], release="bench")
        put = time.perf_counter() - begun
        say(f"  {len(specs):,} jobs stored in {put:.1f} s")
        node = nodes.start()
        nodes.wait_for_sessions(1)
        if nodes.store.now() > first - timedelta(seconds=1):
            raise TimeoutError("storing the jobs took longer than planned; the first was due before the node was there")
        while nodes.store.now() < first:
            time.sleep(0.05)
        process, since = psutil.Process(node.pid), time.monotonic()
        spent = sum(process.cpu_times()[:2])
        until = first + timedelta(seconds=seconds + 1)
        while nodes.store.now() < until:
            time.sleep(0.2)
        cpu = (sum(process.cpu_times()[:2]) - spent) / (time.monotonic() - since)
        memory = float(process.memory_info().rss)
        return [float(line[3]) for line in nodes.lines()], memory, put, cpu
