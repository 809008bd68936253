"""Clusters on real servers that wait for their disks, so that what was committed is there after any fault."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psycopg
import pymysql
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.chaos.cluster import PATIENCE, Cluster
from tests.faults.watching import LEASE, NAMES, SECONDS
from tests.scratch import make_tables
from tests.servers.fixtures import from_afar, mysql_connection
from tests.servers.mysql import mysql_or_mariadb
from tests.servers.postgres import PostgresServer
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer
from tests.servers.server import Server

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """A kind of store.

    Attributes:
        server: what starts one.
        commit: bytes of the request that makes a verb's changes final.
        few: how it is told to take few connections.
        connect: takes one of them.
        refused: what is raised where no more are to be had.
    """

    server: Callable[..., Server]
    commit: bytes
    few: dict[str, str]
    connect: Callable[[str], Closable]
    refused: type[Exception]


class Closable(Protocol):
    """A connection."""

    def close(self) -> object: ...


def redis_connection(url: str) -> Closable:
    """Take a connection of a Redis."""
    client = redis.Redis.from_url(url, single_connection_client=True, retry=Retry(NoBackoff(), 0))
    client.ping()
    return client


KINDS = {
    "postgres": Kind(
        PostgresServer,
        b"COMMIT\0",
        {"max_connections": "20", "superuser_reserved_connections": "0"},
        psycopg.connect,
        psycopg.OperationalError,
    ),
    "mysql": Kind(
        mysql_or_mariadb, b"COMMIT(?!TED)", {"max-connections": "20"}, mysql_connection, pymysql.OperationalError
    ),
    "redis": Kind(RedisServer, b"EVALSHA", {"maxclients": "20"}, redis_connection, redis.RedisError),
}


def prepare(kind: Kind, **options: object) -> Server:
    """Prepare a server; a machine without one skips the test."""
    try:
        return kind.server(**options)
    except ServiceMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return one kind of store after the other."""
    found: Kind = KINDS[request.param]
    return found


@pytest.fixture
def server(kind: Kind) -> Iterator[Server]:
    """Return a server of that kind, for this test alone."""
    with prepare(kind) as server:
        yield server


@pytest.fixture
def make_cluster(tmp_path: Path, distance: float) -> Iterator[Callable[..., Cluster]]:
    """Return what makes three nodes, each by its own way to the store; they are gone when the test is over.

    Where the tests are far from their servers, the distance lies between the node and what is done to its way.
    """
    made: list[Cluster] = []
    ways = contextlib.ExitStack()

    def make(url: str, routes: Mapping[str, str] = MappingProxyType({})) -> Cluster:
        cluster = Cluster(
            tmp_path,
            f"{LEASE:g}s",
            "fault_jobs:scheduler",
            url,
            apps=HERE,
            patience=PATIENCE * (5 if SECONDS else max(1, LEASE / 6)),
        )
        made.append(cluster)
        make_tables(url)
        for name in NAMES:
            cluster.route = ways.enter_context(from_afar(routes.get(name, url), distance))
            cluster.start(name)
        cluster.await_all()
        return cluster

    yield make
    with ways:
        for cluster in made:
            cluster.end_all()


@pytest.fixture
def dice() -> random.Random:
    """Return random numbers whose seed is printed, so that a failure names it; CHAOS_SEED sets it."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)
