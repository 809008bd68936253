import logging
import threading
from datetime import UTC, datetime

import pytest

from cronsensus.model.occurrence import LogLine
from cronsensus.node.executors.logs import LONGEST_LINE, MOST_LINES, RunLogHandler
from cronsensus.node.executors.threads import ThreadExecutor
from cronsensus.node.run import enter_run
from cronsensus.run import Run
from cronsensus.timing.clock import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def handler():
    handler = RunLogHandler(ManualClock(NOW))
    handler.add_to_root()
    handler.add_to_root()
    yield handler
    handler.remove_from_root()
    handler.remove_from_root()
    assert handler not in logging.getLogger().handlers


@pytest.fixture
def run(bench):
    run = bench.call(lambda: None).run
    enter_run(run)
    yield run
    enter_run(None)


@pytest.fixture
def log():
    logger = logging.getLogger("application")
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(logging.NOTSET)


def test_a_record_made_under_a_run_is_kept_with_it(bench, handler, run, log):
    log.info("%d of %d", 1, 2)
    log.debug("below the application's level")
    assert bench.lines == [LogLine(at=NOW, level="INFO", text="1 of 2")]


def test_a_record_made_elsewhere_is_not(bench, handler, log):
    log.info("nobody's")
    assert bench.lines == []


def test_an_exception_is_kept_with_its_traceback(bench, handler, run, log):
    try:
        raise ValueError("the reason")
    except ValueError:
        log.exception("it failed")
    assert bench.lines[0].text.startswith("it failed\nTraceback")
    assert bench.lines[0].text.endswith("ValueError: the reason")


def test_lines_are_bounded_in_number_and_in_length(bench, handler, run, log):
    for _ in range(MOST_LINES + 500):
        log.info("x" * 10_000)
    assert len(bench.lines) == MOST_LINES + 1
    assert {len(line.text) for line in bench.lines[:-1]} == {LONGEST_LINE}
    assert bench.lines[-1].text == "cronsensus keeps 1,000 lines of a run; the rest is dropped"


def test_each_run_has_its_own_bound(bench, handler, run, log):
    for _ in range(MOST_LINES + 1):
        log.info("x")
    enter_run(bench.call(lambda: None).run)
    log.info("another run's")
    assert bench.lines[-1].text == "another run's"


def test_no_record_can_make_logging_raise(bench, handler, run, log, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])  # pytest's own do raise

    class Unprintable:
        def __str__(self):
            raise ValueError

    log.info("%d", "no number")
    log.info("%s", Unprintable())
    log.info(Unprintable())
    log.info("lone \ud800 surrogate and \0")
    assert [line.text for line in bench.lines] == [
        "%d (its arguments could not be formatted: TypeError)",
        "%s (its arguments could not be formatted: ValueError)",
        "lone \\ud800 surrogate and \\x00",
    ]


def test_a_run_that_cannot_keep_a_line_does_not_make_logging_raise(bench, handler, log):
    def on_line(run, line):
        raise OSError

    enter_run(Run(bench.call(lambda: None).claim, on_line=on_line))
    log.info("x")
    enter_run(None)


def test_our_own_records_and_what_is_logged_while_keeping_a_line_do_not_go_round(bench, handler, log):
    kept = []

    def on_line(run, line):
        log.info("kept a line")
        logging.getLogger("cronsensus.node").warning("kept a line")
        kept.append(line.text)

    enter_run(Run(bench.call(lambda: None).claim, on_line=on_line))
    log.info("once")
    logging.getLogger("cronsensus").error("ours")
    logging.getLogger("cronsensus.stores.sql").error("ours")
    logging.getLogger("cronsensus_of_a_user").error("theirs")
    enter_run(None)
    assert kept == ["once", "theirs"]


def test_a_thread_that_logs_is_not_held_up_by_a_line_that_is_being_kept(bench, handler, log):
    """The node may log while it holds a lock that on_line waits for."""
    inside, release = threading.Event(), threading.Event()

    def on_line(run, line):
        inside.set()
        assert release.wait(bench.patience)

    def job():
        enter_run(Run(bench.call(lambda: None).claim, on_line=on_line))
        log.info("slow to keep")

    thread = threading.Thread(target=job)
    thread.start()
    assert inside.wait(bench.patience)
    log.info("from the node")  # would wait for ever
    release.set()
    thread.join(bench.patience)
    assert not thread.is_alive()


def test_a_job_in_a_thread_needs_to_do_nothing_for_it(bench, clock, handler, log):
    executor = ThreadExecutor(bench.done, clock)
    bench.run(executor, lambda: log.info("from the job"))
    executor.close()
    assert bench.texts("INFO") == ["from the job"]


@pytest.mark.parametrize("configured", [False, True])
def test_an_application_without_handlers_still_sees_its_warnings(handler, capsys, configured, monkeypatch):
    root = logging.getLogger()
    other = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [handler, other] if configured else [handler])
    logging.getLogger("application").warning("look out")
    logging.getLogger("application").info("never mind")
    assert capsys.readouterr().err == ("" if configured else "look out\n")
