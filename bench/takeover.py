"""kill -9 in mid-run: when does the run start again elsewhere?"""

from __future__ import annotations

import contextlib
import random
import subprocess
import time

from bench.nodes import Cluster, cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile, say
from cronsensus.model.occurrence import Item
from tests.servers.proxy import Proxy

LEASE = 10.0
DARK = 5
"""How often a node is killed whose host is gone with it."""


def bench(places: Places, options: Options) -> list[Row]:
    """Kill the node that runs, again and again; with the pid as evidence, as from another host, as with the host."""
    rounds = options.rounds or (5 if options.quick else 20)
    fast = takeovers(places, rounds, evidence="pid")
    if places.kind == "sqlite":
        apart, quiet, dark = takeovers(places, 1 if options.quick else 5, evidence="none"), [], []
    else:
        apart = takeovers(places, rounds, evidence="server")
        quiet = takeovers(places, rounds, evidence="server", quiet=True) if places.kind == "mysql" else []
        dark = takeovers(places, min(rounds, 1 if options.quick else DARK), evidence="server", dark=True)
    p99 = quantile(fast, 0.99)
    return [
        Row("takeover", f"same host, p50 of {len(fast)}", milliseconds(quantile(fast, 0.5))),
        Row("takeover", f"same host, p99 of {len(fast)}", milliseconds(p99), "≤ 1 s", p99 <= 1.0),
        *from_another_host(places, apart),
        *(from_another_host(places, quiet, ", when nothing ran lately") if quiet else []),
        *(with_its_host(dark) if dark else []),
    ]


def from_another_host(places: Places, seconds: list[float], when: str = "") -> list[Row]:
    """Return the figures of takeovers without a pid to look at, and what they have to reach."""
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    if places.kind == "sqlite":
        limit, words = LEASE + 1, f"≤ lease + 1 s = {LEASE + 1:.0f} s"
    else:  # the server shows that the connections of the dead node are gone
        limit, words = (1.5, "≤ 1.5 s") if places.network else (1.0, "≤ 1 s")
    return [
        Row("takeover", f"from another host{when}, p50 of {len(seconds)}", f"{p50:.2f} s"),
        Row("takeover", f"from another host{when}, p99 of {len(seconds)}", f"{p99:.2f} s", words, p99 <= limit),
    ]


def with_its_host(seconds: list[float]) -> list[Row]:
    """Return the figures of nodes whose connections stay open at the server: only the lease tells of their death."""
    worst = max(seconds)
    return [
        Row("takeover", f"host without power or network, p50 of {len(seconds)}", f"{quantile(seconds, 0.5):.2f} s"),
        Row("takeover", f"host without power or network, slowest of {len(seconds)}", f"{worst:.2f} s",
            f"≤ lease + 1 s = {LEASE + 1:.0f} s", worst <= LEASE + 1),
    ]  # fmt: skip


def takeovers(places: Places, times: int, *, evidence: str, dark: bool = False, quiet: bool = False) -> list[float]:
    """Return the seconds from a kill to the run's next beginning, so many times.

    Args:
        places: where.
        times: how often.
        evidence: ``pid``: all that there is; ``server``: as from another host; ``none``: switched off.
        quiet: nodes take it that nothing ran lately.
        dark: each node has a network of its own, which is gone before the node is: the server is not told.
    """
    seconds = []
    with contextlib.ExitStack() as networks, cluster("working", places) as nodes:
        ways: dict[int, Proxy] = {}

        def start() -> subprocess.Popen[bytes]:
            more = {"EVIDENCE_OF_DEATH": evidence, "QUIET": "1" if quiet else ""}
            if not dark:
                return nodes.start(more)
            way = networks.enter_context(Proxy(nodes.way))
            node = nodes.start({**more, "CRONSENSUS_URL": way.url})
            ways[node.pid] = way
            return node

        alive = [start() for _ in range(3)]
        nodes.wait_for_sessions(3)
        # Nodes that have all begun in this second have not seen one another's signs of life yet: only the lease tells
        # of the death of one that dies now. Far from the server that second is longer.
        time.sleep(3 if places.network else 0)
        for number in range(times):
            key = f"take-{number}"
            nodes.store.enqueue([Item(job="work", key=key, kwargs={"seconds": 60.0})])
            nodes.store.notify()
            wait_until(lambda: bool(_begun(nodes, key, 1)), 20, f"{key} to begin")  # noqa: B023
            pid = int(_begun(nodes, key, 1)[0][4])
            victim = next(node for node in alive if node.pid == pid)
            # A run that has just begun is not the ordinary one: its node has just heard from the server.
            time.sleep(random.uniform(0, 1) if dark else 0)
            killed_at = time.monotonic()
            if dark:
                ways[pid].black_hole()
            victim.kill()
            wait_until(lambda: bool(_begun(nodes, key, 2)), LEASE + 20, f"{key} to begin again")  # noqa: B023
            seconds.append(float(_begun(nodes, key, 2)[0][5]) - killed_at)
            say(f"  takeover {number + 1}/{times}{' in the dark' if dark else ''}: {seconds[-1]:.3f} s")
            victim.wait()
            alive.remove(victim)
            _end(nodes, key)
            alive.append(start())
            nodes.wait_for_sessions(3)
    return seconds


def _begun(nodes: Cluster, key: str, attempt: int) -> list[list[str]]:
    return [line for line in nodes.lines() if line[0] == "begin" and line[1] == key and line[2] == str(attempt)]


def _end(nodes: Cluster, key: str) -> None:
    """Cancel the run that was taken over, so that the next one finds free nodes."""
    from cronsensus.model.occurrence import OccurrenceFilter

    found = nodes.store.occurrences(OccurrenceFilter(job="work", key=key))[0]
    nodes.store.cancel(found.id, by="bench", why="measured")
    nodes.store.notify()
