"""What all nodes compute alike: who goes when, and who sleeps how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from cronsensus.node.turn_order import (
    IN_FRONT,
    LAST_STAGGERED_PLACE,
    LATE_STEP,
    LATEST_TURN,
    LOOK_BEFORE_TERM,
    LOOKOUT,
    MOST_TERMS,
    POLL_WITHOUT_NOTIFICATIONS,
    STAGGER,
    SWEEP_EVERY,
    TERM,
    is_in_front,
    next_sweep,
    place_of,
    seconds_to_lookout,
    turn_of,
)

TERM_BEGINS = datetime(2026, 11, 20, 12, tzinfo=UTC)
CROWD = tuple(f"s{number:02}" for number in range(30))
SECOND = timedelta(seconds=1)
LEAD = timedelta(milliseconds=8)
TERMS = [TERM_BEGINS + number * TERM for number in range(20)]


def in_front(instant: datetime | None) -> set[str]:
    return {one for one in CROWD if is_in_front(one, CROWD, instant)}


# --- the order --------------------------------------------------------------------------------------------------------


def test_of_many_nodes_four_are_in_front_for_a_term_and_others_in_the_next() -> None:
    assert [len(in_front(instant)) for instant in TERMS] == [IN_FRONT] * len(TERMS)
    assert in_front(TERMS[0]) == in_front(TERMS[0] + TERM - SECOND)
    assert len({frozenset(in_front(instant)) for instant in TERMS}) > len(TERMS) / 2
    assert len(in_front(None)) == IN_FRONT, "nothing is to come"


@pytest.mark.parametrize("count", [1, IN_FRONT, IN_FRONT + 1, len(CROWD)])
def test_each_node_has_a_place_of_its_own_and_all_come_to_the_same_order(count: int) -> None:
    for instant in TERMS:
        nodes = CROWD[:count]
        assert sorted(place_of(one, nodes, instant) for one in nodes) == list(range(count))


def test_each_of_those_in_front_is_first_now_and_then() -> None:
    first = {one for second in range(9) for one in CROWD if place_of(one, CROWD, TERM_BEGINS + second * SECOND) == 0}
    assert first <= in_front(TERM_BEGINS)
    assert len(first) > 1, "a term has one node do all"


@pytest.mark.parametrize(("count", "front"), [(0, True), (IN_FRONT - 1, True), (IN_FRONT, False)])
def test_node_that_a_look_does_not_show_yet_comes_after_all_that_it_shows(count: int, front: bool) -> None:
    for instant in TERMS:
        assert place_of("new", CROWD[:count], instant) == count
        assert is_in_front("new", CROWD[:count], instant) is front


# --- whose turn it is when --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [timedelta(0), LEAD])
def test_first_node_comes_before_the_due_time_three_right_after_it_and_all_others_half_a_second_apart(
    lead: timedelta,
) -> None:
    steps = [min(number * LATE_STEP, LATEST_TURN) for number in range(1, len(CROWD) - IN_FRONT + 1)]
    for instant in TERMS:  # at the beginning of a term the next one is too far to matter
        turns = sorted(turn_of(one, CROWD, instant, lead=lead) - instant for one in CROWD)
        assert turns == [-lead, STAGGER, 2 * STAGGER, 3 * STAGGER, *steps]


def test_no_node_is_late_where_notifications_do_not_reach_it() -> None:
    for instant in TERMS:
        turns = sorted(turn_of(one, CROWD, instant, hears_notifications=False) - instant for one in CROWD)
        assert turns[:LAST_STAGGERED_PLACE] == [number * STAGGER for number in range(LAST_STAGGERED_PLACE)]
        assert set(turns[LAST_STAGGERED_PLACE:]) == {LAST_STAGGERED_PLACE * STAGGER}


@pytest.mark.parametrize("before", [0.3, 0.52, 0.58, 1.0, 2.2, 4.5, 9.9])
def test_late_node_looks_before_its_own_term_and_after_those_in_front(before: float) -> None:
    sooner = 0
    for term in TERMS:
        instant = term - before * SECOND
        now, then = in_front(instant), in_front(term)
        for one in set(CROWD) - now:
            anyway = min((place_of(one, CROWD, instant) - IN_FRONT + 1) * LATE_STEP, LATEST_TURN)
            after = turn_of(one, CROWD, instant) - instant
            if one in then and term - instant < anyway:
                assert after == max(IN_FRONT * STAGGER, term - instant - LOOK_BEFORE_TERM)
                sooner += 1
            else:
                assert after == anyway
    assert sooner


def test_a_due_time_that_those_in_front_leave_alone_is_seen_every_half_second() -> None:
    for instant in TERMS:
        late = sorted(turn_of(one, CROWD, instant) - instant for one in set(CROWD) - in_front(instant))
        assert late[0] <= LATE_STEP
        assert all(b - a <= LATE_STEP for a, b in pairwise(late)), "a gap in which no node looks"


# --- turns that no due time gives -------------------------------------------------------------------------------------


def test_node_in_front_sees_to_what_is_parked_every_five_seconds_and_each_other_in_its_own_term() -> None:
    for now in (TERM_BEGINS, TERM_BEGINS + TERM - SECOND):
        sweeps = {one: next_sweep(one, CROWD, now) for one in CROWD}
        assert {one for one, at in sweeps.items() if at == now + SWEEP_EVERY} == in_front(now + SWEEP_EVERY)
        assert all(now < at <= now + (MOST_TERMS + 1) * TERM for at in sweeps.values())
        own = [one for one, at in sweeps.items() if at < now + MOST_TERMS * TERM]
        assert all(is_in_front(one, CROWD, sweeps[one]) for one in own)
        assert len(own) > len(CROWD) // 2


@pytest.mark.parametrize("count", [2, 4])
def test_where_nothing_is_told_one_node_looks_a_third_of_a_second_after_the_other(count: int) -> None:
    for now in TERMS:
        turns = sorted(seconds_to_lookout(one, CROWD[:count], now) for one in CROWD[:count])
        assert all(b - a == LOOKOUT for a, b in pairwise(turns))
        assert LOOKOUT / 2 <= turns[0] < turns[-1] <= POLL_WITHOUT_NOTIFICATIONS


def test_node_looks_out_every_two_seconds_if_it_is_alone_or_unknown_and_not_less_often_among_many() -> None:
    assert seconds_to_lookout("a", ("a",), TERM_BEGINS) == POLL_WITHOUT_NOTIFICATIONS
    assert seconds_to_lookout("new", ("a", "b"), TERM_BEGINS) == POLL_WITHOUT_NOTIFICATIONS
    assert all(seconds_to_lookout(one, CROWD, TERM_BEGINS) <= POLL_WITHOUT_NOTIFICATIONS + LOOKOUT / 2 for one in CROWD)


# --- of many runs that are fired at once ------------------------------------------------------------------------------
