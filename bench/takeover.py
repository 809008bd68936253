"""kill -9 in mid-run: when does the run start again elsewhere?"""

from __future__ import annotations

from bench.nodes import Cluster, cluster, wait_until
from bench.table import Row, milliseconds, quantile, say
from cronsensus.model.occurrence import Item

LEASE = 10.0


def bench(*, quick: bool) -> list[Row]:
    """Kill the node that runs, again and again; with the pid as evidence, then by the lease alone."""
    fast = _takeovers(5 if quick else 20, evidence=True)
    slow = _takeovers(1 if quick else 5, evidence=False)
    return [
        Row("takeover", f"same host, p50 of {len(fast)}", milliseconds(quantile(fast, 0.5))),
        Row("takeover", f"same host, p99 of {len(fast)}", milliseconds(quantile(fast, 0.99)), "≤ 1 s",
            quantile(fast, 0.99) <= 1.0),
        Row("takeover", f"by the lease alone, max of {len(slow)}", f"{max(slow):.2f} s", "≤ lease + 1 s = 11 s",
            max(slow) <= LEASE + 1),
    ]  # fmt: skip


def _takeovers(times: int, *, evidence: bool) -> list[float]:
    import time

    environment = {"FAST_EVIDENCE": "1" if evidence else "0"}
    seconds = []
    with cluster("working") as nodes:
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
