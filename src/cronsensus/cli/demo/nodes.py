"""The demo's node processes: started, frozen, killed, stopped. It ends only what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from cronsensus.cli.demo.trace import LEASH, TRACE
from cronsensus.timing.clock import Clock

APP = "cronsensus.cli.demo.app:scheduler"
LOG = ("--log-format", "json", "--log-level", "warning")


class Nodes:
    """The node processes, by name."""

    def __init__(self, url: str, namespace: str, folder: Path, clock: Clock) -> None:
        self.trace = folder / "runs.jsonl"
        self._store = ["--url", url, "--namespace", namespace]
        self._folder, self._clock = folder, clock
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> int:
        """Start a node under ``name``, in place of one that was killed; return its process id."""
        # Settings of the user's own nodes do not apply here; the demo shows the defaults.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRONSENSUS_")}
        environment |= {TRACE: str(self.trace), LEASH: "1"}
        with self._log(name).open("ab") as sink:
            process = self._processes[name] = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "cronsensus", "run", APP, *self._store, "--node", name, *LOG],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                cwd=self._folder,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its nodes in order
            )
        return process.pid

    def exit_code(self, name: str) -> int | None:
        """Return how a node ended; ``None``: it runs."""
        return self._processes[name].poll()

    def read_log_end(self, name: str) -> str:
        """Return the end of a node's log."""
        text = self._log(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-5:])

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def freeze(self, name: str) -> None:
        """Stop a node where it is, and wait until it stands still: then it has written its line, or will not."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)

    def thaw(self, name: str) -> None:
        """Let a frozen node go on."""
        self._processes[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> float:
        """Kill a node with SIGKILL, wait until it is gone, and return the moment (monotonic) just before."""
        at = self._clock.monotonic()
        self._processes[name].kill()
        self._processes[name].communicate()
        return at

    def stop(self, patience: float) -> bool:
        """Drain all nodes, wait up to ``patience`` seconds, kill the rest; return whether all ended by themselves."""
        deadline, in_order = self._clock.monotonic() + patience, True
        for process in self._processes.values():
            process.terminate()
            process.send_signal(signal.SIGCONT)
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - self._clock.monotonic()))
            except subprocess.TimeoutExpired:
                in_order = False
                process.kill()
            process.communicate()
        return in_order
