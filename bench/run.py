"""Run the benchmarks and print their tables. ``make bench ARGS="cadence drain --store postgres --peers"``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.options import Options
from bench.peers.field import LIBRARIES
from bench.places import KINDS, open_places
from bench.table import Row, Table, machine, markdown, say

BESIDE_PEERS = ("cadence", "takeover", "drain", "enqueue")
BENCHES = (
    "readme",
    "startup",
    *BESIDE_PEERS,
    "batch",
    "chain",
    "freeze",
    "herd",
    "crowd",
    "stored",
    "idle",
    "lock",
    "trips",
    "footprint",
    "apscheduler",
    "commit",
    "celery_everywhere",
    "rabbitmq",
    "pages",
    "metrics",
    "alerts",
)


def main() -> int:
    """Return 0 if every figure that has a goal reaches it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="*", default=None, help=", ".join(BENCHES))
    parser.add_argument("--store", choices=KINDS, default="sqlite", help="where: a server is started for it")
    parser.add_argument("--peers", action="store_true", help=f"beside other libraries: {', '.join(BESIDE_PEERS)}")
    parser.add_argument(
        "--network-ms",
        type=_distances,
        default=(0.0,),
        metavar="MS[,MS…]",
        help="milliseconds of a round trip to the server: 0,1,10 measures thrice",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        help="how many jobs `stored` stores (1000000 on postgres), `drain` drains, items `batch` has",
    )
    parser.add_argument("--seconds", type=int, help="for how long `cadence` and `apscheduler` measure (60)")
    parser.add_argument(
        "--rounds",
        type=int,
        help="how often `drain` measures each (3), `takeover` kills ours (20), `lock` hands each lock around (60), "
        "`pages` asks each (40), `metrics` scrapes (100), `rabbitmq` measures each (5)",
    )
    parser.add_argument("--only", type=_words, default=(), metavar="LIBRARY[,…]", help="with --peers: these and ours")
    parser.add_argument("--quick", action="store_true", help="a short look; its figures are not for quoting")
    options = parser.parse_args()
    known = BESIDE_PEERS if options.peers else BENCHES
    unknown = set(options.benches or ()) - set(known)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.peers and options.store not in {"postgres", "redis"}:
        parser.error(f"peers run on postgres and on redis; add --store to --peers, not {options.store}")
    if options.store == "sqlite" and any(options.network_ms):
        parser.error("a file is nowhere else; add --store to --network-ms")
    if strangers := set(options.only) - set(LIBRARIES):
        parser.error(f"no such library: {', '.join(sorted(strangers))}; there are {', '.join(LIBRARIES)}")
    # Being told to end must not leave nodes and peers behind: what is open is closed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    told = Options(
        quick=options.quick, jobs=options.jobs, seconds=options.seconds, rounds=options.rounds, only=options.only
    )
    results: list[Row | Table] = []
    for milliseconds in options.network_ms:
        with open_places(options.store, milliseconds) as places:
            for name in options.benches or [one for one in known if one != "readme"]:
                say(f"{name} on {places.where()} …")
                module = importlib.import_module(f"bench.peers.{name}" if options.peers else f"bench.{name}")
                measured = (
                    [_at_a_distance(each, places.where()) for each in module.bench(places, told)]
                    if milliseconds
                    else module.bench(places, told)
                )
                say(markdown(measured))
                results += measured
    print(f"\n{machine()}, {options.store}{' (quick)' if options.quick else ''}\n\n{markdown(results)}")
    return 0 if all(each.ok is not False for each in results if isinstance(each, Row)) else 1


def _at_a_distance(result: Row | Table, where: str) -> Row | Table:
    """Return a result with the distance in its name. Goals are for nodes beside their server."""
    if isinstance(result, Table):
        return result
    return replace(result, bench=f"{result.bench} on {where}", goal="", ok=None)


def _distances(text: str) -> tuple[float, ...]:
    return tuple(float(each) for each in text.split(","))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
