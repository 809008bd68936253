"""Stores that lose the last moment: what was acknowledged after ``remember()`` is gone after ``forget()``.

::

    place.remember()  # from here on nothing reaches the standby, the snapshot, the copy
    ...  # commits, acknowledged
    place.forget()  # a failover, a crash, a restored backup: they are gone

``place.url`` is the address before and after, so that nodes stay connected to it, as to a database behind one name.
While ``forget()`` runs, connections are cut and new ones are refused. Both may be called again and again. ``empty()``
loses everything: a fresh database under the same address. ``forgetful(kind, folder)`` makes a place by its kind.

=================== =======================================================================================
postgres            a streaming standby (``pg_basebackup``); replication is cut off; it is promoted
mysql               a MariaDB replica (GTID); replication is stopped; it takes over. MySQL: its data directory is copied
redis               a snapshot (``SAVE``); the server is killed and starts with it
redis-appendonly    the append-only file, synced always; the server is killed, and the file cut to a prefix
sqlite              a copy by ``VACUUM INTO``, restored into the file through SQLite: connections stay
sqlite-replaced     the same copy moved over the file, without its ``-wal`` and ``-shm``: connections keep the old file
=================== =======================================================================================
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import redis

from tests.servers.fixtures import mysql_connection
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import MysqlServer, mysql_or_mariadb
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

PATIENCE = 30.0
"""Seconds for a standby to catch up, or to take over."""


class Forgetful(ABC):
    """A place for a store that can lose its last moment. A context manager; leaving it ends the servers."""

    def __init__(self) -> None:
        """Prepare; entering the context starts it."""
        self._open = contextlib.ExitStack()

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it answers, before and after."""

    @abstractmethod
    def start(self) -> None:
        """Start it, empty."""

    @abstractmethod
    def remember(self) -> None:
        """Keep what is acknowledged until now, and nothing that is acknowledged later."""

    @abstractmethod
    def forget(self) -> None:
        """Lose what came after ``remember()``, and answer again."""

    @abstractmethod
    def empty(self) -> None:
        """Lose everything, and answer again."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            self._open = opening
            self.start()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class _Standby(PostgresServer):
    """A PostgreSQL that begins as a copy of another one and follows it."""

    def __init__(self, primary: str, **options: Any) -> None:
        super().__init__(**options)
        self._primary = primary

    def make(self) -> None:
        copy = str(Path(self.program).parent / "pg_basebackup")
        self.run([copy, "-d", self._primary, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "--no-sync"])


class PostgresFailover(Forgetful):
    """A primary behind a proxy, and a standby that may be held back and promoted."""

    def __init__(self) -> None:
        super().__init__()
        self._primary: PostgresServer = PostgresServer(durable=False)
        self._standby: PostgresServer | None = None

    @property
    def url(self) -> str:
        return self._front.url

    def start(self) -> None:
        # By what they are at the end: the one of the start is another one then.
        self._open.callback(self._end)
        self._primary.start()
        self._front = self._open.enter_context(Proxy(self._primary.url))
        self._between = self._open.enter_context(Proxy(self._primary.url))

    def _end(self) -> None:
        for server in (self._primary, self._standby):
            if server is not None:
                server.end()

    def remember(self) -> None:
        if self._standby is None:
            self._between.lead_to(self._primary.url)
            self._between.pass_on()
            self._standby = _Standby(self._between.url, durable=False).start()
        self._between.pass_on()
        last = self._ask(self._primary, "SELECT pg_current_wal_flush_lsn()")  # each commit was flushed
        standby, caught_up = self._standby, f"SELECT pg_last_wal_replay_lsn() >= '{last}'"
        _until(lambda: bool(self._ask(standby, caught_up)), "the standby catches up")
        self._between.refuse()

    def forget(self) -> None:
        assert self._standby is not None, "remember() first"
        self._front.refuse()
        self._primary.kill9()
        self._ask(self._standby, f"SELECT pg_promote(true, {PATIENCE:.0f})")
        self._take_over(self._standby)
        self._standby = None

    def empty(self) -> None:
        self._front.refuse()
        if self._standby is not None:
            self._standby.end()
            self._standby = None
        self._primary.kill9()
        self._take_over(PostgresServer(durable=False).start())

    def _take_over(self, successor: PostgresServer) -> None:
        self._primary.end()
        self._primary = successor
        self._front.lead_to(successor.url)
        self._front.pass_on()

    def _ask(self, server: PostgresServer, question: str) -> Any:
        with psycopg.connect(server.url, autocommit=True) as connection:
            return (connection.execute(question).fetchone() or (None,))[0]


# --- MariaDB, MySQL ---------------------------------------------------------------------------------------------------


class _Replica(MariadbServer):
    """A MariaDB that writes down what it does, and begins with the same empty tables as its siblings."""

    def __init__(self, number: int, pristine: Path | None) -> None:
        log = {"log-bin": "binlog", "log-slave-updates": "ON", "binlog-format": "ROW", "server-id": str(number)}
        super().__init__(durable=False, settings=log | {"slave-net-timeout": "5", "innodb-buffer-pool-size": "64M"})
        self._pristine = pristine

    def make(self) -> None:
        if self._pristine is None:
            super().make()
        else:
            self.run(["cp", "-a", str(self._pristine), str(self.data)])


class MariadbFailover(Forgetful):
    """A primary behind a proxy, and a replica that may be stopped and take over."""

    def __init__(self) -> None:
        super().__init__()
        self._made = 0
        self._pristine: Path | None = None
        self._primary = self._new()
        self._replica: _Replica | None = None

    @property
    def url(self) -> str:
        return self._front.url

    def start(self) -> None:
        self._open.callback(self._end)
        self._primary.make()
        # Beside the data of this run, as that of the server's user; it goes when nobody needs it any more.
        home = _Home()
        self._open.callback(home.end)
        home.run(["cp", "-a", str(self._primary.data), str(home.data)])
        self._pristine = home.data
        self._primary.start()
        self._front = self._open.enter_context(Proxy(self._primary.url))

    def _new(self) -> _Replica:
        self._made += 1
        return _Replica(self._made, self._pristine)

    def _end(self) -> None:
        for server in (self._primary, self._replica):
            if server is not None:
                server.end()

    def remember(self) -> None:
        if self._replica is None:
            self._replica = self._new().start()
            _execute(
                self._replica,
                f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {self._primary.port}, "
                "MASTER_USER = 'root', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1",
            )
        _execute(self._replica, "START SLAVE")
        position = _execute(self._primary, "SELECT @@GLOBAL.gtid_binlog_pos")
        waited = _execute(self._replica, f"SELECT MASTER_GTID_WAIT('{position}', {PATIENCE:.0f})")
        assert waited == 0, f"the replica does not catch up:\n{self._replica.log_end}"
        _execute(self._replica, "STOP SLAVE")

    def forget(self) -> None:
        assert self._replica is not None, "remember() first"
        self._front.refuse()
        self._primary.kill9()
        _execute(self._replica, "RESET SLAVE ALL")
        self._take_over(self._replica)
        self._replica = None

    def empty(self) -> None:
        self._front.refuse()
        if self._replica is not None:
            self._replica.end()
            self._replica = None
        self._primary.kill9()
        self._take_over(self._new().start())

    def _take_over(self, successor: _Replica) -> None:
        self._primary.end()
        self._primary = successor
        self._front.lead_to(successor.url)
        self._front.pass_on()


class _Home(MariadbServer):
    """A folder of the server's user; nothing is started in it."""

    def __init__(self) -> None:
        super().__init__(durable=False)


class MysqlCopied(Forgetful):
    """One MySQL, whose data directory is copied while it stands still for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self._server = MysqlServer(durable=False)

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._open.enter_context(self._server)
        self._copy(self._server.data, "empty")

    def _copy(self, source: Path, name: str) -> None:
        self._server.stop()
        self._server.run(["rm", "-rf", str(self._server.folder / name)])
        self._server.run(["cp", "-a", str(source), str(self._server.folder / name)])
        self._server.start()

    def remember(self) -> None:
        self._copy(self._server.data, "copy")

    def forget(self) -> None:
        self._back_to("copy")

    def empty(self) -> None:
        self._back_to("empty")

    def _back_to(self, name: str) -> None:
        self._server.kill9()
        self._server.run(["rm", "-rf", str(self._server.data)])
        self._server.run(["cp", "-a", str(self._server.folder / name), str(self._server.data)])
        self._server.start()


def _execute(server: MariadbServer, statement: str) -> Any:
    with mysql_connection(server.url) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return (cursor.fetchone() or (None,))[0]


def mysql_failover() -> Forgetful:
    """Prepare one for the MySQL store: by the first program that is found."""
    server = mysql_or_mariadb(durable=False)
    server.end()
    return MysqlCopied() if isinstance(server, MysqlServer) else MariadbFailover()


# --- Redis ------------------------------------------------------------------------------------------------------------


class RedisSnapshot(Forgetful):
    """A Redis that is killed, and starts with its last snapshot."""

    settings = {"appendonly": "no", "dbfilename": "snapshot.rdb"}  # noqa: RUF012 - read only

    def __init__(self) -> None:
        super().__init__()
        self._server = RedisServer(durable=False, settings=self.settings)

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._open.enter_context(self._server)

    def remember(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.save()

    def forget(self) -> None:
        self._server.kill9()
        self._server.start()

    def empty(self) -> None:
        self._server.kill9()
        shutil.rmtree(self._server.data)
        self._server.start()


class RedisAppendOnly(RedisSnapshot):
    """A Redis that is killed, and starts with a prefix of its append-only file."""

    settings = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    @property
    def _file(self) -> Path:
        # Since 7.0 there are several in a folder; what is written now goes to the last increment.
        found = sorted(self._server.data.glob("appendonlydir/*.incr.aof"), key=lambda file: file.stat().st_mtime)
        return found[-1] if found else self._server.data / "appendonly.aof"

    def remember(self) -> None:
        self._size = self._file.stat().st_size  # "always": what was acknowledged is in it

    def forget(self) -> None:
        self._server.kill9()
        with self._file.open("r+b") as file:
            file.truncate(self._size)
        self._server.start()


# --- SQLite -----------------------------------------------------------------------------------------------------------


class SqliteRestored(Forgetful):
    """A file into which a copy is restored, through SQLite: open connections see it as one big transaction."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "store.db"
        self._copy = folder / "copy.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file}"

    def start(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def remember(self) -> None:
        self._copy.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(self._file, timeout=PATIENCE)) as source:
            source.execute("VACUUM INTO ?", [str(self._copy)])

    def forget(self) -> None:
        self._restore(self._copy)

    def empty(self) -> None:
        self._restore(Path(":memory:"))

    def _restore(self, copy: Path) -> None:
        with (
            contextlib.closing(sqlite3.connect(copy)) as source,
            contextlib.closing(sqlite3.connect(self._file, timeout=PATIENCE)) as target,
        ):
            # The copy has no write-ahead log; asked for the same mode, it fits the file that has one.
            source.execute("PRAGMA journal_mode = WAL")
            source.backup(target)


class SqliteReplaced(SqliteRestored):
    """A file that is replaced by a copy, as by hand: open connections keep the one that has no name any more."""

    def forget(self) -> None:
        self._remove_logs()
        shutil.copy(self._copy, self._file.with_suffix(".new"))
        self._file.with_suffix(".new").replace(self._file)

    def empty(self) -> None:
        self._remove_logs()
        self._file.unlink()

    def _remove_logs(self) -> None:
        # First these: a new file must never be opened with the log of another one.
        for end in ("-wal", "-shm"):
            self._file.with_name(self._file.name + end).unlink(missing_ok=True)


# --- by name ----------------------------------------------------------------------------------------------------------

SERVERS: dict[str, Callable[[], Forgetful]] = {
    "postgres": PostgresFailover,
    "mysql": mysql_failover,
    "redis": RedisSnapshot,
    "redis-appendonly": RedisAppendOnly,
}
FILES: dict[str, Callable[[Path], Forgetful]] = {"sqlite": SqliteRestored, "sqlite-replaced": SqliteReplaced}
KINDS = (*FILES, *SERVERS)


@contextlib.contextmanager
def forgetful(kind: str, folder: Path) -> Iterator[Forgetful]:
    """Start an empty place of a kind of ``KINDS``; ``folder``: where a file would lie.

    Raises:
        ServiceMissing: the machine has no such server.
    """
    with FILES[kind](folder) if kind in FILES else SERVERS[kind]() as place:
        yield place


def _until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"after {PATIENCE:.0f} s not so: {what}"
        threading.Event().wait(0.01)
