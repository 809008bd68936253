"""``StartupCoordinator``: one worker at a time has a name, with a store, and without one."""

import asyncio
import logging

import pytest
import redis

from cronsensus import InvalidDuration, InvalidOption, StartupCoordinator, StoreUnavailable
from cronsensus.lock import opening

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def closed():
    yield
    opening.close_all()


async def contest(one, other):
    seen = [await one.acquire("warm"), await one.acquire("warm"), await other.acquire("warm")]
    seen += [await other.release("warm"), await one.release("warm"), await one.release("warm")]
    return [*seen, await other.acquire("warm"), await other.release("warm")]


ORDER = [True, False, False, False, True, False, True, True]


@pytest.mark.parametrize("single", [True, False])
def test_one_at_a_time(redis_url, tmp_path, single):
    one, other = (StartupCoordinator(redis_url, tmp_path, single_instance=single) for _ in range(2))
    assert asyncio.run(contest(one, other)) == ORDER


def test_without_the_store_it_falls_back_on_files_and_says_so(tmp_path, caplog):
    one, other = (StartupCoordinator(NOWHERE, tmp_path / "locks") for _ in range(2))
    with caplog.at_level(logging.WARNING, "cronsensus.startup"):
        assert asyncio.run(contest(one, other)) == ORDER
    assert "only kept from other workers on this host" in caplog.text


def test_without_the_store_and_without_a_fallback(tmp_path):
    coordinator = StartupCoordinator(NOWHERE, tmp_path, fallback=None)
    with pytest.raises(StoreUnavailable):
        asyncio.run(coordinator.acquire("warm"))
    assert asyncio.run(coordinator.release("warm")) is False


def test_workers_that_see_the_store_and_those_that_do_not_keep_out_of_each_others_way(redis_url, tmp_path):
    one, other = StartupCoordinator(redis_url, tmp_path), StartupCoordinator(NOWHERE, tmp_path)
    assert asyncio.run(contest(one, other)) == ORDER


def test_a_client_will_do(redis_url, tmp_path):
    where = redis_url.partition("?")[0]
    client, aclient = redis.Redis.from_url(where), redis.asyncio.Redis.from_url(where)
    one, other = StartupCoordinator(client, tmp_path / "a"), StartupCoordinator(aclient, tmp_path / "b")
    assert asyncio.run(contest(one, other)) == ORDER
    client.close()


def test_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TASK_LOCK_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("SINGLE_INSTANCE_MODE", "false")
    coordinator = StartupCoordinator(NOWHERE)
    assert not coordinator.single_instance
    assert asyncio.run(coordinator.acquire("warm"))
    assert (tmp_path / "there").is_dir()
    assert asyncio.run(coordinator.release("warm"))
    monkeypatch.setenv("SINGLE_INSTANCE_MODE", "maybe")
    with pytest.raises(InvalidOption, match="SINGLE_INSTANCE_MODE='maybe'"):
        StartupCoordinator(NOWHERE)


def test_bad_input(tmp_path):
    for where in (None, 7, object()):
        with pytest.raises(InvalidOption, match="no client of redis-py"):
            StartupCoordinator(where)
    with pytest.raises(InvalidOption, match="choose 'file' or None"):
        StartupCoordinator(NOWHERE, fallback="memory")
    coordinator = StartupCoordinator(NOWHERE, tmp_path)
    for name in ("", "x" * 10_000):
        with pytest.raises(InvalidOption):
            asyncio.run(coordinator.acquire(name))
    with pytest.raises((InvalidDuration, InvalidOption)):
        asyncio.run(coordinator.acquire("warm", ttl=0))
    assert asyncio.run(coordinator.acquire("warm"))
    assert asyncio.run(coordinator.release("warm"))
