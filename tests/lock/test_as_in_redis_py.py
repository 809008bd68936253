"""Code that was written for redis-py's ``Lock`` does the same with ours: only the constructor changes."""

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError

from cronsensus import LeaseLost, Lock, LockHeld, NotTheHolder
from cronsensus.errors import InvalidOption
from cronsensus.lock import opening

NOT_HELD = (LockError, NotTheHolder)
NOT_TO_BE_HAD = (LockError, LockHeld)
LOST = (LockNotOwnedError, LeaseLost)


@pytest.fixture(params=["redis-py", "cronsensus"])
def make(request: pytest.FixtureRequest, redis_url: str) -> Any:
    """Return what makes a lock, and what frees one behind its holder's back."""
    ours = request.param == "cronsensus"
    client = redis.Redis.from_url(redis_url.partition("?")[0])

    def made(**options: Any) -> Any:
        if ours:
            return Lock(redis_url, "name", ttl=30, **options)
        return client.lock(f"{redis_url}-name", timeout=30, **options)

    yield made
    client.close()
    opening.close_all()


def test_lock_answers_code_for_redis_py_alike(make):
    lock, other = make(), make()
    assert lock.name
    assert lock.acquire() is True
    assert other.acquire(blocking=False) is False
    assert other.acquire(blocking=True, blocking_timeout=0.05) is False
    assert other.acquire(blocking_timeout=0) is False
    assert (lock.locked(), other.locked()) == (True, True)
    assert (lock.owned(), other.owned()) == (True, False)
    assert lock.extend(5) is True
    assert lock.extend(40, replace_ttl=True) is True
    assert lock.reacquire() is True
    assert lock.release() is None
    assert (lock.locked(), lock.owned()) == (False, False)
    for act in (lock.release, lock.reacquire, lambda: lock.extend(5)):
        with pytest.raises(NOT_HELD):
            act()


def test_with_blocks_behave_as_in_redis_py(make):
    lock, other = make(), make(blocking=False)
    with lock:
        assert lock.owned()
        with pytest.raises(NOT_TO_BE_HAD), other:
            pass
        with pytest.raises(NOT_TO_BE_HAD), make(blocking_timeout=0.05):
            pass
    assert not lock.locked()
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert not lock.locked()


def test_expired_lock_can_be_acquired_elsewhere(redis_url):
    client = redis.Redis.from_url(redis_url.partition("?")[0])
    theirs = client.lock(f"{redis_url}-name", timeout=0.1)
    ours = Lock(redis_url, "name", ttl=0.1, renew=False)
    try:
        for lock in (theirs, ours):
            assert lock.acquire()
            again = Lock(redis_url, "name") if lock is ours else client.lock(f"{redis_url}-name", timeout=5)
            assert again.acquire()
            for act in (lambda lock=lock: lock.extend(5), lock.reacquire, lock.release):
                with pytest.raises(LOST):
                    act()
            assert again.owned()
            again.release()
    finally:
        client.close()
        opening.close_all()


def test_async_methods_behave_as_in_redis_py(redis_url):
    async def main() -> None:
        client = redis.asyncio.Redis.from_url(redis_url.partition("?")[0])
        theirs, ours = client.lock(f"{redis_url}-name", timeout=30), Lock(redis_url, "name", ttl=30)
        async with theirs, ours:
            assert await theirs.locked()
            assert await ours.alocked()
        assert [await theirs.acquire(blocking=False), await ours.aacquire(blocking=False)] == [True, True]
        assert [await theirs.owned(), await ours.aowned()] == [True, True]
        assert [await theirs.extend(5), await ours.aextend(5)] == [True, True]
        assert [await theirs.reacquire(), await ours.areacquire()] == [True, True]
        await theirs.release()
        await ours.arelease()
        assert [await theirs.locked(), await ours.alocked()] == [False, False]
        await client.aclose()

    try:
        asyncio.run(main())
    finally:
        opening.close_all()


def test_redis_client_is_accepted_as_the_place(redis_url):
    client = redis.Redis.from_url(redis_url.partition("?")[0])
    with Lock(client, f"{redis_url[-20:]}"):
        assert Lock(redis_url.partition("?")[0], f"{redis_url[-20:]}").locked()
    client.close()
    opening.close_all()
    with pytest.raises(InvalidOption, match=r"no client of redis-py for one server; give the URL"):
        Lock(redis.Redis(unix_socket_path="/run/redis.sock"), "name")
