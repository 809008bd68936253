"""A list over several nodes: how fast, how fairly, how soon the next item and the end, and what kills cost."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence

import psutil

from bench import drain
from bench.nodes import Cluster, cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile, say
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State

NODES = 3
SLOTS = 2
KILL_EVERY = 3.0


def bench(places: Places, options: Options) -> list[Row]:
    """Measure each in turn; with ``--jobs N`` one batch of so many, beside as many enqueued jobs."""
    quick = options.quick
    if options.jobs:
        return _many(places, options.jobs)
    return [
        *_nothing(places, items=1_999 if quick else 9_999),
        *_equal(places, items=300 if quick else 1_000),
        *_short(places, batches=10 if quick else 100),
        *_killed(places, items=100 if quick else 300),
    ]


def _batch(nodes: Cluster, job: str) -> tuple[int, float]:
    """Trigger a job, wait for the end of its batch; return the batch and the seconds that it took."""
    begun = time.monotonic()
    made = nodes.store.trigger(job, by="bench")
    nodes.store.notify()

    def over() -> bool:
        found = nodes.store.occurrence(made.id)
        return found is not None and found.state.final

    wait_until(over, 600, f"the end of batch {made.id}")
    seconds = time.monotonic() - begun
    found = nodes.store.occurrence(made.id)
    if found is None or found.state is not State.SUCCEEDED:
        raise RuntimeError(f"batch {made.id} of {job} has not succeeded: {found}")
    return made.id, seconds


def _started(nodes: Cluster, count: int, slots: int, items: int) -> None:
    for _ in range(count):
        nodes.start({"ITEMS": str(items)}, concurrency=slots)
    nodes.wait_for_sessions(count)
    time.sleep(1)
    _batch(nodes, "short")  # warm


def _nothing(places: Places, items: int) -> list[Row]:
    with cluster("listing", places) as nodes:
        _started(nodes, 2, 200, items)
        _, seconds = _batch(nodes, "nothing")
    say(f"  {items:,} items that do nothing: {seconds:.2f} s")
    goal, ok = ("≤ 3 s", seconds <= 3) if places.kind == "postgres" else ("", None)
    return [Row("batch", f"{items:,} items that do nothing, 2 processes", f"{seconds:.2f} s", goal, ok)]


def _equal(places: Places, items: int) -> list[Row]:
    with cluster("listing", places) as nodes:
        _started(nodes, NODES, SLOTS, items)
        batch, seconds = _batch(nodes, "equal")
        lines = [(line[0], line[3], float(line[4])) for line in nodes.lines() if line[1] == str(batch)]
    ran = Counter(pid for event, pid, _ in lines if event == "end")
    share = items / NODES
    off = max(abs(count - share) / share for count in ran.values()) if len(ran) == NODES else 1.0
    gaps = _gaps(lines)
    p95 = quantile(gaps, 0.95)
    best = items * 0.05 / (NODES * SLOTS)
    return [
        Row("batch", f"{items:,} items of 50 ms, {NODES} nodes of {SLOTS} slots: a node's share differs by at most",
            f"{off:.1%}", "≤ 10 %", off <= 0.10),
        Row("batch", "its makespan, and of work alone", f"{seconds:.2f} s / {best:.2f} s"),
        Row("batch", "the next item after a slot is free, p50", milliseconds(quantile(gaps, 0.5))),
        Row("batch", "the next item after a slot is free, p95", milliseconds(p95), "≤ 20 ms", p95 <= 0.020),
    ]  # fmt: skip


def _gaps(lines: Sequence[tuple[str, str, float]]) -> list[float]:
    """Return for how long a slot was empty before each item that was not the first in it."""
    begins: dict[str, list[float]] = defaultdict(list)
    ends: dict[str, list[float]] = defaultdict(list)
    for event, pid, at in lines:
        (begins if event == "begin" else ends)[pid].append(at)
    return [
        max(0.0, begin - end)
        for pid in begins
        for begin, end in zip(sorted(begins[pid])[SLOTS:], sorted(ends[pid]), strict=False)
    ]


def _short(places: Places, batches: int) -> list[Row]:
    with cluster("listing", places) as nodes:
        _started(nodes, NODES, SLOTS, 0)
        ids = {str(_batch(nodes, "short")[0]) for _ in range(batches)}
        last: dict[str, float] = defaultdict(float)
        went_on: dict[str, float] = {}
        for event, batch, _, _, at in nodes.lines():
            if event == "end":
                last[batch] = max(last[batch], float(at))
            else:
                went_on[batch] = float(at)
    waits = [went_on[one] - last[one] for one in ids]
    p99 = quantile(waits, 0.99)
    return [
        Row(
            "batch", f"{batches} batches: from the last item's end to collect, p50", milliseconds(quantile(waits, 0.5))
        ),
        Row("batch", "the same, p99", milliseconds(p99), "≤ 50 ms", p99 <= 0.050),
    ]


def _killed(places: Places, items: int) -> list[Row]:
    with cluster("listing", places) as nodes:
        _started(nodes, NODES, SLOTS, items)
        made = nodes.store.trigger("mixed", by="bench")
        nodes.store.notify()
        begun = time.monotonic()
        killed, next_kill = 0, begun + KILL_EVERY

        def over() -> bool:
            nonlocal killed, next_kill
            if time.monotonic() >= next_kill:
                alive = [one for one in nodes.nodes if one.poll() is None]
                alive[0].kill()
                alive[0].wait()
                nodes.start({"ITEMS": str(items)}, concurrency=SLOTS)
                killed, next_kill = killed + 1, next_kill + KILL_EVERY
            found = nodes.store.occurrence(made.id)
            return found is not None and found.state.final

        wait_until(over, 600, "the end of a batch whose nodes are killed")
        seconds = time.monotonic() - begun
        children = nodes.store.children([made.id], limit=items + 1)[made.id]
        crashes = sum(one.crashes for one in nodes.store.occurrences(OccurrenceFilter(parent=made.id), limit=items + 1))
        lines = [line for line in nodes.lines() if line[1] == str(made.id)]
    work = sum(0.05 + number * 37 % 451 / 1000 for number in range(items))
    worked = _worked(lines)
    # A process that was just started has no slots yet: 1 s of one node for each kill.
    alive = NODES * SLOTS - killed * SLOTS * 1.0 / seconds
    bound = 1.15 * worked / alive + 1 + killed * 1.0
    return [
        Row("batch", f"{items} items of 50 to 500 ms, {killed} nodes killed: items done",
            f"{children.succeeded}", str(items), children.succeeded == items and children.state is State.SUCCEEDED),
        Row("batch", "items that a kill cut off", str(crashes)),
        Row("batch", f"makespan ({work:.0f} s of work, {worked - work:.1f} s of it twice)", f"{seconds:.1f} s",
            f"≤ {bound:.1f} s", seconds <= bound),
    ]  # fmt: skip


def _many(places: Places, items: int) -> list[Row]:
    with cluster("listing", places) as nodes:
        for _ in range(drain.WORKERS):
            nodes.start({"ITEMS": str(items)}, concurrency=drain.CONCURRENCY)
        nodes.wait_for_sessions(drain.WORKERS)
        _batch(nodes, "short")  # warm
        processes = [psutil.Process(node.pid) for node in nodes.nodes]
        before = max(process.memory_info().rss for process in processes)
        begun = time.monotonic()
        made = nodes.store.trigger("nothing", by="bench")
        nodes.store.notify()
        most, listed, shown = 0, 0.0, begun
        while True:
            time.sleep(0.2)
            most = max(most, *(process.memory_info().rss for process in processes))
            found = nodes.store.occurrence(made.id)
            if found is not None and not listed and found.listed is not None:
                listed = time.monotonic() - begun
            if found is not None and found.state.final:
                break
            if time.monotonic() - shown > _TELL:
                shown = time.monotonic()
                say(f"  {nodes.store.children([made.id], limit=2 * items)[made.id]}")
        seconds = time.monotonic() - begun
        children = nodes.store.children([made.id], limit=2 * items)[made.id]
    done = children.succeeded == items and children.state is State.SUCCEEDED
    say(f"  {items:,} items: {seconds:.1f} s, listed after {listed:.1f} s, {most / 2**20:.0f} MB")
    begun = time.monotonic()
    enqueued = drain.ours(places, items, drain.OURS[0])
    both = items / (time.monotonic() - begun)
    say(f"  as many enqueued jobs: {enqueued}")
    rate, share = items / seconds, items / seconds / enqueued.rate
    return [
        Row("batch", f"{items:,} items that do nothing, {drain.WORKERS} processes: succeeded",
            f"{children.succeeded:,}", f"{items:,}", done),
        Row("batch", f"its rate, the list of {listed:.0f} s included", f"{rate:,.0f}/s"),
        Row("batch", "the same, beside as many jobs that stood in line before",
            f"{share:.2f} of {enqueued.rate:,.0f}/s", "≥ 0.8", share >= 0.8),
        Row("batch", "the same, beside enqueueing those from one process and then draining",
            f"{rate / both:.2f} of {both:,.0f}/s"),
        Row("batch", f"most memory of a node (it began with {before / 2**20:.0f} MB)", f"{most / 2**20:.0f} MB",
            "≤ 150 MB", most <= 150 * 2**20),
    ]  # fmt: skip


_TELL = 20.0
"""Seconds between two lines on how far a long one is."""


def _worked(lines: Sequence[Sequence[str]]) -> float:
    """Return the seconds for which items ran, those that were killed among them: until their process' last line."""
    last: dict[str, float] = {}
    for _, _, _, pid, at in lines:
        last[pid] = max(last.get(pid, 0.0), float(at))
    open_at: dict[tuple[str, str], float] = {}
    seconds = 0.0
    for event, _, item, pid, at in lines:
        if event == "begin":
            open_at[item, pid] = float(at)
        elif event == "end":
            seconds += float(at) - open_at.pop((item, pid))
    return seconds + sum(max(0.0, last[pid] - at) for (_, pid), at in open_at.items())
