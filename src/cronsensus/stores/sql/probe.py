"""Read quickly which nodes of a SQL store are alive: with the driver alone, and two statements.

A probe has a second, and a small machine, and so it loads no more than this. What is asked here is what
``sessions`` and ``jobs`` answer, and where anything is not as it should be, this gives no answer: then the store's own
verbs find out, and say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from cronsensus.stores.sql.queries import VALUE, Queries, Query, queries_of
from cronsensus.stores.sql.version import VERSION

Ask = Callable[[str], Sequence[Sequence[Any]]]
Asking = tuple[Ask, Queries, Mapping[str, str]]
"""What runs a text, the statements, and the values for them."""


@dataclass(frozen=True, slots=True)
class Living:
    """A session that is in time with its lease.

    Attributes:
        is_full: it is a node, and holds as many runs as it has slots.
    """

    node: str
    id: str
    state: str
    is_node: bool
    is_full: bool
    host: str
    pid: int
    pid_started: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe found: at least one living session; and whether there is a job that only a node can run."""

    living: list[Living]
    needs_a_node: bool


def probe_store(url: str, namespace: str) -> Answer | None:
    """Return the live sessions; ``None``: none, or this cannot find out, and the store itself must be read."""
    try:
        with _ASKING[url.partition(":")[0]](url, namespace) as (ask, queries, words):
            living = [
                Living(
                    node,
                    number,
                    "draining" if draining else "alive",
                    concurrency > 0,
                    0 < concurrency <= held,
                    *process,
                )
                for node, number, draining, concurrency, held, *process in ask(
                    _fill_query(queries["living_nodes"], words)
                )
            ]
            if not living:
                return None
            return Answer(living, bool(ask(_fill_query(queries["needs_a_node"], words))))
    except Exception:  # noqa: BLE001 - whatever it is, the store's own verbs explain it
        return None


def _fill_query(query: Query, words: Mapping[str, str]) -> str:
    return VALUE.sub(lambda match: words[match[1]], query.text)


def _values_of(namespace: str, boot: str, moment: str) -> dict[str, str]:
    """Return the values of the statements, as literals for their text."""
    return {"space": _quote_text(namespace), "boot": boot, "moment": moment, "version": str(VERSION)}


def _quote_text(text: str) -> str:
    if not text.isprintable() or "\\" in text:
        raise ValueError("a namespace that must be escaped")
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _probe_sqlite(url: str, namespace: str) -> Iterator[Asking]:
    import sqlite3
    from urllib.parse import quote

    from cronsensus.stores.sql.sqlite import sqlite_errors
    from cronsensus.stores.sql.sqlite.epoch import Epoch, hold_write_lock
    from cronsensus.stores.sql.sqlite.sqlite_url import read_url
    from cronsensus.timing.clock import SystemClock

    parsed = read_url(url)
    path = parsed.path
    if sqlite_errors.is_read_only(path):
        raise OSError("read-only")
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as driver:
        epoch = Epoch(path, may_be_remote=parsed.allow_network_fs)
        epoch.enter_epoch(lambda: hold_write_lock(driver))
        try:
            now = round(SystemClock().monotonic() * 1_000_000)
            words = _values_of(namespace, _quote_text(epoch.text), str(now))
            yield lambda text: driver.execute(text).fetchall(), queries_of("sqlite"), words
        finally:
            epoch.leave_epoch()


@contextmanager
def _probe_postgres(url: str, namespace: str) -> Iterator[Asking]:
    from cronsensus.stores.sql.postgres.postgres_driver import open_connection
    from cronsensus.stores.sql.postgres.postgres_url import read_url

    parsed = read_url(url)
    now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    with closing(open_connection(parsed)) as driver:
        words = _values_of(namespace, "'server' AND NOT pg_is_in_recovery()", now)
        yield lambda text: driver.execute(text).fetchall(), queries_of("postgres", schema=parsed.schema), words


@contextmanager
def _probe_mysql(url: str, namespace: str) -> Iterator[Asking]:
    from cronsensus.stores.sql.mysql.mysql_driver import open_connection, run_text
    from cronsensus.stores.sql.mysql.mysql_url import read_url

    now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    with closing(open_connection(read_url(url))) as driver:
        words = _values_of(namespace, "'server' AND NOT @@GLOBAL.read_only", now)
        yield lambda text: run_text(driver, text), queries_of("mysql"), words


_ASKING = {
    "sqlite": _probe_sqlite,
    "postgresql": _probe_postgres,
    "postgres": _probe_postgres,
    "mysql": _probe_mysql,
    "mariadb": _probe_mysql,
}
