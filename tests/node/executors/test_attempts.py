import threading

import pytest

from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.node.executors.attempt import Attempt, Attempts
from cronsensus.process.logger import flush
from cronsensus.timing.clock import ManualClock


def test_attempt_ended_by_many_threads_at_once_is_reported_once(bench, clock):
    attempts: Attempts[Attempt] = Attempts(bench.done, clock, None)
    sides = 4
    for _ in range(100):
        attempt = Attempt(bench.call(lambda: None))
        attempts.open_attempt(attempt, lambda _: None)
        start = threading.Barrier(sides)
        won: list[bool] = []

        def end(attempt=attempt, start=start, won=won):
            start.wait(bench.patience)
            won.append(attempts.end_attempt(attempt, Ending(kind="returned")))

        threads = [threading.Thread(target=end) for _ in range(sides)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(bench.patience)
        assert sorted(won) == [False] * (sides - 1) + [True]
        assert len(bench.of(attempt.call)) == 1
    attempts.close()


def test_elapsed_is_measured_by_the_clock_given(bench):
    clock = ManualClock()
    attempts: Attempts[Attempt] = Attempts(bench.done, clock, None)
    attempt = Attempt(bench.call(lambda: None))
    attempts.open_attempt(attempt, lambda _: None)
    clock.advance(12.5)
    attempts.end_attempt(attempt, Ending(kind="returned"))
    assert bench.wait(attempt.call).elapsed.total_seconds() == 12.5
    attempts.close()


def test_a_report_that_fails_does_not_harm_the_executor(bench, clock, caplog):
    def done(call, ending):
        raise RuntimeError("the node has a bug")

    attempts: Attempts[Attempt] = Attempts(done, clock, None)
    attempt = Attempt(bench.call(lambda: None))
    attempts.open_attempt(attempt, lambda _: None)
    assert attempts.end_attempt(attempt, Ending(kind="returned"))
    flush(20)
    assert "could not be reported" in caplog.text
    attempts.close()


def test_close_waits_for_a_report_that_has_begun_and_allows_no_other(bench, clock):
    inside, go_on = threading.Event(), threading.Event()

    def done(call, ending):
        inside.set()
        go_on.wait(bench.patience)
        bench.done(call, ending)

    attempts: Attempts[Attempt] = Attempts(done, clock, None)
    first, second = Attempt(bench.call(lambda: None)), Attempt(bench.call(lambda: None))
    attempts.open_attempt(first, lambda _: None)
    attempts.open_attempt(second, lambda _: None)
    reporter = threading.Thread(target=attempts.end_attempt, args=(first, Ending(kind="returned")))
    reporter.start()
    assert inside.wait(bench.patience)
    closer = threading.Thread(target=attempts.close)
    closer.start()
    bench.until(lambda: attempts._closed, "the close")
    assert closer.is_alive()
    go_on.set()
    closer.join(bench.patience)
    assert len(bench.of(first.call)) == 1
    assert not attempts.end_attempt(second, Ending(kind="returned"))
    assert bench.of(second.call) == []
    reporter.join(bench.patience)


def test_a_report_may_close(bench, clock):
    def done(call, ending):
        attempts.close()

    attempts: Attempts[Attempt] = Attempts(done, clock, None)
    attempt = Attempt(bench.call(lambda: None))
    attempts.open_attempt(attempt, lambda _: None)
    assert attempts.end_attempt(attempt, Ending(kind="returned"))


def test_shared_deadlines_outlive_an_executor_that_is_closed(bench, clock):
    timer = Timer(clock)
    attempts: Attempts[Attempt] = Attempts(bench.done, clock, timer)
    attempt = Attempt(bench.call(lambda: None, timeout=3600))
    attempts.open_attempt(attempt, lambda _: None)
    assert len(timer) == 1
    attempts.close()
    assert len(timer) == 0
    fired = threading.Event()
    timer.call_after(0, fired.set)
    assert fired.wait(bench.patience)
    timer.close()


def test_one_attempt_cannot_run_twice(bench, clock):
    attempts: Attempts[Attempt] = Attempts(bench.done, clock, None)
    call = bench.call(lambda: None)
    attempts.open_attempt(Attempt(call), lambda _: None)
    with pytest.raises(RuntimeError, match="already running here"):
        attempts.open_attempt(Attempt(call), lambda _: None)
    attempts.close()
    with pytest.raises(RuntimeError, match="closed"):
        attempts.open_attempt(Attempt(bench.call(lambda: None)), lambda _: None)
