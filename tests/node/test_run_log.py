"""What a node writes into its log about runs: failures and their causes, takeovers, nothing on a fine day."""

import logging
import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from cronsensus import Cancel, Retry, Run, Scheduler, State
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, RunError, Settled, Takeover
from cronsensus.model.plan import Plan, VerdictRange
from cronsensus.model.states import Origin
from cronsensus.node.run_log import RunLog
from cronsensus.node.stats import NodeStats
from cronsensus.testing.conformance.steps import an_end

T0 = datetime(2026, 3, 1, tzinfo=UTC)
_names = count()


def told(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[tuple[str, str]]:
    found = [record for record in caplog.records if record.name == "cronsensus.runs" and record.levelno >= level]
    return [(record.levelname, record.getMessage()) for record in found]


def run_once(function: Any, **options: Any) -> Any:
    """Let a node run a function to the end of its last attempt, and leave; return its occurrence."""
    scheduler = Scheduler(f"memory://run_log-{next(_names)}", node="me")
    job = scheduler.job(name="work", retry_delay="1ms", **options)(function)
    with scheduler:
        return job.options(key="k").enqueue().wait("60s")


def a_claim(**changes: Any) -> Claim:
    values: dict[str, Any] = {
        "id": 7, "spec": JobSpec(name="work", function="work"), "key": "k", "origin": Origin.ENQUEUE,
        "scheduled_for": None, "due_at": T0, "attempt": 2, "token": 9, "session": "s", "args": (), "kwargs": {},
        "claimed_at": T0,
        "created_at": T0,
    }  # fmt: skip
    return Claim(**values | changes)


def test_a_failure_is_a_warning_while_it_is_retried_and_an_error_with_its_traceback_when_it_is_final(caplog):
    caplog.set_level(logging.INFO)

    def work() -> None:
        raise ValueError("no such shop")

    one = run_once(work, retries=1)
    (first, warning), (second, error) = told(caplog)
    assert (first, second) == ("WARNING", "ERROR")
    assert f"attempt 1 of run {one.id} of 'work' (k) failed: ValueError: no such shop; it is tried again in" in warning
    assert "Traceback" not in warning
    assert error == f"run {one.id} of 'work' (k) failed at attempt 2: ValueError: no such shop"
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info is not None
    kind, exception, trace = record.exc_info
    assert (kind, str(exception)) == (ValueError, "no such shop")
    assert trace is not None
    assert trace.tb_frame.f_code is work.__code__  # no frame of ours stands before those of the job
    assert "'work'" in str(record.msg)  # what records are grouped by
    assert (record.job, record.run, record.key, record.attempt) == ("work", one.id, "k", 2)


def test_an_exception_with_megabytes_of_text_is_logged_as_it_is_recorded(caplog):
    def work() -> None:
        raise ValueError("x" * 5_000_000)

    run_once(work)
    assert "ValueError" in caplog.text
    assert len(caplog.text) < 50_000


def test_a_run_over_its_time_is_told(caplog):
    def late(run: Run) -> None:
        run.cancelled.wait(20)

    run_once(late, timeout="50ms")
    assert [level for level, _ in told(caplog)] == ["ERROR"]
    assert "TimeoutError: the attempt ran longer than timeout=50ms" in told(caplog)[0][1]


def test_an_asked_for_retry_and_a_cancel_are_no_failures(caplog):
    caplog.set_level(logging.INFO)
    attempts = count()

    def work() -> None:
        if next(attempts) == 0:
            raise Retry("gateway busy", after="1ms")
        raise Cancel("closed today")

    run_once(work, retries=1)
    (first, asked), (second, cancelled) = told(caplog)
    assert (first, second) == ("INFO", "INFO")
    assert "asked for a retry: gateway busy; it is tried again in" in asked
    assert "was cancelled: job: closed today" in cancelled


def test_success_is_one_line_and_its_start_a_debug_line(caplog):
    caplog.set_level(logging.WARNING)
    run_once(lambda: 1)
    assert told(caplog, logging.DEBUG) == []
    caplog.set_level(logging.INFO)
    one = run_once(lambda: 1)
    ((level, ends),) = told(caplog)
    assert level == "INFO"
    assert ends.startswith(f"run {one.id} of 'work' (k) succeeded: in 0.")
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    run_once(lambda: 1)
    assert sorted(level for level, _ in told(caplog, logging.DEBUG)) == ["DEBUG", "INFO"]


def test_a_percent_sign_in_a_jobs_name_is_no_format(caplog):
    run_log = RunLog(NodeStats())
    error = RunError(type="ValueError", message="100 %d", traceback="Traceback of another")
    outcome = an_end(id=7, token=9, state=State.FAILED, error=error)
    claim = a_claim(spec=JobSpec(name="50%s off", function="work"))
    run_log.remember_end(claim, outcome)
    run_log.log_end(Settled(7, 9, True, State.FAILED), outcome)
    assert told(caplog) == [
        ("ERROR", "run 7 of '50%s off' (k) failed at attempt 2: ValueError: 100 %d\nTraceback of another")
    ]


def test_an_ending_that_the_store_refused_is_not_told(caplog):
    run_log = RunLog(NodeStats())
    outcome = an_end(id=7, token=9, state=State.FAILED, error=RunError(type="ValueError", message="x"))
    run_log.remember_end(a_claim(), outcome)
    run_log.log_end(Settled(7, 9, False, None), outcome)
    assert told(caplog) == []
    run_log.remember_end(a_claim(), outcome)
    run_log.log_end(Settled(7, 9, True, State.FAILED), outcome)
    assert len(told(caplog)) == 1


def test_takeover_is_logged_with_the_run_and_both_nodes(caplog):
    caplog.set_level(logging.INFO)
    run_log = RunLog(NodeStats())
    lost = Takeover(7, "work", "k", 9, "s-1", State.PENDING, "crashed: process gone")
    run_log.log_takeovers([lost], "web-2", {"s-1": "web-1"})
    run_log.log_starts([a_claim(crashes=1), a_claim()])
    gone = "web-2: run 7 of 'work' (k) was running on web-1, which is gone (crashed: process gone)"
    assert told(caplog) == [
        ("WARNING", f"{gone}; it waits for the next free node"),
        ("INFO", "run 7 of 'work' (k) was taken over, and runs here as attempt 2"),
    ]


def test_a_run_that_failed_for_good_because_its_process_died_is_an_error_with_job_and_time(caplog):
    lost = Takeover(7, "a 100% job", "@2026-03-01T00:00:00Z", 9, "s-1", State.FAILED, "crashed: process gone")
    RunLog(NodeStats()).log_takeovers([lost], "web-2", {"s-1": "web-1"})
    [(level, text)] = told(caplog)
    assert (level, caplog.records[0].job) == ("ERROR", "a 100% job")
    assert text == (
        "run 7 of 'a 100% job' (2026-03-01T00:00:00Z) failed for good, because its process died: it was running on "
        "web-1, which is gone (crashed: process gone); noticed by web-2"
    )


def test_what_an_outage_cost_is_told_once_for_all_jobs(caplog):
    caplog.set_level(logging.INFO)

    def plan(job: str, *verdicts: VerdictRange) -> Plan:
        return Plan(
            job_id=1, job=job, revision=1, watermark_seen=T0, active_seen=0, occurrences=(), verdicts=verdicts,
            cancel_previous=False, watermark=T0, next_due=None,
        )  # fmt: skip

    later = T0 + timedelta(minutes=1)
    RunLog(NodeStats()).log_plans(
        [
            plan("a", VerdictRange(T0, later, State.SKIPPED, "coalesced", 12)),
            plan("b", VerdictRange(later, later, State.MISSED, "late", 1)),
            plan("c", VerdictRange(later, later, State.SKIPPED, "overlap", 1)),
            plan("d", VerdictRange(later, later, State.SKIPPED, "paused", 1)),
        ]
    )
    late = "nominal times since 2026-03-01T00:00:00Z were found late and are not run"
    why = "why: cronsensus why a 2026-03-01T00:00:00Z"
    assert told(caplog) == [
        ("INFO", "'c' is not run for 2026-03-01T00:01:00Z: the run before is still active (overlap)"),
        ("WARNING", f"{late} (12 skipped: coalesced, 1 missed: late), of a, b; {why}"),
    ]


def test_what_a_stopping_node_gives_back_is_named(caplog):
    go, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(20)

    scheduler = Scheduler(f"memory://run_log-{next(_names)}", node="me")
    job = scheduler.job(name="work")(work)
    scheduler.start()
    try:
        handle = job.options(key="k").enqueue()
        assert begun.wait(60)
        assert scheduler.stop("0s") is False
    finally:
        go.set()
    words = f"run {handle.id} of 'work' (k) is cut off in attempt 1, and given back for others to run"
    assert ("WARNING", f"{words}: the node is shutting down") in told(caplog)


# --- what is not worth another attempt -------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["thread", "async"])
def test_work_that_was_done_is_not_done_again_because_its_result_is_no_json(executor, caplog):
    done = count()

    def work() -> Any:
        next(done)
        return T0

    async def work_async() -> Any:
        return work()

    one = run_once(work if executor == "thread" else work_async, retries=3)
    assert (one.state, one.attempt, next(done)) == (State.FAILED, 1, 1)
    assert one.error is not None
    assert one.error.type == "InvalidPayload"


@pytest.mark.parametrize("executor", ["thread", "async"])
def test_arguments_that_do_not_fit_are_not_tried_again(executor):
    # The store knows no signatures: what another program enqueues by name is seen only when it runs.
    def work(order: int) -> None: ...

    async def work_async(order: int) -> None: ...

    scheduler = Scheduler(f"memory://run_log-{next(_names)}")
    scheduler.job(name="work", retries=3)(work if executor == "thread" else work_async)
    other = Scheduler(scheduler.settings.url)
    with scheduler:
        one = other.enqueue("work", 1, 2).wait("60s")
    assert (one.state, one.attempt) == (State.FAILED, 1)
    assert one.error is not None
    assert "takes 1 positional argument but 2 were given" in one.error.message


def test_a_type_error_of_the_job_s_own_is_tried_again():
    attempts = count(1)

    def work() -> int:
        if next(attempts) < 3:
            return len(3)  # type: ignore[arg-type]
        return 3

    one = run_once(work, retries=5)
    assert (one.state, one.attempt) == (State.SUCCEEDED, 3)
