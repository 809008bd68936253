"""Real processes, faults done to them, and the judge: the audit beside a file that the runs keep themselves."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cronsensus.audit import Report, audit
from cronsensus.cli.demo.comparison import Comparison, compare_ledger
from cronsensus.cli.demo.trace import TRACE, Count, Line, Tail, count_lines
from cronsensus.errors import StoreError, UnknownJob
from cronsensus.model.occurrence import Item
from cronsensus.stores import open_store
from tests.scratch import BUSY

HERE = Path(__file__).parent
PATIENCE = 60.0
"""Seconds after which a test gives up waiting for what has to come; never waited for when all is well."""


@dataclass
class Verdict:
    """What the two independent counts say."""

    report: Report
    count: Count
    comparison: Comparison
    logs: str

    def is_as_promised(self) -> None:
        """Fail unless every nominal time ran and was recorded once, and both counts agree."""
        assert [one.sentence for one in self.report.findings] == []
        assert self.comparison.problems == ()
        assert self.comparison.twice == ()
        assert (self.report.duplicates, self.report.missed, self.report.pending) == (0, 0, 0)
        assert self.report.ran == self.report.expected > 0
        assert "a mistake in cronsensus" not in self.logs


@dataclass
class Cluster:
    """Node processes on one store: a SQLite file in the folder, or ``url``. It signals only processes that it started.

    ``route`` is the way that nodes take to the store, if not the direct one; ``apps`` is where ``app`` lies;
    ``environment`` is what nodes that are started next have beside the ordinary.
    """

    folder: Path
    lease: str = "10s"
    app: str = "chaos_jobs:scheduler"
    url: str = ""
    route: str = ""
    apps: Path = HERE
    patience: float = PATIENCE
    environment: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    every_process: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    orders: int = 0

    def __post_init__(self) -> None:
        self.url = self.url or f"sqlite:///{self.folder / 'chaos.db'}?{BUSY}"
        self.trace = self.folder / "runs.jsonl"
        self.tail = Tail(self.trace)
        self.store = open_store(self.url)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRONSENSUS_")}
        path = os.pathsep.join([str(self.apps), *filter(None, [environment.get("PYTHONPATH")])])
        environment |= {TRACE: str(self.trace), "CRONSENSUS_LEASE": self.lease, "PYTHONPATH": path} | self.environment
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "cronsensus", "run", self.app, "--url", self.route or self.url,
                     "--node", name, "--drain-timeout", "20s"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=environment,
                    start_new_session=True,
                )  # fmt: skip
            self.processes[name] = process
            self.every_process.append(process)

    def await_all(self) -> None:
        """Wait until every node has a session."""

        def alive() -> bool:
            assert all(process.poll() is None for process in self.processes.values()), self.logs
            pids = {process.pid for process in self.processes.values()}
            return pids <= {one.pid for one in self.store.sessions()}  # raises while there is no schema yet

        self.until(alive, "all nodes are alive")

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def freeze(self, name: str) -> None:
        """Stop a node, and wait until it stands still: what it was about to write is written or is not."""
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def end_all(self) -> None:
        """Whatever happened, leave nothing behind."""
        for process in self.every_process:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.store.close()

    # --- watching -----------------------------------------------------------------------------------------------------

    def look(self) -> list[Line]:
        """Return what the runs wrote since the last look."""
        new = self.tail.read()
        self.lines += new
        return new

    def at_work(self, node: str) -> list[Line]:
        """Return the runs that a node's present process has begun and not ended, as the lines say."""
        self.look()
        pid = self.processes[node].pid
        return [line for line in count_lines(self.lines).cut if (line.node, line.pid) == (node, pid)]

    def freeze_in(self, *jobs: str) -> tuple[str, list[Line]]:
        """Freeze a node that runs all of these jobs, anything at all if none is named; return it and its runs."""
        found: list[tuple[str, list[Line]]] = []

        def froze() -> bool:
            for node in self.processes:
                if at_work := self.freeze_at_work(node, *jobs):
                    found.append((node, at_work))
                    return True
            return False

        self.until(froze, f"a node is in the middle of {jobs or 'a run'}")
        return found[0]

    def freeze_at_work(self, node: str, *jobs: str) -> list[Line]:
        """Freeze a node if it runs all of these jobs, anything at all if none is named; return its runs, or nothing."""
        if not self._is_in(node, jobs):
            return []
        self.freeze(node)
        # On a busy machine a run may have ended before the signal came.
        if self._is_in(node, jobs):
            return self.at_work(node)
        self.thaw(node)
        return []

    def _is_in(self, node: str, jobs: tuple[str, ...]) -> bool:
        at_work = {line.job for line in self.at_work(node)}
        return bool(at_work) and at_work >= set(jobs)

    def until(self, happened: Callable[[], object], what: str, within: float | None = None) -> None:
        """Look until something has happened.

        A look that the store does not answer has seen nothing: a server ends what stands still in mid-question, as
        this process may on a busy machine.
        """
        within = within or self.patience
        deadline = time.monotonic() + within
        while True:
            try:
                if happened():
                    return
            except StoreError as error:
                trouble = f"\n{error}"
            else:
                trouble = ""
            assert time.monotonic() < deadline, f"after {within:.0f} s still not: {what}{trouble}\n{self.logs[-3000:]}"
            threading.Event().wait(0.02)

    def for_seconds(self, seconds: float) -> Iterator[float]:
        """Give the seconds that have passed, again and again, until they are over."""
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            yield passed
            threading.Event().wait(0.01)

    def enqueue(self, number: int) -> None:
        """Enqueue further orders, each under a key of its own."""
        items = [Item(job="order", key=f"order:{self.orders + n}", args=(self.orders + n,)) for n in range(number)]
        try:
            self.store.enqueue(items)
        except (UnknownJob, StoreError):
            return
        self.orders += number
        self.store.notify()

    @property
    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    # --- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> datetime:
        """Choose the last nominal time to judge, and wait until everything up to it is decided and done."""
        self.await_all()
        self.until(lambda: 0.55 < time.time() % 1 < 0.8, "the later half of a second", within=2)
        until = self.store.now()

        def done() -> bool:
            return not audit(self.store, until=until).pending and not audit(self.store, jobs=["order"]).pending

        self.until(done, f"everything up to {until} is done")
        return until

    def drain(self) -> list[int]:
        """Ask all nodes to leave; return how they left."""
        for process in self.processes.values():
            process.terminate()
        return [process.wait(self.patience) for process in self.processes.values()]

    def judge(self, until: datetime) -> Verdict:
        """Compare ledger, triggers and file, after all nodes have left."""
        self.look()
        lines = [line for line in self.lines if line.scheduled_for is None or line.scheduled_for <= until]
        return Verdict(audit(self.store, until=until), count_lines(lines), compare_ledger(self.store, lines), self.logs)
