"""Sites whose scheduler's store is away: at boot, while workers are recycled, and back again. No request fails."""

import contextlib
import http.client
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scratch import scratch_folder
from tests.servers.postgres import PostgresServer
from tests.user_code.test_gunicorn import recipe

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gunicorn") is None, reason="service missing: gunicorn; scripts/setup installs it"
)
PATIENCE = 60.0
TICKS = """
import os
def tick():
    print("tick in", os.getpid(), flush=True)
"""
NATIVE = """
from cronsensus import Scheduler, every
from ticks import tick
scheduler = Scheduler(os.environ["STORE"])
scheduler.job(every("1s"), name="tick")(tick)
"""
GUARDED = """
from apscheduler.schedulers.background import BackgroundScheduler
from cronsensus.integrations.apscheduler import guard
from ticks import tick
scheduler = BackgroundScheduler()
guard(scheduler, os.environ["STORE"])
scheduler.add_job(tick, "cron", second="*", id="tick")
scheduler.stop = scheduler.shutdown
"""
WSGI = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
ASGI = """
import contextlib
@contextlib.asynccontextmanager
async def lifespan(app):
    async with scheduler:
        yield
from fastapi import FastAPI
app = FastAPI(lifespan=lifespan)
@app.get("/")
async def index():
    return "ok"
"""
SITES = {
    "gunicorn": (NATIVE + WSGI, ["gunicorn", "--workers", "2", "--no-control-socket", "--bind", "127.0.0.1:{port}"]),
    "guard": (GUARDED + WSGI, ["gunicorn", "--workers", "2", "--no-control-socket", "--bind", "127.0.0.1:{port}"]),
    "uvicorn": (NATIVE + ASGI, ["uvicorn", "--workers", "2", "--host", "127.0.0.1", "--port", "{port}"]),
}
RECYCLED = {"gunicorn": ["--max-requests", "15"], "guard": ["--max-requests", "15"], "uvicorn": []}


class Site:
    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.folder = folder
        self.process = process
        self.port = port
        self.failed: list[BaseException] = []

    def said(self) -> str:
        return (self.folder / "out").read_text()

    def ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()
        finally:
            connection.close()

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"the server has ended: {self.said()[-3000:]}"
            assert time.monotonic() < end, f"{what} did not come: {self.said()[-3000:]}"
            time.sleep(0.05)

    def up(self) -> bool:
        with contextlib.suppress(OSError):
            self.ask()
            return True
        return False

    def ticks(self) -> int:
        return self.said().count("tick in")

    def workers(self) -> int:
        """How many workers have come so far."""
        return len(set(re.findall(r"Booting worker with pid: (\d+)", self.said())))


@contextlib.contextmanager
def site(kind: str, folder: Path, store: str) -> Iterator[Site]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text, command = SITES[kind]
    (folder / "ticks.py").write_text(TICKS)
    (folder / "shop.py").write_text(
        "import os, logging, sys\nlogging.basicConfig(level='INFO', stream=sys.stdout)\n" + text
    )
    (folder / "gunicorn.conf.py").write_text(recipe())
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *(word.format(port=port) for word in command), *RECYCLED[kind], "shop:app"],
            cwd=folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "STORE": store, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            yield Site(folder, process, port)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


@contextlib.contextmanager
def visited(here: Site) -> Iterator[None]:
    """Ask the site again and again; each request has to be answered."""
    over = threading.Event()

    def visit() -> None:
        while not over.wait(0.02):
            try:
                here.ask()
            except Exception as error:  # noqa: BLE001 - raised below
                here.failed.append(error)

    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        yield
    finally:
        over.set()
        visitor.join(PATIENCE)
    assert not here.failed, here.said()[-3000:]


@pytest.mark.parametrize("kind", SITES)
def test_a_site_serves_while_the_store_of_its_scheduler_is_away(kind: str) -> None:
    server = PostgresServer(durable=False).start()
    store = server.url
    try:
        server.stop()
        with scratch_folder() as folder, site(kind, folder, store) as here:
            here.until(here.up, "the site, without its store")
            with visited(here):
                here.until(lambda: "the store cannot be used" in here.said(), "the error that says so")
                assert not here.ticks()
                server.start()
                here.until(lambda: here.ticks() >= 2, "runs, after the store has come")
                server.stop()
                before = here.workers()
                # Each has served its requests and is replaced by one that finds no store.
                here.until(lambda: kind == "uvicorn" or here.workers() >= before + 4, "workers that are recycled")
                server.start()
                ran = here.ticks()
                here.until(lambda: here.ticks() >= ran + 2, "runs, after the store has come back")
            here.process.send_signal(signal.SIGTERM)
            here.process.wait(PATIENCE)
    finally:
        server.end()
