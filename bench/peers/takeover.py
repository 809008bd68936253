"""kill -9 of the node that runs: ours as from another host, and peers with their defaults, who all wait meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from bench.nodes import wait_until
from bench.peers.environments import CannotInstall
from bench.peers.field import PEERS, Peer, PeerFailed, Team, team
from bench.places import Places
from bench.table import Row, Table, quantile, say
from bench.takeover import from_another_host, takeovers

NODES = 2


def bench(places: Places, *, quick: bool) -> list[Row | Table]:
    """Kill the peers' nodes, measure ours while they wait, and see what became of theirs."""
    patience, rounds = (20, 2) if quick else (300, 20)
    killed: dict[str, tuple[Team, float] | str] = {}
    with contextlib.ExitStack() as teams:
        for peer in PEERS:
            if peer.takes_over and places.kind in peer.stores:
                try:
                    killed[peer.title()] = _kill(teams.enter_context(team(peer, places.fresh())), peer)
                except (CannotInstall, PeerFailed) as error:
                    killed[peer.title()] = str(error)
                say(f"  {peer.title()}: {'killed' if not isinstance(killed[peer.title()], str) else 'failed'}")
        own = takeovers(places, rounds, evidence="server")
        lines: list[tuple[str, ...]] = [
            (f"cronsensus, {rounds} times", f"{quantile(own, 0.5):.2f} s", f"{quantile(own, 0.99):.2f} s")
        ]
        for name, each in killed.items():
            lines.append((name, *((each, "") if isinstance(each, str) else _fate(*each, patience))))
    note = (
        f"The killed node is one of {NODES} (ours: 3), with its whole process group; each library with its defaults, "
        "ours with a lease of 10 s and no pid to look at. Peers once each, all at the same time, "
        f"for {patience} s."
    )
    return [Table(f"kill -9 of the node that runs, on {places.kind}: its job begins again after",
                  ("", "p50", "p99"), lines, (note,)), *from_another_host(places, own)]  # fmt: skip


def _kill(members: Team, peer: Peer) -> tuple[Team, float]:
    """Let a long job begin, kill the node that runs it, and return when that was (monotonic seconds)."""
    nodes = {node.pid for node in (members.start("node") for _ in range(NODES))}
    time.sleep(5)  # both are up, so that one can take over at once if it wants to
    members.run("long")
    try:
        wait_until(lambda: bool(members.lines("begun")), 40, f"the job of {peer.name} to begin")
    except TimeoutError:
        raise PeerFailed(f"did not begin within 40 s: {members.last_words()}") from None
    group = os.getpgid(int(members.lines("begun")[0][0]))
    if group not in nodes:
        raise PeerFailed("runs its job outside of the process groups that it was started in")
    time.sleep(1)
    os.killpg(group, signal.SIGKILL)
    return members, time.monotonic()


def _fate(members: Team, at: float, patience: float) -> tuple[str, str]:
    """Wait as long as is left of the patience, and say when the job began again."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: len(members.lines("begun")) > 1, max(0.0, at + patience - time.monotonic()), "a takeover")
    begun = members.lines("begun")
    return (f"{float(begun[1][1]) - at:.1f} s", "") if len(begun) > 1 else (f"not within {patience:.0f} s", "")
