"""Send several statements in a single trip to the server, by libpq's pipeline mode.

Each statement is prepared under a name, in the trip that first uses it. Through a pooler it has no name, because the
next transaction may get another server connection. Values go as text, whose types the statement declares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, cast

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import DivisionByZero, error_from_result
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import namedtuple_row
from psycopg.waiting import Ready, Wait

from cronsensus.stores.sql.postgres.postgres_driver import BoundedConnection, NotSent
from cronsensus.stores.sql.postgres.postgres_values import array_text, as_text
from cronsensus.stores.sql.queries import LIST, NO_LIST, VALUE, Query, row_maker
from cronsensus.stores.sql.sending import NONE, Moment, Pending, wrong_count

CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The present time; ``now()`` would be the time of the transaction's beginning."""
_EXPECTED = "cronsensus_expected"
_GUARDED = "WITH touched AS ({text} RETURNING 1) SELECT count(*), 1 / (count(*) = :{expected})::int FROM touched"
_NUMBERS = count(1)


@dataclass(slots=True)
class Text:
    """A statement in the form for the server.

    Attributes:
        order: names of the values, in the order of the text.
        name: the name under which connections prepare it.
    """

    text: bytes
    order: tuple[str, ...] = ()
    name: bytes = field(default_factory=lambda: b"cronsensus_%d" % next(_NUMBERS))
    _make: Callable[[Sequence[Any]], Any] | None = None

    def read_rows(self, result: PGresult, transformer: Any) -> Sequence[Any]:
        """Return the rows of an answer; columns are read by name or by position."""
        if result.ntuples == 0:
            return NONE
        if self._make is None:
            names = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
            self._make = row_maker(names)
        transformer.set_pgresult(result)
        return cast("Sequence[Any]", transformer.load_rows(0, result.ntuples, self._make))


class Part(NamedTuple):
    """A statement with its values, and the object that receives the answer."""

    text: Text
    values: list[bytes | None]
    pending: Pending | None = None


def part_of(pending: Pending, schema: str) -> Part:
    """Return a statement with its values."""
    values: dict[str, Any] = dict(pending.values)
    if pending.row_values is not None:
        columns = zip(*pending.row_values, strict=True)
        # Shorter arrays are filled up with NULL, and an array of NULLs alone is sent as NULL.
        values |= {
            name: None if column.count(None) == len(column) else column
            for name, column in zip(pending.query.rows, columns, strict=True)
        }
    if pending.expect is not None:
        values[_EXPECTED] = pending.expect
    timed = frozenset(name for name, value in values.items() if isinstance(value, Moment))
    text = _text_of(pending.query, schema, timed, guarded=pending.expect is not None)
    values |= {name: values[name].plus for name in timed}
    return Part(text, [encode_value(values[name]) for name in text.order], pending)


_texts: dict[tuple[str, str, frozenset[str], bool], Text] = {}


def _text_of(query: Query, schema: str, timed: frozenset[str], *, guarded: bool) -> Text:
    key = (query.name, schema, timed, guarded)
    compiled = _texts.get(key)
    if compiled is None:
        compiled = _texts[key] = compile_text(query.text, timed, guarded=guarded)
    return compiled


def compile_text(text: str, timed: frozenset[str] = frozenset(), *, guarded: bool = False) -> Text:
    """Return a statement with numbered values.

    Args:
        text: with ``:name`` in it.
        timed: names of values that are the server's clock plus the given value. Each place reads the clock in a
            subquery, otherwise no index would be used for it.
        guarded: the statement fails if it touches another number of rows than expected, so that the COMMIT fails too.
    """
    if guarded:
        text = _GUARDED.format(text=text, expected=_EXPECTED)
    text = LIST.sub(r"= ANY (:\1)", NO_LIST.sub(r"<> ALL (:\1)", text))
    order: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        place = f"${order.index(match[1]) + 1}"
        return f"(SELECT {CLOCK} + CAST({place} AS bigint))" if match[1] in timed else place

    text = VALUE.sub(numbered, text)
    return Text(text.encode(), tuple(order))


def encode_value(value: Any) -> bytes | None:
    """Return a value as the server reads it."""
    text = array_text(value) if isinstance(value, (list, tuple)) else as_text(value)
    if text is None:
        return None
    if "\0" in text:  # libpq would silently end the text there
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text.encode()


def run_pipeline(driver: BoundedConnection, parts: Sequence[Part]) -> list[Sequence[Any]]:
    """Send statements in a single trip; set the answer of each, and return the rows of all of them.

    A statement after the COMMIT may fail: then its answer is empty.

    Raises:
        StoreUnavailable: a statement touched another number of rows than expected; no later one was run.
        psycopg.Error: the first error; no later statement was run.
    """
    steps = _list_steps(driver, parts)
    results: list[PGresult] = driver.wait(_send_steps(driver, steps))
    transformer = Transformer(driver)
    answers: list[Sequence[Any]] = []
    for result, (part, prepares) in zip(results, steps, strict=False):
        if result.status in {ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED}:
            pending = part.pending
            if pending is not None and pending.behind:
                pending.receive_answer(NONE, 0)
                break
            error = error_from_result(result, driver.info.encoding)
            if isinstance(error, DivisionByZero) and pending is not None and pending.expect is not None:
                raise wrong_count(pending) from None
            raise error
        if prepares:
            driver.known.add(part.text.name)
            continue
        rows = part.text.read_rows(result, transformer)
        answers.append(rows)
        _answer_part(part, rows, result.command_tuples or 0)
    return answers


def run_one_by_one(driver: BoundedConnection, parts: Sequence[Part]) -> list[Sequence[Any]]:
    """Do what ``run_pipeline`` does with a trip for each statement, for a libpq without pipelines."""
    answers: list[Sequence[Any]] = []
    for part in parts:
        cursor = psycopg.RawCursor(driver, row_factory=namedtuple_row)
        values = [None if value is None else value.decode() for value in part.values]
        try:
            cursor.execute(part.text.text, values, prepare=driver.names and bool(part.pending))
        except DivisionByZero:
            if part.pending is None or part.pending.expect is None:
                raise
            raise wrong_count(part.pending) from None
        except psycopg.Error:
            if part.pending is None or not part.pending.behind:
                raise
            part.pending.receive_answer(NONE, 0)
            break
        rows = cursor.fetchall() if cursor.description else NONE
        answers.append(rows)
        _answer_part(part, rows, cursor.rowcount)
    return answers


def has_pipeline() -> bool:
    """Whether this libpq has pipelines (since version 14)."""
    return psycopg.capabilities.has_pipeline()


def _answer_part(part: Part, rows: Sequence[Any], touched: int) -> None:
    if part.pending is not None:
        guarded = part.pending.expect is not None
        part.pending.receive_answer(NONE if guarded else rows, rows[0][0] if guarded else touched)


def _list_steps(driver: BoundedConnection, parts: Iterable[Part]) -> list[tuple[Part, bool]]:
    """Return the messages in order: a part, and whether the message only prepares it."""
    steps: list[tuple[Part, bool]] = []
    new: set[bytes] = set()
    for part in parts:
        name = part.text.name
        if driver.names and name not in driver.known and name not in new:
            new.add(name)
            steps.append((part, True))
        steps.append((part, False))
    return steps


def _send_steps(driver: BoundedConnection, steps: Sequence[tuple[Part, bool]]) -> Generator[Any, Any, list[PGresult]]:
    """Send all and return the answers; if the server hung up, including its last error message, if there is one."""
    pgconn: PGconn = driver.pgconn
    results: list[PGresult] = []
    pgconn.enter_pipeline_mode()
    try:
        _hand_over(pgconn, steps, names=driver.names)
        yield from _exchange_rest(pgconn, results)
        pgconn.exit_pipeline_mode()
    except psycopg.OperationalError:
        while not pgconn.is_busy() and (result := pgconn.get_result()) is not None:
            results.append(result)
        states = [result.error_field(DiagnosticField.SQLSTATE) for result in results]
        if not any(states):  # libpq's own errors have no code
            raise
    return results


def _hand_over(pgconn: PGconn, steps: Sequence[tuple[Part, bool]], *, names: bool) -> None:
    """Pass everything to libpq, which may send some of it.

    Raises:
        NotSent: the connection is gone.
    """
    try:
        for part, prepares in steps:
            if prepares:
                pgconn.send_prepare(part.text.name, part.text.text)
            elif names:
                pgconn.send_query_prepared(part.text.name, part.values)
            else:
                pgconn.send_query_params(part.text.text, part.values)
    except psycopg.OperationalError as error:
        raise NotSent(str(error)) from error
    pgconn.pipeline_sync()


def _exchange_rest(pgconn: PGconn, results: list[PGresult]) -> Generator[Any, Any, None]:
    """Send the rest while reading answers: both sides may have more data than the sockets hold."""
    sending = True
    while True:
        ready = yield (Wait.RW if sending else Wait.R)
        if not ready:
            continue
        if ready & Ready.R:
            pgconn.consume_input()
        if sending:
            sending = pgconn.flush() != 0
        ended = True  # libpq returns None once between two statements, and again at the end
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                if ended:
                    break
                ended = True
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return
            else:
                results.append(result)
                ended = False
