"""What ``cronsensus doctor`` says of real servers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis

from cronsensus.insight import store_checks, work_checks
from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance.fixtures import LEASE, a_session
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
    assert ("a notification arrives" in said.text) == store.capabilities.notify


def test_connections_of_all_slots_are_compared_with_what_the_server_has(store: Store) -> None:
    described = store.describe()
    assert list(work_checks.check_connections(store, described)) == []
    store.open_session(replace(a_session("s1"), concurrency=8), lease=LEASE)
    store.open_session(replace(a_session("locks"), concurrency=0), lease=LEASE)
    said = list(work_checks.check_connections(store, described))
    if store.capabilities.name == "redis":
        assert said == []
        return
    assert [(one.level, one.then) for one in said] == [("ok", "")]
    most = int(described["max_connections"])
    assert said[0].text.startswith("4 of 1 live node, and 8 more when each slot is in a run.transaction();")
    for slots, level in ((most - 16, "ok"), (most - 15, "warn")):
        store.open_session(replace(a_session(f"s{slots}"), concurrency=slots), lease=LEASE)
        [said_then] = work_checks.check_connections(store, described)
        assert said_then.level == level
        store.close_session(f"s{slots}")
    assert f"max_connections = {most + 21};" in said_then.then


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
