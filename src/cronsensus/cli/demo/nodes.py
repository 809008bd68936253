"""The demo's node processes: started, killed, replaced, stopped. It ends only what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from cronsensus.cli.demo.trace import LEASH, TRACE
from cronsensus.clock import Clock

APP = "cronsensus.cli.demo.app:scheduler"
LOG = ("--log-format", "json", "--log-level", "warning")


class Nodes:
    """All of them. Use as a context: at its end none is left."""

    def __init__(self, url: str, namespace: str, folder: Path, clock: Clock) -> None:
        self.trace = folder / "runs.jsonl"
        self._store = ["--url", url, "--namespace", namespace]
        self._folder, self._clock = folder, clock
        self._by_name: dict[str, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(patience=3.0)

    def start(self, name: str) -> int:
        """Start a node under ``name``, in place of the one before; return its process id."""
        # Settings of the user's own nodes do not apply here; the demo shows the defaults.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRONSENSUS_")}
        environment |= {TRACE: str(self.trace), LEASH: "1"}
        with self._log(name).open("ab") as sink:
            process = self._by_name[name] = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "cronsensus", "run", APP, *self._store, "--node", name, *LOG],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                cwd=self._folder,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its nodes in order
            )
        self._started.append(process)
        return process.pid

    def exit_code(self, name: str) -> int | None:
        """Return how a node ended; ``None``: it runs."""
        return self._by_name[name].poll()

    def last_words(self, name: str) -> str:
        """Return the end of a node's log."""
        text = self._log(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-5:])

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def kill(self, name: str) -> float:
        """Kill a node with SIGKILL, wait until it is gone, and return the moment (monotonic) just before."""
        at = self._clock.monotonic()
        self._by_name[name].kill()
        self._by_name[name].wait()
        return at

    def stop(self, patience: float) -> bool:
        """Ask all to drain, wait up to ``patience`` seconds, kill the rest; return whether there was no rest."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = self._clock.monotonic() + patience
        in_order = True
        for process in self._started:
            try:
                process.wait(max(0.0, deadline - self._clock.monotonic()))
            except subprocess.TimeoutExpired:
                in_order = False
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        return in_order
