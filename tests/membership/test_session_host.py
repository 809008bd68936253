"""A process's session outside of a node: when its thread is woken."""

import threading

from cronsensus.membership import session_host as module
from cronsensus.membership.session_host import SessionHost
from cronsensus.process.interrupts import Event
from cronsensus.stores import open_store
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

PATIENCE = 30.0


class Held:
    """Something that wants to be renewed in a while."""

    def __init__(self, session: str) -> None:
        self.session = session

    def renew_when_due(self, store: Store) -> float:
        return 10.0

    def mark_lost(self, why: str) -> None:
        pass


class Counted(Event):
    """Counts how often it is set, and tells whether somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.waited_for = threading.Event()

    def set(self) -> None:
        self.times += 1
        self.waited_for.clear()
        super().set()

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self.waited_for.set()
        return super().wait(timeout)


def test_a_lock_that_is_taken_and_released_all_the_time_does_not_wake_the_thread_each_time(monkeypatch):
    monkeypatch.setattr(module, "IDENTIFY_AFTER", 0.0)  # or the thread looks in a second which store it is in
    host = SessionHost(open_store("memory://woken"), SystemClock(), name="here")
    host._heartbeat._wake = wake = Counted()
    try:
        kept = Held(host.pin_session().session)
        host._check_store(host.store)
        host.unpin_session()
        for turn in range(20):
            assert wake.waited_for.wait(PATIENCE), "the thread does not come to rest"
            if turn == 1:
                before = wake.times
            host.add_resource(kept, 10.0)
            host.discard_resource(kept)
        assert wake.times == before
    finally:
        host.close()
