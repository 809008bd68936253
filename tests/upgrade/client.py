"""A program of one version that enqueues, locks and calls guarded functions: ``client.py work|hold``.

``work``: does so until the file ``stop`` is there; then reads the results of what both sides have enqueued, and prints
them. ``hold``: takes the lock ``held by SIDE`` and keeps it until it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from upgrade_jobs import charge, flaky, order, say, scheduler  # type: ignore[import-not-found]

FOLDER = Path(os.environ["UPGRADE_FOLDER"])
SIDE = os.environ["UPGRADE_SIDE"]
SIDES = ("old", "new")
OTHER = "new" if SIDE == "old" else "old"


def enqueued(job, key, number):
    """Enqueue, in the words of the version; what stands under the key already is found."""
    if hasattr(job, "options"):
        return job.options(key=key).enqueue(number)
    return job.enqueue(number, key=key)


def count() -> None:
    """Add one to a number in a file, under a lock."""
    with scheduler.lock("counter", ttl="5s") as lease:
        counter = FOLDER / "counter"
        number = int(counter.read_text()) if counter.exists() else 0
        threading.Event().wait(0.005)
        counter.write_text(str(number + 1))
        say("locks.jsonl", side=SIDE, token=lease.token)


def rounds(side: str) -> int:
    """Return how many rounds a side has gone."""
    done = FOLDER / f"rounds-{side}.jsonl"
    return len(done.read_bytes().splitlines()) if done.exists() else 0


def take_over_locks() -> None:
    """Take the locks whose holders were killed, as soon as they are free."""
    for asked in FOLDER.glob("take-*"):
        name = asked.name.removeprefix("take-")
        taken = FOLDER / f"taken-{name}-{SIDE}"
        if not taken.exists():
            with scheduler.lock(f"held by {name}", ttl="5s"):
                taken.touch()


def work() -> None:
    """See above."""
    number = 0
    while not (FOLDER / "stop").exists():
        number += 1
        for part in range(4):
            enqueued(order, f"{SIDE}:{number}:{part}", number)
        enqueued(flaky, f"{SIDE}:{number}", number)
        charge(f"{SIDE}:{number}")
        charge(f"{OTHER}:{rounds(OTHER) + 1}")
        charge(f"together:{(number + rounds(OTHER)) // 2}")
        count()
        take_over_locks()
        say(f"rounds-{SIDE}.jsonl", number=number)
        threading.Event().wait(0.2)
    (FOLDER / f"did-{SIDE}").write_text(str(number))
    while not all((FOLDER / f"did-{side}").exists() for side in SIDES):
        threading.Event().wait(0.05)
    results: dict[str, object] = {}
    for side in SIDES:
        for each in range(1, int((FOLDER / f"did-{side}").read_text()) + 1):
            for part in range(4):
                key = f"{side}:{each}:{part}"
                results[f"order {key}"] = enqueued(order, key, each).result("60s")
            results[f"flaky {side}:{each}"] = enqueued(flaky, f"{side}:{each}", each).result("60s")[0]
            results[f"charge {side}:{each}"] = charge(f"{side}:{each}")
    print(json.dumps(results, sort_keys=True))


def hold() -> None:
    """See above."""
    with scheduler.lock(f"held by {SIDE}", ttl="5s"):
        (FOLDER / f"holds-{SIDE}").touch()
        threading.Event().wait(600)


{"work": work, "hold": hold}[sys.argv[1]]()
