"""Each attempt is a span: it says what the ledger says, and is linked to the span that enqueued its run."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cronsensus import Run, Scheduler
from cronsensus.errors import ConfigurationError
from cronsensus.integrations.opentelemetry import trace_runs
from tests.integrations import traced_jobs


class Traced:
    """Spans that have ended, and a tracer for those of the test."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def scheduler(self, url: str = "memory://", **more: Any) -> Scheduler:
        made = Scheduler(url, **more)
        trace_runs(made, tracer_provider=self.provider)
        return made

    def wait_for(self, name: str, count: int = 1) -> list[ReadableSpan]:
        deadline = time.monotonic() + 20
        while len(found := [one for one in self.exporter.get_finished_spans() if one.name == name]) < count:
            assert time.monotonic() < deadline, [one.name for one in self.exporter.get_finished_spans()]
            threading.Event().wait(0.01)
        return found


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.provider.shutdown()


def linked(span: ReadableSpan) -> dict[str, int]:
    """Return the ids of the spans that a span is linked to, by what they are."""
    return {str((one.attributes or {})["cronsensus.link"]): one.context.span_id for one in span.links}


def id_of(span: Any) -> int:
    found: int = span.get_span_context().span_id
    return found


def test_a_span_says_what_the_ledger_says_and_is_linked_to_who_enqueued(traced: Traced) -> None:
    scheduler = traced.scheduler(node="n1")

    @scheduler.job()
    def bill(run: Run, number: int) -> int:
        with traced.tracer.start_as_current_span("charge"):
            return number

    with scheduler:
        with traced.tracer.start_as_current_span("request") as request:
            handle = bill.options(key="bill:1").enqueue(7)
        assert handle.result("20s") == 7
        [span] = traced.wait_for("process bill")
        ended = scheduler.store.occurrence(handle.id)
    assert ended is not None
    got = dict(span.attributes or {})
    assert got.pop("cronsensus.session")
    assert 0 <= float(str(got.pop("cronsensus.lateness"))) < 20
    assert got == {
        "messaging.system": "cronsensus", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "bill", "messaging.message.id": str(handle.id), "cronsensus.job": "bill",
        "cronsensus.run": handle.id, "cronsensus.key": "bill:1", "cronsensus.attempt": 1, "cronsensus.node": "n1",
        "cronsensus.token": ended.token, "cronsensus.origin": "enqueue", "cronsensus.state": "succeeded",
    }  # fmt: skip
    assert (span.kind, span.parent, linked(span)) == (trace.SpanKind.CONSUMER, None, {"enqueued": id_of(request)})
    assert span.start_time is not None
    assert span.end_time is not None
    [child] = traced.wait_for("charge")
    assert child.parent is not None
    assert child.parent.span_id == id_of(span)
    assert span.start_time // 1000 <= (child.start_time or 0) // 1000
    assert timedelta(microseconds=(span.end_time - span.start_time) / 1000) < timedelta(seconds=20)
    assert (ended.args, ended.kwargs) == ((7,), {})


def test_attempts_are_linked_to_the_one_before_and_say_what_was_raised(traced: Traced) -> None:
    scheduler = traced.scheduler()

    @scheduler.job(retries=1, retry_delay="10ms")
    def bill(run: Run) -> None:
        if run.attempt == 1:
            raise ValueError("no such invoice: 1")
        raise KeyError("no such invoice: 2")

    with scheduler:
        with traced.tracer.start_as_current_span("request") as request:
            bill.enqueue()
        first, second = traced.wait_for("process bill", 2)
    assert linked(first) == {"enqueued": id_of(request)}
    assert linked(second) == {"enqueued": id_of(request), "attempt before": id_of(first)}
    for span, state, kind in ((first, "retry", "ValueError"), (second, "failed", "KeyError")):
        assert span.attributes is not None
        assert (span.attributes["cronsensus.state"], span.attributes["error.type"]) == (state, kind)
        assert span.status.status_code is trace.StatusCode.ERROR
        [event] = span.events
        assert event.attributes is not None
        assert (event.name, event.attributes["exception.type"]) == ("exception", kind)
        assert "in bill" in str(event.attributes["exception.stacktrace"])


def test_what_enqueues_for_others_needs_only_the_headers(traced: Traced, tmp_path: Path) -> None:
    """Another program enqueues, in a transaction of the user's, for an async job."""
    url = f"sqlite:///{tmp_path}/shop.db"
    sender, worker = traced.scheduler(url), traced.scheduler(url)

    @worker.job(name="bill")
    async def bill() -> None:
        await asyncio.sleep(0)
        with traced.tracer.start_as_current_span("charge"):
            await asyncio.sleep(0)

    with worker:
        with traced.tracer.start_as_current_span("request") as request:
            connection = sqlite3.connect(tmp_path / "shop.db")
            sender.enqueue_in(connection, "bill")
            connection.commit()
            connection.close()
        [span] = traced.wait_for("process bill")
        [charge] = traced.wait_for("charge")
    sender.store.close()
    assert linked(span) == {"enqueued": id_of(request)}
    assert charge.parent is not None
    assert charge.parent.span_id == id_of(span)


def test_items_of_a_batch_are_linked_to_who_enqueued_it(traced: Traced) -> None:
    scheduler = traced.scheduler()

    @scheduler.job()
    def bill(number: int) -> None: ...

    with scheduler:
        with traced.tracer.start_as_current_span("request") as request:
            bill.enqueue_batch([1, 2, 3])
        spans = traced.wait_for("process bill", 4)  # three items, and their batch at least once
    assert {linked(span)["enqueued"] for span in spans} == {id_of(request)}


def test_a_job_in_a_process_of_its_own_is_inside_its_span(traced: Traced, tmp_path: Path) -> None:
    scheduler = traced.scheduler()
    job = scheduler.job(executor="process")(traced_jobs.tell_trace)
    with scheduler:
        told = job.enqueue().result("30s")
        [span] = traced.wait_for("process tell_trace")
    assert span.context is not None
    assert told == [format(span.context.trace_id, "032x"), format(span.context.span_id, "016x")]


def test_a_run_that_a_lost_session_left_is_linked_to_what_it_did_before(traced: Traced) -> None:
    scheduler = traced.scheduler()
    release = threading.Event()
    sessions: list[str] = []

    @scheduler.job()
    def work(run: Run) -> None:
        sessions.append(run.session)
        if len(sessions) == 1:
            scheduler.store.close_session(run.session)
            release.wait(20)

    with scheduler:
        work.enqueue()
        deadline = time.monotonic() + 20
        while len(sessions) < 2:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        release.set()
        spans = traced.wait_for("process work", 2)
    by_attempt = {(one.attributes or {})["cronsensus.attempt"]: one for one in spans}
    assert linked(by_attempt[2]) == {"attempt before": id_of(by_attempt[1])}
    assert by_attempt[1].status.status_code is trace.StatusCode.ERROR


def test_without_a_provider_nothing_is_told_and_nothing_is_kept() -> None:
    scheduler = Scheduler("memory://")
    trace_runs(scheduler)
    seen: list[Any] = []

    @scheduler.job()
    def work() -> None:
        seen.append((trace.get_current_span(), scheduler._bus._subscribers))

    with scheduler:
        handle = work.enqueue()
        handle.result("20s")
        ended = scheduler.store.occurrence(handle.id)
    assert ended is not None
    assert seen == [(trace.INVALID_SPAN, {})]


def test_what_a_tracer_raises_costs_no_run(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return self

        def start_span(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no span today")

    scheduler = Scheduler("memory://")
    trace_runs(scheduler, tracer_provider=Refusing())

    @scheduler.job()
    def work() -> int:
        return 7

    with scheduler:
        assert work.enqueue().result("20s") == 7
    assert "no span today" in caplog.text


def test_a_started_scheduler_is_refused(traced: Traced) -> None:
    with Scheduler("memory://") as scheduler, pytest.raises(ConfigurationError, match="before start"):
        trace_runs(scheduler)


def test_nothing_of_it_is_imported_by_a_program_that_does_not_ask_and_its_lack_is_told() -> None:
    program = """
import sys
import cronsensus, cronsensus.cli, cronsensus.errors
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
sys.modules["opentelemetry"] = None
try:
    import cronsensus.integrations.opentelemetry
except cronsensus.errors.MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert 'pip install "cronsensus[otel]"' in done.stdout
