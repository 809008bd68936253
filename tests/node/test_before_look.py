"""Where one condition of ``decide.before_look`` makes the difference, and a whole round would not show it."""

from __future__ import annotations

from typing import Any

import pytest

from cronsensus.node.backoff import MOST_DOUBLINGS, backoff
from cronsensus.node.decide import FULL, LEAST_DUE, SPARE, before_look
from cronsensus.node.pace import GATHER, Pace
from cronsensus.node.situation import Facts, Memory, Todo
from cronsensus.stores.values import Partition

HERE = 0.0
LONG_QUEUE: dict[str, Any] = {
    "full": True, "looked_at": HERE - 0.1, "look_at": HERE + 5, "pace": Pace(1000.0, HERE), "stepped_at": HERE - 0.01,
}  # fmt: skip
IN_A_HERD: dict[str, Any] = {"partition": Partition(0, 2), "fired_at": HERE}
NO_NEWS: dict[str, Any] = {"news": False}
NOTHING_WAITS: dict[str, Any] = {"look_at": HERE + 5, "backlog": False}


def decided(facts: dict[str, Any], memory: dict[str, Any], claimed: int | None = None) -> tuple[Todo, Memory]:
    known: dict[str, Any] = {"session": "a", "free": 4, "watch": 0.5}
    return before_look(Memory(**memory), Facts(**known | facts), HERE, claimed)


def sleep(facts: dict[str, Any], memory: dict[str, Any], claimed: int | None = None) -> float | None:
    return decided(facts, memory, claimed)[0].sleep


def test_results_gather_before_a_step_and_not_after_it() -> None:
    reserved: dict[str, Any] = {"free": 0, "reserved": 80, "few_reserved": False, "reserved_for": 0.05}
    assert sleep(reserved, LONG_QUEUE) == pytest.approx(GATHER - 0.01)
    assert sleep(reserved, LONG_QUEUE, claimed=3) == 0.5


def test_what_could_not_be_settled_is_not_settled_again_in_the_same_round() -> None:
    assert decided({"unsettled": True}, {})[0].settle
    assert not decided({"unsettled": True}, {}, claimed=0)[0].settle


@pytest.mark.parametrize(
    ("facts", "todo"),
    [
        ({"in_doubt": True}, Todo(adopt=True)),
        ({"in_doubt": True, "lost": True}, Todo(sleep=0.0)),
        ({"lost": True}, Todo(sleep=0.0)),
        ({"draining": True}, Todo(sleep=0.5)),
        ({"draining": True, "unsettled": True}, Todo(sleep=0.0)),
        ({"draining": True, "progress_in": 0.2}, Todo(sleep=0.2)),
        ({"draining": True, "progress_in": 9.0}, Todo(sleep=0.5)),
    ],
    ids=str,
)
def test_node_that_takes_nothing_new_adopts_or_sleeps(facts: dict[str, Any], todo: Todo) -> None:
    assert decided(facts, {}, claimed=0)[0] == todo


def test_node_without_free_slots_waits_after_a_claim_and_looks_when_it_is_time() -> None:
    overdue = LONG_QUEUE | {"look_at": HERE - 1}
    assert sleep({"free": 0}, overdue, claimed=3) == 0.0
    assert decided({"free": 0}, overdue, claimed=0)[0].look is not None


def test_node_without_news_sleeps_until_its_look_or_until_a_run_has_something_to_say() -> None:
    assert sleep(NO_NEWS, NOTHING_WAITS) == 5.0
    assert sleep(NO_NEWS | {"progress_in": 0.2}, NOTHING_WAITS) == 0.2
    assert sleep(NO_NEWS | {"progress_in": 9.0}, NOTHING_WAITS) == 5.0
    assert decided(NO_NEWS, NOTHING_WAITS, claimed=2)[0].look is not None


def test_node_in_a_herd_fires_more_when_slots_are_free_or_after_a_while() -> None:
    few = {"free": LEAST_DUE - 1}
    assert sleep(few, IN_A_HERD, claimed=0) == FULL
    assert decided({"free": LEAST_DUE}, IN_A_HERD, claimed=0)[0].look is not None
    assert decided(few, IN_A_HERD | {"fired_at": HERE - FULL}, claimed=0)[0].look is not None
    assert [decided(few, IN_A_HERD, claimed=number)[1].waits for number in (0, 1)] == [False, True]


def test_wait_after_very_many_failures_is_the_longest_one() -> None:
    assert backoff(5000, (0.1, 5.0), "a") <= 5.0
    assert backoff(MOST_DOUBLINGS, (0.1, 1e9), "a") <= 0.1 * 2**MOST_DOUBLINGS


@pytest.mark.parametrize(
    ("facts", "memory"),
    [({"few_reserved": True}, {}), ({"in_doubt": True}, {}), ({}, {"alone": True}), ({}, {"full": False})],
    ids=["slots soon free", "claims in doubt", "results alone", "no long queue"],
)
def test_results_do_not_gather_where_a_step_is_wanted_soon(facts: dict[str, Any], memory: dict[str, Any]) -> None:
    reserved: dict[str, Any] = {"free": 0, "reserved": 80, "few_reserved": False, "reserved_for": 0.05}
    assert sleep(reserved | facts, LONG_QUEUE | memory) != pytest.approx(GATHER - 0.01)


@pytest.mark.parametrize(
    ("facts", "memory", "reserves"),
    [
        ({}, {}, True),
        ({"in_doubt": True}, {}, False),
        ({"draining": True}, {}, False),
        ({"may_claim": False}, {}, False),
        ({"given_up": True}, {}, False),
        ({"few_reserved": False}, {}, False),
        ({}, {"full": False}, False),
        ({}, {"partition": Partition(2, 0)}, False),
        ({}, {"looked_at": HERE - 1}, False),
    ],
    ids=str,
)
def test_runs_are_reserved_in_a_long_queue_by_a_node_that_may_take_them(
    facts: dict[str, Any], memory: dict[str, Any], reserves: bool
) -> None:
    results: dict[str, Any] = {"unsettled": True, "free": 0, "may_claim": True, "few_reserved": True}
    todo = decided(results | facts, LONG_QUEUE | {"pace": Pace(1000.0, HERE, 100)} | memory)[0]
    assert todo.settle
    assert bool(todo.reserve) is reserves


@pytest.mark.parametrize(
    ("facts", "memory", "spares"),
    [
        ({}, {}, True),
        ({"free": 0}, {}, False),
        ({"trusted": False}, {}, False),
        ({}, {"partition": Partition(2, 0)}, False),
    ],
    ids=["a claim left slots free", "no slots", "a lease that is not trusted", "a herd"],
)
def test_look_for_a_notification_is_spared_after_a_claim_that_left_slots_free(
    facts: dict[str, Any], memory: dict[str, Any], spares: bool
) -> None:
    notified: dict[str, Any] = {"notified_at": HERE, "look_at": HERE + 5}
    wait = sleep({"free": 4} | facts, notified | memory, claimed=1)
    assert (wait == pytest.approx(SPARE)) is spares
