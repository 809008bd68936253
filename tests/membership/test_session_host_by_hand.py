"""The session of locks and guarded calls, turned by hand: when it is opened, trusted, closed, and what its end ends."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from cronsensus.errors import SchemaMismatch, StoreEmptied, StoreError, StoreUnavailable
from cronsensus.membership import session_host as module
from cronsensus.membership.heartbeat import LONGEST_WAIT, SHORTEST_WAIT
from cronsensus.membership.lease import IDLE_LEASE, UNTRUSTED_SHARE, LeaseRequest
from cronsensus.membership.renewer import IDLE_RENEWAL
from cronsensus.membership.session_host import IDENTIFY_AFTER, IDENTIFY_AGAIN, IDLE_FOR, JOIN_WITHIN, SessionHost
from cronsensus.model.ids import new_id
from cronsensus.model.ledger import STORE_EMPTIED, Identity
from cronsensus.process.logger import flush
from cronsensus.stores import open_store
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.snapshots import Snapshot, restore_snapshot
from cronsensus.timing.clock import ManualClock

PATIENCE = 60.0
IDLE = IDLE_RENEWAL.total_seconds()
TRUST = IDLE_LEASE.total_seconds() * (1 - UNTRUSTED_SHARE)


class ByHand:
    """A heartbeat without a thread."""

    def __init__(self) -> None:
        self.members: list[object] = []
        self.joined: list[float] = []
        self.soon: list[float] = []
        self.wakes = 0

    def add_member(self, member: object) -> None:
        self.members.append(member)

    def remove_member(self, member: object) -> Callable[[float], None]:
        if member in self.members:
            self.members.remove(member)
        return self.joined.append

    def beat_within(self, seconds: float) -> None:
        self.soon.append(seconds)

    def beat_in(self, seconds: float) -> None:
        self.soon.append(seconds)

    def wake_thread(self) -> None:
        self.wakes += 1


class Faulty(MemoryStore):
    """Counts what it is asked, and raises what it is told to."""

    asked: list[str]
    raises: dict[str, StoreError]

    def _note(self, verb: str) -> None:
        self.asked.append(verb)
        if verb in self.raises:
            raise self.raises[verb]

    def open_session(self, *given: Any, **named: Any) -> Any:
        self._note("open_session")
        return super().open_session(*given, **named)

    def renew(self, *given: Any, **named: Any) -> Any:
        self._note("renew")
        return super().renew(*given, **named)

    def close_session(self, *given: Any, **named: Any) -> Any:
        self._note("close_session")
        return super().close_session(*given, **named)

    def identity(self) -> Identity | None:
        self._note("identity")
        return super().identity()


class Held:
    """A lock of a session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.lost: list[str] = []

    def renew_when_due(self, store: object) -> float:
        return 10.0

    def mark_lost(self, why: str) -> None:
        self.lost.append(why)


class Scene:
    def __init__(self, *, stop: bool = False) -> None:
        self.clock = ManualClock()
        self.store = Faulty(clock=self.clock)
        self.store.asked, self.store.raises = [], {}
        self.store.migrate()
        self.beat = ByHand()
        heartbeat: Any = self.beat
        self.listed: list[tuple[str, Any]] = []
        self.host = SessionHost(
            self.store, self.clock, name="here", heartbeat=heartbeat, stop=stop, on_listed=self._on_listed
        )

    def _on_listed(self, session: str, held: Any, asked: LeaseRequest) -> None:
        self.listed.append((session, held))

    def hold(self) -> Held:
        held = Held(self.host.pin_session().session)
        self.host.add_resource(held, 10.0)
        self.host.unpin_session()
        return held

    def renew(self, seconds: float = 0.0) -> float:
        self.clock.advance(seconds)
        return self.host.renew(self.store)

    def empty(self) -> None:
        restore_snapshot(self.store, Snapshot({}, {}))
        self.store._space.identity = Identity(new_id(), self.store.now())

    def open(self) -> list[str]:
        return [one.id for one in self.store.sessions() if one.ended_at is None]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.store.raises = {}
    made.host.close()


@pytest.fixture
def stopping() -> Iterator[Scene]:
    made = Scene(stop=True)
    yield made
    made.store.raises = {}
    made.host.close()


def test_host_is_idle_while_nothing_is_held_or_about_to_be(scene: Scene) -> None:
    assert scene.host.is_idle
    lease = scene.host.pin_session()
    idle = [scene.host.is_idle]
    scene.host.add_resource(held := Held(lease.session), 1.0)
    scene.host.unpin_session()
    idle.append(scene.host.is_idle)
    scene.host.discard_resource(held)
    assert [*idle, scene.host.is_idle] == [False, False, True]
    assert scene.beat.members == [scene.host]


def test_pin_that_opens_no_session_leaves_nothing_pinned(scene: Scene) -> None:
    scene.store.raises = {"open_session": StoreUnavailable("away")}
    with pytest.raises(StoreUnavailable):
        scene.host.pin_session()
    assert scene.host.is_idle


def test_what_is_held_is_lost_when_the_store_calls_the_session_dead(scene: Scene) -> None:
    by_a_verb = scene.hold()
    scene.host.session_ended(scene.host.pin_session())
    scene.host.unpin_session()
    assert by_a_verb.lost == ["its session was ended"]
    by_a_renewal = scene.hold()
    scene.store.close_session(by_a_renewal.session)
    scene.renew(IDLE)
    assert by_a_renewal.lost == ["its session was ended"]
    assert scene.host.is_idle


def test_what_is_held_is_lost_when_another_session_is_opened_after_the_end_of_trust(scene: Scene) -> None:
    held = scene.hold()
    scene.clock.advance(TRUST)
    other = scene.hold()
    assert held.lost == ["its session could not be renewed in time"]
    assert other.session != held.session
    assert other.lost == []


def test_session_that_is_renewed_after_the_end_of_trust_is_watched_again(scene: Scene) -> None:
    first = scene.hold()
    scene.clock.advance(TRUST)
    scene.host.monitor._check_lease()
    assert first.lost
    held = Held(first.session)
    scene.host.add_resource(held, 1.0)
    scene.renew()
    scene.host.monitor._check_lease()
    assert held.lost == []
    scene.clock.advance(TRUST)
    scene.host.monitor._check_lease()
    assert held.lost == ["its session could not be renewed in time"]


def test_runs_that_the_store_lists_are_told_where_it_does_list_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = scene.hold()
    scene.renew(IDLE)
    assert scene.listed == [(held.session, ())]
    renew = MemoryStore.renew
    monkeypatch.setattr(MemoryStore, "renew", lambda *given, **named: unlisted(renew(*given, **named)))
    scene.renew(IDLE)
    assert len(scene.listed) == 1


def unlisted(renewal: Any) -> Any:
    return replace(renewal, held=None)


# --- closed when it is not needed -------------------------------------------------------------------------------------


def test_session_that_is_not_needed_is_closed_after_a_while_and_neither_watched_nor_renewed(scene: Scene) -> None:
    lease = scene.host.pin_session()
    scene.host._loss._session = lease.session
    assert scene.renew(IDLE_FOR) == pytest.approx(IDLE - IDLE_FOR), "it is pinned"
    scene.host.unpin_session()
    assert scene.renew(20) == pytest.approx(IDLE_FOR - 20)
    assert scene.open() == [lease.session]
    assert scene.renew(IDLE_FOR - 20) == LONGEST_WAIT
    assert scene.open() == []
    assert scene.beat.members == []
    assert scene.host not in scene.host.monitor._watched
    asked = len(scene.store.asked)
    assert scene.renew(IDLE) == LONGEST_WAIT
    assert len(scene.store.asked) == asked


def test_session_that_is_not_needed_is_renewed_until_it_is_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_FOR", 10 * IDLE)
    lease = scene.host.pin_session()
    scene.host._loss._session = lease.session
    scene.host.unpin_session()
    assert scene.renew(IDLE - 1) == pytest.approx(1)
    assert "renew" not in scene.store.asked
    assert scene.renew(1) == pytest.approx(IDLE)
    assert "renew" in scene.store.asked


def test_close_ends_the_session_and_ignores_what_is_answered_later(scene: Scene) -> None:
    held = scene.hold()
    renewer = scene.host._renewer
    assert renewer is not None
    scene.host.close()
    assert held.lost == ["this process let go of its session"]
    assert scene.open() == []
    assert scene.beat.joined == [JOIN_WITHIN]
    assert scene.host.monitor.timer.closed
    renewer.request_renewal()
    renewer.renew(scene.store)
    assert "renew" not in scene.store.asked


@pytest.mark.parametrize(("ends", "holds"), [(True, True), (False, True), (False, False), (True, False)])
def test_close_says_that_something_stays_held_where_the_store_does_not_answer(
    scene: Scene,
    ends: bool,
    holds: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if holds:
        scene.hold()
    else:
        scene.host.pin_session()
    monkeypatch.setattr(module, "ended_within", lambda seconds, do: ends)
    scene.host.close()
    flush(60)
    assert ("the store does not answer" in caplog.text) == (holds and not ends)


def test_process_that_ends_closes_its_sessions_and_a_forked_child_leaves_them_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_all", WeakSet())
    monkeypatch.setattr(module, "_of_the_parent", [])
    scenes = Scene(), Scene()
    for one in scenes:
        one.hold()
    assert set(module._all) == {one.host for one in scenes}
    module._in_child()
    assert not module._all
    assert set(module._of_the_parent) == {one.host for one in scenes}, "the parent alone closes what it opened"
    module._at_exit()
    assert all(len(one.open()) == 1 for one in scenes)
    module._all.update(one.host for one in scenes)
    module._at_exit()
    assert not any(one.open() for one in scenes)


PROCESS = """
import os, sys
from cronsensus.timing.clock import SystemClock
from cronsensus.membership.session_host import SessionHost
from cronsensus.stores import open_store

store = open_store(sys.argv[1])
store.migrate()
host = SessionHost(store, SystemClock(), name="here")
host.pin_session()
if not os.fork():
    sys.exit()
os.wait()
print(len(store.sessions()))
"""


def test_session_ends_with_its_process_and_not_with_a_forked_child_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS, url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == "1\n"
    store = open_store(url)
    assert store.sessions() == []
    store.close()


# --- an emptied store -------------------------------------------------------------------------------------------------


def test_store_is_asked_which_it_is_a_while_after_the_session_was_opened(scene: Scene) -> None:
    assert scene.host._check_store(scene.store) == LONGEST_WAIT, "there is no session"
    lease = scene.host.pin_session()
    assert scene.host._check_store(scene.store) == IDENTIFY_AFTER
    assert "identity" not in scene.store.asked
    scene.clock.advance(IDENTIFY_AFTER)
    assert scene.host._check_store(scene.store) == LONGEST_WAIT
    assert scene.store.asked.count("identity") == 1
    assert scene.host._check_store(scene.store) == LONGEST_WAIT
    assert scene.store.asked.count("identity") == 1
    lease.mark_lost()
    scene.host._loss._session = ""
    assert scene.host._check_store(scene.store) == LONGEST_WAIT, "it is over"
    scene.host.close()
    assert scene.host._check_store(scene.store) == LONGEST_WAIT, "it is gone"
    assert scene.store.asked.count("identity") == 1


def test_store_that_cannot_say_which_it_is_is_asked_again_and_missing_tables_are_a_sign(stopping: Scene) -> None:
    first = stopping.hold()
    stopping.host._loss._session = "before"
    stopping.store.raises = {"identity": StoreUnavailable("away")}
    stopping.clock.advance(IDENTIFY_AFTER)
    assert stopping.host._check_store(stopping.store) == IDENTIFY_AGAIN
    assert first.lost == []
    stopping.store.raises = {"identity": SchemaMismatch("no tables")}
    assert stopping.host._check_store(stopping.store) == IDENTIFY_AGAIN
    assert first.lost == ["the store was emptied"]


def test_loss_that_is_found_is_told_to_the_store_and_soon(scene: Scene) -> None:
    scene.hold()
    scene.renew(IDENTIFY_AFTER)
    scene.empty()
    scene.clock.advance(TRUST)
    scene.hold()
    scene.clock.advance(IDENTIFY_AFTER)
    assert scene.host._check_store(scene.store) == SHORTEST_WAIT
    scene.host._check_store(scene.store)
    assert [entry.action for entry in scene.store.trail(target="")].count(STORE_EMPTIED) == 1


def test_missing_tables_end_the_trust_in_the_session_and_all_that_it_holds(stopping: Scene) -> None:
    held = stopping.hold()
    lease = stopping.host.pin_session()
    stopping.host.store_failed(SchemaMismatch("no tables"))
    assert not lease.is_trusted
    assert held.lost == ["the store was emptied"]
    asked = len(stopping.store.asked)
    with pytest.raises(StoreEmptied):
        stopping.host.pin_session()
    assert len(stopping.store.asked) == asked, "no session is opened that nothing would use"


def test_missing_tables_at_the_opening_of_a_session_refuse_it(stopping: Scene) -> None:
    stopping.hold()
    stopping.clock.advance(TRUST)
    stopping.store.raises = {"open_session": SchemaMismatch("no tables")}
    with pytest.raises(StoreEmptied):
        stopping.host.pin_session()


def test_session_that_was_opened_in_another_store_is_closed_and_the_loss_told(stopping: Scene) -> None:
    stopping.hold()
    stopping.empty()
    stopping.clock.advance(TRUST)
    with pytest.raises(StoreEmptied):
        stopping.host.pin_session()
    assert stopping.open() == []
    assert [entry.action for entry in stopping.store.trail(target="")].count(STORE_EMPTIED) == 1


def test_what_is_held_from_now_on_is_renewed_when_it_wants_to_be(scene: Scene) -> None:
    scene.hold()
    assert scene.beat.soon[-1] == 10.0


def test_verify_soon_has_the_session_renewed_now(scene: Scene) -> None:
    scene.host.verify_soon()
    scene.hold()
    scene.beat.soon.clear()
    scene.host.verify_soon()
    assert scene.beat.soon == [0.0]
    scene.renew()
    assert "renew" in scene.store.asked


def test_lease_of_a_host_without_a_session_does_not_end(scene: Scene) -> None:
    assert scene.host.expires_in == LONGEST_WAIT
    scene.host.expire()
    lease = scene.host.pin_session()
    assert scene.host.expires_in == pytest.approx(lease.trusted_for)
    assert timedelta(seconds=scene.host.expires_in) < IDLE_LEASE
