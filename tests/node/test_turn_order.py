"""What all nodes compute alike: who goes when, and who sleeps how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronsensus.node import turn_order
from cronsensus.node.planned import SHARED_FROM, fair_part
from cronsensus.node.situation import Facts, Memory
from cronsensus.node.turn_order import (
    ACTIVE,
    IDLE_STEP,
    IN_TIME,
    LAST_PLACE,
    LONGEST_IDLE,
    POLL_UNTOLD,
    STAGGER,
    TERM,
    idle_until,
    is_active,
    lookout,
    place,
)
from cronsensus.stores.values import Partition
from tests.node.test_decide import view

TERM_BEGINS = datetime(2026, 11, 20, 12, tzinfo=UTC)
CROWD = tuple(f"s{number:02}" for number in range(30))
SECOND = timedelta(seconds=1)
TERMS = [TERM_BEGINS + number * TERM for number in range(20)]


def active(instant: datetime | None) -> set[str]:
    return {one for one in CROWD if is_active(one, CROWD, instant)}


def test_of_many_nodes_a_few_are_active_and_others_in_the_next_term() -> None:
    assert [len(active(instant)) for instant in TERMS] == [ACTIVE] * len(TERMS)
    assert active(TERMS[0]) == active(TERMS[0] + TERM - SECOND)
    assert len({frozenset(active(instant)) for instant in TERMS}) > len(TERMS) / 2
    assert len(active(None)) == ACTIVE


@pytest.mark.parametrize("count", range(1, ACTIVE + 1))
def test_of_few_nodes_all_are_active_even_one_that_a_look_does_not_show_yet(count: int) -> None:
    for instant in TERMS:
        assert all(is_active(one, CROWD[:count], instant) for one in (*CROWD[:count], "new"))


def test_each_node_goes_after_the_one_before_and_the_last_ones_together() -> None:
    for instant in TERMS:
        places = {one: place(one, CROWD, instant) for one in CROWD}
        assert sorted(places.values()) == [*range(LAST_PLACE), *[LAST_PLACE] * (len(CROWD) - LAST_PLACE)]
        assert {one for one in CROWD if places[one] < ACTIVE} == active(instant)


def sleeps(instant: datetime) -> dict[str, timedelta]:
    """Return how long each idle node sleeps."""
    return {one: idle_until(one, CROWD, instant) - instant for one in sorted(set(CROWD) - active(instant))}


def sleeps_without_terms(instant: datetime) -> dict[str, timedelta]:
    """Return how long each would sleep if it never had a term of its own."""
    with pytest.MonkeyPatch.context() as patch:
        idle = set(CROWD) - active(instant)
        patch.setattr(turn_order, "is_active", lambda *_: False)
        return {one: idle_until(one, CROWD, instant) - instant for one in sorted(idle)}


def test_idle_nodes_look_one_after_the_other() -> None:
    steps = [min(number * IDLE_STEP, LONGEST_IDLE) for number in range(1, len(CROWD) - ACTIVE + 1)]
    for instant in TERMS:
        assert sorted(sleeps_without_terms(instant).values()) == steps


@pytest.mark.parametrize("before", [0.3, 0.6, 0.58, 1.0, 2.0, 2.2, 4.5, 9.9])
def test_idle_node_looks_before_its_own_term_begins_and_after_all_that_go_at_once(before: float) -> None:
    sooner = 0
    for term in TERMS:
        instant = term - before * SECOND
        own, anyway = active(term), sleeps_without_terms(instant)
        for one, sleep in sleeps(instant).items():
            if one in own and term - instant < anyway[one]:
                assert sleep == max(LAST_PLACE * STAGGER, term - instant - IN_TIME)
                sooner += 1
            else:
                assert sleep == anyway[one]
    assert sooner


def test_node_looks_in_its_turn_if_no_notification_reaches_it_and_the_others_are_known() -> None:
    assert lookout("a", ("a",), TERM_BEGINS) == POLL_UNTOLD
    assert lookout("new", ("a", "b"), TERM_BEGINS) == POLL_UNTOLD
    assert lookout("a", ("a", "b"), TERM_BEGINS) < POLL_UNTOLD


# --- of many runs that are fired at once ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "part"),
    [
        ({}, SHARED_FROM // 2),
        ({"planned": SHARED_FROM + 1}, SHARED_FROM // 2 + 1),
        ({"room": 3}, 3),
        ({"planned": SHARED_FROM - 1}, 20),
        ({"nodes": 1}, 20),
        ({"nodes": 0}, 20),
        ({"backlog": True}, 20),
        ({"partition": Partition(0, 2)}, 20),
    ],
    ids=["its half", "half of an odd number", "few slots", "few runs", "alone", "a look that shows no node",
         "more waits", "a herd that is shared out"],
)  # fmt: skip
def test_of_many_runs_a_node_claims_a_fair_part(known: dict[str, Any], part: int) -> None:
    given = {"planned": SHARED_FROM, "nodes": 2, "room": 20, "backlog": False, "partition": None} | known
    seen = view(sessions=CROWD[: given["nodes"]], backlog=given["backlog"])
    facts, memory = Facts(session="s00", free=given["room"]), Memory(partition=given["partition"])
    assert fair_part(given["planned"], seen, facts, memory) == part
