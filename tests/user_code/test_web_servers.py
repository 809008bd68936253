"""Each web server that starts several workers, as docs/integrations.md says for it: serves, runs each time once, stops.

In each, the scheduler of cronsensus and one of APScheduler that is guarded. And what a master that forks refuses.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.scratch import scratch_folder
from tests.user_code.test_gunicorn import recipe

PATIENCE = 60.0
RUNS = 3
"""Times that are run before a server is stopped."""

HEAD = """
import logging, os, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(process)d %(levelname)s %(message)s")
def said(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""
NATIVE = """
from cronsensus import Run, Scheduler, every
scheduler = Scheduler("sqlite:///jobs.db?synchronous=normal")
@scheduler.job(every("1s"))
def tick(run: Run):
    said("ran", int(run.scheduled_for.timestamp()), os.getpid())
@scheduler.job(every("1s"))
async def tock(run: Run):
    said("ran tock", int(run.scheduled_for.timestamp()), os.getpid())
"""
GUARDED = """
from apscheduler.events import EVENT_JOB_SUBMITTED
from apscheduler.schedulers.background import BackgroundScheduler
from cronsensus.integrations.apscheduler import guard
scheduler = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": 60})
guard(scheduler, "sqlite:///jobs.db?synchronous=normal")
def tick(): pass
scheduler.add_job(tick, "cron", second="*", id="tick")
scheduler.add_listener(
    lambda event: [said("ran", int(time.timestamp()), os.getpid()) for time in event.scheduled_run_times],
    EVENT_JOB_SUBMITTED,
)
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
    if hasattr(scheduler, "astart"):
        async with scheduler:
            yield
    else:
        scheduler.start()
        yield
        scheduler.shutdown()
from fastapi import FastAPI
app = FastAPI(lifespan=lifespan)
@app.get("/")
async def index():
    return "ok"
"""
POSTFORK = """
from uwsgidecorators import postfork
@postfork
def start():
    scheduler.start()
"""
AT_IMPORT = """
scheduler.start()
"""
ON_STARTING = """
def on_starting(server):
    from shop import scheduler
    scheduler.start()
"""
GUNICORN = ["gunicorn", "--workers", "2", "--no-control-socket", "--bind", "127.0.0.1:{port}"]
UWSGI = [
    "uwsgi", "--master", "--processes", "2", "--http-socket", "127.0.0.1:{port}", "--module", "shop:app",
    "--die-on-term",
]  # fmt: skip


class Way(NamedTuple):
    """How one server is started, and how the scheduler is in it."""

    text: str
    command: list[str]
    recipe: bool = False
    """Whether the guide's gunicorn.conf.py starts it."""
    patch: bool = False
    """Whether that file patches the master, too, as its first line."""


PATCHED_LATE = Way(WSGI, [*GUNICORN, "--worker-class", "gevent", "--preload"], recipe=True)
WAYS = {
    **{
        f"gunicorn {kind}{preload}": Way(WSGI, [*GUNICORN, "--worker-class", kind, *preload.split()], recipe=True)
        for kind in ("sync", "gthread", "gevent")
        for preload in ("", " --preload")
    },
    "gunicorn, at import": Way(WSGI + AT_IMPORT, GUNICORN),
    "gunicorn gevent --preload, patched": PATCHED_LATE._replace(patch=True),
    **{
        f"gunicorn {kind}{preload}": Way(ASGI, [*GUNICORN, "--worker-class", kind, *preload.split()])
        for kind in ("asgi", "uvicorn.workers.UvicornWorker")
        for preload in ("", " --preload")
    },
    "uwsgi @postfork": Way(WSGI + POSTFORK, UWSGI),
    "uwsgi @postfork --enable-threads": Way(WSGI + POSTFORK, [*UWSGI, "--enable-threads"]),
    "uwsgi --lazy-apps": Way(WSGI + AT_IMPORT, [*UWSGI, "--lazy-apps", "--enable-threads"]),
    "uwsgi, one process": Way(
        WSGI + AT_IMPORT, ["uwsgi", "--http-socket", "127.0.0.1:{port}", "--module", "shop:app", "--enable-threads"]
    ),
    "uvicorn --workers": Way(ASGI, ["uvicorn", "--workers", "2", "--port", "{port}"]),
    "uvicorn --reload": Way(ASGI, ["uvicorn", "--reload", "--port", "{port}"]),
    "hypercorn": Way(ASGI, ["hypercorn", "--workers", "2", "--bind", "127.0.0.1:{port}"]),
    "granian": Way(ASGI, ["granian", "--workers", "2", "--interface", "asgi", "--port", "{port}"]),
    "granian wsgi": Way(
        WSGI + AT_IMPORT, ["granian", "--workers", "2", "--interface", "wsgi", "--port", "{port}"]
    ),
}  # fmt: skip
REFUSED = {
    "gunicorn --preload, at import": Way(WSGI + AT_IMPORT, [*GUNICORN, "--preload"]),
    "gunicorn, on_starting": Way(WSGI + ON_STARTING, [*GUNICORN, "--config", "shop.py"]),
    "uwsgi, at import": Way(WSGI + AT_IMPORT, [*UWSGI, "--need-app"]),
    "uwsgi without a master, at import": Way(
        WSGI + AT_IMPORT, [*(word for word in UWSGI if word != "--master"), "--need-app"]
    ),
}
SCHEDULERS = {"native": NATIVE, "guarded": GUARDED}
INSTEAD = {"gunicorn": "post_worker_init", "uwsgi": "@postfork"}


class Server:
    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.folder = folder
        self.process = process
        self.port = port

    def said(self) -> str:
        return (self.folder / "out").read_text()

    def answers(self) -> bool:
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=10).read()
            return True
        return False

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, self.said()[-3000:]
            time.sleep(0.05)

    def ran(self, job: str = "") -> "Counter[str]":
        """Return how often each time was run."""
        return Counter(re.findall(rf"^ran {job}(\d+) ", self.said(), re.MULTILINE))


@contextlib.contextmanager
def served(way: Way, scheduler: str) -> Iterator[Server]:
    if shutil.which(way.command[0], path=str(Path(sys.executable).parent)) is None:
        pytest.skip(f"service missing: {way.command[0]}; scripts/setup installs it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with scratch_folder() as folder:
        (folder / "shop.py").write_text(HEAD + scheduler + way.text)
        if way.recipe:
            patch = "from gevent import monkey; monkey.patch_all()\n" if way.patch else ""
            (folder / "gunicorn.conf.py").write_text(patch + recipe())
        command = [word.format(port=port) for word in way.command]
        command[0] = str(Path(sys.executable).parent / command[0])
        if "uwsgi" not in command[0]:
            command.append("shop:app")
        with (folder / "out").open("wb") as out:
            process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(folder)},
            )  # fmt: skip
            try:
                yield Server(folder, process, port)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(PATIENCE)


@pytest.mark.parametrize(
    ("way", "scheduler"),
    [(way, kind) for way in WAYS for kind in SCHEDULERS if (WAYS[way], kind) != (PATCHED_LATE, "guarded")],
)
def test_a_server_serves_runs_each_time_once_and_stops(way: str, scheduler: str) -> None:
    with served(WAYS[way], SCHEDULERS[scheduler]) as server:
        server.until(server.answers)
        server.until(lambda: len(server.ran()) >= RUNS)
        if scheduler == "native":
            server.until(lambda: len(server.ran("tock ")) >= RUNS)
        assert server.answers()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
        said = server.said()
        assert max(server.ran().values()) == 1, said
        assert max(server.ran("tock ").values(), default=1) == 1, said
        assert not re.search(r" (ERROR|CRITICAL) |Traceback", said), said


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("way", REFUSED)
def test_a_master_that_forks_starts_nothing_and_says_what_to_write(way: str, scheduler: str) -> None:
    with served(REFUSED[way], SCHEDULERS[scheduler]) as server:
        server.process.wait(PATIENCE)
        said = server.said()
        assert "which forks its workers later" in said
        assert INSTEAD[way.split(maxsplit=1)[0].strip(",")] in said
        assert not server.ran()


def test_apscheduler_is_refused_where_gevent_comes_after_it() -> None:
    """Its ``shutdown`` joins a thread of the class that gevent has replaced, with the guard or without: for ever."""
    with served(PATCHED_LATE, GUARDED) as server:
        server.process.wait(PATIENCE)
        assert "monkey.patch_all()` as the first line of gunicorn.conf.py" in server.said()
