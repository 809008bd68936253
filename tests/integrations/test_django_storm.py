"""A shop under gunicorn, whose orders enqueue in ``atomic``, half of them rolled back, and processes are killed."""

import contextlib
import http.client
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integrations.django_project import Project

SECONDS = float(os.environ.get("CRONSENSUS_TEST_STORM_SECONDS", "20"))
PATIENCE = 90.0
WORKERS, NODES, CUSTOMERS = 8, 3, 6
A_KILL_EACH = 4.0


class Customers:
    """Order by HTTP until told to stop; know what was acknowledged, and what broke off or failed."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.committed: set[int] = set()
        self.rolled_back: set[int] = set()
        self.unknown: dict[int, str] = {}
        self.numbers = iter(range(1, 1_000_000))
        self.taking = threading.Lock()
        self.over = threading.Event()

    def order(self, number: int) -> str:
        """Return the answer to an order."""
        connection = http.client.HTTPConnection("127.0.0.1", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(30)
        with contextlib.closing(connection):
            connection.sock.connect(str(self.where))
            connection.request("GET", f"/order/{number}")
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == http.client.OK else f"{answer.status}"

    def buy(self) -> None:
        """Order one after the other."""
        while not self.over.is_set():
            with self.taking:
                number = next(self.numbers)
            try:
                answer = self.order(number)
            except (OSError, http.client.HTTPException) as error:
                answer = f"{type(error).__name__}: {error}"
            with self.taking:
                if answer == "committed":
                    self.committed.add(number)
                elif answer == "rolled back":
                    self.rolled_back.add(number)
                else:
                    self.unknown[number] = answer

    @contextlib.contextmanager
    def buying(self) -> Iterator[None]:
        """Order beside the block."""
        threads = [threading.Thread(target=self.buy) for _ in range(CUSTOMERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["plain", "preload"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_each_acknowledged_order_is_shipped_once_whoever_is_killed(
    kind: str, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}")
    dice = random.Random(seed)
    url = None if kind == "sqlite" else request.getfixturevalue(f"django_{kind}_url")
    project = Project(tmp_path / "p", url, modules=["jobs", "tasks", "storm"])
    project.prepare()
    customers = Customers(project.folder / "socket")
    killed = {"node": 0, "worker": 0}
    with contextlib.ExitStack() as ends, (project.folder / "log").open("wb") as log:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            made = project.start(log, *arguments)
            ends.callback(made.wait)
            ends.callback(made.kill)
            return made

        nodes = [start("manage.py", "cronsensus", "run") for _ in range(NODES)]
        server = start(
            "-m", "gunicorn", "--bind", f"unix:{customers.where}", "--no-control-socket", "-w", str(WORKERS),
            *(["--preload"] if way == "preload" else []), "django.core.wsgi:get_wsgi_application()",
        )  # fmt: skip
        await_answer(customers, server)
        with customers.buying():
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                customers.over.wait(A_KILL_EACH)
                what = "worker" if killed["node"] > killed["worker"] else "node"
                killed[what] += 1
                if what == "worker":
                    dice.choice(psutil.Process(server.pid).children()).kill()
                    continue
                place = dice.randrange(NODES)
                nodes[place].kill()
                nodes[place].wait()
                nodes[place] = start("manage.py", "cronsensus", "run")
        server.terminate()
        assert server.wait(PATIENCE) == 0
        seen = await_shipped(project)
        for node in nodes:
            node.terminate()
        exits = [node.wait(PATIENCE) for node in nodes]
    orders = {int(number): times for number, times in seen["shipped"].items()}
    print(
        f"{kind}, {way}: {len(customers.committed)} acknowledged, {len(orders)} orders, "
        f"{len(customers.rolled_back)} rolled back, {len(customers.unknown)} broken off, killed {killed}: "
        f"{sorted(set(customers.unknown.values()))}"
    )
    assert len(customers.committed) > SECONDS, (project.folder / "log").read_text()[-4000:]
    assert customers.committed <= orders.keys() <= customers.committed | customers.unknown.keys()
    assert all(number % 2 for number in orders), "what was rolled back is there"
    assert set(orders.values()) == {1}
    assert sorted(seen["runs"]) == [[number, "succeeded"] for number in sorted(orders)]
    assert exits == [0] * NODES
    assert len(customers.unknown) <= WORKERS * (killed["worker"] + 1), customers.unknown
    project.manage("cronsensus", "audit")


def await_answer(customers: Customers, server: subprocess.Popen[bytes]) -> None:
    """Wait until the shop answers."""
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if customers.order(0) == "rolled back":
                return
        assert server.poll() is None, (customers.where.parent / "log").read_text()
        assert time.monotonic() < until, (customers.where.parent / "log").read_text()
        threading.Event().wait(0.1)


def await_shipped(project: Project) -> Any:
    """Return what is ordered and shipped, when nothing is left to ship."""
    until = time.monotonic() + PATIENCE
    while True:
        seen = project.shell("counts", "storm")
        if all(seen["shipped"].values()) and all(state not in {"pending", "running"} for _, state in seen["runs"]):
            return seen
        assert time.monotonic() < until, seen
