"""Handles on a Redis store that are closed after the test, and a few words for what a cluster does on it."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.states import State
from cronsensus.stores.redis import RedisStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, take
from cronsensus.timing.clock import Clock
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer

LEASE = timedelta(seconds=30)
Opening = Callable[..., RedisStore]


@pytest.fixture
def opening() -> Iterator[Opening]:
    """Open handles; they are closed after the test."""
    opened: list[RedisStore] = []

    def open_it(url: str, namespace: str = "default", clock: Clock | None = None) -> RedisStore:
        opened.append(RedisStore(url, namespace=namespace, clock=clock))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(opening: Opening, redis_url: str) -> RedisStore:
    return opening(redis_url)


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """Give a server that only this test uses."""
    try:
        server = RedisServer(durable=False)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


def queue(store: RedisStore, name: str = "queue", **policies: object) -> str:
    """Define a job that runs what is enqueued."""
    spec = JobSpec(name=name, function=name, policies=Policies.read(policies))
    store.define_jobs([spec], release="r1")
    return name


def a_claim(store: RedisStore, session: str = "s1") -> Claim:
    """Define, open, enqueue and claim: one running occurrence."""
    queue(store)
    store.open_session(a_session(session), lease=LEASE)
    store.enqueue([Item(job="queue")])
    [claim] = take(store, session, 10, ["queue"], lease=LEASE)
    return claim


def succeeded(claim: Claim) -> End:
    return an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait for something that another process does, and of which it tells nobody."""
    steps = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        steps.wait(0.01)
    raise TimeoutError(f"waited {seconds} s for {what}")
