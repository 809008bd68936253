"""A majority of five Redis servers, some of which are killed, restarted empty, or join still."""

import importlib.metadata
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
import redis

from cronsensus import ConfigurationError, LeaseLost, Lock, StoreUnavailable
from cronsensus.errors import InvalidOption, MissingExtra
from cronsensus.integrations import redlock
from cronsensus.integrations.redlock import RedlockBackend
from cronsensus.integrations.redlock_client import MajorityCall
from cronsensus.lock import opening
from tests.lock.test_set import Workers, workers
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer

PATIENCE = 60.0
NO_ANSWER = 20.0
"""Seconds that a backend in this process waits for a master."""
FAULTS = int(os.environ.get("CRONSENSUS_TEST_FAULTS") or 1)
"""Of each kind."""


@pytest.fixture
def five() -> Iterator[list[RedisServer]]:
    """Return five servers that keep nothing on disk: restarted, they are empty."""
    servers: list[RedisServer] = []
    try:
        servers = [RedisServer(durable=False) for _ in range(5)]
        for server in servers:
            server.start()
        with pytest.MonkeyPatch.context() as patch:
            # A live master without an answer for half a second is short of processor time.
            for module in ("redlock", "redlock_client"):
                patch.setattr(f"cronsensus.integrations.{module}.ANSWER_SECONDS", NO_ANSWER)
            yield servers
    except ServiceMissing as missing:
        pytest.skip(f"service missing: {missing}")
    finally:
        opening.close_all()
        for server in servers:
            server.end()


def urls(servers: list[RedisServer]) -> list[str]:
    return [server.url for server in servers]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (["redis://a"], "1 servers: a majority needs an odd number of independent masters, three or more"),
        (["redis://a", "redis://b"], "2 servers"),
        (["redis://a", "redis://b", "redis://c", "redis://d"], "4 servers"),
        (["redis://a", "redis://b", "redis://a"], "named twice"),
        (["redis://a", "redis://b", "redis+sentinel://c/m"], "not Sentinels or Clusters"),
        (["redis://a", "redis://b", "sqlite:///c.db"], "begins with redis://"),
        ([], "no place for a lock"),
    ],
)
def test_servers_that_make_no_majority_are_refused(where, said):
    with pytest.raises(InvalidOption, match=said):
        Lock(where, "name")


def test_a_majority_is_for_one_holder(five):
    with pytest.raises(InvalidOption, match="locks for one holder; use one store for several"):
        Lock(urls(five), "name", limit=2)


def test_an_installation_that_does_not_name_its_parts_says_what_to_type(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    with pytest.raises(ConfigurationError, match=r"metadata are old or missing.*pip install --force-reinstall"):
        Lock(["redis://old-1", "redis://old-2", "redis://old-3"], "name")


def test_the_driver_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    for module in ("redlock", "redlock_client"):
        monkeypatch.delitem(sys.modules, f"cronsensus.integrations.{module}")
    with pytest.raises(MissingExtra, match=r'pip install "cronsensus\[redis\]"'):
        Lock(["redis://without-1", "redis://without-2", "redis://without-3"], "name")


# --- faults -----------------------------------------------------------------------------------------------------------


def test_dead_and_slow_masters_cost_nothing(five):
    lock = Lock(urls(five), "name")
    with lock:
        pass  # connected

    def took() -> float:
        begun = time.monotonic()
        for _ in range(20):
            with lock:
                pass
        return time.monotonic() - begun

    usual = took()
    five[0].kill9()
    five[3].pause()
    with_two_less = took()
    print(f"{usual * 1000:.2f} ms, with two masters less {with_two_less * 1000:.2f} ms")
    # To wait for the one that stands still, once, would take longer than all that.
    assert with_two_less < NO_ANSWER


def test_without_a_majority_nothing_is_held(five):
    lock = Lock(urls(five), "name", ttl="2s")
    lease = lock.__enter__()
    for server in five[:3]:
        server.kill9()
    with pytest.raises(StoreUnavailable, match=r"2 of 5 masters answered, and a majority is 3; .* Without an answer"):
        Lock(urls(five), "name").locked()
    assert lease.lost.wait(PATIENCE)
    with pytest.raises((LeaseLost, StoreUnavailable)):
        lock.release()
    with pytest.raises(StoreUnavailable, match="nothing can be locked until they do"):
        lock.acquire(blocking=False)
    five[0].start()
    assert lock.acquire(blocking_timeout=PATIENCE)
    lock.release()


def test_a_master_that_was_restarted_empty_is_told_again(five):
    lock = Lock(urls(five), "name", ttl="5s")  # two servers are started meanwhile, on a busy machine
    with lock as lease:
        for server in five[:2]:
            server.kill9()
            server.start()
        deadline = time.monotonic() + PATIENCE
        while not all(_holds(server) for server in five):
            assert time.monotonic() < deadline, "the renewals did not bring it back"
            threading.Event().wait(0.05)
        assert not lease.lost.is_set()
        # Now two others may go, and it is still held by a majority.
        for server in five[3:]:
            server.kill9()
        assert lock.owned()
        other = Lock(urls(five), "name", blocking=False)
        assert not _in_thread(other.acquire)


def _holds(server: RedisServer) -> bool:
    with redis.Redis(port=server.port) as client:
        return any(b":lock:name" in key for key in client.scan_iter())


def _in_thread(act):
    found = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join(PATIENCE)
    return found[0]


def test_tokens_grow_although_masters_forget(five):
    lock, tokens = Lock(urls(five), "name"), []
    for number in range(30):
        with lock as lease:
            tokens.append(lease.token)
        victim = five[number % 5]
        victim.kill9()
        victim.start()
    assert sorted(set(tokens)) == tokens


def test_a_failed_try_leaves_nothing_behind(five):
    """A process with too few masters gives them back at once, so that others need not wait for the TTL."""
    first, second = Lock(urls(five), "name"), Lock(urls(five), "name", blocking=False, ttl="1h")
    with first:
        assert not _in_thread(second.acquire)
    third = Lock(urls(five), "name")
    assert third.acquire(blocking_timeout=PATIENCE)
    third.release()


def test_redlock_without_a_majority_does_not_wait_for_slow_masters(five):
    """Waiting with a minority would keep all others from a majority, so that none gets one."""
    lock = Lock(urls(five), "name", blocking=False)
    with lock:
        pass  # connected
    with redis.Redis(port=five[0].port) as client:
        client.set(lock._backend()._keys("name")[0], "somebody else")  # type: ignore[attr-defined]
    for server in five[3:]:
        server.pause()
    begun = time.monotonic()
    assert not lock.acquire()
    assert time.monotonic() - begun < NO_ANSWER


# --- the set test -----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_redlock_set_survives_faults_of_two_masters_at_a_time(five, folder):
    faults = [_kill, _pause, _freeze] * FAULTS
    random.shuffle(faults)
    with workers(",".join(urls(five)), folder, "fenced") as them:
        them.go_on(10)
        for fault in faults:
            fault(random.sample(five, 2), them)
            them.go_on(random.randrange(1, 10))
        met = them.end()
        print([fault.__name__ for fault in faults], met)
        assert them.acknowledged() <= them.there()
        assert met["stale"] + met["lost"] >= FAULTS, "the fault did not bite: nobody was late"


def _kill(two: list[RedisServer], _: Workers) -> None:
    for server in two:
        server.kill9()
    signal.sigtimedwait([], random.random())
    for server in two:
        server.start()  # empty


def _pause(two: list[RedisServer], them: Workers) -> None:
    for server in two:
        server.pause()
    them.go_on(3)  # three masters are a majority
    for server in two:
        server.resume()


def _freeze(_: list[RedisServer], them: Workers) -> None:
    them.freeze_a_holder()


def test_redlock_late_answer_changes_nothing():
    heard = MajorityCall(3, lambda so_far: len(so_far.answers) == 2)
    for master in range(2):
        heard.note(master, b"yes")
    heard.wait(0)
    heard.note(2, b"no")
    assert heard.answers == {0: b"yes", 1: b"yes"}


# --- what each step leaves at the masters -----------------------------------------------------------------------------


class Three:
    """Three masters that all live, and what stands at each of them for a lock."""

    def __init__(self, masters: list[RedisServer], prefix: str) -> None:
        self.clients = [redis.Redis(port=server.port) for server in masters]
        self.lock = Lock([f"{server.url}?prefix={prefix}" for server in masters], "name", ttl="10m", blocking=False)
        backend = self.lock._backend()
        assert isinstance(backend, RedlockBackend)
        self.place, self.token, _ = backend._keys("name")
        self.backend = backend

    def holders(self) -> list[bytes | None]:
        return [client.get(self.place) for client in self.clients]  # type: ignore[misc]


@pytest.fixture
def three(masters: list[RedisServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Three]:
    """Return three masters; they are short of processor time at worst."""
    for module in ("redlock", "redlock_client"):
        monkeypatch.setattr(f"cronsensus.integrations.{module}.ANSWER_SECONDS", 5.0)
    made = Three(masters, f"three-{next(_prefixes)}")
    yield made
    opening.close_all()
    for client in made.clients:
        client.close()


_prefixes = count()


def test_tokens_grow_by_what_was_noted_although_the_clocks_are_behind(three):
    ahead = 2 * 10**15  # in 2033
    for client in three.clients[1:]:
        client.set(three.token, ahead)
    tokens = []
    for _ in range(3):
        with three.lock as lease:
            tokens.append(lease.token)
        # A majority knows it, whichever of them answers first next time.
        assert sum(int(client.get(three.token) or 0) >= tokens[-1] for client in three.clients) >= 2
    assert tokens[0] > ahead
    assert sorted(set(tokens)) == tokens


def test_redlock_take_without_a_majority_for_the_token_is_given_back(three, monkeypatch):
    ask = three.backend._masters.ask

    def lose_it_before_the_token(script, *args, **how):
        if script is redlock._NOTE_TOKEN_SCRIPT:
            assert until(lambda: None not in three.holders())  # also the one with an answer after the majority
            for client in three.clients[1:]:
                client.delete(three.place)  # restarted empty in this very moment
        return ask(script, *args, **how)

    monkeypatch.setattr(three.backend._masters, "ask", lose_it_before_the_token)
    assert not three.lock.acquire()
    assert until(lambda: three.holders() == [None] * 3)
    monkeypatch.undo()
    assert three.lock.acquire()
    three.lock.release()


def test_a_try_that_got_too_few_masters_is_undone_at_each(three):
    for client in three.clients[1:]:
        client.set(three.place, "somebody else")
    assert not three.lock.acquire()
    assert until(lambda: three.holders() == [None, b"somebody else", b"somebody else"])


def test_a_master_that_forgot_gets_the_lock_back_for_no_longer_than_it_lasts(three):
    with three.lock as lease:
        three.clients[0].delete(three.place)
        lease.extend("1m")
        assert until(lambda: len(set(three.holders())) == 1)
        # Without an end it would stay for ever if its holder died.
        left = [client.pttl(three.place) for client in three.clients]
        assert all(one > 0 for one in left), left
    assert until(lambda: three.holders() == [None] * 3)


def test_just_a_majority_has_a_holder_and_less_has_none(three):
    for votes, holders in ((1, 0), (2, 1), (3, 1)):
        for place, client in enumerate(three.clients):
            client.set(three.place, "somebody" if place < votes else f"another {place}")
        assert three.backend.count_holders("name") == holders


def test_redlock_released_lease_is_not_renewed(three):
    with three.lock:
        (renewal,) = three.backend._renewals.values()
    assert not three.backend._renewals
    assert renewal.action is None  # cancelled


def until(there: Callable[[], bool]) -> bool:
    """Wait for what the slower masters do after a majority has answered."""
    deadline = time.monotonic() + PATIENCE
    while not there() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return there()
