"""What the application's logging handlers do, the code that logs does not feel."""

import io
import logging
import os
import sys
import threading

import pytest

from cronsensus.cli.log import LineHandler, TextLines
from cronsensus.process import logger as module
from cronsensus.process.logger import Logger, flush, together


class Handler(logging.Handler):
    """A handler whose ``emit`` is given; ``handle`` takes no lock, so that what it does is all that happens."""

    def __init__(self, emit):
        super().__init__()
        self.emit = emit  # type: ignore[method-assign]


@pytest.fixture
def log(request):
    name = f"cronsensus.test.{request.node.name}"
    logging.getLogger(name).propagate = False
    yield Logger(name)
    logging.getLogger(name).handlers.clear()


def add(log: Logger, emit) -> None:
    logging.getLogger(log._logger.name).addHandler(Handler(emit))


@pytest.mark.parametrize("error", [OSError("disk full"), RecursionError(), MemoryError()])
def test_what_a_handler_raises_goes_to_standard_error_with_the_record(log, error, monkeypatch, capsys):
    monkeypatch.setattr(module, "_complaints", 0)

    def emit(record):
        raise error

    add(log, emit)
    log.warning("node %s is gone", "web-1")
    said = capsys.readouterr().err
    assert type(error).__name__ in said
    assert "node web-1 is gone" in said
    for _ in range(100):
        log.aside.warning("again")
    flush(20)
    assert capsys.readouterr().err.count("\n") == module.MOST_COMPLAINTS - 1


def test_a_handler_that_logs_where_it_is_called_from_ends(log, monkeypatch, capsys):
    monkeypatch.setattr(module, "_complaints", 0)
    add(log, lambda record: log.warning("from the handler"))
    log.warning("once")
    assert "RecursionError" in capsys.readouterr().err


def test_a_record_names_the_line_that_logged(log):
    seen: list[logging.LogRecord] = []
    add(log, seen.append)
    log.info("not enabled")
    log.warning("beside")
    log.aside.error("aside")
    flush(20)
    assert [(record.filename, record.funcName) for record in seen] == [
        ("test_logger.py", "test_a_record_names_the_line_that_logged")
    ] * 2
    assert seen[1].lineno == seen[0].lineno + 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_programs_passes_on_the_main_thread_only(log, error, monkeypatch, capsys):
    monkeypatch.setattr(module, "_complaints", 0)

    def emit(record):
        raise error

    add(log, emit)
    with pytest.raises(error):
        log.warning("on the main thread")
    ended = []
    thread = threading.Thread(target=lambda: ended.append(log.warning("on another")))
    thread.start()
    thread.join(20)
    assert ended == [None]


def test_records_that_cannot_be_formatted_or_written_anywhere_raise_nothing(log, monkeypatch):
    class Mute:
        def __str__(self):
            raise ValueError

    def emit(record):
        record.getMessage()

    add(log, emit)
    log.warning("%s", Mute())
    log.warning("%d %d", 1)  # noqa: PLE1206
    log.warning("extra", extra={"message": "is taken"})  # noqa: G101
    for stream in (None, io.StringIO()):
        if stream is not None:
            stream.close()
        monkeypatch.setattr(sys, "stderr", stream)
        log.warning("%s", Mute())


def test_a_record_names_the_code_that_logged_and_carries_its_exception(log):
    records: list[logging.LogRecord] = []
    add(log, records.append)
    try:
        raise ValueError("no such shop")
    except ValueError:
        log.exception("here", extra={"job": "work"})
        log.aside.exception("there", extra={"job": "work"})
    flush(20)
    assert [record.getMessage() for record in records] == ["here", "there"]
    for record in records:
        assert record.pathname == __file__
        assert record.funcName == "test_a_record_names_the_code_that_logged_and_carries_its_exception"
        assert record.threadName == threading.current_thread().name
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], ValueError)
        assert record.__dict__["job"] == "work"


def test_a_thread_that_logs_aside_does_not_wait_for_a_handler_that_blocks(log, monkeypatch, capsys):
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    entered, go = threading.Event(), threading.Event()
    written = []

    def emit(record):
        entered.set()
        assert go.wait(60)
        written.append(record.getMessage())

    add(log, emit)
    log.aside.warning("0")
    assert entered.wait(60)
    for number in range(1, 6):
        log.aside.warning("%d", number)
    assert written == []
    go.set()
    flush(20)
    assert written == ["0", "1", "2", "3"]
    assert "2 log records were dropped" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_logs_aside_though_the_parents_writer_was_busy(log):
    entered, go = threading.Event(), threading.Event()
    parent = os.getpid()

    def emit(record):
        if os.getpid() == parent:
            entered.set()
            assert go.wait(60)
        else:
            os._exit(7)

    add(log, emit)
    log.aside.warning("parent")
    assert entered.wait(60)
    child = os.fork()
    if child == 0:
        log.aside.warning("child")
        flush(20)
        os._exit(0)
    go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    flush(20)


# --- what is logged together -----------------------------------------------------------------------------------------


@pytest.fixture
def lines(log):
    """Give the pieces that a handler of the command line writes."""
    pieces: list[str] = []

    class Stream(io.StringIO):
        def write(self, text):
            pieces.append(text)
            return len(text)

    handler = LineHandler(Stream())
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger(log._logger.name).addHandler(handler)
    return pieces


def test_records_logged_together_are_written_in_one_piece_when_the_outermost_block_ends(log, lines):
    log.error("before")
    with together():
        log.error("one")
        with together():
            log.error("two")
        assert lines == ["before\n"]
    log.error("after")
    assert lines == ["before\n", "one\ntwo\n", "after\n"]


def test_another_thread_does_not_wait_for_a_block(log, lines):
    with together():
        log.error("in the block")
        other = threading.Thread(target=log.error, args=("elsewhere",))
        other.start()
        other.join()
        assert lines == ["elsewhere\n"]
    assert lines == ["elsewhere\n", "in the block\n"]


def test_a_block_that_raises_writes_what_was_logged_in_it(log, lines):
    def fail():
        with together():
            log.error("one")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert lines == ["one\n"]


def test_a_stream_that_refuses_a_piece_does_not_disturb_the_code_that_logs(log, monkeypatch, capsys):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError("disk full")

    monkeypatch.setattr(logging, "raiseExceptions", True)
    logging.getLogger(log._logger.name).addHandler(LineHandler(Full()))
    with together():
        log.error("one")
    assert "disk full" in capsys.readouterr().err


def test_each_line_has_the_moment_of_its_record_in_utc():
    lines = TextLines()

    def shown(created: float) -> str:
        record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "x", "created": created})
        record.msecs = created % 1 * 1000
        return lines.format(record)[:24]

    assert [shown(at) for at in (1_790_000_000.25, 1_790_000_000.5, 1_790_000_001.0, 1_790_000_000.75)] == [
        "2026-09-21 14:13:20.250Z",
        "2026-09-21 14:13:20.500Z",
        "2026-09-21 14:13:21.000Z",
        "2026-09-21 14:13:20.750Z",
    ]
