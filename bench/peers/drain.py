"""Enqueued no-op jobs, 2 worker processes: ours, each peer, the bare limit, one after the other on the same server."""

from __future__ import annotations

from dataclasses import replace

from bench import drain
from bench.drain import OURS, SECONDS, WORKERS, probe, rate_of, size
from bench.options import Options
from bench.peers.environments import CannotInstall
from bench.peers.field import Peer, PeerFailed, field, team
from bench.places import Places
from bench.steady import Drained, Stuck, TooFew, drained, with_enough
from bench.table import Row, Table, say

TIMES = {"postgres": 5.0, "redis": 1.5}
"""How many times the fastest peer ours has to reach."""
HIGHEST = 512
"""The search for a peer's best concurrency ends there."""
PATIENCE = 60.0, 120.0
"""Seconds to wait for a peer in that search, where a concurrency may be more than the server can bear, and after it."""


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Find the best concurrency of each peer; measure all in turns, several times, and compare the medians."""
    rounds = options.rounds or (1 if options.quick else 3)
    sizes = {way: size(drain.ours(places, probe(options), way).rate, options) for way in OURS}
    drains: dict[str, list[Drained]] = {way.name: [] for way in OURS}
    failed: dict[str, str] = {}
    chosen: list[tuple[Peer, int, int]] = []
    for peer in field(places.kind, options):
        if not peer.drains:
            continue
        try:
            best, rate = _best(places, peer, options)
        except (CannotInstall, PeerFailed, Stuck) as error:
            failed[peer.title()] = str(error)
        else:
            chosen.append((peer, best, size(rate, options)))
            drains[_name(peer, best)] = []
    limits: list[dict[int, float]] = []
    for _ in range(rounds):
        for way, jobs in sizes.items():
            drains[way.name].append(drain.ours(places, jobs, way))
            say(f"  {way.name}: {drains[way.name][-1]}")
        for peer, concurrency, jobs in chosen:
            name = _name(peer, concurrency)
            try:
                drains[name].append(_measured(places, peer, jobs, concurrency, PATIENCE[1]))
            except (PeerFailed, Stuck) as error:
                failed[name] = str(error)
            say(f"  {name}: {drains[name][-1:] or failed[name]}")
        limits.append(drain.raw(places, options))
    rate = rate_of(drains[OURS[0].name])
    names = {way.name for way in OURS}
    lines = [_line(name, each, 0 if name in names else rate, failed.get(name, "")) for name, each in drains.items()]
    lines += [_line(name, [], rate, reason) for name, reason in failed.items() if name not in drains]
    rows = drain.share_of_raw(limits, rate)
    if fastest := max((rate_of(each) for name, each in drains.items() if name not in names), default=0.0):
        goal = TIMES[places.kind]
        rows.append(Row("drain", "ratio to the fastest peer", f"{rate / fastest:.1f} times", f"≥ {goal:g} times",
                        rate / fastest >= goal))  # fmt: skip
    note = (
        f"Enqueued before {WORKERS} worker processes are started; the clock starts when both have run one. Ours ends "
        "when the ledger has all of them; a peer when the last job's body has run. Of each peer the best concurrency "
        f"of those tried, twice as many each time until that is no better; then in turns, {rounds} rounds, with as "
        f"many jobs as take it about {SECONDS} s; medians. Round trips are those of all processes."
    )
    columns = ("", "jobs a second", "jobs", "rounds", "round trips a job", "ours to it")
    return [Table(f"Draining on {places.where()}", columns, lines, (note,)), *rows]


def _best(places: Places, peer: Peer, options: Options) -> tuple[int, float]:
    """Return the best concurrency, and its rate: neither half nor twice as much is better, unless it is an end.

    Raises:
        CannotInstall, PeerFailed, Stuck: at the first that was tried.
    """
    rates: dict[int, float] = {}

    def attempt(concurrency: int) -> None:
        # Of one that is known to be slow, not more than take it a few seconds.
        jobs = int(min(probe(options), max(rates.values(), default=probe(options)) * 2 * SECONDS))
        try:
            rates[concurrency] = _measured(places, peer, jobs, concurrency, PATIENCE[0]).rate
        except (PeerFailed, Stuck) as error:
            if not rates:
                raise
            say(f"  {_name(peer, concurrency)}: {error}")
            rates[concurrency] = 0.0
        say(f"  {_name(peer, concurrency)}: {rates[concurrency]:,.0f}/s")

    for concurrency in peer.drains[-1:] if options.quick else peer.drains:
        attempt(concurrency)
    while not options.quick:
        best = max(rates, key=lambda each: rates[each])
        if best == max(rates) and best * 2 <= HIGHEST:
            attempt(best * 2)
        elif best == min(rates) and best > 1:
            attempt(best // 2)
        else:
            break
    best = max(rates, key=lambda each: rates[each])
    return best, rates[best]


def _name(peer: Peer, concurrency: int) -> str:
    return f"{peer.title()}, {concurrency} at a time"


def _line(name: str, drains: list[Drained], rate: float, failure: str) -> tuple[str, ...]:
    if not drains:
        return name, failure, *[""] * 4
    ratio = f"{rate / rate_of(drains):.1f} times" if rate else ""
    trips = f"{drains[-1].round_trips:.2f}" if drains[-1].round_trips else ""
    rounds = f"{len(drains)}{f'; {failure}' if failure else ''}"
    return name, f"{rate_of(drains):,.0f}", f"{drains[-1].jobs:,}", rounds, trips, ratio


def _measured(places: Places, peer: Peer, jobs: int, concurrency: int, patience: float) -> Drained:
    return with_enough(lambda jobs: _measure(places, peer, jobs, concurrency, patience), jobs)


def _measure(places: Places, peer: Peer, jobs: int, concurrency: int, patience: float) -> Drained:
    near = places.fresh()
    with team(peer, places.by_way(near), concurrency=concurrency, near=near) as members:
        members.fill(jobs)
        before = places.round_trips()
        for _ in range(WORKERS):
            members.start("node")
        try:
            measured = drained(members.folder, WORKERS, jobs, seconds=patience)
        except TooFew:
            raise
        except Stuck as stuck:
            raise Stuck(f"{stuck}; {members.last_words()}") from None
        members.kill()
        return replace(measured, round_trips=(places.round_trips() - before) / jobs)
