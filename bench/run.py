"""Run the benchmarks and print one table. ``make bench ARGS="cadence drain --quick"`` runs some of them."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, machine, markdown, say

BENCHES = ("startup", "cadence", "takeover", "freeze", "drain", "stored", "idle", "lock")


def main() -> int:
    """Return 0 if every figure that has a goal reaches it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="*", default=list(BENCHES), help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="a short look; its figures are not for quoting")
    options = parser.parse_args()
    unknown = set(options.benches) - set(BENCHES)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    rows: list[Row] = []
    for name in options.benches:
        say(f"{name} …")
        rows += importlib.import_module(f"bench.{name}").bench(quick=options.quick)
        say(markdown([row for row in rows if row.bench == name]))
    print(f"\n{machine()}{' (quick)' if options.quick else ''}\n\n{markdown(rows)}")
    return 0 if all(row.ok is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
