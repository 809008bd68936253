"""A store is emptied under a process that only locks and guards: it says so once, and with "stop" refuses the rest."""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from cronsensus import LeaseLost, Lock, Scheduler
from cronsensus.errors import InvalidOption, SchemaMismatch, StoreEmptied
from cronsensus.lock import opening
from cronsensus.membership import session_host
from cronsensus.model.ids import new_id
from cronsensus.model.ledger import STORE_EMPTIED, Identity
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.snapshots import Snapshot, restore_snapshot

PATIENCE = 30.0
_names = count()


class Place:
    """A scheduler that is never started, in a store that can be emptied."""

    def __init__(self, on_store_loss: Any, caplog: pytest.LogCaptureFixture) -> None:
        self.scheduler = Scheduler(f"memory://emptied-{next(_names)}", on_store_loss=on_store_loss)
        self.ran: list[str] = []
        self.charge = self.scheduler.once("charge", name="charge")(self._charge)
        self._log = caplog

    def _charge(self) -> str:
        self.ran.append("charge")
        return "done"

    @property
    def store(self) -> Store:
        return self.scheduler.store

    def known(self) -> None:
        """Wait until what locks here knows which store it is in."""
        until(lambda: self.scheduler._opened.lock_backend()._host._loss.session)

    def empty(self) -> None:
        empty(self.store)

    @property
    def said(self) -> int:
        return self._log.text.count("the store was emptied, or is another one: the one that this process knew")

    def emptied_entries(self) -> int:
        return sum(entry.action == STORE_EMPTIED for entry in self.store.trail(target=""))


def empty(store: Store) -> None:
    assert isinstance(store, MemoryStore)
    restore_snapshot(store, Snapshot({}, {}))
    store._space.identity = Identity(new_id(), store.now())


def until(happened: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE / 0.01)):
        if happened():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"not so after {PATIENCE:g} s")


@pytest.fixture
def place(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setattr(session_host, "IDENTIFY_AFTER", 0.0)
    caplog.set_level(logging.WARNING, "cronsensus")
    made = Place(request.param, caplog)
    yield made
    made.scheduler._opened.close()
    opening.close_all()


both = pytest.mark.parametrize("place", ["warn", "stop"], indirect=True)
warning = pytest.mark.parametrize("place", ["warn"], indirect=True)
stopping = pytest.mark.parametrize("place", ["stop"], indirect=True)


@both
def test_a_lock_is_lost_and_reported_once_when_the_store_is_emptied(place):
    with pytest.raises(LeaseLost), place.scheduler.lock("name", ttl="1s") as lease:  # noqa: PT012
        place.known()
        place.empty()
        assert lease.lost.wait(PATIENCE)
        until(lambda: place.said)
        until(place.emptied_entries)
        lease.check()
    assert (place.said, place.emptied_entries()) == (1, 1)


@warning
def test_locks_and_calls_begin_anew_in_an_emptied_store(place):
    with place.scheduler.lock("name"):
        pass
    assert place.charge() == "done"
    place.known()
    place.empty()
    with place.scheduler.lock("name") as lease:
        assert lease.owned()
        until(lambda: place.said)
    assert place.charge() == "done"
    assert place.ran == ["charge", "charge"]


@stopping
@pytest.mark.parametrize("then", ["lock", "call"])
def test_an_emptied_store_is_locked_and_guarded_by_nothing_more(place, then):
    lock = place.scheduler.lock("name")
    with lock:
        pass
    assert place.charge() == "done"
    place.empty()
    for _ in range(2):
        with pytest.raises(StoreEmptied, match="restart"):
            lock.acquire() if then == "lock" else place.charge()
    assert place.ran == ["charge"]
    assert place.store.locks() == place.store.sessions() == []
    until(lambda: place.said)
    assert (place.said, place.emptied_entries()) == (1, 1)


@stopping
def test_a_waiter_for_a_lock_is_refused_when_the_store_is_emptied(place):
    other = Scheduler(place.scheduler.settings.url)
    held = other.lock("name")
    held.acquire()
    found: list[BaseException] = []

    def wait() -> None:
        try:
            place.scheduler.lock("name").acquire()
        except StoreEmptied as error:
            found.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    until(
        lambda: (
            place.scheduler._opened._lock_backend is not None
            and place.scheduler._opened._lock_backend._host._loss.session
        )
    )
    place.empty()
    waiter.join(PATIENCE)
    assert len(found) == 1
    with pytest.raises(LeaseLost):
        held.release()
    other._opened.close()


@stopping
def test_tables_that_are_gone_are_a_store_that_was_emptied(place, monkeypatch):
    lock = place.scheduler.lock("name")
    lock.acquire()

    def gone(*_: Any, **__: Any) -> Any:
        raise SchemaMismatch("there are no tables")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "lock", gone)
        with pytest.raises(SchemaMismatch):
            place.scheduler.lock("another").acquire()
    assert lock.lost.is_set()
    with pytest.raises(StoreEmptied):
        place.scheduler.lock("another").acquire()


def test_a_lock_without_a_scheduler_can_be_told_to_stop():
    store = MemoryStore(f"memory://emptied-{next(_names)}")
    warned, stopped = Lock(store, "a"), Lock(store, "b", on_store_loss="stop")
    for lock in (warned, stopped):
        with lock:
            pass
    empty(store)
    with warned:
        pass
    with pytest.raises(StoreEmptied):
        stopped.acquire()
    opening.close_all()


@pytest.mark.parametrize("where", ["file:///tmp/locks", ["redis://a", "redis://b", "redis://c"]])
def test_a_lock_that_cannot_notice_an_emptied_store_does_not_promise_to_stop(where):
    with pytest.raises(InvalidOption, match="only a lock in a store"):
        Lock(where, "name", on_store_loss="stop")
