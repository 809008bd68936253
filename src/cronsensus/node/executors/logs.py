"""Keep what a job logs and prints with its run, in bounds."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from weakref import WeakKeyDictionary

from cronsensus.model.occurrence import LogLine
from cronsensus.node.executors.result import clean_text
from cronsensus.node.run import BaseRun, current_run
from cronsensus.timing.clock import Clock

MOST_LINES = 1_000
LONGEST_LINE = 4_096
"""Characters of one kept line."""
OWN_LOGGERS = "cronsensus"


class LineBudget:
    """Counts the lines of a run: the first ``MOST_LINES`` are kept, then a line reports that the rest is dropped."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        # No lock: a forked child, which may log as well, could find it held for ever.
        self._numbers = itertools.count(1)

    def fit_line(self, line: LogLine) -> LogLine | None:
        """Return the line to keep instead of ``line``, cut to its bound; ``None`` to drop it."""
        number = next(self._numbers)
        if number <= MOST_LINES:
            text = line.text
            fine = len(text) <= LONGEST_LINE and text.isascii() and "\0" not in text
            return line if fine else LogLine(at=line.at, level=line.level, text=clean_text(text, LONGEST_LINE))
        if number == MOST_LINES + 1:
            return LogLine(
                at=line.at, level="WARNING", text=f"cronsensus keeps {MOST_LINES:,} lines of a run; the rest is dropped"
            )
        return None


class RunLogHandler(logging.Handler):
    """A handler for the root logger that gives each record made under a current run to that run.

    The application's levels decide which records reach it. Records of our own loggers are left out, and so is
    whatever is logged while a line is being kept: neither can go round in a circle.

    ``logging.basicConfig`` does nothing once the root logger has a handler, and ``dictConfig`` removes those that it
    has. So in an application's process this stands behind the root logger, as if that had a parent; applications may
    configure their logging before and after.

    Args:
        clock: names the moment of a line.
        last_resort: go on printing warnings to stderr, as ``logging`` does for applications that configure no handler.
    """

    def __init__(self, clock: Clock, *, last_resort: bool = True) -> None:
        super().__init__()
        self._behind = logging.Logger("cronsensus.behind")  # noqa: LOG001 - no name of the application's, and no parent
        self._behind.addHandler(self)
        self._clock = clock
        self._last_resort = last_resort
        self._budgets: WeakKeyDictionary[BaseRun, LineBudget] = WeakKeyDictionary()
        self._budgets_lock = threading.Lock()
        self._inside = threading.local()
        self._process = os.getpid()
        self.setFormatter(logging.Formatter("%(message)s"))

    def add_to_root(self) -> None:
        """Add this to the root logger. Idempotent."""
        logging.getLogger().addHandler(self)

    def install_behind(self) -> None:
        """Stand where records come that went through the root logger. Idempotent."""
        root = logging.getLogger()
        if root.parent is not self._behind:
            self._behind.parent, root.parent = root.parent, self._behind

    def remove_from_root(self) -> None:
        """Take this away again. Idempotent."""
        root = logging.getLogger()
        root.removeHandler(self)
        if root.parent is self._behind:
            root.parent, self._behind.parent = self._behind.parent, None

    def handle(self, record: logging.LogRecord) -> bool:
        """Filter and emit, without the handler's lock.

        A node's thread that logs while it holds the node's lock would otherwise wait here for a job's thread that waits
        for the node's lock to hand over its line.
        """
        kept: object = self.filter(record)  # since Python 3.12 a filter may give another record
        if kept:
            self.emit(kept if isinstance(kept, logging.LogRecord) else record)
        return bool(kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Give the record to the current run, if there is one. Never raises."""
        if self._last_resort and record.levelno >= logging.WARNING:
            self._as_if_absent(record)
        run = current_run()
        if (
            run is None
            or record.name == OWN_LOGGERS
            or record.name.startswith(OWN_LOGGERS + ".")
            or getattr(self._inside, "here", False)
        ):
            return
        if self._process != os.getpid():
            self._forget_the_parents_locks()
        self._inside.here = True
        try:
            line = self._budget_of(run).fit_line(
                LogLine(at=self._clock.now(), level=record.levelname, text=self._format_text(record))
            )
            if line is not None:
                run.line(line)
        except Exception:  # noqa: BLE001, S110 — a job must not fail because its log line cannot be kept
            pass
        finally:
            self._inside.here = False

    def _forget_the_parents_locks(self) -> None:
        """Begin anew in a forked child: a lock may be held by a thread that does not exist here."""
        self._budgets, self._budgets_lock = WeakKeyDictionary(), threading.Lock()
        self._process = os.getpid()

    def _budget_of(self, run: BaseRun) -> LineBudget:
        with self._budgets_lock:
            budget = self._budgets.get(run)
            if budget is None:
                budget = self._budgets[run] = LineBudget()
            return budget

    def _format_text(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # noqa: BLE001 — wrong arguments for the format, or a __str__ that raises
            return f"{record.msg!s} (its arguments could not be formatted: {type(error).__name__})"

    def _as_if_absent(self, record: logging.LogRecord) -> None:
        """Let ``logging.lastResort`` print what it would have printed without this handler."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)
