"""A thread that is over its timeout keeps its place: nothing works beside it, and the run says so until it returns."""

from __future__ import annotations

import threading
from typing import Any

from cronsensus import Scheduler, current_run
from cronsensus.model.states import State


def test_a_retry_and_the_next_run_wait_until_the_thread_returns(tmp_path: Any) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", concurrency=4)
    order: list[str] = []
    told, release = threading.Event(), threading.Event()

    @scheduler.job(timeout="100ms", retries=1, retry_delay="10ms", concurrency=1)
    def close_the_day(day: str) -> None:
        attempt = f"{day} {len(order)}"
        order.append(f"in {attempt}")
        if len(order) == 1:
            told.set()
            assert release.wait(60)
        order.append(f"out {attempt}")

    @scheduler.job()
    def other() -> None: ...

    with scheduler:
        first = close_the_day.enqueue("Monday")
        assert told.wait(60)
        second = close_the_day.enqueue("Tuesday")
        # The timeout and the delay of the retry pass while others run: what could begin beside it would have.
        for _ in range(20):
            other.options(delay="30ms").enqueue().wait("60s")
        assert (first.look().state, first.look().attempt) == (State.RUNNING, 1)
        assert (second.look().state, order) == (State.PENDING, ["in Monday 0"])
        release.set()
        assert (first.wait("60s").state, first.look().attempt) == (State.SUCCEEDED, 2)
        assert second.wait("60s").state is State.SUCCEEDED
    inside = 0
    for step in order:
        inside += 1 if step.startswith("in") else -1
        assert inside <= 1, order
    assert len(order) == 6


def test_a_thread_that_returns_after_its_timeout_has_failed_whatever_it_returns(tmp_path: Any) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")

    @scheduler.job(timeout="50ms")
    def late() -> str:
        run = current_run()
        assert run is not None
        assert run.cancelled.wait(60)
        return "too late"

    with scheduler:
        ended = late.enqueue().wait("60s")
    assert (ended.state, ended.reason, ended.result) == (State.FAILED, "timeout", None)
    assert ended.error is not None
    assert "executor='process'" in ended.error.message
