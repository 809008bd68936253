"""What the fault tests wait for, and what they look for afterwards."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.cluster import Cluster, Verdict
from tests.servers.distance import ROUND_TRIP

SECONDS = float(os.environ.get("CRONSENSUS_TEST_FAULT_SECONDS") or 0)
"""For how long a test does its fault again and again to one cluster; 0: once. The long form is `make faults`."""
LEASE = max(3.0 if SECONDS else 1.0, 150 * ROUND_TRIP)
"""Seconds. A lease of less than about 100 round trips can be lost without any fault."""
AWAY = 2 * LEASE
NAMES = ("a", "b", "c")
REACTION = LEASE / 2
"""Seconds: what was claimed before a fault may begin this much after it, on a busy machine."""
MOST_ROUNDS = 25
"""Tries of a node during one fault: with a backoff there are about five, and one for each run that ends meanwhile."""


def again_and_again(bit: Callable[[], bool] = lambda: True) -> Iterator[int]:
    """Count the faults of a test, from 1: one that ``bit``, of at most five; or as many as begin within ``SECONDS``."""
    begun = time.monotonic()
    number = 0
    while number == 0 or time.monotonic() - begun < SECONDS or not (SECONDS or bit() or number == 5):
        number += 1
        yield number
    print(f"{number} times in {time.monotonic() - begun:.0f} s")


@dataclass
class Fault:
    """When something was away, from now on, by the host's monotonic clock."""

    begun: float = field(default_factory=time.monotonic)
    ended: float = float("inf")

    def end(self) -> None:
        """Say that it is about to be over."""
        self.ended = time.monotonic()


def log_of(cluster: Cluster, node: str) -> str:
    """Return what a node said."""
    return (cluster.folder / f"{node}.log").read_text()


def until_busy(cluster: Cluster, nodes: str = "") -> None:
    """Wait until a coroutine runs on each of ``nodes``, and has just begun on the last: it outlasts its lease."""

    def busy() -> bool:
        new = cluster.look()
        pulses = [line for line in cluster.lines[-100:] if line.job == "pulse"]
        over = {line.token for line in pulses if line.event != "start"}
        running = {line.node for line in pulses if line.token not in over}
        begun = {line.node for line in new if line.job == "pulse" and line.event == "start"}
        return running >= set(nodes) and bool(begun & set(nodes[-1:] or NAMES))

    cluster.until(busy, f"a pulse runs on each of {nodes!r}, and one has just begun")


def until_one_works(cluster: Cluster) -> None:
    """Wait until some node starts something."""
    cluster.until(lambda: any(line.event == "start" for line in cluster.look()), "somebody works")


def until_all_work(cluster: Cluster) -> None:
    """Wait until every node has started something from now on."""
    cluster.look()
    working: set[str] = set()

    def all_work() -> bool:
        working.update(line.node for line in cluster.look() if line.event == "start")
        return working >= set(NAMES)

    cluster.until(all_work, "all nodes work")


def stopped_by(cluster: Cluster, one: Fault, nodes: Collection[str] = NAMES) -> list[float]:
    """Return when runs were stopped during a fault, because their lease could be trusted no longer."""
    broken = [line for line in cluster.lines if line.event == "broken" and line.job == "pulse"]
    return [line.at for line in broken if one.begun + REACTION < line.at < one.ended and line.node in nodes]


def stopped_for(cluster: Cluster, faults: Sequence[Fault], nodes: Collection[str] = NAMES) -> None:
    """Fail if a run began while the store was away, or one went on for longer than the lease could be trusted."""
    bit = []
    for one in faults:
        during = [line for line in cluster.lines if one.begun + REACTION < line.at < one.ended and line.node in nodes]
        assert [line for line in during if line.event == "start"] == []
        stopped = stopped_by(cluster, one, nodes)
        assert max(stopped, default=0.0) < one.begun + LEASE + REACTION
        bit.append(bool(stopped))
    # Of many faults, one may come in the moment in which all runs end by themselves.
    enough = sum(bit) >= 0.9 * len(bit) if SECONDS else bit[-1]
    assert enough, f"{bit.count(False)} of {len(bit)} faults did not bite: no node lost the trust in a lease"


def said_once(cluster: Cluster, node: str, faults: int = 1) -> None:
    """Fail unless a node said, once a fault, that the store is away, tried less and less, and said that it is back."""
    back = re.compile(r"the store answers again after (\d+) failed rounds")
    cluster.until(lambda: back.search(log_of(cluster, node)), "it says that the store is back")
    log = log_of(cluster, node)
    if SECONDS:
        return  # of many faults, one may come in two pieces, and last for longer
    assert log.count("so nothing is started until it can") == faults, log
    rounds = [int(each) for each in back.findall(log)]
    assert len(rounds) == faults, log
    assert max(rounds) <= MOST_ROUNDS, log


def settle_and_judge(cluster: Cluster) -> Verdict:
    """Wait until everything is done, let the nodes leave, and fail unless all is as promised."""
    until = cluster.settle()
    exits = cluster.drain()
    verdict = cluster.judge(until)
    assert exits == [0, 0, 0]
    verdict.is_as_promised()
    assert "Traceback" not in verdict.logs
    orders = next(job for job in verdict.report.jobs if job.job == "order")
    done = {line.key for line in cluster.lines if line.event == "end" and line.job == "order"}
    assert orders.others == len(done) == cluster.orders
    return verdict
