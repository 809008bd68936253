"""Wait queues: the first waiter is notified, an unused notification is passed on, and polling backs off."""

import threading
from datetime import timedelta
from itertools import pairwise

import pytest

from cronsensus import Lock
from cronsensus.errors import StoreUnavailable
from cronsensus.lock.in_store import StoreLockBackend
from cronsensus.lock.local_queue import LocalQueue, QueuedWaiter
from cronsensus.lock.waiter import HOLDERS_VALID_FOR, POLL_INTERVALS, PollingWaiter
from cronsensus.stores import open_store
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import ManualClock, SystemClock

PATIENCE = 60.0


class Place(WaitQueues):
    """A place where this test notifies waiters; and its only wait queues."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.told: list[str] = []
        self.hears = False
        self.done: list[tuple[str, str]] = []

    def wait_queues(self) -> WaitQueues:
        return self

    def _note(self, what: str, name: str) -> None:
        with self.changed:
            self.done.append((what, name))
            self.changed.notify_all()

    def join_queue(self, name: str) -> None:
        self._note("join", name)

    def leave_queue(self, name: str) -> None:
        self._note("leave", name)

    def wake_next(self, name: str) -> None:
        self._note("call next", name)

    def receive(self, timeout: float) -> list[str]:
        with self.changed:
            self.hears = True
            self.changed.wait_for(lambda: self.told or self._closed.is_set(), timeout)
            self.hears = False
            told, self.told = self.told, []
            return told

    def close(self) -> None:
        super().close()
        with self.changed:
            self.changed.notify_all()

    def tell(self, name: str) -> None:
        with self.changed:
            self.told.append(name)
            self.changed.notify_all()

    def wait_until(self, what: tuple[str, str]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: what in self.done, PATIENCE), self.done


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def queue(place):
    made = LocalQueue(lambda: place)
    yield made
    made.close()


def waiter(queue: LocalQueue) -> QueuedWaiter:
    return QueuedWaiter(SystemClock(), queue, "name", at_most=PATIENCE)


def test_notification_wakes_the_first_waiter_and_the_queue_is_joined_for_the_next(queue, place):
    first, second = waiter(queue), waiter(queue)
    first.join_queue()
    second.join_queue()
    place.tell("name")
    assert first.wait(PATIENCE)
    assert not second.wait(0)
    place.tell("name")
    assert second.wait(PATIENCE)


def test_notification_without_a_waiter_is_passed_on(queue, place):
    one = waiter(queue)
    one.join_queue()
    one.leave_queue()
    place.tell("name")
    place.wait_until(("call next", "name"))


def test_notification_of_a_waiter_that_gives_up_goes_to_the_next_here_or_elsewhere(queue, place):
    first, second = waiter(queue), waiter(queue)
    first.join_queue()
    second.join_queue()
    place.tell("name")
    assert first.wait(PATIENCE)
    first.give_up()
    assert second.wait(PATIENCE)
    assert ("call next", "name") not in place.done
    second.give_up()
    place.wait_until(("call next", "name"))


def test_waiter_that_left_does_not_join_again_from_a_late_thread(queue, place):
    """A task was cancelled while a thread of the pool was about to join in line for it."""
    gone, one = waiter(queue), waiter(queue)
    gone.leave_queue()
    gone.join_queue()
    one.join_queue()
    place.tell("name")
    assert one.wait(PATIENCE)
    assert not gone.wait(0)


def test_error_in_a_queue_that_is_being_closed_is_not_logged(queue, place, caplog):
    one = waiter(queue)
    one.join_queue()
    place.wait_until(("join", "name"))

    def receive(timeout: float) -> list[str]:
        queue.close()
        raise AttributeError("'NoneType' object has no attribute 'readline'")

    place.receive = receive
    place.tell("other")
    thread = queue._thread
    if thread is not None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert "a mistake in cronsensus" not in caplog.text


def test_a_redis_handle_that_is_closed_under_the_hands_of_a_verb_says_so(redis_url):
    store = open_store(redis_url)
    store.now()

    def talk(wire):
        store.close()
        raise ValueError("I/O operation on closed file.")

    with pytest.raises(StoreUnavailable, match="was closed"):
        store._client._lend_connection(talk)  # type: ignore[attr-defined]


def test_notification_after_the_last_waiter_left_is_received(queue, place):
    """Else the lock would stay free until the next poll: the unlock has notified this process alone."""
    one = waiter(queue)
    one.join_queue()
    place.tell("name")
    assert one.wait(PATIENCE)
    with queue._changed:  # the thread, which rests, cannot see that somebody stood here for a moment
        one.join_queue()
        one.leave_queue()
    place.tell("name")
    place.wait_until(("call next", "name"))


def test_acquire_without_a_notification_leaves_the_queue(queue, place):
    one = waiter(queue)
    one.join_queue()
    one.note_acquired()
    assert place.done == [("join", "name"), ("leave", "name")]


def test_queue_is_kept_while_other_local_waiters_wait(queue, place):
    one, other = waiter(queue), waiter(queue)
    one.join_queue()
    other.join_queue()
    one.note_acquired()
    assert ("leave", "name") not in place.done
    place.tell("name")
    assert other.wait(PATIENCE)


# --- looking without being told ---------------------------------------------------------------------------------------


def test_polling_waiter_backs_off():
    clock = ManualClock()
    waiting, looks = PollingWaiter(clock), []
    for _ in range(40):
        looks.append(waiting.seconds_to_retry)
        clock.advance(looks[-1])
    assert looks[0] <= POLL_INTERVALS[0] * 1.25
    assert looks[-1] >= POLL_INTERVALS[1] * 0.75
    assert all(later <= earlier * 2.5 + POLL_INTERVALS[0] for earlier, later in pairwise(looks)), "a leap"
    assert max(looks) <= POLL_INTERVALS[1] * 1.25


def test_holders_are_not_read_at_each_try(monkeypatch):
    clock = ManualClock()
    store = open_store("memory://who-holds-it", clock=clock)
    backends = [StoreLockBackend(store, clock, name=name) for name in ("ours", "theirs")]
    asked = []
    locks = MemoryStore.locks

    def noted(self, **given):
        asked.append(given)
        return locks(self, **given)

    monkeypatch.setattr(MemoryStore, "locks", noted)
    try:
        with Lock(lambda: backends[0], "name", ttl="10s", renew=False):
            other = Lock(lambda: backends[1], "name", ttl="10s")
            waiting = backends[1].make_waiter("name")
            for _ in range(10):
                assert backends[1].try_lock(other._request, waiting) is None
            assert len(asked) == 1
            clock.advance(timedelta(seconds=HOLDERS_VALID_FOR))
            assert backends[1].try_lock(other._request, waiting) is None
            assert len(asked) == 2
            assert waiting.seconds_to_retry <= 10
    finally:
        for backend in backends:
            backend.close()


def test_waiter_that_timed_out_leaves_the_queue():
    url = "memory://waited-long-enough"
    held, waits = Lock(url, "name"), Lock(url, "name", blocking_timeout=0.02)
    backend = held._backend()
    assert isinstance(backend, StoreLockBackend)
    got: list[bool] = []
    with held:
        thread = threading.Thread(target=lambda: got.append(waits.acquire()))
        thread.start()
        thread.join(PATIENCE)
        assert got == [False]
        # A notification for a waiter that is gone would be lost to the next.
        assert backend._queue._waiting == {}
