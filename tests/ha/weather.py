"""Load on a store whose servers die, and what came of it, by the jobs' own files and by the store.

The longest outage is the longest time between two beginnings of a job of each second, less that second. What a failover
took is the time from the blow until another server takes writes.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from cronsensus.audit.losses import losses
from cronsensus.cli.demo.trace import Line
from cronsensus.errors import StoreError
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import Store, open_store
from tests.chaos.cluster import Cluster, Verdict
from tests.ha.ha_jobs import ITEMS, NOTES

SECONDS = float(os.environ.get("CRONSENSUS_TEST_HA_SECONDS") or 90)
"""For how long servers are struck; each 20 to 30 s one is."""
NODES = ("a", "b", "c")
LEASE = 10.0
PATIENCE = 180.0
ORDERS_EACH, BATCHES_EACH = 0.2, 8.0
"""Seconds between two orders, and between two batches."""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


class Place(Protocol):
    """Servers that stand in for one another.

    Attributes:
        blows: what may be done to them.
    """

    blows: tuple[str, ...]

    @property
    def url(self) -> str:
        """What leads to whichever takes writes."""
        ...

    def prepare_blow(self) -> None:
        """Wait until all is whole, and choose the server that takes writes."""
        ...

    def strike(self, blow: str) -> Callable[[], object]:
        """Do it to the chosen server; return what takes it back, after which all will be whole again."""
        ...

    def has_successor(self) -> bool:
        """Whether another server than the chosen one takes writes."""
        ...


@dataclass
class Load:
    """Orders and batches, each under a key of its own, and which of them the store acknowledged."""

    store: Store
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Job, by key."""
    refused: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def go_on(self) -> None:
        """Enqueue until it is ended."""
        number, next_batch = 0, 0.0
        while not self.ended.wait(ORDERS_EACH):
            number += 1
            arguments = {"number": number, "text": f"order {number}"}
            try:
                [made] = self.store.enqueue([Item(job="order", key=f"order:{number}", args=(), kwargs=arguments)])
                self.acknowledged[made.key] = made.job
                if time.monotonic() > next_batch:
                    next_batch = time.monotonic() + BATCHES_EACH
                    batch = self.store.trigger("close_day", by="load")
                    self.acknowledged[batch.key] = batch.job
                self.store.notify()
            except StoreError:
                self.refused += 1


@dataclass
class Outcome:
    """What came of it; each number has its name in the table of docs/stores.md."""

    blows: Counter[str]
    failovers: list[float]
    outage: float
    acknowledged: int
    lost: list[str]
    twice: list[tuple[str, str]]
    left: list[str]
    tokens_back: list[str]
    told_twice: list[str]
    short_batches: list[str]
    noticed: list[str]
    findings: list[str]
    problems: tuple[str, ...]
    mistakes: int

    @property
    def allowed_outage(self) -> float:
        """The slowest failover, a lease and a second."""
        return max(self.failovers) + LEASE + 1

    def is_as_promised(self, *, loses: bool) -> None:
        """Fail unless all is as it must be; ``loses``: what was acknowledged may be gone, and then that is known."""
        assert (self.left, self.tokens_back, self.short_batches, self.mistakes) == ([], [], [], 0)
        assert self.outage <= self.allowed_outage
        if not loses:
            assert (self.lost, self.twice, self.told_twice, self.findings, self.problems) == ([], [], [], [], ())
        elif self.lost or self.problems:
            assert self.noticed

    def __str__(self) -> str:
        rows = {
            "blows": ", ".join(f"{number} {blow}" for blow, number in self.blows.items()),
            "failovers": f"{min(self.failovers):.1f} to {max(self.failovers):.1f} s",
            "longest outage of the schedule": f"{self.outage:.1f} s (at most {self.allowed_outage:.1f} s)",
            "acknowledged enqueues": self.acknowledged,
            "of them lost": len(self.lost),
            "recorded twice": len(self.twice),
            "left running": len(self.left),
            "tokens that went back": len(self.tokens_back),
            "alerts told twice": len(self.told_twice),
            "batches with items missing": len(self.short_batches),
            "losses noticed": len(self.noticed),
            "findings of the audit": len(self.findings),
        }
        more = [*self.lost[:5], *map(str, self.twice[:5]), *self.left[:5], *self.tokens_back[:5], *self.told_twice[:5],
                *self.short_batches[:5], *self.noticed[:5], *self.findings[:5], *self.problems[:5]]  # fmt: skip
        return "\n".join([*(f"{name:<32} {value}" for name, value in rows.items()), *(f"    {one}" for one in more)])


@contextmanager
def nodes_on(place: Place, folder: Path) -> Iterator[Cluster]:
    """Start three nodes; they are gone in the end."""
    cluster = Cluster(
        folder, f"{LEASE:g}s", "ha_jobs:scheduler", place.url, apps=Path(__file__).parent, patience=PATIENCE,
        environment={NOTES: str(folder / "notes.jsonl"), "CRONSENSUS_CONCURRENCY": "6"},
    )  # fmt: skip
    try:
        cluster.store.migrate()
        cluster.start(*NODES)
        cluster.await_all()
        cluster.until(lambda: cluster.store.job("order"), "the jobs are declared")
        yield cluster
    finally:
        cluster.end_all()


def weather(place: Place, cluster: Cluster, dice: random.Random) -> Outcome:
    """Strike the server that takes writes, again and again, under load; then let all come to rest, and count."""
    load = Load(open_store(place.url))
    thread = threading.Thread(target=load.go_on)
    thread.start()
    blows: Counter[str] = Counter()
    failovers: list[float] = []
    begun = time.monotonic()
    try:
        while time.monotonic() - begun < SECONDS or len(blows) < len(place.blows):
            place.prepare_blow()
            struck_at = time.monotonic()
            blow = place.blows[blows.total() % len(place.blows)]
            take_back = place.strike(blow)
            wait_for(place.has_successor, "another to take writes")
            failovers.append(time.monotonic() - struck_at)
            blows[blow] += 1
            print(f"{struck_at:.1f} {blow}: {failovers[-1]:.1f} s until another took writes", flush=True)
            threading.Event().wait(dice.uniform(2, 6))
            take_back()
            threading.Event().wait(max(0.0, struck_at + dice.uniform(20, 30) - time.monotonic()))
    finally:
        load.ended.set()
        thread.join()
        load.store.close()
    until = cluster.settle()
    cluster.until(lambda: not _unfinished(cluster.store, load), "all that was enqueued is done")
    cluster.drain()
    return _count(cluster, cluster.judge(until), load, blows, failovers)


def _unfinished(store: Store, load: Load) -> list[Occurrence]:
    return [one for one in _all(store) if not one.state.final and one.job in {"order", "close_day"}]


def _all(store: Store) -> Iterator[Occurrence]:
    after: int | None = None
    while page := store.occurrences(OccurrenceFilter(), after=after, limit=500, newest_first=False):
        yield from page
        after = page[-1].id


def _count(cluster: Cluster, verdict: Verdict, load: Load, blows: Counter[str], failovers: list[float]) -> Outcome:
    known = {(one.job, one.key): one for one in _all(cluster.store)}
    notes = [json.loads(line) for line in (cluster.folder / "notes.jsonl").read_text().splitlines()]
    told = Counter((one["job"], one["nominal"]) for one in notes if one["what"] == "alert")
    done = {one["item"] for one in notes if one["what"] == "item"}
    days = [one for one in known.values() if one.job == "close_day" and one.parent is None]
    ticks = sorted(line.at for line in cluster.lines if line.job == "tick" and line.event == "start")
    return Outcome(
        blows=blows,
        failovers=failovers,
        outage=max(later - earlier for earlier, later in pairwise(ticks)) - 1,
        acknowledged=len(load.acknowledged),
        lost=[
            f"{job} {key}"
            for key, job in load.acknowledged.items()
            if (found := known.get((job, key))) is None or found.state is not State.SUCCEEDED
        ],
        twice=list(verdict.comparison.twice),
        left=[f"{one.job} {one.key}" for one in known.values() if one.state is State.RUNNING],
        tokens_back=_tokens_back(cluster.lines, [one["token"] for one in notes if one["what"] == "lock"]),
        told_twice=[f"{job} {nominal}" for (job, nominal), number in told.items() if number > 1],
        short_batches=[
            one.key
            for one in days
            if one.state is State.SUCCEEDED and not {f"{one.key}/{number}" for number in range(ITEMS)} <= done
        ],
        noticed=[f"{one.at}: {one.why}" for one in losses(cluster.store)],
        findings=[one.sentence for one in verdict.report.findings],
        problems=verdict.comparison.problems,
        mistakes=verdict.logs.count("a mistake in cronsensus"),
    )


def _tokens_back(lines: list[Line], locks: list[int]) -> list[str]:
    tokens: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in lines:
        if line.event == "start":
            tokens[line.occurrence].append(line.token)
    tokens["lock", "till"] = locks
    return [f"{job} {key}" for (job, key), given in tokens.items() if given != sorted(set(given))]
