"""4 nodes, one job each second: ours, then each peer, one after the other on the same server."""

from __future__ import annotations

import time
from dataclasses import replace

from bench import cadence
from bench.cadence import NODES, Cadence, judge
from bench.cost import Meter
from bench.nodes import wait_until
from bench.options import Options
from bench.peers.environments import CannotInstall
from bench.peers.field import Peer, PeerFailed, field, team
from bench.places import Places
from bench.table import Row, Table, milliseconds, quantile, say


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Measure the same for all, by what the jobs themselves write down."""
    seconds = options.seconds or (15 if options.quick else 60)
    measured: dict[str, Cadence | str] = {}
    own, _, wrong = cadence.ours(places, seconds)
    measured["cronsensus"] = own
    peers = [peer for peer in field(places.kind, options) if peer.ticks]
    for peer in peers:
        try:
            measured[peer.title()] = measure_peer(places, peer, seconds)
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
            peer.title(): each.cost
            for peer in peers
            if peer.library in {"procrastinate", "arq", "saq", "apscheduler4"}
            and isinstance(each := measured[peer.title()], Cadence)
            and each.cost
        }
        if rivals and own.cost:
            fewer = "for each occurrence, fewer than " + ", ".join(rivals)
            compared = [("statements that clients send", own.cost.sent, [cost.sent for cost in rivals.values()])]
            if places.kind == "redis":
                executed = [cost.executed for cost in rivals.values()]
                compared.append(("commands that the server executes", own.cost.executed, executed))
            for what, mine, theirs in compared:
                rows.append(
                    Row("cadence", f"{what} {fewer}", f"{mine:.1f}", f"< {min(theirs):.1f}", mine < min(theirs))
                )
    columns = ("", "duplicates", "missed", "p50", "p99", "max", "sent", "executed", "round trips", "server")
    note = (
        f"{NODES} nodes each, {seconds} s each, one after the other on the same {places.where()}. For each second, all "
        f"nodes together: statements sent ({places.counts}), statements executed (on Redis with those inside scripts), "
        "round trips (counted by the network between nodes and server, where there is one), processor time of the "
        "server."
    )
    return [Table(f"One job each second on {places.where()}", columns, lines, (note,)), *rows]


def measure_peer(places: Places, peer: Peer, seconds: int) -> Cadence:
    url = places.fresh()
    with team(peer, places.by_way(url), near=url) as members:
        for _ in range(NODES):
            members.start("ticking")
        for _ in range(peer.schedulers):
            members.start("scheduler")
        try:
            wait_until(lambda: len(members.lines("ticks")) >= 3, 40, f"{peer.name} to tick")
        except TimeoutError:
            raise PeerFailed(f"did not tick within 40 s: {members.last_words()}") from None
        time.sleep(10)  # as ours
        begun, meter = time.time(), Meter(places, url)
        time.sleep(seconds)
        ended = time.time()
        cost = meter.read()
        time.sleep(2)
        members.kill()
        return replace(judge(members.lines("ticks"), begun, ended), cost=cost)


def _line(name: str, measured: Cadence | str) -> tuple[str, ...]:
    if isinstance(measured, str):
        return name, measured, *[""] * 8
    late, cost = measured.late, measured.cost
    assert cost is not None
    times = (milliseconds(quantile(late, q)) for q in (0.5, 0.99, 1.0))
    trips = f"{cost.round_trips:.1f}" if cost.round_trips else ""
    costs = f"{cost.sent:.1f}", f"{cost.executed:.1f}", trips, f"{cost.milliseconds:.1f} ms"
    return name, str(measured.twice), str(measured.missed), *times, *costs
