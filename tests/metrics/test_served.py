"""The page beside a node, and the workers of gunicorn, which count together."""

import contextlib
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.test_processes import environment, read_until
from tests.metrics.test_counting import until

JOBS = """
from cronsensus import Scheduler, every
scheduler = Scheduler("sqlite:///jobs.db")
@scheduler.job(every("200ms"))
def tick(): ...
"""
WEB = """
import os
from cronsensus import Scheduler
from cronsensus.metrics import metrics_wsgi
scheduler = Scheduler("sqlite:///jobs.db", concurrency=1)
pages = metrics_wsgi(scheduler)

@scheduler.job()
def work(number):
    return os.getpid()

def app(environ, start_response):
    if environ["PATH_INFO"] == "/metrics":
        return pages(environ, start_response)
    work.options(key=environ["QUERY_STRING"]).enqueue(1)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
CONFIGURED = """
from prometheus_client.multiprocess import mark_process_dead

def post_worker_init(worker):
    import web
    web.scheduler.start()

def worker_exit(server, worker):
    import web
    web.scheduler.stop(0)

def child_exit(server, worker):
    mark_process_dead(worker.pid)
"""


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "jobs.py").write_text(JOBS)
    with contextlib.ExitStack() as started:

        def start(*arguments: str) -> subprocess.Popen[str]:
            process = started.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "cronsensus", "run", *arguments],
                    cwd=tmp_path, env=environment(), text=True, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
            started.callback(process.kill)
            return process

        yield start


def test_a_node_serves_its_page_and_says_that_it_is_ready(node: Start) -> None:
    process = node("jobs:scheduler", "--metrics", "0", "--metrics-jobs", "t*")
    said = "".join(read_until(process, "metrics: "))
    found = re.search(r"metrics: (\S+)/metrics \(this machine only", said)
    assert found is not None
    until(lambda: 'cronsensus_runs_total{job_name="tick",verdict="succeeded"}' in get(f"{found[1]}/metrics")[1])
    assert get(f"{found[1]}/ready") == (200, "ok: this node decides on time\n")
    assert get(f"{found[1]}/else")[0] == 404
    # A page of another site whose name points to this machine reads nothing, and a probe may ask for the head alone.
    named = urllib.request.Request(f"{found[1]}/metrics", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(named, timeout=20)
    head = urllib.request.Request(f"{found[1]}/ready", method="HEAD")
    with urllib.request.urlopen(head, timeout=20) as answer:
        assert (answer.status, answer.read()) == (200, b"")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


HANGS = """
import time
from cronsensus import Scheduler, every
from cronsensus.model import stuck
from datetime import timedelta
stuck.STUCK_AFTER = timedelta(seconds=0.5)
scheduler = Scheduler("sqlite:///jobs.db", concurrency=2)
for name in ("hangs", "hangs_too"):
    scheduler.job(every("200ms"), name=name, slow="100ms")(lambda: time.sleep(30))
"""


def test_a_node_whose_slots_are_all_held_by_runs_over_their_time_is_ready_and_does_not_live(
    node: Start, tmp_path: Path
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    process = node("hangs:scheduler", "--metrics", "0")
    found = re.search(r"metrics: (\S+)/metrics", "".join(read_until(process, "metrics: ")))
    assert found is not None
    assert get(f"{found[1]}/live") == (200, "ok: this node lives\n")
    until(lambda: get(f"{found[1]}/live")[0] == 503)
    assert "every slot of this node has been held for a minute" in get(f"{found[1]}/live")[1]
    assert get(f"{found[1]}/ready")[0] == 200


def test_where_the_port_is_taken_the_node_runs_without(node: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = node("jobs:scheduler", "--metrics", f"127.0.0.1:{taken.getsockname()[1]}", "--log-format", "json")
        assert "the node runs without them" in "".join(read_until(process, "no metrics: cannot listen on"))
        record = json.loads(read_until(process, '"job": "tick"')[-1])
    assert {"job", "run", "node", "attempt"} <= record.keys()


@pytest.mark.skipif(
    importlib.util.find_spec("gunicorn") is None,
    reason="service missing: gunicorn; scripts/setup installs it",
)
def test_workers_of_gunicorn_count_together(tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text(WEB)
    (tmp_path / "gunicorn.conf.py").write_text(CONFIGURED)
    (tmp_path / "counts").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", "3", "web:app"]
    place = environment() | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "counts")}
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen([*command, "--no-control-socket"], cwd=tmp_path, stderr=errors, env=place) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"

            def counted() -> str:
                try:
                    page = get(f"{url}/metrics")[1]
                except OSError:
                    assert process.poll() is None, (tmp_path / "errors").read_text()
                    return ""
                found = re.search(r'runs_total{job_name="work",verdict="succeeded"} (\d+)', page)
                return found[1] if found else page and "0"

            until(counted)
            for number in range(40):
                assert get(f"{url}/?{number}")[0] == 200
            until(lambda: counted() == "40")
            # Whichever worker answers, it tells of all of them.
            assert {counted() for _ in range(10)} == {"40"}
            until(lambda: "cronsensus_slots 3" in get(f"{url}/metrics")[1])
            assert len(list((tmp_path / "counts").glob("counter_*.db"))) >= 3
        finally:
            process.terminate()
            process.wait(30)
