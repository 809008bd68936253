"""What a process counts: its runs, claims and takeovers, and what it asked of the store."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from werkzeug.test import Client

from cronsensus import Scheduler
from cronsensus.events import RunEnded, StoreVerb, TakenOver
from cronsensus.metrics import Metrics, metrics, metrics_wsgi
from cronsensus.metrics import counting as module
from cronsensus.model.occurrence import Takeover
from cronsensus.model.states import Origin, State
from tests.metrics.promtool import needs_promtool, promtool
from tests.metrics.test_reading import series


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("memory://", node="web-1")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.02)


def told(scheduler: Scheduler, *events: Any) -> None:
    """Tell its subscribers, and wait until they know."""
    for event in events:
        scheduler._bus.emit(event)
    scheduler._bus.close(10)


def an_end(job: str, end: Any = "succeeded") -> RunEnded:
    return RunEnded(
        node="web-1", job=job, occurrence=1, key="k", scheduled_for=None, attempt=1, token=1, session="s",
        origin=Origin.MANUAL, end=end, seconds=0.2,
    )  # fmt: skip


@needs_promtool
def test_runs_are_counted_by_job_and_verdict(scheduler: Scheduler) -> None:
    counted = Metrics(scheduler)

    @scheduler.job()
    def good() -> None: ...

    @scheduler.job()
    def bad() -> None:
        raise ValueError("no")

    with scheduler:
        good.enqueue().result("20s")
        bad.enqueue()
        until(lambda: "runs_total[job_name=bad,verdict=failed]" in series(counted))
        found = series(counted)
        page = counted.page()
    assert found["runs_total[job_name=good,verdict=succeeded]"] == found["runs_total[job_name=bad,verdict=failed]"] == 1
    assert found["run_duration_seconds_count"] == 2
    assert found["claims_total[result=won]"] == 2
    assert found["store_operation_seconds_count[verb=step]"] >= 2
    assert found["store_errors_total"] == found["takeovers_total"] == 0
    assert "store_operation_seconds_count[verb=wait]" not in found
    assert promtool("check", "metrics", page=page) == ""


def test_a_node_that_is_started_again_goes_on_counting(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    counted = Metrics(scheduler)

    @scheduler.job()
    def good() -> None: ...

    for _ in range(2):
        with scheduler:
            good.enqueue().result("20s")
    until(lambda: series(counted)["claims_total[result=won]"] == 2)
    assert [one.getMessage() for one in caplog.records if one.name == "cronsensus.events"] == []


def test_takeovers_and_errors_of_the_store_are_counted(scheduler: Scheduler) -> None:
    counted = Metrics(scheduler)
    taken = [
        Takeover(id=n, job="tick", key="k", session="dead", token=n, reason="gone", became=became)
        for n, became in enumerate((State.PENDING, State.FAILED))
    ]
    verbs = [StoreVerb(node="web-1", verb="step", seconds=0.1, error=e) for e in ("StoreUnavailable", "UnknownJob")]
    told(scheduler, TakenOver(node="web-1", session="dead", dead_node=None, runs=tuple(taken)), *verbs)
    found = series(counted)
    assert (found["takeovers_total"], found["store_errors_total"]) == (2, 1)
    assert found["runs_total[job_name=tick,verdict=failed]"] == 1


def test_runs_of_jobs_beyond_the_bound_are_counted_together(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 2)
    counted = Metrics(scheduler, jobs=["a*"])
    told(scheduler, *(an_end(job) for job in ("a1", "b1", "a2", "a3", "a1")), an_end("a1", "snoozed"))
    found = {name: value for name, value in series(counted).items() if name.startswith("runs_total")}
    assert found == {
        "runs_total[job_name=a1,verdict=succeeded]": 2,
        "runs_total[job_name=a2,verdict=succeeded]": 1,
        "runs_total[job_name=(others),verdict=succeeded]": 2,
    }


def test_two_pages_of_one_scheduler_count_once(scheduler: Scheduler) -> None:
    pages = Metrics(scheduler), Metrics(scheduler)
    told(scheduler, an_end("tick"))
    assert [series(one)["runs_total[job_name=tick,verdict=succeeded]"] for one in pages] == [1, 1]


def test_an_application_answers_with_the_page_in_asgi_wsgi_and_a_registry_of_its_own(scheduler: Scheduler) -> None:
    scheduler.store.migrate()

    async def ask(method: str) -> httpx.Response:
        transport = httpx.ASGITransport(metrics(scheduler))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, "/")

    answer = asyncio.run(ask("GET"))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "cronsensus_slots 0" in answer.text
    assert asyncio.run(ask("POST")).status_code == 405
    client = Client(metrics_wsgi(scheduler))
    assert "cronsensus_slots 0" in client.get("/").get_data(as_text=True)
    registry = CollectorRegistry()
    registry.register(Metrics(scheduler))
    assert registry.get_sample_value("cronsensus_takeovers_total") == 0
    assert registry.get_sample_value("cronsensus_slots") == 0


OFF = """
import sys
from cronsensus import Scheduler
scheduler = Scheduler("memory://")
with scheduler:
    pass
parts = ("prometheus_client", "cronsensus.metrics", "cronsensus.lifecycle.pinging")
loaded = [name for name in sys.modules if name.startswith(parts)]
sys.exit(", ".join(loaded) or 0)
"""


def test_switched_off_nothing_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['prometheus_client'] = None\nimport cronsensus.metrics"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert 'pip install "cronsensus[metrics]"' in done.stderr
