"""gunicorn.conf.py as docs/guide.md has it, under the real gunicorn."""

import contextlib
import http.client
import importlib.util
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.model.occurrence import OccurrenceFilter

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gunicorn") is None,
    reason="service missing: gunicorn; scripts/setup installs it",
)

SHOP = """
import logging, os, sys, time
from cronsensus import Scheduler
logging.basicConfig(level="INFO", stream=sys.stderr, format="%(process)d %(message)s")
scheduler = Scheduler("sqlite:///jobs.db?synchronous=normal")

@scheduler.job()
def slow():
    print("slow begins", file=sys.stderr, flush=True)
    while not os.path.exists("end"):
        time.sleep(0.01)
    return os.getpid()

def app(environ, start_response):
    slow.options(key="slow").enqueue()
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


def recipe() -> str:
    """Return the gunicorn.conf.py of the guide."""
    page = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    found = re.search(r"```python\n(timeout = graceful_timeout.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


@contextlib.contextmanager
def served(folder: Path, *arguments: str):
    (folder / "shop.py").write_text(SHOP)
    (folder / "gunicorn.conf.py").write_text(recipe())
    command = [sys.executable, "-m", "gunicorn", "--bind", "unix:socket", "--no-control-socket", *arguments, "shop:app"]
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, cwd=folder, stderr=errors, env={"HOME": str(folder)}) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def until_said(folder: Path, words: str, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 60
    while words not in (said := (folder / "errors").read_text()):
        assert process.poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.02)
    return said


def ask(folder: Path) -> bytes:
    connection = http.client.HTTPConnection("shop")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(str(folder / "socket"))
    connection.request("GET", "/")
    return connection.getresponse().read()


def test_the_recipe_runs_jobs_in_the_worker_and_sigterm_lets_them_end(tmp_path):
    with served(tmp_path, "--preload") as process:
        until_said(tmp_path, "taking part", process)
        assert ask(tmp_path) == b"ok"
        until_said(tmp_path, "slow begins", process)
        process.send_signal(signal.SIGTERM)
        until_said(tmp_path, "Worker exiting", process)
        (tmp_path / "end").touch()
        assert process.wait(60) == 0
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    (one,) = scheduler.store.occurrences(OccurrenceFilter(), limit=5)
    assert (one.state, one.attempt) == ("succeeded", 1)
    assert one.result not in {None, str(process.pid)}
    scheduler.stop()
