"""What does an idle process keep open: threads besides the main one, and connections (SQLite: its file, opened)?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.options import Options
from bench.places import Places
from bench.table import Row, say

APP = Path(__file__).parent / "apps" / "idle_process.py"
MOST = {"threads": 6, "connections": 4}


def bench(places: Places, options: Options) -> list[Row]:
    """Count in a process of its own, after each step."""
    settle = "15" if options.quick else "30"
    ran = subprocess.run(
        [sys.executable, str(APP), places.by_way(places.fresh()), settle],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    rows = []
    for line in ran.stdout.splitlines():
        found = json.loads(line)
        say(f"  {found['with']}: {', '.join(found['threads'])}")
        for what, most in MOST.items():
            number = found[what] if what == "connections" else len(found[what])
            rows.append(
                Row(
                    "footprint",
                    f"{what} of an idle process with {found['with']}",
                    str(number),
                    f"≤ {most}",
                    number <= most,
                )
            )
    return rows
