"""What ``cronsensus doctor`` says of real servers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from cronsensus.insight import store_checks
from cronsensus.stores import Store, open_store
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

SERVERS = ("postgres", "mysql", "redis")


def doctor(url: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Ask as a person does; return the exit code and the findings by name."""
    command = [sys.executable, "-m", "cronsensus", "--url", url, "doctor", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["checks"]}


@pytest.fixture(params=SERVERS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    made = open_store(request.getfixturevalue(f"{request.param}_url"))
    made.migrate()
    yield made
    made.close()


def test_a_clock_that_differs_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_checks.check_clocks(store).level == "ok"
    now = store.now
    for by, word in ((timedelta(minutes=3), "behind"), (timedelta(minutes=-3), "ahead of")):
        monkeypatch.setattr(store, "now", lambda by=by: now() + by)
        said = store_checks.check_clocks(store)
        assert said.level == "warn"
        assert word in said.text
        assert "nothing is lost or doubled" in said.text


def test_wake_ups_are_tried_where_there_are_any(store: Store) -> None:
    said = store_checks.check_wake_ups(store, store.describe())
    assert said.level == "ok"
    assert ("a hint arrives" in said.text) == store.capabilities.notify


def test_a_redis_that_throws_keys_away_is_refused() -> None:
    with RedisServer(durable=False) as server:
        store = open_store(server.url)
        store.migrate()
        store.close()
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        code, found = doctor(server.url)
        assert code != 0
        assert found["store"]["level"] == "fail"
        assert "allkeys-lru" in found["store"]["text"]
        assert "maxmemory-policy noeviction" in json.dumps(found["store"])


def test_a_pooler_is_said() -> None:
    with PostgresServer(durable=False) as server, PgBouncer(server, pool_size=3) as bouncer:
        for url, level in ((server.url, "ok"), (bouncer.url, "warn")):
            store = open_store(url)
            store.migrate()
            store.close()
            _, found = doctor(url)
            assert found["wake-ups"]["level"] == level
        assert "pooler" in found["wake-ups"]["text"]
        assert "?pooler=session" in json.dumps(found["wake-ups"])
