"""A job is enqueued while nothing else is to do: when does it begin? Ours, then each peer with its defaults."""

from __future__ import annotations

import time

from bench import enqueue
from bench.enqueue import NODES, QUICK_TIMES, SETTLED, TIMES, WARM
from bench.nodes import wait_until
from bench.options import Options
from bench.peers.environments import CannotInstall
from bench.peers.field import Peer, PeerFailed, field, team
from bench.places import Places
from bench.table import Row, Table, milliseconds, quantile, say


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Measure the same for all: from before the call that enqueues to the first line of the job."""
    times = QUICK_TIMES if options.quick else TIMES
    measured: dict[str, list[float] | str] = {"cronsensus": enqueue.ours(places, times)}
    for peer in field(places.kind, options):
        if peer.drains:
            try:
                measured[peer.title()] = _measure(places, peer, times)
            except (CannotInstall, PeerFailed) as error:
                measured[peer.title()] = str(error)
            say(f"  {peer.title()}: {_line(peer.title(), measured[peer.title()])}")
    note = (
        f"{NODES} nodes each, one client; {times} jobs, 0.1 to 0.3 s apart, after {WARM} that are not counted; one "
        "library after the other on the same server."
    )
    lines = [_line(name, each) for name, each in measured.items()]
    return [
        Table(f"From enqueue to the first line of the job, on {places.where()}", ("", "p50", "p99"), lines, (note,))
    ]


def _line(name: str, late: list[float] | str) -> tuple[str, ...]:
    if isinstance(late, str):
        return name, late, ""
    return name, milliseconds(quantile(late, 0.5)), milliseconds(quantile(late, 0.99))


def _measure(places: Places, peer: Peer, times: int) -> list[float]:
    near = places.fresh()
    with team(peer, places.by_way(near), concurrency=peer.drains[0], near=near) as members:
        for _ in range(NODES):
            members.start("node")
        time.sleep(SETTLED)
        members.run("trickle", str(WARM + times))
        try:
            wait_until(lambda: len(members.lines("arrived")) >= WARM + times, 30, "the last to begin")
        except TimeoutError:
            raise PeerFailed(
                f"{len(members.lines('arrived'))} of {WARM + times} began: {members.last_words()}"
            ) from None
        members.kill()
        return [float(line[0]) for line in members.lines("arrived")[WARM:]]
