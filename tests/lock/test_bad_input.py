"""What cannot be meant is refused where it is written, with what to write instead."""

import asyncio

import pytest

from cronsensus import Lock, NotTheHolder, Scheduler, StoreUnavailable, open_store
from cronsensus.errors import ConfigurationError, InvalidDuration, InvalidOption, UnknownStore

URL = "memory://bad-input"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ttl": None}, r"ttl=None: a lock without a TTL would be held for ever .* write ttl='30s'"),
        ({"ttl": "200ms"}, r"ttl='200ms': from 1s to 1d; a shorter one could not be renewed in time"),
        ({"ttl": 0}, "from 1s to 1d"),
        ({"ttl": "2d"}, "a longer one would outlive a crash"),
        ({"ttl": "10ms", "renew": False}, r"from 100ms to 1d; a shorter one would be over before"),
        ({"limit": 0}, "limit=0: a whole number from 1 to 1000"),
        ({"limit": -1}, "limit=-1"),
        ({"limit": 1.5}, "limit=1.5"),
        ({"limit": True}, "limit=True"),
        ({"limit": 10**6}, "from 1 to 1000"),
        ({"tll": "30s"}, "unknown option 'tll' for Lock; did you mean 'ttl'"),
        ({"timeout": 10}, r"unknown option 'timeout' for Lock; write ttl='30s'"),
        ({"sleep": 0.1}, "a waiter is notified"),
        ({"thread_local": False}, "each thread and each task holds what it acquired itself"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(InvalidOption, match=said):
        Lock(URL, "name", **options)
    with pytest.raises(InvalidOption, match=said):
        Scheduler(URL).lock("name", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sleep": 0.1}, "unknown option 'sleep' for acquire; write nothing: a waiter is notified"),
        ({"token": "mine"}, "unknown option 'token' for acquire; write nothing: the store gives the token"),
        ({"timeout": 5}, "unknown option 'timeout' for acquire"),
        ({"blockng": True}, "did you mean 'blocking'"),
        ({"blocking": 0.5}, r"blocking=0.5: True or False; .* blocking_timeout='5s'"),
    ],
)
def test_invalid_ways_to_acquire_are_refused(options, said):
    lock = Lock(URL, "name")
    with pytest.raises(InvalidOption, match=said):
        lock.acquire(**options)
    with pytest.raises(InvalidOption, match=said):
        asyncio.run(lock.aacquire(**options))
    assert not lock.locked()


@pytest.mark.parametrize("name", ["", "x" * 10_240, " name", "name ", "a\0b", "a\nb", None, 7, b"name"])
def test_invalid_names_are_refused(name):
    with pytest.raises(InvalidOption, match=r"lock name .*: use 1 to 200 printable characters"):
        Lock(URL, name)


@pytest.mark.parametrize("ttl", ["soon", "", -1, float("nan"), float("inf"), True, "5 parsecs"])
def test_invalid_durations_are_refused(ttl):
    with pytest.raises(InvalidDuration, match="ttl"):
        Lock(URL, "name", ttl=ttl)
    with pytest.raises(InvalidDuration, match="blocking_timeout"):
        Lock(URL, "name", blocking_timeout=ttl)
    with pytest.raises(InvalidDuration, match="blocking_timeout"):
        Lock(URL, "name").acquire(blocking_timeout=ttl)
    with Lock(URL, "name") as lease, pytest.raises(InvalidDuration, match="additional_time"):
        lease.extend(ttl)


@pytest.mark.parametrize("where", ["", " ", None, 7, b"redis://localhost"])
def test_invalid_places_are_refused(where):
    with pytest.raises(InvalidOption, match="no place for a lock; write the URL of a store"):
        Lock(where, "name")


@pytest.mark.parametrize("where", ["nothing://x", "jobs.db", "redi://localhost", "postgresq://x"])
def test_lock_at_an_unknown_place_is_refused(where):
    with pytest.raises(UnknownStore):
        Lock(where, "name")


def test_a_store_has_its_namespace():
    store = open_store(URL, namespace="a")
    with pytest.raises(InvalidOption, match="namespace='b': the store is open in 'a'"):
        Lock(store, "name", namespace="b")
    with Lock(store, "name", namespace="a"), pytest.raises(ConfigurationError):
        Lock(store, "name").release()


def test_acquire_in_a_missing_store_fails_and_holds_nothing(tmp_path):
    lock = Lock(f"sqlite:///{tmp_path / 'nowhere' / 'locks.db'}", "name")
    with pytest.raises(StoreUnavailable, match="nowhere"):
        lock.acquire()
    assert lock.lease is None
    with pytest.raises(NotTheHolder):
        lock.release()


def test_lock_error_shows_no_password():
    assert repr(Lock("sqlite:///x.db", "name")) == "<Lock 'name'>"
