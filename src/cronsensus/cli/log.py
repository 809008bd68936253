"""The format of a node's log: lines for people, or JSON objects for programs.

Each record that is made in a run, or about a run, carries its job, id, key, attempt and token.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from cronsensus.cli.terminal import clean_text
from cronsensus.node.run import current_run
from cronsensus.process.logger import Line, put_off
from cronsensus.security.masking import mask
from cronsensus.timing.instants import format_instant, from_micros

_ABOUT = ("job", "run", "key", "attempt", "token")


def start_logging(style: str, level: str, *, node: str) -> None:
    """Send log records of ``level`` and above to stderr; handlers that are configured already stay."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    if root.handlers:
        return
    handler = LineHandler(sys.stderr)
    handler.setFormatter(JsonLines(node) if style == "json" else TextLines())
    root.addHandler(handler)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes records; those that are logged ``together`` in a single write, as a node with a long queue logs hundreds.

    Each write to a stream releases the GIL, for which the threads of all jobs wait.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, now or together with later ones."""
        try:
            line = (record, self.format(record) + self.terminator)
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - as every handler of ``logging`` does
            self.handleError(record)
            return
        if not put_off(self._write, line):
            self._write([line])

    def _write(self, lines: Sequence[Line]) -> None:
        self.acquire()
        try:
            self.stream.write("".join([text for _, text in lines]))
            self.flush()
        except Exception:  # noqa: BLE001 - as every handler of ``logging`` does
            self.handleError(lines[-1][0])
        finally:
            self.release()


class TextLines(logging.Formatter):
    """``2026-11-20 21:00:00.123Z INFO  shop.mail [send_digest 4711 #1]: …``: job, number of the run, attempt."""

    _second = -1, ""
    """The second of the last record, and its text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, with its traceback below."""
        second, known = int(record.created), self._second
        if second != known[0]:
            known = self._second = second, from_micros(second * 1_000_000).isoformat(" ").removesuffix("+00:00")
        at = f"{known[1]}.{int(record.msecs):03}Z"
        run = current_run()
        where = f" [{clean_text(run.job)} {run.id} #{run.attempt}]" if run is not None else ""
        text = f"{at} {record.levelname:<7} {record.name}{where}: {clean_text(mask(record.getMessage()), lines=True)}"
        if not record.exc_info:
            return text
        return f"{text}\n{clean_text(mask(self.formatException(record.exc_info)), lines=True)}"


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        data: dict[str, Any] = {
            "time": format_instant(from_micros(int(record.created * 1e6))),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask(record.getMessage()),
            "node": self._node,
        }
        run = current_run()
        if run is not None:
            data |= {"job": run.job, "run": run.id, "key": run.key, "attempt": run.attempt, "token": run.token}
        elif record.name.startswith("cronsensus."):
            # A record of the node about a run has these values itself: the run's context has ended by then.
            data |= {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        if record.exc_info:
            data["traceback"] = mask(self.formatException(record.exc_info))
        return json.dumps(data, ensure_ascii=True)
