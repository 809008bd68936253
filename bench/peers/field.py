"""The peers: what each is, and its processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from bench.options import Options
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
        drains: the concurrencies to begin with when it works a queue off; from the best of them the search goes on.
        takes_over: it is asked what becomes of a killed node's run.
        careful: what its documentation tells those to set who want a dead node's run to begin again; empty: nothing.
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
    careful: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)

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
    Peer("arq", "arq", "arq", ("redis",), ticks=True, drains=(10, 100), takes_over=True, careful="job_timeout of 60 s"),
    Peer("SAQ", "saq", "saq", ("redis", "postgres"), ticks=True, drains=(10, 100), takes_over=True,
         careful="heartbeat of 10 s, timeout=0, sweep each 5 s, retries"),
    Peer("Procrastinate", "procrastinate", "procrastinate", ("postgres",), ticks=True, drains=(10, 100),
         takes_over=True, careful="get_stalled_jobs after 10 s without a heartbeat, in a periodic task each 5 s"),
    Peer("APScheduler", "apscheduler4", "apscheduler", ("postgres",), ticks=True),
    Peer("Celery, processes", "celery", "celery", ("redis",), drains=(1, 2), takes_over=True,
         careful="acks_late, reject_on_worker_lost, visibility_timeout of 60 s, unacked_restore_interval of 1 s"),
    Peer("Celery, threads", "celery", "celery", ("redis",), drains=(8, 32), options={"POOL": "threads"}),
    Peer("RQ", "rq", "rq", ("redis",), drains=(1, 2), takes_over=True,
         careful="Retry(max=3), job_monitoring_interval of 3 s, maintenance_interval of 5 s, worker_ttl of 30 s"),
    Peer("RQ, without forks", "rq", "rq", ("redis",), drains=(1, 2), options={"WORKER": "simple"}),
    Peer("huey", "huey", "huey", ("redis", "postgres"), drains=(1, 8, 32), takes_over=True),
    Peer("Dramatiq", "dramatiq", "dramatiq", ("redis",), drains=(8, 32), takes_over=True,
         careful="heartbeat_timeout of 10 s, maintenance at one of 10 commands"),
    Peer("DBOS", "dbos", "dbos", ("postgres",), drains=(50, 100)),
    Peer("taskiq (streams)", "taskiq", "taskiq", ("redis",), drains=(10, 100), takes_over=True,
         careful="idle_timeout of 60 s, unacknowledged_lock_timeout of 10 s"),
    Peer("taskiq (list)", "taskiq", "taskiq", ("redis",), drains=(10, 100), options={"BROKER": "list"}),
)  # fmt: skip
LIBRARIES = sorted({peer.library for peer in PEERS})


def field(kind: str, options: Options) -> list[Peer]:
    """Return the peers that run on such a store, and are to."""
    return [peer for peer in PEERS if kind in peer.stores and (not options.only or peer.library in options.only)]


class Team:
    """A peer's processes, each leading a group of its own, on one place. Ends only what it started."""

    def __init__(
        self, peer: Peer, url: str, folder: Path, *, concurrency: int, near: str | None, careful: bool, pace: float
    ) -> None:
        self.peer = peer
        self.folder = folder
        self._python = python_of(peer.library)
        self._near = near or url
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CRONSENSUS_", "PYTHON"))},
            **peer.options,
            **({"AT_LEAST_ONCE": "1"} if careful else {}),
            "BENCH_URL": url,
            "BENCH_BEGUN": str(int(time.time())),
            "EVIDENCE": str(folder),
            "CONCURRENCY": str(concurrency),
            "PACE": str(pace),
            "PYTHONPATH": str(APPS),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, url: str | None = None) -> subprocess.Popen[bytes]:
        """Start the application with these words, and return at once. ``url``: where it finds the server."""
        app = APPS / f"{self.peer.library}_app.py"
        with (self.folder / f"{words[0]}{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [self._python, app, *words], env={**self._environment, **({"BENCH_URL": url} if url else {})},
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def fill(self, jobs: int) -> None:
        """Enqueue so many jobs that do nothing, beside the server: this is not what is measured."""
        self.run("fill", str(jobs), url=self._near)

    def run(self, *words: str, seconds: float = 300, url: str | None = None) -> None:
        """Run the application with these words to its end.

        Raises:
            PeerFailed: it took too long, or ended with an error.
        """
        process = self.start(*words, url=url)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{' '.join(words)} took longer than {seconds:.0f} s") from None
        if code:
            raise PeerFailed(f"{' '.join(words)} ended with {code}: {self.last_words()}")

    def prepare(self) -> None:
        """Let it make its tables."""
        if '"prepare"' in (APPS / f"{self.peer.library}_app.py").read_text():
            self.run("prepare", url=self._near)

    def last_words(self) -> str:
        """Return the last line of what its processes said."""
        logs = [log.read_text(errors="replace").strip() for log in sorted(self.folder.glob("*.log"))]
        return next((text.splitlines()[-1][:160] for text in logs if text), "it said nothing")

    def lines(self, name: str) -> list[list[str]]:
        """Return a file of evidence, line by line, in words."""
        file = self.folder / name
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def kill(self) -> None:
        """Kill all of it, when there is nothing more to learn: some take seconds to leave."""
        for process in self.processes:
            if process.returncode is None:
                kill_session(process.pid)
                process.wait()

    def close(self) -> None:
        """Ask each group to end; kill what does not, with what has left its group and not its session."""
        # Not one that was waited for: its number may be another's by now.
        left = [process for process in self.processes if process.returncode is None]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not all(_has_ended(process.pid) for process in left):
            time.sleep(0.05)
        self.kill()


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_session(leader: int) -> None:
    """Kill every process of a session that was started here (``start_new_session``): RQ's leave their group."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def team(
    peer: Peer, url: str, *, concurrency: int = 10, near: str | None = None, careful: bool = False, pace: float = 0.2
) -> Iterator[Team]:
    """Give a peer's team with its tables made, and take it away afterwards.

    Args:
        peer: whose.
        url: where its processes find the server.
        concurrency: of each node.
        near: where what is not measured finds it; default: there too.
        careful: with the settings that ``Peer.careful`` tells of.
        pace: the seconds between jobs that trickle in, about.
    """
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-", ignore_cleanup_errors=True) as folder:
        made = Team(peer, url, Path(folder), concurrency=concurrency, near=near, careful=careful, pace=pace)
        try:
            made.prepare()
            yield made
        finally:
            made.close()
