"""How a key is waited for, step by step: claims that answer as told, and a clock that moves while one waits."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cronsensus.errors import ConfigurationError, StoreUnavailable
from cronsensus.lock.drive import Pause
from cronsensus.lock.waiter import HOLDER_CHECK_INTERVAL
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.once import acquiring as module
from cronsensus.once.acquiring import (
    FIRST_PAUSE,
    GROWTH,
    LONGEST_PAUSE,
    POLL_IN_QUEUE,
    _Waiting,
    acquire,
    release_claim,
)
from cronsensus.once.call_key import CallKey
from cronsensus.once.waiters import JOIN_AFTER
from cronsensus.outside.owned_claim import OwnedClaim, Ticket
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import LEASE, START, a_session
from cronsensus.testing.conformance.steps import win_named
from cronsensus.timing.clock import ManualClock

SPEC = JobSpec(name="once:work", function="work")
WANTED = CallKey(SPEC, "k")


class Waiter:
    nap = HOLDER_CHECK_INTERVAL

    def __init__(self) -> None:
        self.joined = 0
        self.error: Exception | None = None

    def join_queue(self) -> None:
        self.joined += 1
        if self.error is not None:
            raise self.error


class Fake:
    """Claims and their waiters in one; says what it is told to, and notes what is done."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.told: list[tuple[Any, ...]] = []
        self.takes: list[Any] = []
        self.looks: list[Any] = []
        self.waiter = Waiter()
        self.waiters = self
        self.can_be_notified = True
        self.views: list[SessionView | None] = []
        self.buries = False
        self.gone = False
        self.circle = False

    def acquire_claim(self, wanted: CallKey, ticket: Ticket) -> Any:
        self.told.append(("take",))
        return self.takes.pop(0)

    def read_occurrence(self, wanted: CallKey) -> Any:
        self.told.append(("look", wanted.key))
        return self.looks.pop(0)

    def note_waiting(self, chain: Any, name: Any) -> None:
        self.told.append(("waits", chain, name))
        if self.circle:
            raise ConfigurationError("a circle")

    def end_waiting(self, chain: Any, name: Any) -> None:
        self.told.append(("waits no more", chain, name))

    def add_waiter(self, occurrence: int) -> Waiter:
        self.told.append(("add", occurrence))
        return self.waiter

    def remove_waiter(self, waiter: Waiter, *, pass_on: bool) -> None:
        self.told.append(("get up", pass_on))

    def find_session(self, session: str | None) -> SessionView | None:
        self.told.append(("holder", session))
        return self.views.pop(0)

    def reclaim_if_dead(self, session: SessionView | None) -> bool:
        self.told.append(("reclaim_if_dead", None if session is None else session.id))
        return self.buries

    def is_gone(self, session: SessionView | None) -> bool:
        return self.gone

    def settle_unneeded(self, held: OwnedClaim) -> None:
        self.told.append(("let go", held))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [one for one in self.told if one[0] in names]


@pytest.fixture
def claims() -> Fake:
    return Fake()


@pytest.fixture
def running() -> Occurrence:
    """Return an occurrence that the session s1 runs."""
    store = MemoryStore("memory://", clock=ManualClock(START))
    store.define_jobs([SPEC], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    assert win_named(store, "s1", SPEC.name, key="k", lease=LEASE)
    return store.occurrences(OccurrenceFilter(), limit=1)[0]


@pytest.fixture
def view() -> SessionView:
    store = MemoryStore("memory://", clock=ManualClock(START))
    store.open_session(a_session("s1"), lease=LEASE)
    return store.sessions()[0]


def held() -> OwnedClaim:
    return object.__new__(OwnedClaim)


def talk(flow: Any, claims: Fake, *, pauses: list[float] | None = None, told: Callable[[], bool] = bool) -> Any:
    """Carry a flow on: do what is to be done, and let time pass where it pauses."""
    answer: Any = None
    while True:
        try:
            step = flow.send(answer)
        except StopIteration as end:
            return end.value
        if isinstance(step, Pause):
            if pauses is not None:
                pauses.append(step.seconds)
            claims.clock.advance(math.ceil(step.seconds * 1e6) / 1e6)  # or rests too small for it never pass
            answer = told()
        else:
            answer = step()


def win(claims: Fake, patience: float | None = None, **more: Any) -> Any:
    return talk(acquire(claims, WANTED, Ticket(), patience, **more), claims)  # type: ignore[arg-type]


# --- the way to a key -------------------------------------------------------------------------------------------------


def test_acquire_of_a_free_final_or_pruned_key_does_not_wait(claims, running):
    for answer in (held(), replace(running, state=State.SUCCEEDED), None):
        claims.takes = [answer]
        assert win(claims) is answer
    assert claims.told == [("take",)] * 3


def test_waiting_call_is_noted_and_acquires_a_freed_key(claims, running, view):
    mine = held()
    claims.takes, claims.looks, claims.views = [running, mine], [replace(running, state=State.PENDING)], [view]
    assert win(claims, chain=(("job", "a"),)) is mine
    assert claims.told == [
        ("take",),
        ("add", running.id),
        ("waits", (("job", "a"),), ("once:work", "k")),
        ("holder", "s1"),
        ("reclaim_if_dead", "s1"),
        ("look", "k"),
        ("take",),
        ("get up", False),
        ("waits no more", (("job", "a"),), ("once:work", "k")),
    ]


@pytest.mark.parametrize("end", ["final", "gone", "gone and taken"])
def test_waiting_call_gets_the_recorded_result(claims, running, view, end):
    over = replace(running, state=State.SUCCEEDED)
    taken = {"final": [running], "gone": [running, over], "gone and taken": [running, running]}[end]
    claims.takes, claims.views = taken, [view]
    claims.looks = [over] if end == "final" else [None, over]
    assert win(claims) is over
    assert claims.of("get up", "waits no more") == [("get up", True), ("waits no more", (), ("once:work", "k"))]


@pytest.mark.parametrize("buried", [held(), None, "still"])
def test_key_of_a_dead_process_is_acquired_at_once(claims, running, view, buried):
    claims.buries = True
    answer = running if buried == "still" else buried
    claims.takes, claims.views, claims.looks = [running, answer], [view], [replace(running, state=State.FAILED)]
    found = win(claims)
    if buried == "still":
        assert found.state is State.FAILED
    else:
        assert found is buried
        assert claims.of("look") == []


@pytest.mark.parametrize(("patience", "looks"), [(0.0, 0), (0.001, 1)])
def test_call_without_patience_returns_what_runs_and_is_noted_only_if_it_waits(claims, running, view, patience, looks):
    claims.takes, claims.views, claims.looks = [running], [view], [running]
    assert win(claims, patience) is running
    assert len(claims.of("look")) == looks
    assert len(claims.of("waits")) == looks
    assert claims.of("get up") == [("get up", True)]


def test_circle_of_calls_leaves_no_waiter(claims, running, monkeypatch):
    acts: list[Any] = []
    monkeypatch.setattr(module, "submit_act", acts.append)
    claims.takes, claims.circle = [running], True
    with pytest.raises(ConfigurationError):
        win(claims)
    assert claims.told[-1][0] == "waits no more"
    [act] = acts
    act()
    assert claims.told[-1] == ("get up", True)


def test_wait_that_ends_in_order_submits_no_cleanup(claims, running, view, monkeypatch):
    acts: list[Any] = []
    monkeypatch.setattr(module, "submit_act", acts.append)
    claims.takes, claims.views, claims.looks = [running], [view], [replace(running, state=State.FAILED)]
    win(claims)
    assert acts == []


def test_abandoned_wait_gives_back_only_its_own_claim(claims, running):
    release_claim(running, claims)
    release_claim(None, claims)
    assert claims.told == []
    mine = held()
    release_claim(mine, claims)
    assert claims.told == [("let go", mine)]


# --- one wait ---------------------------------------------------------------------------------------------------------


def waiting(claims: Fake, running: Occurrence, patience: float | None = None, should_stop: Any = None) -> _Waiting:
    made = _Waiting(claims, running, patience, should_stop)  # type: ignore[arg-type]
    claims.told.clear()
    return made


def test_wait_is_over_at_its_timeout_and_when_it_is_called_off(claims, running):
    wait = waiting(claims, running, 2.0)
    claims.clock.advance(1.5)
    before = wait.is_over
    claims.clock.advance(0.5)
    assert (before, wait.is_over) == (False, True)
    off = [False]
    wait = waiting(claims, running, None, lambda: off[0])
    before = wait.is_over
    off[0] = True
    assert (before, wait.is_over) == (False, True)


def test_holder_is_read_again_only_when_it_may_have_changed(claims, running, view):
    wait = waiting(claims, running)
    assert wait.is_free(replace(running, state=State.PENDING))
    assert claims.told == []
    claims.views = [view, view, view, None, view]
    for after, session, reads in ((0, "s1", 1), (9, "s1", 0), (1, "s1", 1), (0, "s2", 1), (0, "s1", 1), (0, "s1", 1)):
        claims.told.clear()
        claims.clock.advance(after)
        assert not wait.is_free(replace(running, session=session))
        assert claims.of("holder") == [("holder", session)] * reads
        assert len(claims.of("reclaim_if_dead")) == 1


def news(wait: _Waiting, claims: Fake, told: Callable[[], bool] = bool) -> list[float]:
    pauses: list[float] = []
    talk(wait.wait_for_reason(), claims, pauses=pauses, told=told)
    return pauses


def test_wait_backs_off_until_it_joins_the_queue(claims, running):
    wait = waiting(claims, running)
    pauses = []
    while claims.clock.monotonic() < wait._joins_at:
        pauses.append(sum(news(wait, claims)))
    assert pauses[:4] == pytest.approx([FIRST_PAUSE * GROWTH**number for number in range(4)], abs=1e-4)
    assert claims.waiter.joined == 0
    assert news(wait, claims) == []
    assert claims.waiter.joined == 1
    assert sum(news(wait, claims)) == pytest.approx(POLL_IN_QUEUE, abs=1e-4)
    assert news(wait, claims, told=lambda: True)
    assert news(wait, claims) == [], "who was told is out of the line, and stands again"
    assert claims.waiter.joined == 2


def test_waiting_call_without_notifications_polls_four_times_a_second(claims, running):
    claims.can_be_notified = False
    wait = waiting(claims, running)
    for _ in range(40):
        news(wait, claims)
    assert sum(news(wait, claims)) == pytest.approx(LONGEST_PAUSE, abs=1e-4)
    assert claims.waiter.joined == 0


def test_wait_joins_the_queue_on_time_and_not_again_after_an_error(claims, running):
    wait = waiting(claims, running)
    claims.clock.advance(JOIN_AFTER)
    wait._joins_at = claims.clock.monotonic()
    claims.waiter.error = StoreUnavailable("away")
    assert news(wait, claims) == []
    assert claims.waiter.joined == 1
    assert news(wait, claims) == pytest.approx([FIRST_PAUSE])
    assert claims.waiter.joined == 1


def test_wait_naps_and_does_not_outlast_its_timeout(claims, running):
    claims.can_be_notified = False
    wait = waiting(claims, running, 1.0)
    wait._pause = LONGEST_PAUSE
    claims.clock.advance(0.9)
    assert sum(news(wait, claims)) == pytest.approx(0.1)
    wait = waiting(claims, running)
    wait._has_joined = True
    pauses = news(wait, claims)
    assert sum(pauses) == pytest.approx(POLL_IN_QUEUE, abs=1e-4)
    assert max(pauses) == pytest.approx(min(HOLDER_CHECK_INTERVAL, POLL_IN_QUEUE))
    assert all(pause > 0 for pause in pauses)


@pytest.mark.parametrize("why", ["called off", "gone"])
def test_wait_ends_its_nap_when_there_is_a_reason_to_look(claims, running, why):
    off = [False]
    wait = waiting(claims, running, None, lambda: off[0])
    wait._has_joined = True

    def happens() -> bool:
        off[0], claims.gone = why == "called off", why == "gone"
        return False

    assert len(news(wait, claims, told=happens)) == 1
    assert wait._has_joined
