"""A pytest plugin: a fresh place on a real server for a test, by URL.

The servers are our own, started when the first test asks; or those that ``CRONSENSUS_TEST_POSTGRES_URL``,
``CRONSENSUS_TEST_MYSQL_URL``, ``CRONSENSUS_TEST_REDIS_URL`` and ``CRONSENSUS_TEST_RABBITMQ_URL`` name.
What a test leaves is removed after it.

``FAR`` on a test has it run twice: beside its server, and 40 ms away from it. ``CRONSENSUS_TEST_FAR=100`` moves the
servers of all tests that far away (milliseconds of a round trip; see ``make far``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import psycopg
import pymysql
import pytest
import redis
from psycopg import sql

from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection
from tests.servers.distance import FAR_AWAY, ROUND_TRIP
from tests.servers.programs import ServiceMissing
from tests.servers.proxy import Proxy
from tests.servers.sharing import TestRun

RUN = pytest.StashKey[TestRun]()
FAR = pytest.mark.parametrize(
    "distance", [0.04] if FAR_AWAY else [0.0, 0.04], ids=lambda one: f"{one * 1000:g}ms", indirect=True
)
_SERVERS = {"postgres", "mysql", "redis"}
PATIENCE = 10
"""Seconds to wait for what a test left locked, before its name is called out."""


def pytest_configure(config: pytest.Config) -> None:
    """Learn of the run: as its first process, or from it."""
    told = getattr(config, "workerinput", None)
    if told is None:
        config.stash[RUN] = TestRun(os.getpid(), Path(tempfile.mkdtemp(prefix="cronsensus-test-run-")))
    else:
        config.stash[RUN] = TestRun(told["servers_pid"], Path(told["servers_folder"]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist."""
    run = node.config.stash[RUN]
    node.workerinput["servers_pid"], node.workerinput["servers_folder"] = run.pid, str(run.folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what ``FAR`` cannot move away: stores without a server."""
    moved: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        (moved if values.get("distance") and _SERVERS.isdisjoint(map(str, values.values())) else kept).append(item)
    if moved:
        config.hook.pytest_deselected(items=moved)
        items[:] = kept


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers, in the run's first process, which is the last to end."""
    if not hasattr(config, "workerinput"):
        config.stash[RUN].end()
        shutil.rmtree(config.stash[RUN].folder)


def _server(config: pytest.Config, kind: str) -> str:
    if url := os.environ.get(f"CRONSENSUS_TEST_{kind.upper()}_URL"):
        return url
    try:
        return config.stash[RUN].url(kind)
    except ServiceMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def postgres_server_url(pytestconfig: pytest.Config) -> str:
    """Return the address of the PostgreSQL that all tests share."""
    return _server(pytestconfig, "postgres")


@pytest.fixture(scope="session")
def mysql_server_url(pytestconfig: pytest.Config) -> str:
    """Return the address of the MariaDB or MySQL that all tests share."""
    return _server(pytestconfig, "mysql")


@pytest.fixture(scope="session")
def redis_server_url(pytestconfig: pytest.Config) -> str:
    """Return the address of the Redis that all tests share."""
    return _server(pytestconfig, "redis")


@pytest.fixture(scope="session")
def rabbitmq_url(pytestconfig: pytest.Config) -> str:
    """Return the address of the RabbitMQ that all tests share; a test makes queues with names of its own."""
    return _server(pytestconfig, "rabbitmq")


def with_query(url: str, **options: str) -> str:
    """Return the URL with further options."""
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode(options)]))
    return urlunsplit(parts._replace(query=query))


def _fresh() -> str:
    return f"test_{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def distance(request: pytest.FixtureRequest) -> float:
    """Return the seconds of a round trip to the servers of this test."""
    asked: float = getattr(request, "param", 0.0)
    return ROUND_TRIP or asked


@contextmanager
def from_afar(url: str, seconds: float) -> Iterator[str]:
    """Return a URL that leads to the same place by a longer way."""
    if not seconds:
        yield url
        return
    with Proxy(url) as network:
        network.delay(seconds / 2)
        yield network.url


@contextmanager
def fresh_postgres(postgres_server_url: str) -> Iterator[str]:
    """Make an empty schema; remove it afterwards, or fail the test that left it locked."""
    schema = _fresh()
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    yield with_query(postgres_server_url, schema=schema)
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute(f"SET lock_timeout = '{PATIENCE}s'")
        try:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        except psycopg.errors.LockNotAvailable:
            pytest.fail(f"the test left a transaction open on its schema {schema}")


@pytest.fixture
def postgres_url(postgres_server_url: str, distance: float) -> Iterator[str]:
    """Return a URL with an empty schema of its own: ``postgresql://…?schema=test_…``."""
    with fresh_postgres(postgres_server_url) as url, from_afar(url, distance) as far:
        yield far


def mysql_connection(url: str) -> BoundedConnection:
    """Connect to the server behind a ``mysql://`` URL, to its database if it names one."""
    parts = urlsplit(url)
    return BoundedConnection(  # for it connects faster
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/") or None,
        autocommit=True,
    )


@contextmanager
def fresh_mysql(mysql_server_url: str) -> Iterator[str]:
    """Make an empty database; remove it afterwards, or fail the test that left it locked."""
    database = _fresh()
    with mysql_connection(mysql_server_url) as connection:
        connection.cursor().execute(f"CREATE DATABASE `{database}`")
    yield urlunsplit(urlsplit(mysql_server_url)._replace(path=f"/{database}"))
    with mysql_connection(mysql_server_url) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_wait_timeout = {PATIENCE}")
        try:
            cursor.execute(f"DROP DATABASE IF EXISTS `{database}`")
        except pymysql.OperationalError as error:
            pytest.fail(f"the test left a transaction open on its database {database}: {error}")


def redis_client(url: str) -> redis.Redis | redis.RedisCluster:
    """Connect to a server by its URL, or to a Cluster by that of one of its servers."""
    scheme, _, rest = url.partition("+cluster://")
    return redis.RedisCluster.from_url(f"{scheme}://{rest}") if rest else redis.Redis.from_url(url)


@pytest.fixture
def mysql_url(mysql_server_url: str, distance: float) -> Iterator[str]:
    """Return a URL with an empty database of its own: ``mysql://…/test_…``."""
    with fresh_mysql(mysql_server_url) as url, from_afar(url, distance) as far:
        yield far


@pytest.fixture
def redis_url(redis_server_url: str, distance: float) -> Iterator[str]:
    """Return a URL with a prefix of its own, under which there is nothing: ``redis://…?prefix=test_…``."""
    prefix = _fresh()
    with from_afar(with_query(redis_server_url, prefix=prefix), distance) as far:
        yield far
    with redis_client(redis_server_url) as client:
        # The prefix may stand in braces, or have words before it.
        for key in client.scan_iter(match=f"*{prefix}*", count=1000):
            client.unlink(key)
