"""Each test gets an empty place of its own on a real server, and nothing of it is left."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import redis

from tests.servers.fixtures import mysql_connection

ROUNDS = [1, 2]
"""Twice the same name: the second would fail if the first had left it."""


def option(url: str, name: str) -> str:
    return parse_qs(urlsplit(url).query)[name][0]


@pytest.mark.parametrize("number", ROUNDS)
def test_a_schema_of_postgresql_is_empty(postgres_url: str, postgres_server_url: str, number: int) -> None:
    with psycopg.connect(postgres_server_url, options=f"-c search_path={option(postgres_url, 'schema')}") as connection:
        connection.execute("CREATE TABLE place (number int)")
        connection.execute("INSERT INTO place VALUES (%s)", [number])
        assert connection.execute("SELECT * FROM place").fetchall() == [(number,)]
        assert connection.execute("SHOW timezone").fetchone() == ("Asia/Kathmandu",)


@pytest.mark.parametrize("number", ROUNDS)
def test_a_database_of_mysql_is_empty(mysql_url: str, number: int) -> None:
    with mysql_connection(mysql_url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE place (number int)")
        cursor.execute("INSERT INTO place VALUES (%s)", [number])
        cursor.execute("SELECT * FROM place")
        assert cursor.fetchall() == ((number,),)


@pytest.mark.parametrize("number", ROUNDS)
def test_a_prefix_of_redis_is_empty(redis_url: str, redis_server_url: str, number: int) -> None:
    with redis.Redis.from_url(redis_server_url, decode_responses=True) as client:
        key = f"{{{option(redis_url, 'prefix')}}}:place"
        assert not client.exists(key)
        client.set(key, number)
        assert client.get(key) == str(number)


@pytest.fixture
def left_on_postgres(postgres_server_url: str) -> Iterator[list[str]]:
    """Ask, after the test's own place was removed, whether it is gone."""
    schemas: list[str] = []
    yield schemas
    with psycopg.connect(postgres_server_url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s)", [schemas]).fetchall()
    assert schemas
    assert found == []


def test_a_schema_is_gone_after_its_test(left_on_postgres: list[str], postgres_url: str) -> None:
    left_on_postgres.append(option(postgres_url, "schema"))
    with psycopg.connect(postgres_url.partition("?")[0]) as connection:
        connection.execute(f"CREATE TABLE {left_on_postgres[0]}.place (number int)")
