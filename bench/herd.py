"""The midnight herd: very many jobs due in the same second on 4 nodes, and one more due a second later."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta

from bench.nodes import cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile, say
from cronsensus import at
from cronsensus.audit import audit
from cronsensus.model.job import JobSpec

NODES = 4
CONCURRENCY = 100
AT_ONCE = 5000
WARM = 20


def bench(places: Places, options: Options) -> list[Row]:
    """Measure when the last of the herd begins, and how late the one behind it is, by the jobs' own evidence."""
    herd = 1_000 if options.quick else 10_000
    with cluster("herd", places) as nodes:
        for _ in range(NODES):
            nodes.start(concurrency=CONCURRENCY)
        nodes.wait_for_sessions(NODES)
        now = nodes.store.now().replace(microsecond=0)
        # Some seconds with a few jobs each, so that the nodes have compiled what they need.
        ready = now + timedelta(seconds=6 + herd // 1000)
        due = [(f"warm-{i}", ready + timedelta(milliseconds=250 * i)) for i in range(WARM)]
        midnight = due[-1][1].replace(microsecond=0) + timedelta(seconds=3)
        due += [(f"herd-{i}", midnight) for i in range(herd)]
        due += [("behind", midnight + timedelta(seconds=1))]
        specs = [JobSpec(name=name, function="report", trigger=at(when), source="runtime") for name, when in due]
        for start in range(0, len(specs), AT_ONCE):
            nodes.store.define_jobs(specs[start : start + AT_ONCE], release="bench")
        nodes.store.notify()
        if nodes.store.now() > ready:
            raise TimeoutError("storing the jobs took longer than planned: the first was due before all were there")
        say(f"  {len(specs):,} jobs stored")
        wait_until(lambda: nodes.store.now() > midnight, 60, "midnight")
        begun = time.monotonic()
        while len(nodes.lines()) < len(due) and time.monotonic() < begun + 30:
            time.sleep(0.05)
        time.sleep(1)
        lines = nodes.lines()
        say(f"  {len(lines):,} runs, the last {max((float(line[3]) for line in lines), default=0):.1f} s late")
        report = audit(nodes.store, since=midnight - timedelta(seconds=1), until=midnight + timedelta(seconds=2))
    ran = Counter(line[0] for line in lines)
    late = [float(line[3]) for line in lines if line[0].startswith("herd-")]
    behind = next((float(line[3]) for line in lines if line[0] == "behind"), float("inf"))
    twice = sum(ran.values()) - len(ran)
    shares = sorted(Counter(line[2] for line in lines if line[0].startswith("herd-")).values())
    clean = report.ok and not report.duplicates and not report.missed
    return [
        Row("herd", f"of {herd:,} jobs due in one second on {NODES} nodes, started", f"{len(late):,}", f"{herd:,}",
            len(late) == herd),
        Row("herd", "started twice, by evidence", str(twice), "0", twice == 0),
        Row("herd", "audit", "clean" if clean else f"{report.duplicates} duplicates, {report.missed} missed", "clean",
            clean),
        Row("herd", "half of them started within", milliseconds(quantile(late, 0.5))),
        Row("herd", "all of them started within", milliseconds(max(late, default=float("inf"))), "≤ 3,000 ms",
            max(late, default=float("inf")) <= 3.0),
        Row("herd", "a job due one second later is late by", milliseconds(behind), "≤ 200 ms", behind <= 0.2),
        Row("herd", "runs per node", " ".join(map(str, shares))),
    ]  # fmt: skip
