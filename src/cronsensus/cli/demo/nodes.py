"""The demo's node processes: started, killed, replaced, stopped. It ends only what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cronsensus.cli.demo.trace import LEASH, TRACE
from cronsensus.clock import Clock

APP = "cronsensus.cli.demo.app:scheduler"


@dataclass(slots=True)
class NodeProcess:
    """One process that is a node, under the name of its lane."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def last_words(self, lines: int = 5) -> str:
        """Return the end of its log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])


@dataclass(slots=True)
class Nodes:
    """All of them. Use as a context: at its end none is left."""

    url: str
    namespace: str
    folder: Path
    trace: Path
    clock: Clock
    by_name: dict[str, NodeProcess] = field(default_factory=dict)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(patience=3.0)

    def start(self, name: str) -> NodeProcess:
        """Start a node under ``name``, in place of the one before."""
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "cronsensus", "run", APP, "--url", self.url, "--namespace", self.namespace]
        # What the user has set for nodes of their own does not concern these; default settings are what is shown.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRONSENSUS_")}
        environment |= {TRACE: str(self.trace), LEASH: "1"}
        with log.open("ab") as sink:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--node", name, "--log-format", "json", "--log-level", "warning"],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                cwd=self.folder,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its nodes in order
            )
        self._started.append(process)
        self.by_name[name] = NodeProcess(name, process, log)
        return self.by_name[name]

    def kill(self, name: str) -> float:
        """Kill a node with SIGKILL, wait until it is gone, and return the moment (monotonic) just before."""
        node = self.by_name[name]
        at = self.clock.monotonic()
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()
        return at

    def stop(self, patience: float) -> bool:
        """Ask all to drain, wait up to ``patience`` seconds, kill the rest; return whether there was no rest."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = self.clock.monotonic() + patience
        in_order = True
        for process in self._started:
            try:
                process.wait(max(0.0, deadline - self.clock.monotonic()))
            except subprocess.TimeoutExpired:
                in_order = False
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        return in_order
