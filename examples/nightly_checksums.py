"""A night's list over all nodes: the checksum of each file below a folder, collected into one report.

    python examples/nightly_checksums.py FOLDER sqlite:///night.db

Start it in as many terminals as you like, on as many machines as share the folder and the store. One of them lists the
files at 02:00; all of them sum; if one dies, the others do what it had begun. To have it now:

    cronsensus --url sqlite:///night.db jobs trigger checksum
    cronsensus --url sqlite:///night.db runs watch 1
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cronsensus import Run, Scheduler, cron

FOLDER, URL = (
    Path(sys.argv[1] if len(sys.argv) > 1 else "."),
    sys.argv[2] if len(sys.argv) > 2 else "sqlite:///night.db",
)
REPORT = FOLDER.with_name(FOLDER.name + ".checksums.json")

scheduler = Scheduler(URL, concurrency=2, lease="3s")


def files() -> Iterator[str]:
    """List what is to be summed; called once a night, by one node."""
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(FOLDER))


def report(sums: Iterable[tuple[str, str]]) -> int:
    """Write what all nodes found; called when the last file is done."""
    found = dict(sums)
    REPORT.write_text(json.dumps(found, indent=1, sort_keys=True))
    return len(found)


@scheduler.job(cron("0 2 * * *", tz="Europe/Berlin"), items=files, collect=report, retries=2, tolerate="1%")
def checksum(name: str, run: Run) -> tuple[str, str]:
    """Sum one file."""
    digest = hashlib.sha256()
    with (FOLDER / name).open("rb") as file:
        while block := file.read(1 << 20):
            run.check()
            digest.update(block)
    return name, digest.hexdigest()


if __name__ == "__main__":
    scheduler.run()
