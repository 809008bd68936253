"""Enqueued no-op jobs, 2 worker processes: ours, each peer, the bare limit, one after the other on the same server."""

from __future__ import annotations

from bench import drain
from bench.drain import WORKERS
from bench.peers.environments import CannotInstall
from bench.peers.field import PEERS, Peer, PeerFailed, team
from bench.places import Places
from bench.steady import Drained, Stuck, drained
from bench.table import Row, Table, quantile, say

TIMES = {"postgres": 5.0, "redis": 1.5}
"""How many times the fastest peer ours has to reach."""


def bench(places: Places, *, quick: bool) -> list[Row | Table]:
    """Measure each from the moment when both of its workers are at it; of a peer, the best concurrency counts."""
    jobs, rounds = (2_400, 1) if quick else (12_000, 3)
    own = [drain.ours(places, jobs, "noop") for _ in range(rounds)]
    say(f"  cronsensus: {own}")
    rate = quantile([each.rate for each in own], 0.5)
    lines: list[tuple[str, ...]] = [
        (f"cronsensus, {drain.CONCURRENCY} at a time, async", f"{rate:,.0f}", f"{own[-1].measured:,}", "")
    ]
    plain = drain.ours(places, jobs, "plain")
    lines.append(("cronsensus, the same on threads", f"{plain.rate:,.0f}", f"{plain.measured:,}", ""))
    best = 0.0
    for peer in PEERS:
        if not peer.drains or places.kind not in peer.stores:
            continue
        for concurrency in peer.drains[-1:] if quick else peer.drains:
            title = f"{peer.title()}, {concurrency} at a time"
            try:
                found = _measure(places, peer, jobs, concurrency)
            except (CannotInstall, PeerFailed, Stuck) as error:
                lines.append((title, "", "", str(error)))
            else:
                best = max(best, found.rate)
                lines.append((title, f"{found.rate:,.0f}", f"{found.measured:,}", f"{rate / found.rate:.1f} times"))
            say(f"  {lines[-1]}")
    own_again = drain.ours(places, jobs, "noop").rate
    lines.append(("cronsensus, async, once more at the end", f"{own_again:,.0f}", "", ""))
    note = (
        f"{jobs:,} jobs, enqueued before {WORKERS} worker processes are started; the clock starts when both have run one, so "
        "the third column says how many it counts. Ours ends when the ledger has all of them; a peer when the last "
        "job's body has run."
    )
    table = Table(f"Draining on {places.kind}", ("", "jobs a second", "counted", "ours to it"), lines, (note,))
    rows = drain.raw_limit(places, jobs, rate)
    if best:
        goal = TIMES[places.kind]
        rows.append(Row("drain", "ratio to the fastest peer", f"{rate / best:.1f} times", f"≥ {goal:g} times",
                        rate / best >= goal))  # fmt: skip
    return [table, *rows]


def _measure(places: Places, peer: Peer, jobs: int, concurrency: int) -> Drained:
    with team(peer, places.fresh(), concurrency=concurrency) as members:
        members.run("fill", str(jobs))
        for _ in range(WORKERS):
            members.start("node")
        try:
            return drained(members.folder, WORKERS, jobs, seconds=120)
        except Stuck as stuck:
            raise Stuck(f"{stuck}; {members.last_words()}") from None
