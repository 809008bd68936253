"""4 nodes, one job each second: ours, then each peer, one after the other on the same server."""

from __future__ import annotations

import time
from dataclasses import replace

from bench import cadence
from bench.cadence import NODES, Cadence, commands_each_second, judge, spent
from bench.nodes import wait_until
from bench.peers.environments import CannotInstall
from bench.peers.field import PEERS, Peer, PeerFailed, team
from bench.places import Places
from bench.table import Row, Table, milliseconds, quantile, say


def bench(places: Places, *, quick: bool) -> list[Row | Table]:
    """Measure the same for all, by what the jobs themselves write down."""
    seconds = 15 if quick else 60
    measured: dict[str, Cadence | str] = {}
    own, _, wrong = cadence.ours(places, seconds)
    measured["cronsensus"] = own
    peers = [peer for peer in PEERS if peer.ticks and places.kind in peer.stores]
    for peer in peers:
        try:
            measured[peer.title()] = _measure(places, peer, seconds)
        except (CannotInstall, PeerFailed) as error:
            measured[peer.title()] = str(error)
        say(f"  {peer.title()}: {measured[peer.title()]}")
    lines = [_line(name, each) for name, each in measured.items()]
    others = [each for each in measured.values() if isinstance(each, Cadence) and each is not own and each.late]
    rows = cadence.goals(own, wrong)
    if others:
        best50, best99 = (min(quantile(each.late, q) for each in others) for q in (0.5, 0.99))
        p50, p99 = quantile(own.late, 0.5), quantile(own.late, 0.99)
        ahead = p50 < best50 and p99 < best99
        rows.append(Row("cadence", "p50 / p99 ahead of every peer", f"{milliseconds(p50)} / {milliseconds(p99)}",
                        f"< {milliseconds(best50)} / {milliseconds(best99)}", ahead))  # fmt: skip
        rivals = {
            peer.title(): each.commands
            for peer in peers
            if peer.library in {"procrastinate", "arq", "saq", "apscheduler4"}
            and isinstance(each := measured[peer.title()], Cadence)
        }
        if rivals:
            least = min(rivals.values())
            rows.append(Row("cadence", "statements for each occurrence, fewer than " + ", ".join(rivals),
                            f"{own.commands:.1f}", f"< {least:.1f}", own.commands < least))  # fmt: skip
    columns = ("", "duplicates", "missed", "p50", "p99", "max", f"statements for each second, {NODES} nodes")
    note = (
        f"{NODES} nodes each, {seconds} s each, one after the other on the same {places.kind}. "
        f"Statements are counted by {places.counts}."
    )
    return [Table(f"One job each second on {places.kind}", columns, lines, (note,)), *rows]


def _measure(places: Places, peer: Peer, seconds: int) -> Cadence:
    url = places.fresh()
    with team(peer, url) as members:
        for _ in range(NODES):
            members.start("ticking")
        for _ in range(peer.schedulers):
            members.start("scheduler")
        try:
            wait_until(lambda: len(members.lines("ticks")) >= 3, 40, f"{peer.name} to tick")
        except TimeoutError:
            raise PeerFailed(f"did not tick within 40 s: {members.last_words()}") from None
        time.sleep(10)  # as ours
        begun = time.time()
        count = 0 if places.kind == "redis" else places.sent(url)
        time.sleep(seconds)
        ended = time.time()
        commands, inside = commands_each_second(places, url, (count, begun), min(seconds, 20))
        time.sleep(2)
        return replace(judge(members.lines("ticks"), begun, ended), commands=commands, inside=inside)


def _line(name: str, measured: Cadence | str) -> tuple[str, ...]:
    if isinstance(measured, str):
        return name, measured, *[""] * 5
    late = measured.late
    times = (milliseconds(quantile(late, q)) for q in (0.5, 0.99, 1.0))
    return name, str(measured.twice), str(measured.missed), *times, spent(measured)
