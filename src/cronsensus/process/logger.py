"""Loggers that cannot raise into the code that logs.

The application's logging handlers are the application's code: they may raise, block, or log themselves. If that ended a
loop of the library, the process would hold its lease and do nothing. So an exception of a handler goes to standard
error, and the code that logged goes on.

A handler that blocks does block its caller. Threads that must not stand still (those that renew leases and watch
deadlines) log ``aside``: another thread writes their records.

Secrets in these records are masked: in texts, in exceptions, and in tracebacks. Records of the application itself go to
its handlers unchanged.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias

from cronsensus.process.interrupts import Condition
from cronsensus.process.this_process import call_after_fork
from cronsensus.security.masking import mask

ExcInfo: TypeAlias = bool | BaseException | tuple[type[BaseException], BaseException, TracebackType | None] | None

MOST_COMPLAINTS = 20
"""Most errors of handlers that a process shows on standard error."""
MOST_WAITING = 1_000
"""Records that wait to be written aside at most; further records are dropped, and counted."""


class Logger:
    """A logger by the name ``name``. Its methods are those of ``logging.Logger``, and raise nothing.

    Exceptions that end the program pass on the main thread: ``KeyboardInterrupt``, and others of that kind that a
        signal
    handler raises.
    """

    def __init__(self, name: str, write: Callable[[Callable[[], None]], None] | None = None) -> None:
        self._logger = logging.getLogger(name)
        self._write = write

    @property
    def aside(self) -> Logger:
        """The same logger for a thread that must not wait for handlers: another thread writes the record."""
        return Logger(self._logger.name, _writer.put)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as logging calls it
        """Whether a record of ``level`` would be written at all."""
        return self._logger.isEnabledFor(level)

    def debug(
        self, message: str, *args: object, extra: Mapping[str, object] | None = None, exc_info: ExcInfo = None
    ) -> None:
        """Log on level ``DEBUG``."""
        self._log_record(logging.DEBUG, message, args, extra, exc_info)

    def info(self, message: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log on level ``INFO``."""
        self._log_record(logging.INFO, message, args, extra, None)

    def warning(
        self, message: str, *args: object, extra: Mapping[str, object] | None = None, exc_info: ExcInfo = None
    ) -> None:
        """Log on level ``WARNING``."""
        self._log_record(logging.WARNING, message, args, extra, exc_info)

    def error(
        self, message: str, *args: object, extra: Mapping[str, object] | None = None, exc_info: ExcInfo = None
    ) -> None:
        """Log on level ``ERROR``."""
        self._log_record(logging.ERROR, message, args, extra, exc_info)

    def exception(self, message: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log on level ``ERROR``, with the exception that is being handled."""
        self._log_record(logging.ERROR, message, args, extra, True)

    def critical(
        self, message: str, *args: object, extra: Mapping[str, object] | None = None, exc_info: ExcInfo = None
    ) -> None:
        """Log on level ``CRITICAL``."""
        self._log_record(logging.CRITICAL, message, args, extra, exc_info)

    def log(
        self,
        level: int,
        message: str,
        *args: object,
        extra: Mapping[str, object] | None = None,
        exc_info: ExcInfo = None,
    ) -> None:
        """Log on ``level``."""
        self._log_record(level, message, args, extra, exc_info)

    def _log_record(
        self, level: int, message: str, args: tuple[object, ...], extra: Mapping[str, object] | None, exc_info: ExcInfo
    ) -> None:
        try:
            if not self._logger.isEnabledFor(level):
                return
            exception = sys.exc_info() if exc_info is True else exc_info
            # Not Logger.log, which searches the stack for the caller. It is two calls up, and a node logs each run.
            caller = sys._getframe(2)  # noqa: SLF001
            record = self._logger.makeRecord(
                self._logger.name, level, caller.f_code.co_filename, caller.f_lineno, message, args,
                _as_tuple(exception), caller.f_code.co_name, extra,
            )  # fmt: skip
            if self._write is None:
                _mask_record(record)
                self._logger.handle(record)
            else:
                self._write(lambda: self._hand_over(record))
        except Exception as error:  # noqa: BLE001 - reported on standard error
            complain(self._logger.name, level, message, args, error)
        except BaseException as error:
            if threading.current_thread() is threading.main_thread():
                raise
            complain(self._logger.name, level, message, args, error)

    def _hand_over(self, record: logging.LogRecord) -> None:
        try:
            _mask_record(record)
            self._logger.handle(record)
        except BaseException as error:  # noqa: BLE001 - reported on standard error; this thread has nothing else to do
            complain(record.name, record.levelno, record.msg, (), error)


def _mask_record(record: logging.LogRecord) -> None:
    """Mask the secrets of a record in place.

    The template stays, since tools group by it. An exception whose traceback holds a secret is removed, because
    handlers would format it anew: its masked text follows the message.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(_masked(value) for value in record.args)
    if record.exc_info and record.exc_info[1] is not None:
        try:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        except Exception:  # noqa: BLE001 - a traceback that cannot be checked is dropped; the message goes out
            record.exc_info = None
            return
        masked = mask(text)
        if masked != text:
            record.msg, record.args = f"{record.msg}\n%s", (*(record.args or ()), masked)
            record.exc_info = None


def _masked(value: object) -> object:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, BaseException):
        text = str(value)
        masked = mask(text)
        return value if masked == text else masked
    return value


# --- what is logged together, and written in one piece ----------------------------------------------------------------

Line: TypeAlias = tuple[logging.LogRecord, str]
"""A record, and how it is written."""


class _Block(threading.local):
    lines: dict[Callable[[Sequence[Line]], None], list[Line]] | None = None


_block = _Block()


@contextmanager
def together() -> Iterator[None]:
    """Collect this thread's records for handlers that call ``put_off``; they write all at once when the block ends."""
    if _block.lines is not None:
        yield
        return
    lines = _block.lines = {}
    try:
        yield
    finally:
        _block.lines = None
        for write, of_handler in lines.items():
            write(of_handler)


def put_off(write: Callable[[Sequence[Line]], None], line: Line) -> bool:
    """Have ``write`` called with this line and others at the end of the block; ``False``: there is no block.

    ``write`` must not raise.
    """
    if _block.lines is None:
        return False
    _block.lines.setdefault(write, []).append(line)
    return True


def flush(timeout: float) -> None:
    """Wait, at most so many seconds, until all records that were logged aside are written."""
    _writer.flush(timeout)


def log_aloud(text: str) -> None:
    """Write a line to standard error, past all logging. Never raises."""
    try:
        stream = sys.stderr
        if stream is not None:
            stream.write(f"cronsensus: {mask(text)}\n")
            stream.flush()
    except Exception:  # noqa: BLE001, S110 - there is no further place to report it
        pass


def complain(name: str, level: int, message: object, args: tuple[object, ...], error: BaseException) -> None:
    """Report on standard error that a record was not written, and why; a few times in all. Never raises."""
    global _complaints  # noqa: PLW0603 - of the process
    _complaints += 1
    if _complaints > MOST_COMPLAINTS:
        return
    try:
        text = str(message) % args if args else str(message)
        error_text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - what cannot be formatted is named at least
        text, error_text = "a record", type(error).__name__
    note = "; further errors of this kind are not shown" if _complaints == MOST_COMPLAINTS else ""
    log_aloud(
        f"logging failed ({error_text}{note}), the application goes on; what was to be logged: "
        f"{logging.getLevelName(level)} {name}: {text}"
    )


def _as_tuple(exc_info: Any) -> Any:
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, exc_info.__traceback__
    return exc_info or None


class _Writer:
    """Writes records on a thread of its own, which is there only while there are some."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._open = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def put(self, write: Callable[[], None]) -> None:
        """Call ``write`` soon on another thread; never blocks."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                return
            self._waiting.append(write)
            self._open += 1
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._write_next, name="cronsensus-log", daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError:
                self._thread = None  # no thread can be had, as at the interpreter's end: it is written here
        self._write_next()

    def flush(self, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout)

    def _write_next(self) -> None:
        while (write := self._next()) is not None:
            self._write(write)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            if self._thread is threading.current_thread():
                self._thread = None
            return None

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        finally:
            with self._changed:
                self._open -= 1
                dropped, self._dropped = self._dropped, 0
                self._changed.notify_all()
        if dropped:
            log_aloud(f"{dropped} log records were dropped, because a logging handler blocks")


_complaints = 0
_writer = _Writer()


def _in_child() -> None:
    global _writer  # noqa: PLW0603 - of the process
    _writer = _Writer()  # the old lock may have been held, and its thread is the parent's


call_after_fork(_in_child)
