"""kill -9 in mid-run: when does the run start again elsewhere?"""

from __future__ import annotations

import time

from bench.nodes import Cluster, cluster, wait_until
from bench.places import Places
from bench.table import Row, milliseconds, quantile, say
from cronsensus.model.occurrence import Item

LEASE = 10.0


def bench(places: Places, *, quick: bool) -> list[Row]:
    """Kill the node that runs, again and again; with the pid as evidence, then as from another host."""
    rounds = 5 if quick else 20
    fast = takeovers(places, rounds, evidence="pid")
    if places.kind == "sqlite":
        apart = takeovers(places, 1 if quick else 5, evidence="none")
    else:
        apart = takeovers(places, rounds if places.kind == "postgres" else min(rounds, 10), evidence="server")
    p99 = quantile(fast, 0.99)
    return [
        Row("takeover", f"same host, p50 of {len(fast)}", milliseconds(quantile(fast, 0.5))),
        Row("takeover", f"same host, p99 of {len(fast)}", milliseconds(p99), "≤ 1 s", p99 <= 1.0),
        *from_another_host(places, apart),
    ]


def from_another_host(places: Places, seconds: list[float]) -> list[Row]:
    """Return the figures of takeovers without a pid to look at, and what they have to reach."""
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    # On PostgreSQL a lock that the dead node's connection held tells of its death; elsewhere only the lease does.
    limit, words = (1.0, "≤ 1 s") if places.kind == "postgres" else (LEASE + 1, f"≤ lease + 1 s = {LEASE + 1:.0f} s")
    return [
        Row("takeover", f"from another host, p50 of {len(seconds)}", f"{p50:.2f} s"),
        Row("takeover", f"from another host, p99 of {len(seconds)}", f"{p99:.2f} s", words, p99 <= limit),
    ]


def takeovers(places: Places, times: int, *, evidence: str) -> list[float]:
    """Return the seconds from a kill to the run's next beginning, so many times.

    Args:
        places: where.
        times: how often.
        evidence: ``pid``: all that there is; ``server``: as from another host; ``none``: switched off.
    """
    environment = {"EVIDENCE_OF_DEATH": evidence}
    seconds = []
    with cluster("working", places) as nodes:
        alive = [nodes.start(environment) for _ in range(3)]
        nodes.wait_for_sessions(3)
        for number in range(times):
            key = f"take-{number}"
            nodes.store.enqueue([Item(job="work", key=key, kwargs={"seconds": 60.0})])
            nodes.store.notify()
            wait_until(lambda: bool(_begun(nodes, key, 1)), 20, f"{key} to begin")  # noqa: B023
            pid = int(_begun(nodes, key, 1)[0][4])
            victim = next(node for node in alive if node.pid == pid)
            killed_at = time.monotonic()
            victim.kill()
            wait_until(lambda: bool(_begun(nodes, key, 2)), LEASE + 20, f"{key} to begin again")  # noqa: B023
            seconds.append(float(_begun(nodes, key, 2)[0][5]) - killed_at)
            say(f"  takeover {number + 1}/{times}: {seconds[-1]:.3f} s")
            victim.wait()
            alive.remove(victim)
            _end(nodes, key)
            alive.append(nodes.start(environment))
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
