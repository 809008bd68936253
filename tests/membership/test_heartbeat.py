"""One heartbeat for each store: it renews all sessions of the process there, whatever one of them meets."""

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from cronsensus.membership import heartbeat as module
from cronsensus.membership.heartbeat import BUG_PAUSE, SHORTEST_WAIT, Heartbeat, Resource
from cronsensus.membership.session_host import SessionHost
from cronsensus.process.logger import flush
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock, SystemClock

PATIENCE = 60.0


class Counted(MemoryStore):
    """Counts its siblings, and those that are closed; renewals wait for ``goes_on``."""

    siblings: int
    closed: list[Store]
    registered: list[str | None]
    goes_on: threading.Event
    renewing: threading.Event

    def sibling(self) -> "Counted":
        made = super().sibling()
        self.siblings += 1
        vars(made).update(closed=self.closed, registered=self.registered, goes_on=self.goes_on, renewing=self.renewing)
        return made

    def close(self) -> None:
        self.closed.append(self)

    def register_presence(self, session: str | None) -> None:
        self.registered.append(session)

    def renew(self, *given: Any, **named: Any) -> Any:
        self.renewing.set()
        assert self.goes_on.wait(PATIENCE)
        return super().renew(*given, **named)


def a_store(clock: Any = None) -> Counted:
    store = Counted(clock=clock)
    store.migrate()
    store.siblings, store.closed, store.registered = 0, [], []
    store.goes_on, store.renewing = threading.Event(), threading.Event()
    store.goes_on.set()
    return store


class Member:
    """Notes when it is asked to renew."""

    def __init__(self, *resources: Resource, does: Callable[[], float] = lambda: 30.0) -> None:
        self.held = resources
        self.does = does
        self.renewed = threading.Semaphore(0)
        self.times = 0

    def renew(self, store: Store) -> float:
        self.times += 1
        self.renewed.release()
        return self.does()

    def list_resources(self) -> Collection[Resource]:
        return self.held


class Slow:
    """A lock whose extension takes so many seconds."""

    session = "s"

    def __init__(self, clock: ManualClock, takes: float) -> None:
        self.clock, self.takes = clock, takes

    def renew_when_due(self, store: Store) -> float:
        self.clock.advance(self.takes)
        return 10.0

    def mark_lost(self, why: str) -> None: ...


def beats() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "cronsensus-heartbeat"]


def test_all_members_share_one_thread_and_one_handle_until_the_last_leaves():
    store, before = a_store(), len(beats())
    heartbeat = Heartbeat(store, SystemClock())
    members = [Member() for _ in range(3)]
    for member in members:
        heartbeat.add_member(member)
    for member in members:
        assert member.renewed.acquire(timeout=PATIENCE)
    assert len(beats()) == before + 1
    assert store.siblings == 1
    for member in members[1:]:
        heartbeat.remove_member(member)(PATIENCE)
    assert not store.closed
    heartbeat.remove_member(members[0])(PATIENCE)
    assert len(beats()) == before
    assert store.closed
    again = Member()
    heartbeat.add_member(again)
    assert again.renewed.acquire(timeout=PATIENCE)
    assert store.siblings == 2
    heartbeat.remove_member(again)(PATIENCE)


def test_a_store_that_hangs_costs_no_lease_in_another_one():
    hangs, good, clock = a_store(), a_store(), ManualClock()
    hosts = [SessionHost(hangs, clock, name="hangs"), SessionHost(good, clock, name="good")]
    leases = [host.pin_session() for host in hosts]
    try:
        hangs.goes_on.clear()
        for store in (hangs, good):
            store.renewing.clear()
        clock.advance(300)
        for host in hosts:
            host._heartbeat.wake_thread()
        assert hangs.renewing.wait(PATIENCE)
        assert good.renewing.wait(PATIENCE)
        for _ in range(int(PATIENCE / 0.01)):
            if leases[1].trusted_for > 500:
                break
            threading.Event().wait(0.01)
        assert leases[1].trusted_for > 500
        assert leases[0].trusted_for < 300
    finally:
        hangs.goes_on.set()
        for host in hosts:
            host.unpin_session()
            host.close()


def test_resources_are_lost_at_the_end_of_trust_even_if_the_heartbeat_hangs():
    clock, lost = ManualClock(), threading.Event()
    store = a_store(clock)
    host = SessionHost(store, clock, name="here")

    class Held(Slow):
        def mark_lost(self, why: str) -> None:
            lost.set()

    held = Held(clock, 0.0)
    held.session = host.pin_session().session
    try:
        host.add_resource(held, 10.0)
        store.goes_on.clear()
        store.renewing.clear()
        clock.advance(300)
        host._heartbeat.wake_thread()
        assert store.renewing.wait(PATIENCE)
        clock.advance(239)
        host.monitor.timer.recheck_clock()
        assert not lost.is_set()
        clock.advance(2)
        host.monitor.timer.recheck_clock()
        assert lost.wait(PATIENCE)
    finally:
        store.goes_on.set()
        host.unpin_session()
        host.close()


def test_sessions_are_renewed_also_between_two_of_many_locks():
    clock = ManualClock()
    node, locks = Member(), Member(*[Slow(clock, 0.03) for _ in range(100)])
    heartbeat = Heartbeat(store := a_store(), clock)
    heartbeat._members = {locks: None, node: None}
    assert heartbeat.renew_due(store) > 0
    assert 20 <= node.times <= 30


def test_the_next_beat_is_when_the_first_of_all_wants_it():
    clock = ManualClock()
    heartbeat = Heartbeat(store := a_store(), clock)
    heartbeat._members = dict.fromkeys([Member(does=lambda: 3.0), Member(Slow(clock, 0.05), does=lambda: 7.0)])
    assert heartbeat.renew_due(store) == pytest.approx(2.95)


def test_a_mistake_in_one_renewal_keeps_no_other_from_its_own(caplog):
    def mistaken() -> float:
        raise ZeroDivisionError

    heartbeat, good = Heartbeat(store := a_store(), ManualClock()), Member()
    heartbeat._members = dict.fromkeys([Member(does=mistaken), good])
    assert heartbeat.renew_due(store) == BUG_PAUSE
    flush(PATIENCE)
    assert good.times == 1
    assert "a mistake in cronsensus" in caplog.text


def test_a_session_that_was_left_shows_no_sign_of_life_by_what_else_is_held():
    heartbeat, node, lock = Heartbeat(store := a_store(), SystemClock()), Member(), Member()
    heartbeat.register_presence("node")
    heartbeat.add_member(node)
    heartbeat.add_member(lock)
    assert store.registered == ["node"]
    heartbeat.withdraw_presence("node")
    heartbeat.remove_member(node)
    while lock.renewed.acquire(blocking=False):
        pass
    heartbeat.wake_thread()
    for _ in range(2):  # the beat under way, and the next
        assert lock.renewed.acquire(timeout=PATIENCE)
        heartbeat.wake_thread()
    assert store.siblings == 2
    assert len(store.closed) == 1
    assert store.registered == ["node"]
    heartbeat.remove_member(lock)(PATIENCE)


@pytest.mark.parametrize("call", ["beat_within", "beat_in"])
def test_beat_that_comes_as_soon_anyway_wakes_nobody(call: str):
    heartbeat = Heartbeat(a_store(), clock := ManualClock())
    heartbeat._beats_at = clock.monotonic() + 5
    getattr(heartbeat, call)(5)
    assert not heartbeat._wake.is_set()
    getattr(heartbeat, call)(4)
    assert heartbeat._wake.is_set()


def test_wake_wakes():
    heartbeat = Heartbeat(a_store(), ManualClock())
    heartbeat.wake_thread()
    assert heartbeat._wake.is_set()


def test_member_that_joins_others_is_renewed_at_once():
    heartbeat = Heartbeat(a_store(), ManualClock())
    heartbeat._thread = threading.current_thread()
    heartbeat.add_member(Member())
    assert heartbeat._wake.is_set()


def test_one_that_is_no_member_leaves_a_heartbeat_that_never_began():
    heartbeat = Heartbeat(store := a_store(), ManualClock())
    heartbeat.remove_member(Member())(0)
    assert not heartbeat._wake.is_set()
    assert not store.closed


def test_handle_is_closed_when_the_last_leaves_also_while_the_store_hangs():
    heartbeat, goes_on = Heartbeat(store := a_store(), SystemClock()), threading.Event()
    hanging = Member(does=lambda: 30.0 * goes_on.wait(PATIENCE))
    heartbeat.add_member(hanging)
    assert hanging.renewed.acquire(timeout=PATIENCE)
    heartbeat.remove_member(hanging)(0)
    assert len(store.closed) == 1
    goes_on.set()


def test_handle_is_closed_by_the_thread_where_a_member_leaves_on_it():
    heartbeat = Heartbeat(store := a_store(), SystemClock())

    def leaves() -> float:
        heartbeat.remove_member(member)
        return 30.0

    member = Member(does=leaves)
    heartbeat.add_member(member)
    thread = heartbeat._thread
    assert member.renewed.acquire(timeout=PATIENCE)
    for _ in range(int(PATIENCE / 0.01)):
        if thread is None or not thread.is_alive():
            break
        thread.join(0.01)
    assert len(store.closed) == 1


def test_sign_of_life_is_shown_on_the_handle_that_is_open_already():
    heartbeat = Heartbeat(store := a_store(), SystemClock())
    lock = Member()
    heartbeat.add_member(lock)
    assert store.registered == []
    heartbeat.register_presence("node")
    assert store.registered == ["node"]
    heartbeat.remove_member(lock)(PATIENCE)


def test_thread_that_was_replaced_takes_no_new_handle():
    heartbeat = Heartbeat(store := a_store(), ManualClock())
    heartbeat._anew = True
    assert heartbeat._refresh_handle(store) is store
    assert heartbeat._anew
    heartbeat._thread = threading.current_thread()
    assert heartbeat._refresh_handle(store) is not store
    assert not heartbeat._anew


class Wanting(Slow):
    """A lock that wants to be extended in so many seconds."""

    def __init__(self, wants: float) -> None:
        self.wants = wants

    def renew_when_due(self, store: Store) -> float:
        return self.wants


@pytest.mark.parametrize("wants", [(1.0, 2.0), (2.0, 1.0)])
def test_next_beat_is_when_the_first_of_what_is_held_wants_it(wants: tuple[float, float]):
    heartbeat = Heartbeat(store := a_store(), ManualClock())
    heartbeat._members = {Member(*map(Wanting, wants)): None}
    assert heartbeat.renew_due(store) == pytest.approx(1.0)


def test_beat_that_is_wanted_now_comes_a_moment_later():
    heartbeat = Heartbeat(store := a_store(), ManualClock())
    heartbeat._members = {Member(does=lambda: 0.0): None}
    assert heartbeat.renew_due(store) == pytest.approx(SHORTEST_WAIT)


@pytest.mark.parametrize("calls", [(3.0, 5.0), (5.0, 3.0)])
def test_what_is_taken_between_two_beats_is_renewed_as_soon_as_the_first_of_it_wants(calls: tuple[float, float]):
    heartbeat = Heartbeat(store := a_store(), ManualClock())
    heartbeat._members = {Member(): None}
    for seconds in calls:
        heartbeat.beat_in(seconds)
    assert heartbeat.renew_due(store) == pytest.approx(3.0)
    assert heartbeat.renew_due(store) == pytest.approx(30.0)


@pytest.mark.parametrize(("takes", "times"), [(0.125, 3), (0.12, 2)])
def test_sessions_are_renewed_again_once_locks_took_as_long_as_they_may(
    takes: float, times: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "SESSIONS_EVERY", 0.125)
    clock = ManualClock()
    heartbeat, node = Heartbeat(store := a_store(), clock), Member()
    heartbeat._members = {node: None, Member(Slow(clock, takes), Slow(clock, takes)): None}
    heartbeat.renew_due(store)
    assert node.times == times
