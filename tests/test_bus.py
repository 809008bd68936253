"""The thread behind subscribers: when it is there, and in a forked child."""

import os
import threading
import warnings
from queue import SimpleQueue

from cronsensus.bus import Bus
from cronsensus.events import SessionLost
from cronsensus.timing.clock import ManualClock

PATIENCE = 60.0


def an_event(session: str = "s") -> SessionLost:
    return SessionLost(node="me", session=session, runs=())


def test_the_thread_ends_when_there_is_nothing_to_tell_and_comes_back(monkeypatch):
    monkeypatch.setattr("cronsensus.bus.IDLE_SECONDS", 0.01)
    bus, told = Bus(), SimpleQueue[threading.Thread]()
    bus.on("session.lost", lambda _: told.put(threading.current_thread()))
    for _ in range(3):
        bus.emit(an_event())
        thread = told.get(timeout=PATIENCE)
        assert (thread.name, thread.daemon) == ("cronsensus-events", True)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_forked_child_has_the_subscribers_and_nothing_of_what_waits_in_its_parent():
    bus, told = Bus(), SimpleQueue[str]()
    inside, go = threading.Event(), threading.Event()

    def block(event: SessionLost) -> None:
        told.put(event.session)
        inside.set()
        go.wait(PATIENCE)

    bus.on(SessionLost, block)
    bus.emit(an_event("running"))
    assert inside.wait(PATIENCE)
    bus.emit(an_event("waiting"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        bus.forked()
        go.set()
        told.get(block=False)
        bus.emit(an_event("of the child"))
        os._exit(0 if told.get(timeout=PATIENCE) == "of the child" and told.empty() else 1)
    go.set()
    assert os.waitpid(child, 0)[1] == 0
    bus.close(PATIENCE)
    assert [told.get(block=False) for _ in range(2)] == ["running", "waiting"]


def test_drops_are_told_at_once_and_then_once_a_minute_with_all_that_came_since(monkeypatch, caplog):
    monkeypatch.setattr("cronsensus.bus.MOST_WAITING", 1)
    clock, inside, go = ManualClock(), threading.Event(), threading.Event()
    bus = Bus(clock)

    def block(event: SessionLost) -> None:
        inside.set()
        go.wait(PATIENCE)

    bus.on(SessionLost, block)
    bus.emit(an_event())
    assert inside.wait(PATIENCE)
    for _ in range(4):
        bus.emit(an_event())
    clock.advance(61)
    bus.emit(an_event())
    go.set()
    bus.close(PATIENCE)
    from cronsensus.process.logger import flush

    flush(PATIENCE)
    words = [one.getMessage().split(" were")[0] for one in caplog.records if one.name == "cronsensus.events"]
    assert words == ["1 events", "4 events"]
    assert bus.dropped == 4


def test_a_subscriber_that_is_off_and_on_again_is_told_once_and_logged_anew(caplog):
    bus, told = Bus(), []

    def fail(event: SessionLost) -> None:
        told.append(event.session)
        raise ValueError

    for number in range(2):
        bus.on("session.lost", fail)
        bus.on(SessionLost, fail)
        assert bus.has_subscribers(SessionLost)
        bus.emit(an_event(str(number)))
        bus.emit(an_event(str(number)))
        bus.close(PATIENCE)
        assert bus.off("session.lost", fail)
        assert not bus.has_subscribers(SessionLost)
    assert told == ["0", "0", "1", "1"]
    assert len([one for one in caplog.records if one.name == "cronsensus.events"]) == 2
