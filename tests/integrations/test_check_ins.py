"""Check-ins at services for cron monitoring: real requests to a receiver that the test starts."""

import gzip
import http.server
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cronsensus import Scheduler, cron, every
from cronsensus.errors import InvalidOption
from cronsensus.integrations import check_ins
from cronsensus.integrations.check_ins import healthchecks, monitor_of, slug_of


@contextmanager
def receiver(refuse: int = 0, status: int = 503) -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
    """Give a port, and what is posted there: paths and bodies; the first ``refuse`` are answered with ``status``."""
    got: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            got.append((self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
            self.send_response(status if len(got) <= refuse else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port, got
    finally:
        server.shutdown()
        server.server_close()


def wait_until(what: Any, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def test_healthchecks_hears_of_the_begin_and_the_end_of_each_scheduled_run():
    with receiver() as (port, got):
        scheduler = Scheduler("memory://")
        healthchecks(scheduler, f"http://127.0.0.1:{port}/KEY", jobs=["Close day", "bad"])

        @scheduler.job(every("1s"), name="Close day")
        def close() -> None: ...

        @scheduler.job(every("1s"), retries=1, retry_delay="100ms")
        def bad() -> None:
            raise ValueError("no till")

        @scheduler.job(every("1s"))
        def other() -> None: ...

        with scheduler:
            close.trigger().wait("10s")  # by hand: says nothing of the schedule
            wait_until(lambda: any("/KEY/bad/fail" in path for path, _ in got))
            wait_until(lambda: any(path.startswith("/KEY/close-day?") for path, _ in got))
    paths = [path.partition("?")[0] for path, _ in got]
    assert set(paths) <= {"/KEY/close-day/start", "/KEY/close-day", "/KEY/bad/start", "/KEY/bad/fail"}
    runs = [path.rpartition("rid=")[2] for path, _ in got if "/close-day" in path]
    assert runs[0] == runs[1], "begin and end are of one run"
    of_bad = [path for path, _ in got if "/bad" in path]
    first = of_bad[0].rpartition("rid=")[2]
    # Two attempts, one end: what is tried again has not failed.
    assert [path.partition("?")[0] for path in of_bad if first in path] == ["/KEY/bad/start"] * 2 + ["/KEY/bad/fail"]
    assert b"ValueError: no till" in {body for _, body in got}


PROGRAM = """
import sys, time
from cronsensus import Scheduler, every
import sentry_sdk
from cronsensus.integrations.check_ins import sentry
sentry_sdk.init(f"http://key@127.0.0.1:{sys.argv[1]}/7", environment="test")
scheduler = Scheduler("memory://")
sentry(scheduler)
@scheduler.job(every("2s"), timeout="90s")
def nightly(): ...
with scheduler:
    time.sleep(2.5)
"""


def test_a_ping_that_is_refused_for_a_moment_comes_again(monkeypatch):
    monkeypatch.setattr(check_ins, "RETRY_PAUSES", (0.01, 0.01))
    with receiver(refuse=2) as (port, got):
        pinging = check_ins._Pinging()
        pinging.send(f"http://127.0.0.1:{port}/KEY/close", b"")
        wait_until(lambda: len(got) == 3)
        assert pinging._idle.wait(10)
    assert [path for path, _ in got] == ["/KEY/close"] * 3


def test_a_ping_that_is_wrong_does_not_come_again(monkeypatch):
    monkeypatch.setattr(check_ins, "RETRY_PAUSES", (0.01, 0.01))
    with receiver(refuse=9, status=404) as (port, got):
        pinging = check_ins._Pinging()
        pinging.send(f"http://127.0.0.1:{port}/KEY/close", b"")
        assert pinging._idle.wait(10)
    assert len(got) == 1


def test_sentry_gets_a_check_in_at_the_begin_and_at_the_end_of_a_run():
    with receiver() as (port, got):
        subprocess.run([sys.executable, "-c", PROGRAM, str(port)], check=True, timeout=100)
        items = [json.loads(line) for _, body in got for line in body.splitlines() if b"monitor_slug" in line]
    assert [one["status"] for one in items[:2]] == ["in_progress", "ok"]
    assert items[0]["check_in_id"] == items[1]["check_in_id"]
    assert items[1]["monitor_slug"] == "nightly"
    assert items[1]["duration"] is not None


def test_a_schedule_is_said_as_sentry_can_say_it():
    scheduler = Scheduler("memory://")

    def config(trigger: Any, **options: Any) -> Any:
        job = scheduler.job(trigger, name=f"job-{len(scheduler.jobs)}", **options)(lambda: None)
        return monitor_of(job.spec)

    assert config(every("90m")) == {"schedule": {"type": "interval", "value": 90, "unit": "minute"}, "timezone": "UTC"}
    assert config(cron("0 2 * * *", tz="Asia/Shanghai"), timeout="90s", grace="2m") == {
        "schedule": {"type": "crontab", "value": "0 2 * * *"}, "timezone": "Asia/Shanghai", "checkin_margin": 2,
        "max_runtime": 2,
    }  # fmt: skip
    assert config(every("2d"))["schedule"] == {"type": "interval", "value": 2, "unit": "day"}
    assert config(cron("0 2 * * *", tz="Europe/Paris"))["timezone"] == "Europe/Paris"
    assert config(every("10s")) is None
    assert config(cron("*/10 * * * * *")) is None
    assert config(None) is None


def test_jobs_whose_names_a_service_cannot_write_have_checks_of_their_own():
    long = "x" * 60
    slugs = [slug_of(name) for name in ("备份", "结账", f"{long}1", f"{long}2", "Café")]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z0-9_][a-z0-9_-]{0,49}", slug) for slug in slugs)
    assert slugs[4].startswith("caf")


def test_misuse_is_answered():
    assert slug_of("::") == "job"
    with pytest.raises(InvalidOption, match="with the project's ping key"):
        healthchecks(Scheduler("memory://"), "https://hc-ping.com")
