"""Run the benchmarks and print their tables. ``make bench ARGS="cadence drain --store postgres --peers"``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.places import KINDS, open_places
from bench.table import Row, Table, machine, markdown, say

BENCHES = ("startup", "cadence", "takeover", "freeze", "drain", "herd", "crowd", "stored", "idle", "lock")
BESIDE_PEERS = ("cadence", "takeover", "drain")


def main() -> int:
    """Return 0 if every figure that has a goal reaches it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="*", default=None, help=", ".join(BENCHES))
    parser.add_argument("--store", choices=KINDS, default="sqlite", help="where: a server is started for it")
    parser.add_argument("--peers", action="store_true", help=f"beside other libraries: {', '.join(BESIDE_PEERS)}")
    parser.add_argument("--jobs", type=int, help="how many jobs `stored` stores: 1000000 on postgres")
    parser.add_argument("--quick", action="store_true", help="a short look; its figures are not for quoting")
    options = parser.parse_args()
    known = BESIDE_PEERS if options.peers else BENCHES
    unknown = set(options.benches or ()) - set(known)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.peers and options.store not in {"postgres", "redis"}:
        parser.error(f"peers run on postgres and on redis; add --store to --peers, not {options.store}")
    # Being told to end must not leave nodes and peers behind: what is open is closed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    results: list[Row | Table] = []
    with open_places(options.store) as places:
        for name in options.benches or known:
            say(f"{name} on {options.store} …")
            module = importlib.import_module(f"bench.peers.{name}" if options.peers else f"bench.{name}")
            more = {"jobs": options.jobs} if name == "stored" else {}
            measured = module.bench(places, quick=options.quick, **more)
            say(markdown(measured))
            results += measured
    print(f"\n{machine()}, {options.store}{' (quick)' if options.quick else ''}\n\n{markdown(results)}")
    return 0 if all(each.ok is not False for each in results if isinstance(each, Row)) else 1


if __name__ == "__main__":
    sys.exit(main())
