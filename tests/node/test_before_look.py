"""Where one condition of ``decide.before_look`` makes the difference, and a whole round would not show it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from cronsensus.node.backoff import MOST_DOUBLINGS, backoff
from cronsensus.node.decide import FULL, INSTANT, LEAST_DUE, LOOK_AFTER_CLAIM, before_look
from cronsensus.node.pace import GATHER, STALLED, Pace
from cronsensus.node.situation import Facts, Idle, Memory, Todo
from cronsensus.node.turn_order import STAGGER, place
from cronsensus.stores.values import Partition
from tests.node.test_decide import FOUR, NOW, SECOND, foresees, holder, in_place

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
    assert (wait == pytest.approx(LOOK_AFTER_CLAIM)) is spares


IN_IDLE_MODE: dict[str, Any] = {"idle": Idle(until=HERE + 9, watch_at=HERE + 5), "look_at": HERE + 9, "backlog": False}


def test_idle_node_whose_neighbour_is_gone_looks_at_once() -> None:
    asleep = IN_IDLE_MODE | {"idle": Idle(until=HERE + 9, watch_at=HERE), "neighbours": (holder("b"),)}
    assert decided(NO_NEWS | {"gone": frozenset("b")}, asleep)[0].look is not None
    assert sleep(NO_NEWS, asleep) == 0.5


@pytest.mark.parametrize(
    ("facts", "memory"),
    [
        ({"progress_in": 0.0}, IN_IDLE_MODE),
        ({"unsettled": True, "draining": True}, {}),
        ({"unsettled": True, "may_claim": False}, {}),
    ],
    ids=["in idle mode", "draining", "nothing that it can run"],
)
def test_step_that_settles_claims_nothing_for_a_node_that_is_to_take_nothing(
    facts: dict[str, Any], memory: dict[str, Any]
) -> None:
    assert decided({"notified": True} | facts, memory)[0] == Todo(settle=True)


def test_notification_for_which_nothing_could_be_claimed_is_looked_for_at_once() -> None:
    for facts in ({"may_claim": False}, {"may_claim": False, "unsettled": True}):
        memory = decided({"notified": True} | facts, NOTHING_WAITS)[1]
        assert before_look(memory, Facts(session="a", free=4), HERE, 0)[0].look is not None


def test_claim_that_no_notification_asked_for_puts_off_no_look() -> None:
    todo, memory = decided({}, LONG_QUEUE | {"looked_at": HERE - 0.495})
    assert todo.want == 4
    assert before_look(memory, Facts(session="a", free=4), HERE + 0.01, 0)[0].look is not None


def test_what_waited_in_a_partition_is_of_no_concern_after_it() -> None:
    assert decided({}, IN_A_HERD | {"waits": True})[0].want == 4
    assert decided({}, {"waits": True})[0].look is not None


def test_reserved_run_may_wait_for_so_long_and_no_longer() -> None:
    reserved: dict[str, Any] = {"free": 0, "reserved": 80, "few_reserved": False}
    assert not decided(reserved | {"reserved_for": STALLED}, LONG_QUEUE)[0].hand_back
    assert decided(reserved | {"reserved_for": STALLED + 0.001}, LONG_QUEUE)[0].hand_back


def test_node_that_reserved_more_than_it_would_now_reserves_nothing_and_takes_nothing_less() -> None:
    slower = LONG_QUEUE | {"pace": Pace(9.0, HERE, 100)}
    todo = decided({"free": 0, "unsettled": True, "reserved": 3, "reserved_for": 0.05}, slower)[0]
    assert todo.settle
    assert todo.reserve == 0


def test_node_does_not_sleep_for_less_than_a_clock_counts() -> None:
    assert sleep(NO_NEWS, NOTHING_WAITS | {"look_at": HERE + 2 * INSTANT}) == 2 * INSTANT
    assert sleep(NO_NEWS, NOTHING_WAITS | {"look_at": HERE + INSTANT}) is None


# --- what was foreseen ------------------------------------------------------------------------------------------------


def heard(session: str, memory: Memory, now: float, **facts: Any) -> tuple[Todo, Memory]:
    """Return what a node does that heard that the job's next time was decided."""
    known: dict[str, Any] = {"free": 4, "news": False, "announced": {1: NOW + SECOND}}
    return before_look(memory, Facts(session=session, **known | facts), now)


def test_first_node_brings_its_plan_whatever_it_heard() -> None:
    memory = foresees(in_place(0), FOUR)
    assert heard(in_place(0), memory, memory.look_at)[0].foreseen


def test_node_whose_round_broke_off_after_its_look_foresees_nothing() -> None:
    for number in (0, 2):
        memory = replace(foresees(in_place(number), FOUR), coming=None)
        todo = heard(in_place(number), memory, memory.look_at)[0]
        assert not todo.foreseen
        assert todo.look is not None


def test_node_that_was_notified_at_its_turn_looks_at_once() -> None:
    memory = foresees(in_place(2), FOUR)
    memory = replace(memory, notified_at=memory.look_at)
    assert heard(in_place(2), memory, memory.look_at, news=True)[0].look is not None


def test_node_that_decided_ahead_before_and_hears_nothing_looks_at_its_turn() -> None:
    memory = replace(foresees(in_place(2), FOUR), decided=NOW)
    assert heard(in_place(2), memory, memory.look_at, announced={})[0].look is not None


def test_node_decides_once_what_it_foresaw_and_looks_if_that_came_to_nothing() -> None:
    memory = foresees(in_place(0), FOUR)
    todo = heard(in_place(0), replace(memory, decided=NOW + SECOND), memory.look_at)[0]
    assert (todo.foreseen, todo.look is None) == (False, False)


def test_node_looks_at_its_turn_if_there_is_another_reason_to_look_by_then() -> None:
    memory = foresees(in_place(0), FOUR)
    assert heard(in_place(0), replace(memory, else_at=memory.look_at + 0.001), memory.look_at)[0].foreseen
    assert heard(in_place(0), replace(memory, else_at=memory.look_at), memory.look_at)[0].look is not None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_node_that_heard_goes_on_to_its_turn_at_the_next_due_time(number: int) -> None:
    sessions, session = next(
        (four, one)
        for four in combinations("abcdefgh", 4)
        for one in four
        if place(one, four, NOW + SECOND) > 1 and place(one, four, NOW + 2 * SECOND) == number
    )
    memory = foresees(session, sessions)
    todo, after = heard(session, memory, memory.look_at)
    lead = memory.lead.seconds if number == 0 else 0.0
    assert after.look_at == pytest.approx(memory.looked_at + 2 + number * STAGGER.total_seconds() - lead)
    assert todo.sleep == after.look_at - memory.look_at
    assert heard(session, memory, memory.look_at - INSTANT)[1] == after, "no clock counts less"
    sooner = heard(session, replace(memory, else_at=memory.look_at + 0.1), memory.look_at)[1]
    assert sooner.look_at == memory.look_at + 0.1, "there is another reason to look by then"
