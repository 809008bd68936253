"""Wrap a connection on which the user has a transaction open, so that statements of the store can run on it.

Nothing here begins a transaction without need, and nothing commits, rolls back or closes. No driver is imported: the
user's may be another than the store's.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from cronsensus.errors import UnsupportedTransaction
from cronsensus.stores.sql.queries import LIST, ROWS, VALUE, Query

T = TypeVar("T")
_DATABASES = {"mariadb": "mysql"}
_CALLED_AFTER = "cronsensus_called_after_commit"
"""The key in a session's ``info`` of the calls to make once its transaction has ended."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement to run on a user's connection.

    Attributes:
        rows: the rows to run it for, with the values of ``query.rows``; ``None``: it does not take rows.
    """

    query: Query
    values: Mapping[str, Any]
    rows: Sequence[tuple[Any, ...]] | None = None


class Answer(NamedTuple):
    """The answer of a database to a statement.

    Attributes:
        last_id: of the row that was inserted last, if the driver reports it.
    """

    rows: Sequence[tuple[Any, ...]]
    last_id: int | None = None


_NOTHING = Answer(())


class UsersConnection(ABC):
    """A user's connection.

    Attributes:
        database: ``"postgresql"``, ``"mysql"`` or ``"sqlite"``.
        takes_names: whether statements have values as ``:name``; else as ``%(name)s``.
    """

    database: str
    takes_names: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, as far as that is known."""
        return True

    @property
    def is_two_phase(self) -> bool:
        """Whether the transaction is two-phase, as far as known; PostgreSQL forbids notifications in these."""
        return False

    @abstractmethod
    def commits_each(self) -> bool:
        """Whether the next statement would be committed at once."""

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Ensure that a transaction is open, and that texts are returned as ``str``."""
        yield

    def call_after_commit(self, call: Callable[[], object], who: object) -> bool:  # noqa: ARG002 - drivers have no hook
        """Call ``call`` once for ``who`` when the transaction is committed; ``False``: there is no hook."""
        return False

    @abstractmethod
    def execute_text(self, text: str, values: Mapping[str, Any]) -> Answer:
        """Run the text of a statement."""

    def execute(self, statement: Statement) -> Answer:
        """Run a statement."""
        answer = _NOTHING
        for text, values in texts_of(statement, takes_names=self.takes_names):
            answer = self.execute_text(text, values)
        return answer


def texts_of(statement: Statement, *, takes_names: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the texts of a statement, with their values; several if rows are sent one by one."""
    query, values = statement.query, dict(statement.values)
    if statement.rows is None:
        yield _spread_lists(query.text, values, takes_names=takes_names)
    elif query.row:  # all in one
        separator = " UNION ALL " if query.row.startswith("SELECT") else ", "
        row_texts = []
        for place, row in enumerate(statement.rows):
            row_texts.append(VALUE.sub(lambda match, place=place: f":{match[1]}_{place}", query.row))  # type: ignore[misc]
            values |= {f"{name}_{place}": value for name, value in zip(query.rows, row, strict=True)}
        yield _for_driver(query.text.replace(ROWS, separator.join(row_texts)), takes_names=takes_names), values
    else:
        text = _for_driver(query.text, takes_names=takes_names)
        for row in statement.rows:
            yield text, {**values, **dict(zip(query.rows, row, strict=True))}


def _spread_lists(text: str, values: dict[str, Any], *, takes_names: bool) -> tuple[str, Mapping[str, Any]]:
    for name in _lists_in(text):
        values_of_list = values.pop(name)
        names = [f"{name}_{place}" for place in range(len(values_of_list))]
        values |= dict(zip(names, values_of_list, strict=True))
        text = re.sub(rf"\bIN :{name}\b", f"IN ({', '.join(f':{place_name}' for place_name in names)})", text)
    return _for_driver(text, takes_names=takes_names), values


@lru_cache(maxsize=128)
def _lists_in(text: str) -> tuple[str, ...]:
    return tuple(LIST.findall(text))


_PLACED = re.compile(r"(?<![:\w]):([a-z_]+[a-z_0-9]*)")


@lru_cache(maxsize=128)
def _for_driver(text: str, *, takes_names: bool) -> str:
    return text if takes_names else _PLACED.sub(r"%(\1)s", text.replace("%", "%%"))


# --- plans ------------------------------------------------------------------------------------------------------------

Plan = Generator[Statement, Answer, T]
"""Yields statements, is sent the answer to each or thrown its error, and returns the result."""


def run_plan(plan: Plan[T], execute: Callable[[Statement], Answer]) -> T:
    """Carry out a plan."""
    step = next_of(plan, None)
    while isinstance(step, Statement):
        try:
            answer: Answer | Exception = execute(step)
        except Exception as error:  # noqa: BLE001 - the plan handles some, and lets the others through
            answer = error
        step = next_of(plan, answer)
    return step.value


class End(NamedTuple, Generic[T]):
    """The result of a plan."""

    value: T


def next_of(plan: Plan[T], answer: Answer | Exception | None) -> Statement | End[T]:
    """Return the next statement, or the end: a StopIteration cannot leave a thread."""
    try:
        if isinstance(answer, Exception):
            return plan.throw(answer)
        return next(plan) if answer is None else plan.send(answer)
    except StopIteration as end:
        return End(end.value)


# --- recognising
# connections---------------------------------------------------------------------------------------------


def wrap_connection(connection_or_session: Any, verb: str) -> UsersConnection:
    """Wrap a user's sync connection.

    Args:
        connection_or_session: SQLAlchemy's ``Connection`` or ``Session``, or a driver's connection.
        verb: the name of the called method, for errors.

    Raises:
        UnsupportedTransaction: it is something else, or commits each statement by itself.
    """
    connection = (
        through_sqlalchemy(connection_or_session, f"await job.a{verb}(session, …)")
        or _through_django(connection_or_session)
        or wrap_driver(connection_or_session)
    )
    if connection is None:
        raise UnsupportedTransaction(_unusable_error(connection_or_session, verb))
    require_transaction(verb, commits_each=connection.commits_each())
    return connection


def require_transaction(verb: str, *, commits_each: bool) -> None:
    """Raise if the next statement would be committed by itself.

    Raises:
        UnsupportedTransaction: the connection is in autocommit mode.
    """
    if commits_each:
        raise UnsupportedTransaction(
            "this connection commits each statement by itself (autocommit), so the run would be there without your "
            f"rows; begin a transaction first (with conn.transaction(): …), or call {verb.removesuffix('_in')}()"
        )


def through_sqlalchemy(connection_or_session: Any, awaits: str) -> OfSqlalchemy | None:
    """Wrap SQLAlchemy's own objects; they can be recognised only if the caller has imported SQLAlchemy.

    Args:
        connection_or_session: what may be one.
        awaits: what to write in its place where it has to be awaited.

    Raises:
        UnsupportedTransaction: it has to be awaited, or is a session with several databases.
    """
    alchemy, orm = sys.modules.get("sqlalchemy"), sys.modules.get("sqlalchemy.orm")
    aio = sys.modules.get("sqlalchemy.ext.asyncio")
    if aio is not None and isinstance(
        connection_or_session, (aio.AsyncSession, aio.AsyncConnection, aio.async_scoped_session)
    ):
        raise UnsupportedTransaction(f"{type(connection_or_session).__name__} has to be awaited; write: {awaits}")
    session = None
    if orm is not None and isinstance(connection_or_session, (orm.Session, orm.scoped_session)):
        session = (
            connection_or_session() if isinstance(connection_or_session, orm.scoped_session) else connection_or_session
        )
        try:
            connection_or_session = session.connection()
        except alchemy.exc.UnboundExecutionError as error:  # type: ignore[union-attr]
            raise UnsupportedTransaction(
                f"this session has several databases, and which of them is meant cannot be known ({error}); give "
                f"session.connection(bind_arguments={{'bind': engine}})"
            ) from error
    if alchemy is not None and isinstance(connection_or_session, alchemy.Connection):
        return OfSqlalchemy(connection_or_session, alchemy, session)
    return None


def _through_django(connection_or_session: Any) -> UsersConnection | None:
    base, utils = sys.modules.get("django.db.backends.base.base"), sys.modules.get("django.utils.connection")
    if utils is not None and type(connection_or_session) is utils.ConnectionProxy:  # django.db.connection
        connection_or_session = connection_or_session._connections[connection_or_session._alias]  # noqa: SLF001 - a proxy of all attributes, without a class
    return (
        _OfDjango(connection_or_session)
        if base is not None and isinstance(connection_or_session, base.BaseDatabaseWrapper)
        else None
    )


def _unusable_error(connection_or_session: Any, verb: str) -> str:
    kind = f"{type(connection_or_session).__module__}.{type(connection_or_session).__qualname__}"
    package = kind.partition(".")[0]
    if package == "psycopg" and "Async" in kind:
        return f"{kind} has to be awaited; write: await job.a{verb}(connection, …)"
    if "pool" in kind.lower() or kind.endswith(".Engine") or isinstance(connection_or_session, str):
        return (
            f"{verb}() takes the connection that your transaction is on, and this is {kind}; write: "
            f"with engine.begin() as connection: job.{verb}(connection, …)"
        )
    through = "; through SQLAlchemy's AsyncSession it can be used" if package in _ASYNC_ONLY else ""
    return (
        f"{verb}() cannot use {kind}; give it SQLAlchemy's Connection or Session, or a connection of psycopg, "
        f"psycopg2, PyMySQL, mysqlclient or sqlite3{through}"
    )


_ASYNC_ONLY = {"asyncpg", "aiosqlite", "aiomysql", "asyncmy"}


def wrap_driver(connection_or_session: Any) -> OfDriver | None:
    """Wrap a driver's connection; ``None``: the driver is not known here."""
    packages = [kind.__module__.partition(".")[0] for kind in type(connection_or_session).__mro__]
    kind = next((_OF_PACKAGE[package] for package in packages if package in _OF_PACKAGE), None)
    return (
        None
        if kind is None
        or not hasattr(connection_or_session, "cursor")
        or "Async" in type(connection_or_session).__name__
        else kind(connection_or_session)
    )


# --- what differs between drivers -------------------------------------------------------------------------------------


class OfDriver(UsersConnection):
    """A driver's own connection."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def open_cursor(self) -> Any:
        """Return a cursor whose rows are tuples."""
        return self.raw.cursor()

    def read_rows(self, cursor: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]

    def execute_text(self, text: str, values: Mapping[str, Any]) -> Answer:
        """Run the text of a statement."""
        cursor = self.open_cursor()
        try:
            cursor.execute(text, values)
            return Answer(self.read_rows(cursor), getattr(cursor, "lastrowid", None))
        finally:
            cursor.close()


def is_two_phase(raw: Any) -> bool:
    """Whether ``tpc_begin`` was called on a psycopg connection, which has no public attribute for it."""
    return getattr(raw, "_tpc", None) is not None


class _Psycopg(OfDriver):
    database = "postgresql"

    def read_rows(self, cursor: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = cursor.fetchall()  # each gives rows; within pipeline() it is not known before
        return rows

    def open_cursor(self) -> Any:
        return self.raw.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)

    @property
    def is_two_phase(self) -> bool:
        return is_two_phase(self.raw)

    def commits_each(self) -> bool:
        idle = sys.modules["psycopg.pq"].TransactionStatus.IDLE
        return bool(self.raw.autocommit and self.raw.info.transaction_status == idle)


class _Psycopg2(OfDriver):
    database = "postgresql"

    def open_cursor(self) -> Any:
        return self.raw.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)

    def commits_each(self) -> bool:
        idle = sys.modules["psycopg2.extensions"].TRANSACTION_STATUS_IDLE
        return bool(self.raw.autocommit and self.raw.info.transaction_status == idle)


class _PyMySql(OfDriver):
    database = "mysql"
    _IN_TRANSACTION = 1
    """SERVER_STATUS_IN_TRANS of the protocol."""

    def open_cursor(self) -> Any:
        return self.raw.cursor(sys.modules["pymysql.cursors"].Cursor)

    def commits_each(self) -> bool:
        return bool(self.raw.get_autocommit() and not self.raw.server_status & self._IN_TRANSACTION)


class _MySqlClient(OfDriver):
    database = "mysql"

    def open_cursor(self) -> Any:
        return self.raw.cursor(sys.modules["MySQLdb.cursors"].Cursor)

    def commits_each(self) -> bool:
        return bool(self.raw.get_autocommit())  # this driver does not report whether BEGIN was sent


class _Sqlite(OfDriver):
    database = "sqlite"
    takes_names = True

    @property
    def is_open(self) -> bool:
        return bool(self.raw.in_transaction)

    def open_cursor(self) -> Any:
        cursor = self.raw.cursor()
        cursor.row_factory = None
        return cursor

    def commits_each(self) -> bool:
        raw = self.raw
        return not raw.in_transaction and (raw.isolation_level is None or getattr(raw, "autocommit", None) is True)

    @contextmanager
    def ready(self) -> Iterator[None]:
        raw = self.raw
        if has_begun := not raw.in_transaction:
            # Python would begin only before the first write, when the earlier reads could be outdated.
            raw.execute("BEGIN IMMEDIATE")
        texts, raw.text_factory = raw.text_factory, str
        try:
            yield
        except BaseException:
            if has_begun:  # nothing of the user's is in it, and it holds the write lock of a file
                raw.rollback()
            raise
        finally:
            raw.text_factory = texts


_OF_PACKAGE: Mapping[str, type[OfDriver]] = {
    "psycopg": _Psycopg,
    "psycopg2": _Psycopg2,
    "pymysql": _PyMySql,
    "MySQLdb": _MySqlClient,
    "sqlite3": _Sqlite,
}


class OfSqlalchemy(UsersConnection):
    """SQLAlchemy's connection, with any driver; with those for which it must translate, statements have ``:name``."""

    def __init__(self, connection: Any, alchemy: Any, session: Any = None) -> None:
        """Wrap a connection; ``session``: the ORM session that it belongs to."""
        self.connection, self._alchemy, self._session = connection, alchemy, session
        name = connection.dialect.name
        self.database = _DATABASES.get(name, name)
        self.takes_names = connection.dialect.paramstyle != "pyformat"
        self._driver = wrap_driver(connection.connection.driver_connection)

    def call_after_commit(self, call: Callable[[], object], who: object) -> bool:
        """Call ``call`` when the session's transaction has ended; a connection alone has no hook."""
        session, event = self._session, self._alchemy.event
        if session is None:
            return False
        if (calls := session.info.get(_CALLED_AFTER)) is None:
            calls = session.info[_CALLED_AFTER] = {}

            def run_calls(_: Any, transaction: Any) -> None:
                if transaction.parent is None:  # no savepoint
                    waiting: list[Callable[[], object]] = list(calls.values())
                    calls.clear()
                    for waiting_call in waiting:
                        waiting_call()

            event.listen(session, "after_transaction_end", run_calls)
        calls[who] = call
        return True

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, as far as that is known."""
        raw = self.connection.connection.driver_connection
        return bool(getattr(raw, "in_transaction", True))

    @property
    def is_two_phase(self) -> bool:
        """Whether the transaction is two-phase."""
        return isinstance(self.connection.get_transaction(), self._alchemy.TwoPhaseTransaction)

    def commits_each(self) -> bool:
        """Whether the next statement would be committed at once."""
        by_itself = self.connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        return bool(
            by_itself or (self._awaited_commits_each() if self._driver is None else self._driver.commits_each())
        )

    def _awaited_commits_each(self) -> bool:
        """Whether an async driver commits each: ``isolation_level=`` of the engine is no option of its connections."""
        dialect = self.connection.dialect
        if self.database == "sqlite" and self.is_open:
            return False
        try:
            return bool(dialect.detect_autocommit_setting(self.connection.connection.dbapi_connection))
        except (AttributeError, NotImplementedError):  # before SQLAlchemy 2.0.43, or a dialect of another package
            return getattr(dialect, "_on_connect_isolation_level", None) == "AUTOCOMMIT"

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Ensure that a transaction is open."""
        if self._driver is not None:
            with self._driver.ready():
                yield
            return
        if self.database == "sqlite" and not self.is_open:  # of an async driver
            self.connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield

    def execute_text(self, text: str, values: Mapping[str, Any]) -> Answer:
        """Run the text of a statement."""
        if self.takes_names:
            result = self.connection.execute(self._alchemy.text(text), dict(values))
        else:
            result = self.connection.exec_driver_sql(text, dict(values))
        if result.returns_rows:
            return Answer([tuple(row) for row in result.all()])
        return Answer((), getattr(result, "lastrowid", None))


class _OfDjango(UsersConnection):
    """Django's connection, by its own cursor: so its log, query counts and wrappers see the statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.database = connection.vendor

    def commits_each(self) -> bool:
        return bool(self._connection.get_autocommit() and not self._connection.in_atomic_block)

    def call_after_commit(self, call: Callable[[], object], who: object) -> bool:  # noqa: ARG002 - Django calls each
        if not self._connection.in_atomic_block:  # set_autocommit(False): Django refuses a hook there
            return False
        self._connection.on_commit(call, robust=True)
        return True

    def execute_text(self, text: str, values: Mapping[str, Any]) -> Answer:
        with self._connection.cursor() as cursor:
            cursor.execute(text, values)
            rows = [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]
            return Answer(rows, getattr(cursor, "lastrowid", None))
