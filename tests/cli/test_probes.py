"""Probes of real nodes that are killed or stand still: ``health``, ``nodes list`` and ``doctor`` say so, and agree."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

APP = """
import threading
from cronsensus import Scheduler, every
scheduler = Scheduler(lease="3s")
@scheduler.job(every("1h"))
def hourly() -> None: ...
@scheduler.job()
def work() -> None:
    print("runs", flush=True)
    threading.Event().wait()
"""
READY = "Ctrl-C drains"
SOON = 2.0
"""Seconds within which a kill is told, from its kernel and from a server."""
LEASE = 3.0
LATE = 2.0
"""Seconds that a busy machine may take for one look more than a quiet one."""

Command = Callable[..., Any]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.05)


@dataclass
class Probed:
    """A node as a process of its own, and what the commands of this process say of it."""

    process: subprocess.Popen[str]
    command: Command
    url: str

    def health(self) -> Any:
        return self.command("health", "--node", "pod-1", "--url", self.url, "-o", "json")

    def hit(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait()
        else:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def listed(self) -> Any:
        return self.command("nodes", "list", "--url", self.url, "-o", "json").data["nodes"]

    def seconds_until_told(self) -> float:
        began = time.monotonic()
        until(lambda: self.health().code != 0)
        took = time.monotonic() - began
        print(f"told after {took:.2f} s")
        return took

    def agrees(self, state: str) -> None:
        """Fail unless all commands say of the node that it is this."""
        told = self.health()
        [known] = told.data["nodes"] or told.data["not_alive"]
        [listed] = self.listed()
        assert (known["state"], listed["state"]) == (state, state)
        anyone = self.command("health", "--url", self.url)
        assert (told.code == 0, anyone.code == 0) == (state == "alive", state == "alive")
        checks = self.command("doctor", "--url", self.url, "-o", "json").data["checks"]
        levels = {check["level"] for check in checks if check["check"] == "nodes"}
        assert ("fail" in levels) == (state != "alive")
        texts = " ".join(check["text"] for check in checks if check["check"] == "nodes")
        assert f" is {state}" in texts or state == "alive"
        assert listed["sentence"].split()[0] in self.command("nodes", "list", "--url", self.url).out


Start = Callable[..., Probed]


@pytest.fixture
def start(empty_folder: Path, write: Callable[..., Any], command: Command) -> Iterator[Start]:
    write("app.py", APP)
    started: list[subprocess.Popen[str]] = []

    def start_node(url: str, *, busy: bool) -> Probed:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "cronsensus", "run", "app:scheduler", "--node", "pod-1"],
            cwd=empty_folder, env=ours | {"CRONSENSUS_URL": url}, text=True,
            stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        assert process.stderr is not None
        assert process.stdout is not None
        assert any(READY in line for line in process.stderr)
        node = Probed(process, command, url)
        until(node.listed)
        if busy:
            assert command("jobs", "enqueue", "work", "--url", url).code == 0
            assert process.stdout.readline() == "runs\n"
        return node

    yield start_node
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return "sqlite:///jobs.db" if request.param == "sqlite" else str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process be on another host than the node, which its kernel says nothing of."""
    monkeypatch.setattr("cronsensus.membership.liveness.host_identity", lambda: "another host")


STORES = pytest.mark.parametrize("url", ["sqlite", "postgres", "mysql", "redis"], indirect=True)
SERVERS = pytest.mark.parametrize("url", ["postgres", "mysql", "redis"], indirect=True)


@STORES
@pytest.mark.parametrize(
    ("busy", "number", "state"),
    [
        pytest.param(False, signal.SIGKILL, "gone", id="idle-killed"),
        pytest.param(False, signal.SIGSTOP, "stopped", id="idle-stopped"),
        pytest.param(True, signal.SIGKILL, "gone", id="busy-killed"),
        pytest.param(True, signal.SIGSTOP, "stopped", id="busy-stopped"),
    ],
)
def test_probes_on_the_host_of_a_node_say_at_once_that_it_is_gone_or_stopped(
    start: Start, url: str, busy: bool, number: signal.Signals, state: str
) -> None:
    node = start(url, busy=busy)
    node.agrees("alive")
    node.hit(number)
    assert node.seconds_until_told() < SOON
    node.agrees(state)


@SERVERS
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_probes_of_another_host_miss_the_connections_of_a_killed_node(
    start: Start, url: str, busy: bool, from_elsewhere: None
) -> None:
    node = start(url, busy=busy)
    until(lambda: node.listed()[0]["known_by"] == "connection")
    node.agrees("alive")
    node.hit(signal.SIGKILL)
    assert node.seconds_until_told() < SOON
    node.agrees("gone")


@STORES
def test_probes_of_another_host_say_within_its_lease_that_a_busy_node_stands_still(
    start: Start, url: str, from_elsewhere: None
) -> None:
    node = start(url, busy=True)
    node.agrees("alive")
    node.hit(signal.SIGSTOP)
    assert node.seconds_until_told() < LEASE + LATE
    node.agrees("gone")


def test_ready_tells_that_nobody_decides_although_a_node_lives(cluster: Any) -> None:
    cluster.join("web-1")
    cluster.every("tick", "1m")
    cluster.advance(90)
    assert cluster("health", "--ready").code == 0
    cluster.advance(60)
    assert cluster("health").code == 0
    asked = cluster("health", "--ready")
    assert asked.code == 1
    assert asked.out.startswith("fail: the store answers, 1 live node, but nobody has decided tick, which was due 1m")
    assert "tick" in cluster("health", "--ready", "-o", "json").data["not_ready"]
    cluster.fire()
    assert cluster("health", "--ready").code == 0
    [session] = cluster.store.sessions()
    cluster.store.drain(session.id, by="ada", why="deploy")
    assert "but it drains" in cluster("health", "--ready").out
