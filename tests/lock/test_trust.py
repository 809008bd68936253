"""Until when a holder may believe in its lock: never for longer than the store, whatever fails."""

# ruff: noqa: PT012 - what raises is the end of the block

import threading
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from cronsensus import LeaseLost, Lock, StoreUnavailable
from cronsensus.lock.in_store import StoreLockBackend
from cronsensus.stores import open_store
from cronsensus.stores.base import Store
from cronsensus.timing.clock import ManualClock

PATIENCE = 60.0
_names = count()


class Fails:
    """A store whose verbs fail as told, before or after they were done; it counts as a ``Store``."""

    def __init__(self, store: Store, orders: dict[str, str]) -> None:
        self.real, self.orders = store, orders
        self.asked: list[str] = []

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Store

    def sibling(self) -> "Fails":
        other = Fails(self.real.sibling(), self.orders)
        other.asked = self.asked
        return other

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self.real, verb)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self.asked.append(verb)
            order = self.orders.get(verb)
            if order == "before":
                raise StoreUnavailable("away, by order of this test")
            answer = found(*args, **named)
            if order == "after":
                raise StoreUnavailable("done, but the answer is lost, by order of this test")
            return answer

        return call


class Scene:
    """Two processes' backends on one store, with one clock for all that is moved by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.url = f"memory://trust-{next(_names)}"
        self.orders: dict[str, str] = {}
        self.store = open_store(self.url, clock=self.clock)
        self.backends = [StoreLockBackend(Fails(self.store, self.orders), self.clock, name="ours"),  # type: ignore[arg-type]
                      StoreLockBackend(self.store, self.clock, name="theirs")]  # fmt: skip

    def lock(self, **options: Any) -> Lock:
        return Lock(lambda: self.backends[0], "name", **{"ttl": "10s", "blocking": False, **options})

    def other(self, **options: Any) -> Lock:
        return Lock(lambda: self.backends[1], "name", **{"ttl": "10s", "blocking": False, **options})

    def keep(self) -> float:
        """Have the heartbeat of ours beat, by hand."""
        host = self.backends[0]._host
        return host._heartbeat.renew_due(host.store)

    def close(self) -> None:
        self.orders.clear()
        for backend in self.backends:
            backend.close()


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.close()


def test_lease_is_lost_before_another_holder_can_have_the_lock(scene):
    lock, other = scene.lock(renew=False), scene.other()
    with pytest.raises(LeaseLost), lock as lease:
        for _ in range(98):
            scene.clock.advance(0.1)
            assert not other.acquire()
            assert lease.lost.is_set() == (lease.expires_in <= 0)
        assert lease.lost.is_set()
        assert not other.acquire()
        scene.clock.advance(0.3)
        assert other.acquire()
        other.release()


def test_end_of_a_lease_is_noticed_without_asking_the_store(scene):
    lock = scene.lock(renew=False)
    lock.acquire()
    lease = lock.lease
    heard = threading.Event()

    def wait() -> None:
        assert lease.lost.wait(PATIENCE)
        heard.set()

    waits = threading.Thread(target=wait)
    waits.start()

    def asked() -> list[str]:
        # Which store this is, is asked once, some time after the session was opened, by the thread that renews it.
        return [verb for verb in scene.backends[0]._host.store.asked if verb != "identity"]

    before = asked()
    scene.clock.advance(9.5)
    scene.backends[0]._host.monitor.timer.recheck_clock()
    assert heard.wait(PATIENCE)
    waits.join(PATIENCE)
    assert asked() == before


def test_a_renewed_lease_lasts(scene):
    with scene.lock() as lease:
        for _ in range(20):
            scene.clock.advance(3.4)
            scene.keep()
            assert not lease.lost.is_set()
            assert lease.expires_in > 5
        assert not scene.other().acquire()


def test_trust_ends_in_time_when_the_store_is_away(scene):
    lock = scene.lock()
    with pytest.raises(LeaseLost), lock as lease:
        scene.orders["extend"] = "before"
        for second in range(1, 10):
            assert not lease.lost.is_set()
            scene.clock.advance(1)
            wait = scene.keep()
            assert wait <= (1 if second > 3 else 10 / 3)
        assert lease.lost.is_set()
        assert not scene.other().acquire()
        scene.clock.advance(1.1)
        with scene.other() as theirs:
            assert theirs.token > lease.token
        del scene.orders["extend"]


def test_a_short_trouble_costs_nothing(scene):
    with scene.lock() as lease:
        scene.orders["extend"] = "before"
        scene.clock.advance(5)
        scene.keep()
        del scene.orders["extend"]
        scene.clock.advance(1)
        scene.keep()
        assert lease.expires_in == pytest.approx(9)


@pytest.mark.parametrize("when", ["before", "after"])
def test_trust_does_not_grow_by_an_answer_that_was_lost(scene, when):
    with scene.lock() as lease:
        scene.clock.advance(4)
        scene.orders["extend"] = when
        scene.keep()
        assert lease.expires_in == pytest.approx(5)
        with pytest.raises(StoreUnavailable):
            lease.extend("1s", replace_ttl=True)
        # It may have been done, and then the store frees it in a second.
        assert lease.expires_in <= 1
        del scene.orders["extend"]
        scene.keep()
        lease.reacquire()
        assert lease.expires_in == pytest.approx(9)


def test_a_renewal_does_not_shorten_what_was_extended(scene):
    with scene.lock() as lease:
        lease.extend("1m")
        scene.clock.advance(8)
        scene.keep()
        assert lease.expires_in > 50
        scene.clock.advance(56)
        scene.keep()
        assert lease.expires_in == pytest.approx(9)


def test_lost_answer_of_an_acquire_blocks_no_other(scene):
    scene.orders["lock"] = "after"
    with pytest.raises(StoreUnavailable):
        scene.lock().acquire()
    assert scene.other().acquire()


def test_lost_answer_frees_nothing_of_another_process_of_the_same_name(scene):
    """Two containers that share the host's name have a process 1 each; workers forked from one have its name, too."""
    for backend in scene.backends:
        backend._name = "host:1"
    with scene.other() as theirs:
        scene.orders["lock"] = "before"
        with pytest.raises(StoreUnavailable):
            scene.lock().acquire()
        [view] = scene.store.locks(name="name")
        assert (view.token, view.holder) == (theirs.token, "host:1/MainThread/1")
        assert theirs.extend("1s")


def test_a_lock_that_could_not_be_asked_for_is_not_held(scene):
    scene.orders["lock"] = "before"
    lock = scene.lock()
    with pytest.raises(StoreUnavailable):
        lock.acquire()
    assert lock.lease is None
    del scene.orders["lock"]
    assert lock.acquire()
    lock.release()


def test_block_held_to_its_end_survives_a_failed_release(scene, caplog):
    with scene.lock():
        scene.orders["unlock"] = "before"
    assert "could not be released, it ends with its TTL" in caplog.text
    del scene.orders["unlock"]
    assert not scene.other().acquire()
    scene.clock.advance(11)
    assert scene.other().acquire()


def test_an_error_of_the_block_comes_before_the_loss_of_the_lock(scene, caplog):
    with pytest.raises(ZeroDivisionError), scene.lock(renew=False):
        scene.clock.advance(11)
        assert scene.other().acquire()
        _ = 1 / 0
    assert "no longer held under token" in caplog.text


def test_releasing_by_hand_says_that_the_store_is_away(scene):
    lock = scene.lock()
    lock.acquire()
    scene.orders["unlock"] = "before"
    with pytest.raises(StoreUnavailable):
        lock.release()
    assert lock.lease is None


# --- sessions ---------------------------------------------------------------------------------------------------------


def sessions(scene: Scene) -> list[str]:
    return [one.id for one in scene.store.sessions()]


def test_locks_of_a_process_share_one_session_that_ends_when_idle(scene):
    first, second = scene.lock(), Lock(lambda: scene.backends[0], "other", ttl="10s")
    with first, second:
        [session] = sessions(scene)
        assert {view.session for view in scene.store.locks()} == {session}
    with first:
        assert sessions(scene) == [session]
    backend = scene.backends[0]
    scene.clock.advance(61)
    thread = backend._host._heartbeat._thread
    backend._host._heartbeat.wake_thread()
    thread.join(PATIENCE)
    assert sessions(scene) == []
    with first:
        [again] = sessions(scene)
        assert again != session


def test_the_session_lasts_as_long_as_a_lock_is_held(scene):
    with scene.lock() as lease:
        for _ in range(300):
            scene.clock.advance(3.3)
            scene.keep()
        assert lease.owned()
        assert not lease.lost.is_set()
        assert len(sessions(scene)) == 1


def test_session_declared_dead_loses_its_locks_and_is_replaced(scene):
    first, second = scene.lock(), Lock(lambda: scene.backends[0], "other", ttl="10s")
    first.acquire()
    second.acquire()
    leases = [first.lease, second.lease]
    [session] = sessions(scene)
    scene.store.reclaim([session])
    with scene.other() as theirs:
        scene.clock.advance(3.4)
        scene.keep()
        assert [lease.lost.is_set() for lease in leases] == [True, True]
        assert theirs.token > leases[0].token
        with pytest.raises(LeaseLost, match="no longer held under token"):
            first.release()
    assert first.acquire()
    assert sessions(scene) != [session]
    first.release()
    with pytest.raises(LeaseLost):
        second.release()


def test_a_session_that_ended_unseen_is_noticed_when_the_next_lock_is_taken(scene):
    first = scene.lock()
    with pytest.raises(LeaseLost), first as lease:
        scene.store.reclaim(sessions(scene))
        with Lock(lambda: scene.backends[0], "other", ttl="10s"):
            assert lease.lost.is_set()


def test_closing_frees_what_is_held(scene):
    lock = scene.lock()
    lock.acquire()
    lease = lock.lease
    scene.backends[0].close()
    assert lease.lost.is_set()
    assert scene.other().acquire()
    assert [one.is_node for one in scene.store.sessions()] == [False]


# --- a long life ------------------------------------------------------------------------------------------------------


def test_an_idle_process_asks_the_store_nothing(scene):
    with scene.lock():
        pass
    scene.clock.advance(timedelta(seconds=5))
    scene.keep()
    asked = list(scene.backends[0]._host.store.asked)
    assert asked.count("identity") == 1  # so that it notices an emptied store
    scene.clock.advance(timedelta(seconds=30))
    assert scene.keep() > 10
    assert scene.backends[0]._host.store.asked == asked
