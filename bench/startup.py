"""What an import and a help page cost, each with the interpreter's own start."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile


def bench(places: Places, options: Options) -> list[Row]:
    """Measure beside an interpreter that does nothing, in turns."""
    del places
    times = 5 if options.quick else 20
    commands = {
        "nothing": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import cronsensus"],
        "scheduler": [sys.executable, "-c", "from cronsensus import Scheduler, cron, every, Run"],
        "help": [sys.executable, "-m", "cronsensus", "--help"],
    }
    # What is installed has its byte code beside it; here the first of each writes it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(times + 1):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
            seconds[name].append(time.perf_counter() - begun)
    seconds = {name: taken[1:] for name, taken in seconds.items()}
    bare = quantile(seconds["nothing"], 0.5)
    imported, helped = quantile(seconds["import"], 0.5), quantile(seconds["help"], 0.5)
    scheduler = quantile(seconds["scheduler"], 0.5)
    return [
        Row("startup", "python -c pass", milliseconds(bare)),
        Row("startup", "import cronsensus", milliseconds(imported), "≤ 150 ms", imported <= 0.150),
        Row("startup", "from cronsensus import Scheduler, cron, every, Run", milliseconds(scheduler)),
        Row("startup", "cronsensus --help", milliseconds(helped), "≤ 200 ms", helped <= 0.200),
    ]  # fmt: skip
