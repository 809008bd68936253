"""docs/metrics.md and docs/prometheus-rules.yml as a user copies them, in a real Prometheus that scrapes real nodes."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Scheduler, every
from cronsensus.metrics.serving import Server
from tests.scratch import scratch_folder

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE = 30.0

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="service missing: prometheus is not on PATH; scripts/servers installs it"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)["data"]

    def query(self, text: str) -> dict[str, float]:
        """Return values by the name of the job."""
        found = self.get("query?" + urllib.parse.urlencode({"query": text}))["result"]
        return {one["metric"].get("job_name", ""): float(one["value"][1]) for one in found}

    def firing(self) -> dict[str, str]:
        """Return the summaries of the alerts that fire, by name and job."""
        return {
            f"{one['labels']['alertname']} {one['labels'].get('job_name', '')}".strip(): one["annotations"]["summary"]
            for one in self.get("alerts")["alerts"]
            if one["state"] == "firing"
        }

    def until_fires(self, alert: str, *, within: float = PATIENCE) -> str:
        self.until(lambda: alert in self.firing(), alert, within)
        return self.firing()[alert]

    def until(self, condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
        end = time.monotonic() + within
        while True:
            with contextlib.suppress(OSError):
                if condition():
                    return
            assert time.monotonic() < end, f"{what} did not come; it fires: {self.firing()}"
            time.sleep(0.05)


@contextlib.contextmanager
def prometheus(*targets: str) -> Iterator[Prometheus]:
    """Scrape each second by the page's own lines, with the rules that it names."""
    page = (DOCS / "metrics.md").read_text()
    found = re.search(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    assert found is not None
    configuration = found[1].replace('"web-1:9464", "web-2:9464"', ", ".join(f'"{one}"' for one in targets))
    assert configuration != found[1]
    port = free_port()
    with scratch_folder() as folder:
        shutil.copy(DOCS / "prometheus-rules.yml", folder)
        often = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        (folder / "prometheus.yml").write_text(often + configuration)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield Prometheus(f"http://127.0.0.1:{port}")
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(PATIENCE)


def test_the_first_failure_of_a_job_is_told_by_its_name() -> None:
    ended = threading.Event()
    scheduler = Scheduler("memory://")

    @scheduler.job(name="billing")
    def billing() -> None:
        ended.set()
        raise ValueError("no card")

    @scheduler.job(name="mails")
    def mails() -> None: ...

    server = Server(scheduler, port=0)
    with scheduler, server.beside():
        billing.trigger()
        mails.trigger().wait("10s")
        assert ended.wait(PATIENCE)
        with prometheus(server.url.removeprefix("http://").removesuffix("/metrics")) as here:
            assert here.until_fires("CronsensusJobFailed billing") == "billing failed for good"
            ages = here.query("(time() - max by (job_name) (cronsensus_job_last_success_timestamp_seconds)) / 3600")
            assert "mails" in ages
            assert "CronsensusJobFailed mails" not in here.firing()


JOBS = """
from cronsensus import Scheduler, every
scheduler = Scheduler("sqlite:///jobs.db")

@scheduler.job(every("1s"), catch_up="none")
def backup():
    pass

@scheduler.job(overdue="5s")
def report():
    pass
"""


@contextlib.contextmanager
def node(folder: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cronsensus", "run", "jobs:scheduler", "--metrics", str(port)],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE)


def test_missed_overdue_a_dead_node_and_a_dead_cluster_are_told_at_their_first_occurrence() -> None:
    ports = free_port(), free_port()
    with scratch_folder() as folder:
        (folder / "jobs.py").write_text(JOBS)
        scheduler = Scheduler(f"sqlite:///{folder}/jobs.db")
        scheduler.job(every("1s"), name="backup", catch_up="none")(lambda: None)
        with scheduler:  # so that the times until the next node are missed
            pass
        time.sleep(2.5)  # what is missed is real time
        with (
            prometheus(*(f"127.0.0.1:{port}" for port in ports)) as here,
            node(folder, ports[0]) as one,
            node(folder, ports[1]) as other,
        ):
            assert here.until_fires("CronsensusJobMissed backup") == "backup missed a nominal time"
            assert here.until_fires("CronsensusJobOverdue report") == "report is overdue"
            here.until(lambda: here.query("count(cronsensus_slots)") == {"": 2.0}, "both nodes")
            assert "CronsensusNodeLost" not in here.firing()
            one.kill()
            assert here.until_fires("CronsensusNodeLost") == "A node of cronsensus died"
            other.kill()
            here.until_fires("CronsensusGone", within=90)
