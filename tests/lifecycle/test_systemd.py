"""``cronsensus run`` tells systemd, at a real socket, that it is ready, lives and stops; hung, it falls silent."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.lifecycle.systemd import Systemd

APP = """
import threading
from cronsensus import Scheduler
from cronsensus.node import round
round.GRACE_SECONDS = 1.0
scheduler = Scheduler("sqlite:///app.db")
@scheduler.job()
def hang() -> None:
    round.Round._try_round = lambda self: threading.Event().wait()
"""


class Manager:
    """The socket at which systemd listens."""

    def __init__(self, path: str) -> None:
        self.address = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + path[1:] if path.startswith("@") else path)

    def lines(self, timeout: float = 20) -> list[str]:
        """Return the next message; none within ``timeout``: nothing."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(4096).decode().split("\n")
        except TimeoutError:
            return []

    def wait_for(self, line: str) -> list[str]:
        deadline, came = time.monotonic() + 30, list[str]()
        while line not in (came := self.lines()):
            assert time.monotonic() < deadline, f"{line} did not come"
        return came

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.close()


Start = Callable[[Manager], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "app.py").write_text(APP)
    started: list[subprocess.Popen[str]] = []

    def start_node(manager: Manager) -> subprocess.Popen[str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "cronsensus", "run", "app:scheduler"],
                cwd=tmp_path, env=ours | {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "600000"}, text=True,
                stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip
        return started[-1]

    yield start_node
    for one in started:
        one.kill()
        one.wait()


def test_a_node_is_ready_lives_and_stops(manager: Manager, start: Start) -> None:
    process = start(manager)
    assert manager.lines()[0] == "READY=1"
    for _ in range(3):
        manager.wait_for("WATCHDOG=1")
    process.send_signal(signal.SIGTERM)
    came = manager.wait_for("STOPPING=1")
    assert [line for line in came if line.startswith("STATUS=draining")]
    assert process.wait(30) == 0


def test_a_node_whose_rounds_hang_gives_no_sign_of_life_any_more(
    manager: Manager, start: Start, tmp_path: Path
) -> None:
    start(manager)
    manager.wait_for("WATCHDOG=1")
    scheduler = Scheduler(f"sqlite:///{tmp_path}/app.db")
    scheduler.trigger("hang", reason="")
    scheduler.store.close()
    deadline, silent = time.monotonic() + 40, False
    while not silent:
        assert time.monotonic() < deadline, "it goes on as if it lived"
        silent = not manager.lines(timeout=2)


class Rounds:
    """Rounds by hand."""

    turns = True
    status = "taking part"


def test_rounds_that_stand_still_are_told_by_silence_and_each_status_once() -> None:
    manager, rounds = Manager("@cronsensus-test-" + str(os.getpid())), Rounds()
    with Systemd({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000"}, rounds):
        assert manager.lines() == ["READY=1", "WATCHDOG=1", "STATUS=taking part"]
        assert manager.lines() == ["WATCHDOG=1"]
        rounds.turns, rounds.status = False, "the store cannot be used; trying again"
        assert manager.wait_for("STATUS=the store cannot be used; trying again")
        while manager.lines(timeout=0.5):  # what was sent before
            pass
        rounds.turns = True
        assert manager.wait_for("WATCHDOG=1") == ["WATCHDOG=1"]
    manager.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}], ids=["not asked for", "not there"])
def test_where_nobody_listens_a_node_goes_on(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    before = threading.enumerate()  # of other tests, and these may end meanwhile
    with Systemd(environ, Rounds()) as systemd:
        systemd.report_stopping()
        assert len([thread for thread in threading.enumerate() if thread not in before]) == len(environ)
    assert ("was not notified of READY=1" in caplog.text) == bool(environ)


def test_a_watchdog_of_another_process_is_none_of_ours() -> None:
    manager = Manager("@cronsensus-test-" + str(os.getpid()))
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000", "WATCHDOG_PID": "1"}
    with Systemd(environ, Rounds()):
        assert manager.lines() == ["READY=1", "STATUS=taking part"]
    manager.close()
