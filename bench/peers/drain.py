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


OURS = {"noop": f"cronsensus, async, {drain.CONCURRENCY} at a time", "plain": "cronsensus, the same on threads"}


def bench(places: Places, *, quick: bool) -> list[Row | Table]:
    """Measure all in turns, thrice, and compare the medians; of a peer, only the best concurrency has another turn."""
    jobs, rounds = (2_400, 1) if quick else (12_000, 3)
    drains: dict[str, list[Drained]] = {}
    failed: dict[str, str] = {}
    limits: list[dict[int, float]] = []
    field = [(peer, peer.drains) for peer in PEERS if peer.drains and places.kind in peer.stores]
    for _ in range(rounds):
        for job, name in OURS.items():
            drains.setdefault(name, []).append(drain.ours(places, jobs, job))
            say(f"  {name}: {drains[name][-1]}")
        for number, (peer, concurrencies) in enumerate(field):
            for concurrency in concurrencies[-1:] if quick else concurrencies:
                name = _name(peer, concurrency)
                try:
                    drains.setdefault(name, []).append(_measure(places, peer, jobs, concurrency))
                except (CannotInstall, PeerFailed, Stuck) as error:
                    failed[name] = str(error)
                say(f"  {name}: {drains.get(name, [])[-1:] or failed[name]}")
            best = max(concurrencies, key=lambda each: _rate(drains.get(_name(peer, each))))
            field[number] = peer, (best,)
        limits.append(drain.raw(places, jobs))
    rate = _rate(drains[OURS["noop"]])
    lines = [_line(name, each, rate, failed.get(name, "")) for name, each in drains.items()]
    rows = drain.share_of_raw(limits, rate)
    if fastest := max((_rate(each) for name, each in drains.items() if name not in OURS.values()), default=0.0):
        goal = TIMES[places.kind]
        rows.append(Row("drain", "ratio to the fastest peer", f"{rate / fastest:.1f} times", f"≥ {goal:g} times",
                        rate / fastest >= goal))  # fmt: skip
    note = (
        f"{jobs:,} jobs, enqueued before {WORKERS} worker processes are started; the clock starts when both have run "
        "one: the third column says how many are left then. Ours ends when the ledger has all of them; a peer when the "
        "last job's body has run. In turns; the median of several rounds."
    )
    columns = ("", "jobs a second", "counted", "rounds", "ours to it")
    return [Table(f"Draining on {places.kind}", columns, lines, (note,)), *rows]


def _name(peer: Peer, concurrency: int) -> str:
    return f"{peer.title()}, {concurrency} at a time"


def _rate(drains: list[Drained] | None) -> float:
    return quantile([each.rate for each in drains], 0.5) if drains else 0.0


def _line(name: str, drains: list[Drained], rate: float, failure: str) -> tuple[str, ...]:
    if not drains:
        return name, failure, "", "", ""
    counted = f"{min(each.measured for each in drains):,}"
    ratio = "" if name in OURS.values() else f"{rate / _rate(drains):.1f} times"
    return name, f"{_rate(drains):,.0f}", counted, f"{len(drains)}{f'; {failure}' if failure else ''}", ratio


def _measure(places: Places, peer: Peer, jobs: int, concurrency: int) -> Drained:
    with team(peer, places.fresh(), concurrency=concurrency) as members:
        members.run("fill", str(jobs))
        for _ in range(WORKERS):
            members.start("node")
        try:
            return drained(members.folder, WORKERS, jobs, seconds=120)
        except Stuck as stuck:
            raise Stuck(f"{stuck}; {members.last_words()}") from None
