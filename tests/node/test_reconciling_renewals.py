"""One renewal after the other is compared with what the node holds: what is set right, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cronsensus.membership.lease import SessionLease
from cronsensus.node.accepted_ends import Key
from cronsensus.node.reconciling import MOST_SESSIONS_SHOWN, REQUEST_EVERY, SETTLE_TIME, Reconciling
from cronsensus.timing.clock import ManualClock
from tests.node.views import holder, view

KEY, OTHER = (1, 101), (2, 102)
MINE = "s1"


class Ours:
    """What a node holds, as ``Reconciling`` asks for it."""

    def __init__(self) -> None:
        self.in_doubt = self.has_unsent_ends = False
        self.runs: dict[Key, float] = {}
        self.ended: dict[Key, float] = {}
        self.forgotten_ends: set[Key] = set()
        self.stopped: list[Key] = []
        self.accepted_ends = self

    def accepted_at(self, key: Key) -> float | None:
        return self.ended.get(key)

    def list_open_claims(self) -> set[Key]:
        return set(self.runs)

    def list_held_claims(self, session: str) -> dict[Key, float]:
        return self.runs

    def bound_run_count(self, session: str) -> tuple[int, int]:
        return 2, 3

    def send_again(self, key: Key) -> bool:
        return key not in self.forgotten_ends

    def disown_run(self, key: Key, why: str) -> Any:
        self.stopped.append(key)
        return None if key == OTHER else SimpleNamespace(id=key[0], job="work", attempt=1, claimed_at="then")


class Compared:
    """One session that is compared with what its store says."""

    def __init__(self) -> None:
        self.clock, self.ours = ManualClock(), Ours()
        self.asked = self.woken = 0
        self.adopted: list[set[Key]] = []
        self.signs: list[tuple[str, Any]] = []
        claiming = SimpleNamespace(adopt_runs=lambda _, keys: self.adopted.append(keys))
        self.compare = Reconciling(self.clock, self.ours, claiming, wake=self._wake, request_renewal=self._ask)  # type: ignore[arg-type]
        self.compare.on_forgotten = lambda why, at=None: self.signs.append((why, at))
        self.lease = SessionLease(MINE, self.clock)

    def _wake(self) -> None:
        self.woken += 1

    def _ask(self) -> None:
        self.asked += 1

    def hears(self, *held: Key, after: float = 1.0) -> None:
        """Hear a renewal that is asked so many seconds later."""
        self.clock.advance(after)
        self.compare.compare_held(self.lease, held, self.lease.note_request())

    def judges(self, *held: Key, times: int = 2) -> None:
        for _ in range(times):
            self.hears(*held)
            self.compare.correct_differences(self.lease)

    def looks(self, holds: int, *, alive: bool = True, others: int = 1) -> int:
        """Look; return how many renewals that asks for."""
        before = self.asked
        others_named = tuple(f"o{number}" for number in range(others))
        shown = (replace(holder(MINE), holds=holds),)
        self.compare.compare_view(
            self.lease, view(sessions=(*others_named, *((MINE,) if alive else ())), holders=shown)
        )
        return self.asked - before


def test_renewal_wakes_the_node_only_for_a_difference_or_where_one_is_suspected():
    scene = Compared()
    scene.ours.runs = {KEY: -1.0}
    scene.hears(KEY)
    assert scene.woken == 0
    scene.hears(KEY, OTHER)
    assert scene.woken == 1, "it lists a run that is not here"
    scene.hears()
    assert scene.woken == 2, "it does not list one that is"
    scene.judges(times=1)
    scene.hears(KEY)
    assert scene.woken == 4, "the second renewal clears a suspicion, or confirms it"


def test_run_that_began_while_the_renewal_was_asked_is_not_missing_in_it():
    scene = Compared()
    scene.clock.advance(1)
    for since in (0.0, -1e-6):
        scene.ours.runs = {KEY: scene.clock.monotonic() + since}
        scene.hears(after=0)
        assert scene.woken == (since < 0)


def test_run_that_ended_before_the_renewal_was_asked_is_strange_in_it():
    scene = Compared()
    scene.clock.advance(1)
    for ended in (0.0, -1e-6):
        scene.ours.ended = {KEY: scene.clock.monotonic() + ended}
        scene.hears(KEY, after=0)
        assert scene.woken == (ended < 0)


@pytest.mark.parametrize(
    ("holds", "alive", "others", "asks"),
    [(1, True, 1, 1), (2, True, 1, 0), (3, True, 1, 0), (4, True, 1, 1), (2, False, 1, 1),
     (2, False, MOST_SESSIONS_SHOWN, 0), (2, False, MOST_SESSIONS_SHOWN - 1, 1)],
)  # fmt: skip
def test_look_asks_for_a_renewal_where_it_shows_another_number_of_runs_or_no_session(holds, alive, others, asks):
    assert Compared().looks(holds, alive=alive, others=others) == asks


def test_look_asks_for_no_renewal_too_often_nor_while_the_node_itself_is_behind():
    scene = Compared()
    assert scene.looks(0) == 1
    scene.clock.advance(REQUEST_EVERY - 0.001)
    assert scene.looks(0) == 0
    scene.clock.advance(0.001)
    assert scene.looks(0) == 1
    scene.clock.advance(REQUEST_EVERY)
    for behind in ("in_doubt", "has_unsent_ends"):
        setattr(scene.ours, behind, True)
        assert scene.looks(0) == 0
        setattr(scene.ours, behind, False)
    scene.judges(OTHER, times=1)
    assert scene.looks(0) == 0, "a renewal is asked for already"


def test_difference_in_two_renewals_is_set_right_and_left_alone_for_a_while():
    scene = Compared()
    scene.ours.runs, scene.ours.forgotten_ends = {KEY: -1.0}, {(4, 104)}
    listed = (3, 103), (4, 104)
    scene.judges(*listed)
    assert (scene.ours.stopped, scene.adopted) == ([KEY], [{(4, 104)}])
    assert [at for _, at in scene.signs] == ["then", None]
    scene.clock.advance(SETTLE_TIME - 3)
    scene.ours.runs = {}
    scene.judges(*listed, times=1)
    assert scene.adopted == [{(4, 104)}]
    scene.clock.advance(SETTLE_TIME)
    scene.judges(*listed, times=3)
    assert scene.adopted == [{(4, 104)}] * 2


def test_run_that_ends_while_it_is_disowned_is_no_sign_of_a_loss():
    scene = Compared()
    scene.ours.runs = {OTHER: -1.0}
    scene.judges()
    assert (scene.ours.stopped, scene.signs) == ([OTHER], [])


def test_two_renewals_asked_before_the_first_is_judged_count_as_one():
    scene = Compared()
    scene.ours.runs = {KEY: -1.0}
    scene.judges(times=1)
    scene.hears(after=0)
    scene.compare.correct_differences(scene.lease)
    assert scene.ours.stopped == []
    scene.judges(times=1)
    assert scene.ours.stopped == [KEY]


@pytest.mark.parametrize("how", ["another session", "lost"])
def test_renewal_of_a_session_that_is_over_sets_nothing_right(how):
    scene = Compared()
    scene.ours.runs = {KEY: -1.0}
    scene.judges(times=1)
    scene.hears()
    if how == "lost":
        scene.lease.mark_lost()
    else:
        scene.lease = SessionLease("s2", scene.clock)
    scene.compare.correct_differences(scene.lease)
    assert scene.ours.stopped == []
