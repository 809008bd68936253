"""Very many stored jobs, one due each second: is a node among them as punctual, and as soon up, as among few?"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psutil

from bench.nodes import Cluster, cluster, wait_until
from bench.options import Options
from bench.places import Places, Postgres
from bench.table import Row, milliseconds, quantile, say
from cronsensus import at, cron
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item

FEW = 10
DECLARED = 1_000
AT_ONCE = 5_000
PUT_AT_MOST = 100_000
"""Beyond, all but these are copied within PostgreSQL: putting a million takes minutes, and is not the question."""
SETTLED = 5
"""Seconds that a node has before the first job is due."""

COPY = """
INSERT INTO cronsensus.cronsensus_jobs (namespace, name, function, source, digest, spec, revision, overlap, keep,
    watermark, next_due, wake_at, created_at)
SELECT namespace, 'quiet-' || i, function, source, digest, replace(spec, 'quiet-0', 'quiet-' || i), revision, overlap,
    keep, watermark, next_due + i, wake_at + i, created_at
FROM cronsensus.cronsensus_jobs, generate_series({first}, {last}) AS i WHERE name = 'quiet-0';
INSERT INTO cronsensus.cronsensus_eras (job_id, since, revision, trigger)
SELECT job.id, era.since, era.revision, era.trigger
FROM cronsensus.cronsensus_jobs model
    JOIN cronsensus.cronsensus_eras era ON era.job_id = model.id
    CROSS JOIN cronsensus.cronsensus_jobs job
WHERE model.name = 'quiet-0' AND job.name LIKE 'quiet-%' AND substr(job.name, 7)::int >= {first};
"""


@dataclass(slots=True)
class Among:
    """What was measured among so many stored jobs.

    Attributes:
        stored: seconds to store them.
        late: of each run of the jobs that were due, in seconds.
        memory: bytes of the node.
        processor: the share of one core that the node took meanwhile.
        spent: calls and milliseconds of the server for each occurrence; 0: not counted.
        up: from the start of a process to its first run, by what the process declares: seconds, and milliseconds of the
            server (0: not counted).
    """

    stored: float = 0.0
    late: list[float] = field(default_factory=list)
    memory: float = 0.0
    processor: float = 0.0
    spent: tuple[float, float] = (0.0, 0.0)
    up: dict[str, tuple[float, float]] = field(default_factory=dict)


def bench(places: Places, options: Options) -> list[Row]:
    """Compare a node among few jobs with one among very many."""
    seconds = 10 if options.quick else 60
    many = options.jobs or (10_000 if options.quick else 100_000)
    few = _among(places, FEW, max(10, seconds // 2))
    lots = _among(places, many, seconds)
    each = (lots.memory - few.memory) / many
    p99 = quantile(lots.late, 0.99)
    rows = [
        Row("stored", f"storing {many:,} jobs", f"{lots.stored:.1f} s"),
        Row("stored", f"lateness p50 with {FEW} jobs", milliseconds(quantile(few.late, 0.5))),
        Row("stored", f"lateness p99 with {FEW} jobs, {len(few.late)} runs", milliseconds(quantile(few.late, 0.99))),
        Row("stored", f"lateness p50 with {many:,} jobs", milliseconds(quantile(lots.late, 0.5))),
        Row("stored", f"lateness p99 with {many:,} jobs, {len(lots.late)} runs", milliseconds(p99), "≤ 50 ms",
            p99 <= 0.050 and len(lots.late) >= seconds - 2),
        Row("stored", "processor time of the node meanwhile, of one core", f"{lots.processor:.1%}", "≤ 3 %",
            lots.processor <= 0.03),
        Row("stored", "memory of a node for each stored job", f"{each:.0f} bytes", "≤ 1 KB", each <= 1024),
    ]  # fmt: skip
    if lots.spent[0]:
        rows += [
            Row("stored", f"statements for each occurrence, with {FEW} / {many:,} jobs",
                f"{few.spent[0]:.1f} / {lots.spent[0]:.1f}", "the same", lots.spent[0] <= 1.1 * few.spent[0] + 1),
            Row("stored", f"the server's time for them, with {FEW} / {many:,} jobs",
                f"{few.spent[1]:.2f} / {lots.spent[1]:.2f} ms", "≤ 2 times", lots.spent[1] <= 2 * few.spent[1]),
        ]  # fmt: skip
    for declares, (took, server) in lots.up.items():
        few_took, few_server = few.up[declares]
        what = f"from process start to the first run, {declares}, with {FEW} / {many:,} jobs"
        rows.append(
            Row("stored", what, f"{few_took:.2f} / {took:.2f} s", "within 0.5 s", took <= few_took + 0.5),
        )
        if server:
            rows.append(Row("stored", "the server's time for that", f"{few_server:.0f} / {server:.0f} ms",
                            "within 50 ms", server <= few_server + 50))  # fmt: skip
    return rows


def _among(places: Places, jobs: int, seconds: int) -> Among:
    found = Among()
    with cluster("stored", places) as nodes:
        found.stored = _store(nodes, places, jobs)
        say(f"  {jobs:,} jobs stored in {found.stored:.1f} s")
        found.up["nothing declared"] = _start(nodes, places, "first", 0)
        first = nodes.store.now().replace(microsecond=0) + timedelta(seconds=SETTLED)
        nodes.store.define_jobs(
            [_due(f"due-{i}", first + timedelta(seconds=i)) for i in range(seconds)], release="bench"
        )
        nodes.store.notify()
        while nodes.store.now() < first - timedelta(seconds=0.5):
            time.sleep(0.05)
        _watch(nodes, places, found, seconds)
        _stop(nodes)
        found.up[f"{DECLARED:,} new jobs declared"] = _start(nodes, places, "second", DECLARED)
        _stop(nodes)
        found.up[f"the same {DECLARED:,} declared again"] = _start(nodes, places, "third", DECLARED)
    say(f"  {jobs:,} jobs: p99 {milliseconds(quantile(found.late, 0.99))}, {found.up}")
    return found


def _due(name: str, when: datetime) -> JobSpec:
    return JobSpec(name=name, function="report", trigger=at(when), source="runtime")


def _store(nodes: Cluster, places: Places, jobs: int) -> float:
    begun = time.perf_counter()
    copied = isinstance(places, Postgres) and jobs > PUT_AT_MOST
    specs = [
        JobSpec(
            name=f"quiet-{i}",
            function="report",
            trigger=cron(f"{i % 60} {i // 60 % 24} 1 1 *"),
            args=(i,),
            source="runtime",
        )
        for i in range(1 if copied else jobs)
    ]
    specs.append(JobSpec(name="up", function="report", source="runtime"))
    for start in range(0, len(specs), AT_ONCE):
        nodes.store.define_jobs(specs[start : start + AT_ONCE], release="bench")
    if copied:
        assert isinstance(places, Postgres)
        places.run(nodes.url, COPY.format(first=1, last=jobs - 1))
    return time.perf_counter() - begun


def _start(nodes: Cluster, places: Places, key: str, declared: int) -> tuple[float, float]:
    """Start a node that has something to run; return the seconds until it does, and the server's milliseconds."""
    nodes.store.enqueue([Item(job="up", key=key)])
    server = _spent(places, nodes)[1]
    begun = time.perf_counter()
    nodes.start({"DECLARED": str(declared)})
    wait_until(lambda: any(line[0] == key for line in nodes.lines()), 60, f"the run of {key}")
    return time.perf_counter() - begun, _spent(places, nodes)[1] - server


def _spent(places: Places, nodes: Cluster) -> tuple[int, float]:
    return places.spent(nodes.url) if isinstance(places, Postgres) else (0, 0.0)


def _stop(nodes: Cluster) -> None:
    for node in nodes.nodes:
        node.terminate()
        node.wait(20)
    nodes.nodes.clear()


def _watch(nodes: Cluster, places: Places, found: Among, seconds: int) -> None:
    process, since = psutil.Process(nodes.nodes[-1].pid), time.monotonic()
    spent = sum(process.cpu_times()[:2])
    before = _spent(places, nodes)
    until = since + seconds + 1
    while time.monotonic() < until:
        time.sleep(0.2)
    after = _spent(places, nodes)
    found.spent = (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds
    found.processor = (sum(process.cpu_times()[:2]) - spent) / (time.monotonic() - since)
    found.memory = float(process.memory_info().rss)
    found.late = [float(line[3]) for line in nodes.lines() if line[4].startswith("due-") and line[5] == "schedule"]
