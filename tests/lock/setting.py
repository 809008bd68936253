"""Workers that add elements to a set in a file, which they read, and write whole, under the lock; etcd's own test.

``setting URL FOLDER WORKER FENCED``, until there is a file ``stop``. Some take longer than the TTL between reading and
writing, because they are stopped from outside. FENCED: the file looks at the token of who reads or writes, and refuses
an older one. Each element that was written, as far as the worker could see, is noted in a file of the worker's own.
"""

import fcntl
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

from cronsensus import LeaseLost, StoreError
from tests.lock.counting import NOBODY
from tests.lock.places import lock_at


class Stale(Exception):
    """Somebody with a higher token was here."""


class Resource:
    """What the lock protects. Each call is one step; ``fenced``, it refuses an older token."""

    def __init__(self, path: Path, *, fenced: bool) -> None:
        self._path = path
        self._guard = os.open(path.with_suffix(".guard"), os.O_RDWR | os.O_CREAT)
        self._fenced = fenced

    def read(self, token: int) -> list[int]:
        return self._step(token, None)

    def write(self, token: int, elements: list[int]) -> None:
        self._step(token, elements)

    def _step(self, token: int, elements: list[int] | None) -> list[int]:
        fcntl.flock(self._guard, fcntl.LOCK_EX)
        try:
            text = self._path.read_text() if self._path.exists() else '{"token": 0, "elements": []}'
            held: Any = json.loads(text)
            if token == held["token"] and held["of"] != os.getpid():
                raise AssertionError(f"two holders have the token {token}")
            if self._fenced and token < held["token"]:
                raise Stale
            found: list[int] = held["elements"]
            # A read counts, too: what was read under this token must not be changed under an older one.
            new = {
                "token": max(token, held["token"]),
                "of": os.getpid() if token >= held["token"] else held["of"],
                "elements": found if elements is None else elements,
            }
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(new))
            fresh.rename(self._path)
            return found
        finally:
            fcntl.flock(self._guard, fcntl.LOCK_UN)


def main() -> None:
    url, folder, worker, fenced = sys.argv[1:]
    resource = Resource(Path(folder) / "set", fenced=fenced == "fenced")
    lock = lock_at(url, "set", ttl="1s")
    holder = os.open(Path(folder) / "holder", os.O_RDWR | os.O_CREAT)
    stop, number, stale, lost, away = Path(folder) / "stop", 0, 0, 0, 0
    with (Path(folder) / f"done-{worker}").open("a") as done:
        while not stop.exists():
            number += 1
            element = int(worker) * 1_000_000 + number
            try:
                with lock as lease:
                    os.pwrite(holder, str(os.getpid()).encode().ljust(len(NOBODY)), 0)
                    elements = resource.read(lease.token)
                    threading.Event().wait(random.random() * 0.03)
                    resource.write(lease.token, [*elements, element])
                    done.write(f"{element}\n")
                    done.flush()
                    os.pwrite(holder, NOBODY, 0)
            except Stale:
                stale += 1
            except LeaseLost:
                lost += 1
            except StoreError:
                away += 1
                threading.Event().wait(0.05)
    print(json.dumps({"tried": number, "stale": stale, "lost": lost, "away": away}))


if __name__ == "__main__":
    main()
