"""Real nodes, as a user starts them: ``python -m cronsensus run`` in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.places import Places
from cronsensus.stores import Store, open_store

APPS = Path(__file__).parent / "apps"
QUIET = {"CRONSENSUS_LOG_LEVEL": "warning"}


class Cluster:
    """Nodes on a fresh place, and a folder for what they leave. Ends only what it started."""

    def __init__(self, folder: Path, app: str, url: str, way: str) -> None:
        """Make the place at ``url``; nodes reach it by ``way``."""
        self.folder = folder
        self.app = app
        self.url = url
        self.way = way
        self.evidence = folder / "evidence.txt"
        self.evidence.touch()
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.store: Store = open_store(self.url)
        self.store.migrate()

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """Return the environment of a node, which logs no line for each run, as peers are told not to."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        own = {"CRONSENSUS_URL": self.way, "EVIDENCE": str(self.evidence), "PYTHONPATH": str(APPS)}
        return {**kept, **own, **QUIET, **more}

    def start(
        self, environment: dict[str, str] | None = None, *, concurrency: int | None = 20
    ) -> subprocess.Popen[bytes]:
        """Start a node and return at once. ``concurrency=None``: its default."""
        command = [
            sys.executable,
            "-m",
            "cronsensus",
            "run",
            f"{self.app}:scheduler",
            *([] if concurrency is None else ["--concurrency", str(concurrency)]),
        ]
        with (self.folder / f"node{len(self.nodes)}.log").open("wb") as log:
            node = subprocess.Popen(
                command, env=self.environment(environment or {}), cwd=self.folder, stdout=log, stderr=log
            )
        self.nodes.append(node)
        return node

    def wait_for_sessions(self, count: int, seconds: float = 120) -> None:
        """Wait until so many nodes have a session, and the jobs are declared."""
        wait_until(lambda: len(self.store.sessions()) >= count, seconds, f"{count} nodes on {self.url}")
        wait_until(lambda: bool(self.store.jobs(limit=1)), seconds, f"jobs in {self.url}")

    def lines(self) -> list[list[str]]:
        """Return the evidence, line by line, in words."""
        return [line.split() for line in self.evidence.read_text().splitlines()]

    def close(self) -> None:
        """Stop the nodes in order; kill what does not stop."""
        for node in self.nodes:
            if node.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    node.send_signal(signal.SIGCONT)
                    node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self.store.close()


@contextlib.contextmanager
def cluster(app: str, places: Places) -> Iterator[Cluster]:
    """Give a cluster on a fresh place, and take it away afterwards."""
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-") as folder:
        url = places.fresh()
        made = Cluster(Path(folder), app, url, places.by_way(url))
        try:
            yield made
        finally:
            made.close()


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition, looking a thousand times a second.

    Raises:
        TimeoutError: it did not come about in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.001)
