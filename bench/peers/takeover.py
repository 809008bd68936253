"""kill -9 of the node that runs: ours as from another host, and peers, who all wait meanwhile.

Each peer thrice: with its defaults; as its documentation says for those who want a dead node's run to begin again; and
so with its host gone, too: its connections stay open at the server.
"""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.nodes import wait_until
from bench.options import Options
from bench.peers.environments import CannotInstall
from bench.peers.field import Peer, PeerFailed, Team, field, kill_session, team
from bench.places import Places
from bench.table import Row, Table, quantile, say
from bench.takeover import DARK, from_another_host, takeovers, with_its_host
from tests.servers.proxy import Proxy

NODES = 2
PATIENCE = 360
"""Seconds: beyond arq's 310, its default time limit and ten more."""
DRIP = 5
"""Seconds, about, between the other jobs that are enqueued: some libraries look for what is left only between two."""
AT_A_TIME = 3
"""Teams that start, so that no process is late because of all the others."""


@dataclass(frozen=True, slots=True)
class Case:
    """A peer, how it is set up, and whether its host dies with it."""

    peer: Peer
    careful: bool
    dark: bool


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Kill the peers' nodes, measure ours while they wait, and see what became of theirs."""
    patience, rounds = (100, 2) if options.quick else (PATIENCE, 20)
    rounds = options.rounds or rounds
    peers = [peer for peer in field(places.kind, options) if peer.takes_over]
    cases = [
        Case(peer, careful, dark)
        for peer in peers
        for careful, dark in ((False, False), (True, False), (True, True))
        if peer.careful or not careful
    ]
    with contextlib.ExitStack() as teams, ThreadPoolExecutor(AT_A_TIME) as starting:
        killed = list(starting.map(lambda case: _try(teams, places, case), cases))
        own = takeovers(places, rounds, evidence="server")
        dark = takeovers(places, min(rounds, DARK), evidence="server", dark=True)
        fates = [each if isinstance(each, str) else read_fate(*each, patience) for each in killed]
        for each in killed:
            if not isinstance(each, str):
                each[0].kill()
    lines: list[tuple[str, ...]] = [
        (f"cronsensus, {rounds} times; its host too, {len(dark)} times", *[_range(own)] * 2, _range(dark))
    ]
    for peer in peers:
        # Without settings for it there is one case, and one fate.
        of = [fate for case, fate in zip(cases, fates, strict=True) if case.peer is peer]
        lines.append((peer.title(), *of, *[""] * (3 - len(of))))
    note = (
        f"The killed node is one of {NODES} (ours: 3), with all of its processes. Ours with a lease of 10 s and no pid "
        f"to look at, p50 / p99; peers once each, all at the same time, for {patience} s, while another job is "
        f"enqueued each {DRIP} s or so. At least once: "
        + "; ".join(f"{peer.name}: {peer.careful}" for peer in peers if peer.careful)
        + ". The host, too: before the kill its network is gone, and the server hears of no end."
    )
    columns = ("", "defaults", "set to run at least once", "the same, and its host is gone")
    return [
        Table(
            f"kill -9 of the node that runs, on {places.where()}: its job begins again after", columns, lines, (note,)
        ),
        *from_another_host(places, own),
        *with_its_host(dark),
    ]


def _range(seconds: list[float]) -> str:
    return f"{quantile(seconds, 0.5):.2f} / {quantile(seconds, 0.99):.2f} s"


def _try(teams: contextlib.ExitStack, places: Places, case: Case) -> tuple[Team, float] | str:
    try:
        killed = kill_node(teams, places, case)
    except (CannotInstall, PeerFailed) as error:
        say(f"  {case.peer.title()}: {error}")
        return str(error)
    say(f"  {case.peer.title()}{', careful' if case.careful else ''}{', with its host' if case.dark else ''}: killed")
    return killed


def kill_node(teams: contextlib.ExitStack, places: Places, case: Case) -> tuple[Team, float]:
    """Let a long job begin, kill the node that runs it, and return when that was (monotonic seconds)."""
    near = places.fresh()
    url = places.by_way(near)
    members = teams.enter_context(team(case.peer, url, concurrency=2, near=near, careful=case.careful, pace=DRIP))
    ways = [teams.enter_context(Proxy(url)) for _ in range(NODES)] if case.dark else [None] * NODES
    nodes = {members.start("node", url=way.url if way else None).pid: way for way in ways}
    time.sleep(8)  # both are up, so that one can take over at once if it wants to
    members.run("long")
    try:
        wait_until(lambda: bool(members.lines("begun")), 40, f"the job of {case.peer.name} to begin")
    except TimeoutError:
        raise PeerFailed(f"did not begin within 40 s: {members.last_words()}") from None
    members.start("trickle", "1000")
    leader = os.getsid(int(members.lines("begun")[0][0]))
    if leader not in nodes:
        raise PeerFailed("runs its job outside of the sessions that it was started in")
    time.sleep(1)
    if way := nodes[leader]:
        way.black_hole()
    kill_session(leader)
    return members, time.monotonic()


def read_fate(members: Team, at: float, patience: float) -> str:
    """Wait as long as is left of the patience, and say when the job began again."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: len(members.lines("begun")) > 1, max(0.0, at + patience - time.monotonic()), "a takeover")
    begun = members.lines("begun")
    return f"{float(begun[1][1]) - at:.1f} s" if len(begun) > 1 else f"not within {patience:.0f} s"
