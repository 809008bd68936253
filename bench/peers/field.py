"""The peers: what each is, and its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.peers.environments import REQUIREMENTS, python_of

APPS = Path(__file__).parent / "apps"


class PeerFailed(Exception):
    """A peer did not do what was asked; the message holds the end of what it said."""


@dataclass(frozen=True)
class Peer:
    """A library in an environment of its own, and an application of it in ``apps/``.

    Attributes:
        name: as printed; its version is added.
        library: the environment, and ``apps/{library}_app.py``.
        distribution: whose version is printed.
        stores: of ours, those that it can run on.
        ticks: it has a clock that gives a job each second.
        schedulers: it needs so many processes beside the nodes for that.
        drains: the concurrencies to try when it works a queue off; the best one counts.
        takes_over: it is asked what becomes of a killed node's run.
        options: environment variables for the application.
    """

    name: str
    library: str
    distribution: str
    stores: tuple[str, ...]
    ticks: bool = False
    schedulers: int = 0
    drains: tuple[int, ...] = ()
    takes_over: bool = False
    options: dict[str, str] = field(default_factory=dict)

    def title(self) -> str:
        """Return the name with the version."""
        return f"{self.name} ({_version(self.library, self.distribution)})"


@cache
def _version(library: str, distribution: str) -> str:
    for line in (REQUIREMENTS / f"{library}.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        if name.lower() == distribution:
            return version.partition(" ")[0]
    raise LookupError(f"requirements/{library}.txt pins no {distribution}")


PEERS = (
    Peer("taskiq, one scheduler", "taskiq", "taskiq", ("redis",), ticks=True, schedulers=1),
    Peer("Celery + RedBeat", "celery", "celery-redbeat", ("redis",), ticks=True, schedulers=4),
    Peer("APScheduler 3 + SET NX", "apscheduler3", "apscheduler", ("redis",), ticks=True),
    Peer("arq", "arq", "arq", ("redis",), ticks=True, drains=(10, 100), takes_over=True),
    Peer("SAQ", "saq", "saq", ("redis", "postgres"), ticks=True, drains=(10, 100), takes_over=True),
    Peer(
        "Procrastinate", "procrastinate", "procrastinate", ("postgres",), ticks=True, drains=(10, 100), takes_over=True
    ),
    Peer("APScheduler", "apscheduler4", "apscheduler", ("postgres",), ticks=True),
    Peer("Celery", "celery", "celery", ("redis",), takes_over=True),
    Peer("huey", "huey", "huey", ("redis", "postgres"), drains=(1, 8, 32)),
    Peer("Dramatiq", "dramatiq", "dramatiq", ("redis",), drains=(8, 32)),
    Peer("DBOS", "dbos", "dbos", ("postgres",), drains=(50,)),
    Peer("taskiq (streams)", "taskiq", "taskiq", ("redis",), drains=(100,)),
    Peer("taskiq (list)", "taskiq", "taskiq", ("redis",), drains=(100,), options={"BROKER": "list"}),
)  # fmt: skip


class Team:
    """A peer's processes, each leading a group of its own, on one place. Ends only what it started."""

    def __init__(self, peer: Peer, url: str, folder: Path, *, concurrency: int) -> None:
        self.peer = peer
        self.folder = folder
        self._python = python_of(peer.library)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CRONSENSUS_", "PYTHON"))},
            **peer.options,
            "BENCH_URL": url,
            "BENCH_BEGUN": str(int(time.time())),
            "EVIDENCE": str(folder),
            "CONCURRENCY": str(concurrency),
            "PYTHONPATH": str(APPS),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the application with these words, and return at once."""
        app = APPS / f"{self.peer.library}_app.py"
        with (self.folder / f"{words[0]}{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [self._python, app, *words], env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def run(self, *words: str, seconds: float = 300) -> None:
        """Run the application with these words to its end.

        Raises:
            PeerFailed: it took too long, or ended with an error.
        """
        process = self.start(*words)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{' '.join(words)} took longer than {seconds:.0f} s") from None
        if code:
            raise PeerFailed(f"{' '.join(words)} ended with {code}: {self.last_words()}")

    def prepare(self) -> None:
        """Let it make its tables."""
        if "prepare" in (APPS / f"{self.peer.library}_app.py").read_text():
            self.run("prepare")

    def last_words(self) -> str:
        """Return the last line of what its processes said."""
        logs = [log.read_text(errors="replace").strip() for log in sorted(self.folder.glob("*.log"))]
        return next((text.splitlines()[-1][:160] for text in logs if text), "it said nothing")

    def lines(self, name: str) -> list[list[str]]:
        """Return a file of evidence, line by line, in words."""
        file = self.folder / name
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def close(self) -> None:
        """Ask each group to end; kill what does not."""
        for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            for process in self.processes:
                # A group outlives its leader while one of it is there, and its number is not given away meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + patience
            for process in self.processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.01, deadline - time.monotonic()))


@contextlib.contextmanager
def team(peer: Peer, url: str, *, concurrency: int = 10) -> Iterator[Team]:
    """Give a peer's team with its tables made, and take it away afterwards."""
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-", ignore_cleanup_errors=True) as folder:
        made = Team(peer, url, Path(folder), concurrency=concurrency)
        try:
            made.prepare()
            yield made
        finally:
            made.close()
