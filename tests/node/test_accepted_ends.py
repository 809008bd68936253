"""What a node remembers of the ends that the store has accepted: for how long, how much of it, and which counts."""

from __future__ import annotations

from typing import Any

import pytest

from cronsensus.membership.loss import ENDS_KEPT
from cronsensus.model.ends import End
from cronsensus.model.states import State
from cronsensus.node import accepted_ends
from cronsensus.node.accepted_ends import AcceptedEnds
from cronsensus.testing.conformance.steps import an_end
from cronsensus.timing.clock import ManualClock

FIRST, OTHER = (1, 101), (2, 102)
MOST = 10


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ends(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AcceptedEnds:
    monkeypatch.setattr(accepted_ends, "MOST_TEXT_CHARACTERS", MOST)
    return AcceptedEnds(clock)


def end(number: int = 1, result: str | None = None, state: State = State.SUCCEEDED, **more: Any) -> End:
    return an_end(id=number, token=100 + number, session="s1", state=state, result=result, **more)


def test_end_is_known_for_a_while_and_not_longer(ends: AcceptedEnds, clock: ManualClock) -> None:
    ends.remember_end(FIRST, end())
    clock.advance(ENDS_KEPT)
    ends.remember_end(OTHER, end(2))
    assert ends.keys() == {FIRST, OTHER}
    clock.advance(0.5)
    ends.remember_end((3, 103), end(3))
    assert ends.keys() == {OTHER, (3, 103)}


def test_ends_with_more_text_than_is_kept_make_the_oldest_go(ends: AcceptedEnds) -> None:
    ends.remember_end(FIRST, end(result="123456"))
    ends.remember_end(OTHER, end(2, result="1234"))
    assert ends.keys() == {FIRST, OTHER}
    ends.remember_end((3, 103), end(3, result="1"))
    assert ends.keys() == {OTHER, (3, 103)}


def test_more_ends_than_are_kept_make_the_oldest_go(ends: AcceptedEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted_ends, "MOST_ENDS", 2)
    for number in (1, 2, 3):
        ends.remember_end((number, 100 + number), end(number))
    assert ends.keys() == {OTHER, (3, 103)}
    assert not ends.has_ended(1, "s1")


def test_end_with_more_text_than_is_kept_is_not_kept_at_all(ends: AcceptedEnds) -> None:
    ends.remember_end(FIRST, end(result="x" * (MOST + 1)))
    assert ends.keys() == set()
    ends.remember_end(FIRST, end(result="x" * MOST))
    assert ends.keys() == {FIRST}


def test_end_that_is_accepted_again_counts_once_and_from_then_on(ends: AcceptedEnds, clock: ManualClock) -> None:
    ends.remember_end(FIRST, end(result="123456"))
    clock.advance(ENDS_KEPT)
    ends.remember_end(FIRST, end(result="123456"))
    clock.advance(1)
    ends.remember_end(OTHER, end(2))
    assert ends.keys() == {FIRST, OTHER}


def test_end_that_was_taken_is_no_hindrance_when_its_time_is_over(ends: AcceptedEnds, clock: ManualClock) -> None:
    ends.remember_end(FIRST, end())
    assert ends.pop_end(FIRST) == end()
    clock.advance(ENDS_KEPT + 1)
    ends.remember_end(OTHER, end(2))
    assert ends.keys() == {OTHER}


def test_occurrence_is_over_for_the_session_that_ended_it_and_not_where_it_is_tried_again(ends: AcceptedEnds) -> None:
    ends.remember_end(FIRST, end())
    ends.remember_end(OTHER, end(2, state=State.PENDING))
    assert ends.has_ended(1, "s1")
    assert not ends.has_ended(1, "s2")
    assert not ends.has_ended(2, "s1")
