"""How a lock at a majority decides, vote by vote: three masters that answer as told, and a clock of the test."""

import os
import random
import threading
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cronsensus.errors import StoreUnavailable
from cronsensus.integrations import redlock
from cronsensus.integrations.redlock import AFTER_A_TIE, MOST_TIES, RETRY_INTERVAL, RedlockBackend, RedlockWaiter
from cronsensus.integrations.redlock_client import SLOWEST, Round, Script
from cronsensus.lock import worker_pool
from cronsensus.lock.backend import LockRequest
from cronsensus.lock.lease import Lease
from cronsensus.lock.worker_pool import THREADS
from cronsensus.membership.liveness import started_at
from cronsensus.process.background import Background
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import ManualClock, SystemClock

TTL = timedelta(seconds=10)
PATIENCE = 10.0
NAMES = {
    redlock._TAKE: "take",
    redlock._NOTE: "note",
    redlock._EXTEND: "extend",
    redlock._FREE: "free",
    redlock._LOOK: "look",
}
Answers = Sequence[Any]


class Voters:
    """Three masters. ``answers``: by question, what each says; an exception: why it says nothing; None: not yet."""

    quorum = 2

    def __init__(self) -> None:
        self.urls = [SimpleNamespace(where=f"server {number}") for number in range(3)]
        self.answers: dict[str, list[Answers]] = {}
        self.asked: list[str] = []
        self.questions: list[dict[str, Any]] = []
        self.closed = False

    def __len__(self) -> int:
        return 3

    def ask(self, script: Script, keys: Sequence[bytes], *arguments: bytes, **how: Any) -> Round:
        name = NAMES[script]
        self.asked.append(name)
        self.questions.append({**how, "name": name, "keys": keys, "arguments": arguments})
        given = self.answers.get(name) or [[0, 0, 0]]
        asked = Round(3, how["enough"])
        for number, answer in enumerate(given.pop(0) if len(given) > 1 else given[0]):
            if answer is not None:
                asked.note(number, answer)
        return asked

    def close(self) -> None:
        self.closed = True


class Noted:
    """Stands for the thread that watches."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.timers: list[Any] = []
        self.timer = self

    def monitor_lease(self, lease: object) -> None:
        self.told.append("monitor")

    def drop_lease(self, lease: object) -> None:
        self.told.append("drop")

    def close(self) -> None:
        self.told.append("close")

    def call_after(self, seconds: float, act: Any) -> Any:
        self.timers.append((seconds, act))
        return SimpleNamespace(cancel=lambda: self.told.append("cancel"))


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backend = RedlockBackend(["redis://a", "redis://b", "redis://c"], clock=self.clock)
        self.voters = Voters()
        self.watch = Noted()
        self.backend._masters = self.voters  # type: ignore[assignment]
        self.backend._monitor = self.watch  # type: ignore[assignment]

    def request(self, *, renew: bool = True) -> LockRequest:
        return LockRequest(name="name", ttl=TTL, limit=1, renew=renew, bound=False)

    def takes(self, *votes: Answers, noted: Answers = (1, 1, 1)) -> tuple[Lease | None, list[str]]:
        self.voters.answers = {"take": [*votes], "note": [noted]}
        self.voters.asked.clear()
        return self.backend.try_lock(self.request()), list(self.voters.asked)

    def held(self) -> Lease:
        lease, _ = self.takes([(1, b"7")] * 3)
        assert lease is not None
        self.voters.asked.clear()
        self.watch.told.clear()
        return lease


@pytest.fixture
def scene() -> Scene:
    return Scene()


AWAY = ConnectionError("away")
MINE, THEIRS, OTHERS = (1, b"7"), (0, b"elsewhere 1 2"), (0, b"elsewhere 3 4")


# --- taking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("votes", [[MINE, MINE, MINE], [MINE, (1, b"9"), THEIRS], [MINE, AWAY, (1, b"9")]])
def test_just_a_majority_has_the_lock_under_a_token_above_all_that_they_know(scene, votes):
    lease, asked = scene.takes(votes, noted=[1, 1, 0])
    assert asked == ["take", "note"]
    assert lease is not None
    assert lease.token == (8 if votes[1] == MINE else 10)
    assert scene.watch.told == ["monitor"]
    assert [seconds for seconds, _ in scene.watch.timers] == [TTL.total_seconds() / 3]


@pytest.mark.parametrize(
    ("votes", "noted", "asks"),
    [
        ([MINE, THEIRS, THEIRS], [1, 1, 1], ["take", "free"]),
        ([MINE, MINE, THEIRS], [1, 0, 0], ["take", "note", "free"]),
        ([MINE, MINE, THEIRS], [1, AWAY, AWAY], ["take", "note", "free"]),
    ],
)
def test_redlock_grants_below_a_majority_are_given_back(scene, votes, noted, asks):
    assert scene.takes(votes, noted=noted) == (None, asks)
    assert scene.voters.questions[-1]["arguments"][1] == b""


def test_redlock_acquire_that_took_its_whole_ttl_fails_and_frees(scene, monkeypatch):
    note = scene.voters.ask

    def slow(script: Script, *more: Any, **how: Any) -> Any:
        scene.clock.advance(TTL.total_seconds())
        return note(script, *more, **how)

    monkeypatch.setattr(scene.voters, "ask", slow)
    lease, asked = scene.takes([MINE, MINE, MINE])
    assert lease is None
    assert asked == ["take", "note", "free"]
    assert scene.watch.told == ["monitor", "drop", "cancel"]


@pytest.mark.parametrize("votes", [[MINE, AWAY, AWAY], [THEIRS, AWAY, AWAY]])
def test_without_an_answer_of_a_majority_nothing_can_be_said(scene, votes):
    with pytest.raises(StoreUnavailable, match=r"1 of 3 masters.*nothing can be locked.*server 1 \(away\); server 2"):
        scene.takes(votes)
    assert scene.voters.asked[-1] == "free"


def test_redlock_holders_are_counted_from_the_answers(scene):
    scene.voters.answers = {"take": [[THEIRS, THEIRS, MINE]]}
    _, holders = scene.backend._try(scene.request())
    assert holders == {"elsewhere 1 2": 2}


def test_redlock_lock_of_a_dead_process_is_freed_and_taken(scene, monkeypatch):
    monkeypatch.setattr(redlock, "is_gone", lambda host, pid, started: (host, pid, started) == ("elsewhere", 1, 2))
    lease, asked = scene.takes([THEIRS, THEIRS, OTHERS], [MINE, MINE, MINE])
    assert asked == ["take", "free", "free", "take", "note"]
    assert scene.voters.questions[2]["arguments"] == (b"elsewhere 1 2", b"")
    assert lease is not None
    lease, asked = scene.takes([OTHERS, OTHERS, OTHERS], [MINE, MINE, MINE])
    assert (lease, asked) == (None, ["take", "free"])


def test_a_value_that_names_no_process_is_not_dead(monkeypatch):
    monkeypatch.setattr(redlock, "is_gone", lambda *_: True)
    assert redlock._is_dead("host 1 2 rest")
    for text in ("", "host", "host 1", "host x 2", "host 1 x"):
        assert not redlock._is_dead(text)
    monkeypatch.setattr(redlock, "is_gone", lambda *_: False)
    assert not redlock._is_dead("host 1 2 rest")


def test_after_a_tie_the_next_try_comes_soon_and_later_each_time(scene, monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    waiter = scene.backend.make_waiter("name")
    assert isinstance(waiter, RedlockWaiter)
    tied = [THEIRS, OTHERS, MINE]
    waits = []
    for _ in range(MOST_TIES + 2):
        scene.voters.answers = {"take": [tied]}
        assert scene.backend.try_lock(scene.request(), waiter) is None
        waits.append(waiter.at_most)
    assert waits == [AFTER_A_TIE[1] * 2**ties for ties in (0, 1, 2, 3, 3, 3)]
    scene.voters.answers = {"take": [[THEIRS, THEIRS, MINE]]}
    assert scene.backend.try_lock(scene.request(), waiter) is None
    assert waiter.at_most == RETRY_INTERVAL
    scene.voters.answers = {"take": [[MINE, MINE, MINE]], "note": [[1, 1, 1]]}
    waiter.at_most = 5.0
    assert scene.backend.try_lock(scene.request(), waiter) is not None
    assert waiter.at_most == 5.0
    scene.voters.answers = {"take": [tied]}
    assert scene.backend.try_lock(scene.request(), None) is None


# --- holding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([1, 1, 0], True),
        ([1, AWAY, 1], True),
        ([1, 0, 0], False),
        ([0, AWAY, 0], False),
        ([1, AWAY, 0], None),
        ([AWAY, AWAY, 1], None),
        ([AWAY, AWAY, 0], None),
    ],
)
def test_redlock_free_and_extend_answer_by_majority_or_raise(scene, answers, says):
    lease = scene.held()
    scene.voters.answers = {"free": [answers], "extend": [answers]}
    for act in (lambda: scene.backend.free_lock(lease), lambda: scene.backend.extend_lock(lease, TTL)):
        scene.voters.asked.clear()
        if says is None:
            words = "they do not agree" if 0 in answers and 1 in answers else "nothing can be locked"
            with pytest.raises(StoreUnavailable, match=words):
                act()
        else:
            assert act() is says
    if says is not None:
        assert scene.voters.asked == ["extend"] + ["free"] * (not says)


def test_redlock_holder_is_what_a_majority_says(scene):
    lease = scene.held()
    mine = str(lease.grant).encode()
    for answers, held, somebody in (
        ([mine, mine, None], True, 1),
        ([mine, mine, b"x"], True, 1),
        ([mine, b"x", b"x"], False, 1),
        ([mine, b"x", b""], False, 0),
        ([b"", b"", b""], False, 0),
        ([mine, AWAY, b"x"], False, 0),
    ):
        scene.voters.answers = {"look": [answers]}
        assert scene.backend.is_held(lease) is held
        assert scene.backend.count_holders("name") == somebody
    scene.voters.answers = {"look": [[mine, AWAY, AWAY]]}
    with pytest.raises(StoreUnavailable):
        scene.backend.is_held(lease)
    with pytest.raises(StoreUnavailable):
        scene.backend.count_holders("name")


def test_redlock_round_ends_once_a_majority_is_certain(scene):
    yes, no = 1, 0

    def enough(*answers: Any) -> bool:
        asked = Round(3, lambda _: False)
        for number, answer in enumerate(answers):
            asked.note(number, answer)
        return bool(scene.backend._decided(bool)(asked))

    assert [enough(), enough(yes), enough(yes, yes), enough(yes, no), enough(yes, no, yes)] == [False] * 2 + [
        True,
        False,
        True,
    ]
    assert [enough(no), enough(no, no), enough(AWAY), enough(AWAY, AWAY)] == [False, True, False, True]
    assert [enough(no, AWAY), enough(no, AWAY, no), enough(AWAY, yes), enough(AWAY, yes, yes)] == [False, True] * 2
    lease = scene.held()
    scene.backend.is_held(lease)
    asked = Round(3, lambda _: False)
    asked.note(0, str(lease.grant).encode())
    asked.note(1, str(lease.grant).encode())
    assert scene.voters.questions[-1]["enough"](asked)
    scene.backend.count_holders("name")
    assert not scene.voters.questions[-1]["enough"](asked), "all are asked"
    asked.note(2, b"")
    assert scene.voters.questions[-1]["enough"](asked)
    # Of five masters one has not answered, and it decides.
    scene.voters.quorum = 3
    scene.voters.answers = {"look": [[b"", b"", b""]]}
    scene.backend.is_held(lease)
    asked = Round(5, lambda _: False)
    for number, answer in enumerate((str(lease.grant).encode(), str(lease.grant).encode(), b"somebody", AWAY)):
        asked.note(number, answer)
    assert not scene.voters.questions[-1]["enough"](asked)


# --- renewing ---------------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_until_it_is_lost_or_forgotten(scene, monkeypatch):
    monkeypatch.setattr(redlock, "submit_renewal", lambda act: act())
    lease = scene.held()
    scene.clock.advance(4)
    scene.voters.answers = {"extend": [[1, 1, 1]]}
    scene.watch.timers[-1][1]()
    assert scene.voters.asked == ["extend"]
    assert len(scene.watch.timers) == 2
    lease.mark_lost("somebody has it")
    scene.watch.timers[-1][1]()
    assert scene.backend._renewals == {}
    assert len(scene.watch.timers) == 2
    scene.watch.timers[-1][1]()
    assert len(scene.watch.timers) == 2
    scene.backend.watch_lease(lease)
    scene.backend.forget_lease(lease.ref)
    assert scene.watch.told == ["monitor", "drop"]
    other = scene.held()
    scene.backend.forget_lease(other.ref)
    assert scene.watch.told == ["drop", "cancel"]
    scene.watch.timers[-1][1]()
    assert scene.backend._renewals == {}


def test_a_lease_is_renewed_while_calls_to_other_stores_occupy_all_worker_threads(scene, monkeypatch):
    occupied, go_on, renewed = threading.Barrier(THREADS + 1), threading.Event(), threading.Event()
    monkeypatch.setattr(worker_pool, "_pool", Background("occupied", most=THREADS, log=Logger("cronsensus.lock")))
    lease = scene.held()
    scene.voters.answers = {"extend": [[1, 1, 1]]}
    monkeypatch.setattr(scene.watch, "call_after", lambda *_: renewed.set())

    def wait() -> None:
        occupied.wait(PATIENCE)
        go_on.wait()

    try:
        for _ in range(THREADS):
            worker_pool.submit_act(wait)
        occupied.wait(PATIENCE)
        scene.clock.advance(4)
        scene.watch.timers[-1][1]()
        assert renewed.wait(PATIENCE)
        assert scene.voters.asked == ["extend"]
        assert not lease.lost.is_set()
    finally:
        go_on.set()


def test_redlock_lease_without_renewal_is_not_renewed(scene):
    scene.voters.answers = {"take": [[MINE] * 3], "note": [[1, 1, 1]]}
    assert scene.backend.try_lock(scene.request(renew=False))
    assert scene.watch.timers == []


# --- the backend itself -----------------------------------------------------------------------------------------------


def test_redlock_backend_names_its_process_and_has_a_clock(scene):
    assert scene.backend.clock is scene.clock
    backend = RedlockBackend(["redis://a", "redis://b", "redis://c"])
    assert isinstance(backend.clock, SystemClock)
    assert backend._process.split(" ")[1:] == [str(os.getpid()), str(started_at(os.getpid()))]
    backend.close()


def test_a_process_that_does_not_see_itself_says_so(monkeypatch):
    monkeypatch.setattr(redlock, "started_at", lambda _: None)
    backend = RedlockBackend(["redis://a", "redis://b", "redis://c"])
    assert backend._process.endswith(f" {os.getpid()} 0")
    backend.close()


def test_redlock_close_closes_queue_monitor_and_masters(scene):
    queues: list[str] = []
    scene.backend._queue = SimpleNamespace(close=lambda: queues.append("close"))
    scene.backend.close()
    assert (queues, scene.watch.told, scene.voters.closed) == (["close"], ["close"], True)


def test_times_are_sent_in_milliseconds_and_answers_waited_for_in_proportion():
    assert redlock._millis(timedelta(seconds=2)) == b"2000"
    assert redlock._millis(timedelta(microseconds=1)) == b"1"
    assert redlock._patience(timedelta(seconds=1)) == 0.25
    assert redlock._patience(timedelta(seconds=100)) == SLOWEST
