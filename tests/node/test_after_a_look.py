"""Where one condition of what ``decide`` makes of a look, and of what came of its decisions, makes the difference."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronsensus import planning
from cronsensus.model.job import Era, JobState
from cronsensus.model.plan import Plan
from cronsensus.node import decide
from cronsensus.node.backoff import MOST_DOUBLINGS
from cronsensus.node.decide import AFTER_A_LOST_RACE, ANNOUNCE_MIN_NODES, MOST_DUE, POLL
from cronsensus.node.foresight import FEW, FORECAST_OFF_FOR, HORIZON
from cronsensus.node.lead_time import SLACK
from cronsensus.node.situation import NEVER, Facts, Fired, Memory, Todo
from cronsensus.node.turn_order import ACTIVE, STAGGER, SWEEP, is_active, place
from cronsensus.stores.values import AT_ONCE, Partition, View
from cronsensus.triggers import at
from tests.node.test_decide import (
    BOTH,
    CROWD,
    FOUR,
    HERE,
    IDLE,
    LATER,
    MS,
    NOW,
    SECOND,
    WATCH,
    Situation,
    foresees,
    holder,
    in_place,
    job,
    jobs,
    ticking,
    view,
    wins,
)

PARTITION = Partition(0, 2)


def plans(count: int, due_in: timedelta = AT_ONCE) -> tuple[Plan, ...]:
    """Return plans that each make one occurrence."""
    return tuple(planning.plan(job(due_in, number=number), NOW + due_in) for number in range(count))


def learnt(
    seen: View, fired: Fired, memory: dict[str, Any] | None = None, *, free: int = 4, **todo: Any
) -> tuple[bool, Memory]:
    """Return what a node learns that brought the plans that it won, unless ``todo`` says what it did."""
    did = Todo(**{"plans": fired.won} | todo)
    return decide.learn(Memory(**memory or {}), seen, Facts(session="a", free=free), HERE, todo=did, fired=fired)


# --- what a look tells ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wide", "seen", "blind"),
    [(True, view(more=True), True), (False, view(more=True), False), (False, view(*jobs(FEW + 1)), False)],
    ids=["more than a look takes", "more, in a look that went less far", "many, in a look that went less far"],
)
def test_node_foresees_nothing_for_a_while_if_a_look_that_went_far_showed_much(
    wide: bool, seen: View, blind: bool
) -> None:
    assert decide.looked(Memory(wide=wide), seen, HERE, HERE).blind_until == (
        HERE + FORECAST_OFF_FOR if blind else NEVER
    )
    todo, _ = decide.before_look(Memory(blind_until=HERE), Facts(session="a"), HERE)
    assert todo.look is not None
    assert todo.look.ahead == HORIZON, "the while is over"


@pytest.mark.parametrize("sessions", [(), ("a",), CROWD])
def test_node_shares_a_queue_with_all_that_a_look_shows_and_with_itself(sessions: tuple[str, ...]) -> None:
    assert decide.looked(Memory(), view(sessions=sessions), HERE, HERE).nodes == max(1, len(sessions))


@pytest.mark.parametrize(
    ("situation", "follows"),
    [
        (
            Situation(session=LATER, view=view(job(), sessions=BOTH), memory={"expected": NOW + 10 * SECOND}),
            {"fires": ["job-1"], "want": 4},
        ),
        (
            Situation(
                session=LATER,
                view=view(job(), more=True, sessions=BOTH),
                memory={"expected": NOW, "partition": PARTITION},
            ),
            {"partition": PARTITION, "sleep": pytest.approx(STAGGER / SECOND)},
        ),
        (
            Situation(view=view(job(), job(5 * MS), more=True, sessions=BOTH), facts={"told": False}),
            {"partition": PARTITION, "sleep": 0.0},
        ),
        (
            Situation(view=view(job(5 * MS), more=True, sessions=BOTH), facts={"told": False, "free": 0}),
            {},
        ),
        (
            Situation(session=LATER, view=view(backlog=True, sessions=BOTH), memory={"expected": NOW}),
            {"sleep": pytest.approx(STAGGER / SECOND)},
        ),
        (
            Situation(session=LATER, view=view(sessions=BOTH), memory={"expected": NOW}),
            {"sleep": POLL},
        ),
    ],
    ids=[
        "something is due that was not expected now",
        "a partition, and an earlier node goes first",
        "more is due than a look takes that went less far",
        "more comes due soon than a look takes, and nothing is due",
        "what waits is left to an earlier node",
        "an earlier node has done it",
    ],
)
def test_each_situation_leads_to_its_decision(situation: Situation, follows: dict[str, Any]) -> None:
    found = situation.follows()
    assert {name: value for name, value in found.items() if name != "sleep" or "sleep" in follows} == follows


def test_herd_after_the_last_one_is_shared_out_again() -> None:
    memory, facts = Situation(memory={"helping": True}).given
    assert decide.due(memory, view(job(), more=True, sessions=BOTH), facts, HERE)[1].partition is None
    memory = decide.due(memory, view(job(), sessions=BOTH), facts, HERE)[1]
    assert decide.due(memory, view(job(), more=True, sessions=BOTH), facts, HERE)[1].partition == PARTITION


# --- what came of it --------------------------------------------------------------------------------------------------

QUIET, QUEUE = view(), view(backlog=True)


@pytest.mark.parametrize(("seen", "claimed", "fruitless"), [(QUEUE, 0, 3), (QUEUE, 1, 0), (QUIET, 0, 0), (QUIET, 1, 0)])
def test_rounds_are_fruitless_in_which_something_waits_and_nothing_is_claimed(
    seen: View, claimed: int, fruitless: int
) -> None:
    assert learnt(seen, Fired(claimed=claimed), {"fruitless": 2})[1].fruitless == fruitless


@pytest.mark.parametrize(
    ("seen", "made", "claimed", "waits"),
    [(QUEUE, 0, 0, True), (QUEUE, 1, 1, True), (QUIET, 2, 1, True), (QUIET, 1, 1, False), (QUIET, 0, 0, False)],
)
def test_more_waits_if_it_did_at_the_look_or_was_made_and_not_claimed(
    seen: View, made: int, claimed: int, waits: bool
) -> None:
    memory = learnt(seen, Fired(plans(made), 0, claimed))[1]
    assert memory.backlog is waits
    if made:
        assert memory.waits is waits


@pytest.mark.parametrize(
    ("seen", "claimed", "free", "full"),
    [(QUIET, 1, 0, True), (QUEUE, 0, 0, True), (QUIET, 0, 0, False), (QUEUE, 1, 1, False), (QUIET, 1, 1, False)],
)
def test_node_is_full_without_a_free_slot_if_more_may_wait(seen: View, claimed: int, free: int, full: bool) -> None:
    assert learnt(seen, Fired(claimed=claimed), free=free)[1].full is full


def test_job_that_cannot_be_planned_is_no_race_that_is_lost() -> None:
    broken = ((job(), ValueError("broken")),)
    memory = learnt(view(job()), Fired(), {"lost_races": 3}, not_planned=broken)[1]
    assert memory.lost_races == 0
    assert memory.fired_at == HERE


@pytest.mark.parametrize(("due_in", "again"), [(30 * SECOND, False), (AT_ONCE, True), (-SECOND, True)])
def test_node_looks_again_at_once_if_what_it_fired_is_due_again(due_in: timedelta, again: bool) -> None:
    won = (replace(plans(1)[0], next_due=NOW + due_in),)
    assert learnt(view(job()), Fired(won, 0, 1))[0] is again


def test_round_in_which_nothing_was_to_be_fired_puts_off_no_herd() -> None:
    memory = learnt(QUIET, Fired(), {"most_plans": 3})[1]
    assert (memory.fired_at, memory.most_plans) == (NEVER, 3)
    memory = replace(memory, partition=PARTITION)
    assert decide.before_look(memory, Facts(session="a", free=1), HERE)[0].look is not None


@pytest.mark.parametrize(("before", "after"), [(3, 6), (MOST_DUE - 1, MOST_DUE), (MOST_DUE, MOST_DUE)])
def test_after_a_step_that_was_taken_the_next_may_have_twice_as_many_plans(before: int, after: int) -> None:
    assert learnt(view(job()), Fired(plans(1), 0, 1), {"most_plans": before})[1].most_plans == after


@pytest.mark.parametrize(
    ("helping", "won", "lost", "helps"),
    [(True, 1, 0, True), (True, 1, 1, True), (True, 1, 2, False), (False, 1, 0, False)],
)
def test_node_helps_until_it_loses_more_races_than_it_wins(helping: bool, won: int, lost: int, helps: bool) -> None:
    seen = view(*jobs(4), more=True)
    assert learnt(seen, Fired(plans(won), lost, won), {"helping": helping})[1].helping is helps


@pytest.mark.parametrize(
    ("seen", "fired", "left", "again"),
    [
        (view(job()), Fired((), 1), False, False),
        (view(job()), Fired((), 1), True, True),
        (view(job()), Fired(plans(1), 0, 1), False, True),
        (view(), Fired(), False, True),
    ],
    ids=["another node was faster", "and some were left out of the step", "something was won", "nothing is due"],
)
def test_after_its_partition_a_node_looks_at_all_at_once_unless_another_did_it(
    seen: View, fired: Fired, left: bool, again: bool
) -> None:
    looks, memory = learnt(seen, fired, {"partition": PARTITION}, plans=plans(len(seen.jobs)), again=left)
    assert (looks, memory.partition, memory.helping) == (again, None, True)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("ok", [True, False])
def test_results_go_alone_after_a_step_that_was_not_taken(alone: bool, ok: bool) -> None:
    assert decide.settled(Memory(alone=alone), ok=ok).alone is not ok


def test_plan_of_a_step_that_failed_is_looked_for_by_halves() -> None:
    halves = [decide.failed(Memory(), plans(count), HERE, passing=True).most_plans for count in (8, 3, 2, 0)]
    assert halves == [4, 1, 1, MOST_DUE]
    aside = decide.failed(Memory(set_aside=((7, 1, HERE), (8, 1, HERE + 1))), plans(1), HERE, passing=False).set_aside
    assert [one for one, _, _ in aside] == [8, 0], "the time of the first is over"
    assert decide.failed(Memory(), plans(2), HERE, passing=False).set_aside == ()


# --- announcements ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "next_due", "foreseen", "announced"),
    [
        ({}, NOW + SECOND, False, True),
        ({"sessions": FOUR[:ANNOUNCE_MIN_NODES]}, NOW + SECOND, False, True),
        ({}, NOW + HORIZON, False, True),
        ({}, NOW + HORIZON + MS, False, False),
        ({}, None, False, False),
        ({}, None, True, True),
        ({"more_jobs": FEW - 1}, NOW + SECOND, False, True),
        ({"more_jobs": FEW}, NOW + SECOND, False, False),
    ],
    ids=["four nodes", "three nodes", "due again within foresight", "due again later", "never due again",
         "never due again, and foreseen", "as many jobs as are foreseen", "more jobs"],
)  # fmt: skip
def test_what_others_may_have_foreseen_is_announced(
    seen: dict[str, Any], next_due: datetime | None, foreseen: bool, announced: bool
) -> None:
    others = tuple(job(number=10 + number) for number in range(seen.get("more_jobs", 0)))
    shown = view(ticking(), *others, sessions=seen.get("sessions", FOUR))
    plan = replace(planning.plan(ticking(), NOW + SECOND), next_due=next_due)
    assert bool(decide.announces(shown, Fired((plan,)), told=True, foreseen=foreseen)) is announced


# --- when to look again -----------------------------------------------------------------------------------------------


def next_look(
    seen: View = QUIET,
    facts: dict[str, Any] | None = None,
    memory: dict[str, Any] | None = None,
    *,
    session: str = "a",
    early: timedelta = AT_ONCE,
    coming: datetime | None = None,
) -> tuple[Todo, Memory]:
    known: dict[str, Any] = {"looked_at": HERE, "pruned_at": HERE, "reclaimed_at": HERE}
    before, given = Memory(**known | (memory or {})), Facts(**{"session": session, "free": 4, **(facts or {})})
    return decide.next_look(before, seen, given, HERE, early=early, coming=coming, again=False)


@pytest.mark.parametrize("facts", [{"unsettled": True}, {"lost": True}], ids=str)
def test_node_with_results_or_without_a_session_does_not_wait(facts: dict[str, Any]) -> None:
    todo, memory = next_look(facts=facts)
    assert (todo.sleep, memory.look_at) == (0.0, HERE)
    assert next_look()[0].sleep is None


@pytest.mark.parametrize(("left", "wait"), [(2 * SECOND, 2 + WATCH), (-3 * SECOND, WATCH)])
def test_idle_node_comes_after_the_end_of_the_lease_of_what_runs(left: timedelta, wait: float) -> None:
    seen = view(sessions=CROWD, holders=(holder(left=left),), coming=60 * SECOND)
    assert next_look(seen, session=IDLE)[1].look_at == pytest.approx(HERE + wait)


def test_while_anything_is_parked_the_active_set_looks_each_five_seconds_and_sweeps() -> None:
    seen = view(sessions=CROWD, parked=True)
    active = [one for one in CROWD if is_active(one, CROWD, NOW)]
    assert len(active) == ACTIVE
    for one in CROWD:
        todo, _ = decide.maintain(Memory(pruned_at=HERE, reclaimed_at=HERE), seen, Facts(session=one), HERE)
        assert todo.sweep is (one in active)
        assert not decide.maintain(Memory(), view(sessions=CROWD), Facts(session=one), HERE)[0].sweep
        looks_in = next_look(seen, session=one)[1].look_at - HERE
        assert is_active(one, CROWD, NOW + looks_in * SECOND)
        assert looks_in >= SWEEP.total_seconds()
        assert next_look(view(sessions=CROWD), session=one)[1].look_at - HERE == POLL
    assert all(next_look(replace(seen, sessions=BOTH), session=one)[1].look_at == HERE + 5 for one in BOTH)


def test_very_many_fruitless_rounds_and_lost_races_are_counted_like_many() -> None:
    waits = [
        next_look(QUEUE, memory={"fruitless": 5000})[1].look_at - HERE,
        next_look(memory={"lost_races": 5000})[1].look_at - HERE,
        next_look(QUEUE, memory={"fruitless": 1})[1].look_at - HERE,
        next_look(memory={"lost_races": 1})[1].look_at - HERE,
    ]
    assert waits == pytest.approx([POLL, 2**MOST_DOUBLINGS * AFTER_A_LOST_RACE, WATCH, 2 * AFTER_A_LOST_RACE])


@pytest.mark.parametrize(
    ("seen", "lately"),
    [(view(holders=(holder("a"),)), True), (view(job(SECOND)), True), (QUEUE, True), (QUIET, False)],
    ids=["a run", "a job comes due", "something waits", "nothing"],
)
def test_node_without_notifications_sees_activity(seen: View, lately: bool) -> None:
    assert (next_look(seen, {"told": False, "free": 0})[1].active_at == HERE) is lately


@pytest.mark.parametrize(
    ("memory", "more", "foreseen"),
    [
        ({"wide": True}, {}, True),
        ({"wide": False}, {}, False),
        ({"wide": True, "lost_races": 1}, {}, False),
        ({"wide": True}, {"coming": NOW + SECOND}, False),
        ({"wide": True}, {"session": IDLE}, False),
    ],
    ids=["a look that went far", "one that did not", "a race was lost", "it fired since the look", "in idle mode"],
)
def test_node_foresees_what_a_look_showed_whole(memory: dict[str, Any], more: dict[str, Any], foreseen: bool) -> None:
    sessions = CROWD if "session" in more else ("a",)
    seen = view(ticking(), sessions=sessions, coming=SECOND)
    after = next_look(seen, None, memory, **more)[1]
    assert (after.coming is not None) is foreseen
    assert after.in_idle_mode is ("session" in more)


@pytest.mark.parametrize("session", BOTH)
def test_only_the_first_node_decides_ahead(session: str) -> None:
    seen = view(job(SECOND), sessions=BOTH, coming=SECOND)
    first = place(session, BOTH, NOW + SECOND) == 0
    for facts in ({}, {"told": False}):
        after = next_look(seen, facts, session=session)[1]
        assert after.ours == (NOW + SECOND if first else None)


# --- ahead ------------------------------------------------------------------------------------------------------------

SOON = NOW + 9 * MS


def ahead(seen: View, **memory: Any) -> tuple[list[str], Memory]:
    """Return which jobs a node decides ahead that has just looked, and is first for what is due in 9 ms."""
    after = decide.looked(Memory(), seen, HERE, HERE)
    known: dict[str, Any] = {"ours": SOON, "look_at": HERE + 0.009, "else_at": HERE + 5}
    todo, after = decide.ahead(replace(after, **known | memory), seen, Facts(session="a", free=4), HERE)
    return [each.job for each in todo.plans], after


def one_off(due_in: timedelta, number: int) -> JobState:
    """Return a job that is due once."""
    once = at(NOW + due_in)
    since = NOW + due_in - timedelta(microseconds=1)
    eras = (Era(since=since, trigger=once, revision=1),)
    return replace(job(due_in, number=number), watermark=since, eras=eras)


def test_node_decides_ahead_what_is_due_by_then_and_nothing_else() -> None:
    over = replace(one_off(-SECOND, 4), due_at=None)
    seen = view(job(9 * MS), job(11 * MS, number=2), job(number=3), over, coming=9 * MS)
    assert ahead(seen)[0] == ["job-1"]


def test_node_for_which_nothing_is_to_come_decides_nothing_ahead() -> None:
    assert ahead(view(), ours=None, decided=NOW, look_at=HERE + 5) == (
        [],
        replace(decide.looked(Memory(), view(), HERE, HERE), decided=NOW, look_at=HERE + 5, else_at=HERE + 5),
    )


def test_node_looks_once_more_for_what_its_look_did_not_reach_and_not_again() -> None:
    seen = view(coming=9 * MS)
    plans, memory = ahead(seen)
    assert (plans, memory.sought, memory.look_at) == ([], SOON, HERE)
    plans, memory = ahead(seen, sought=SOON)
    assert (plans, memory.look_at) == ([], HERE + 0.009)


def test_node_decides_from_the_moment_on_at_which_it_wakes_for_that() -> None:
    memory = foresees(in_place(0), FOUR)
    facts = Facts(session=in_place(0), free=4, news=False)
    begins = HERE + 1 - memory.lead.seconds - SLACK
    for now, decides in ((begins, True), (begins - 1e-9, False)):
        assert decide.before_look(memory, facts, now)[0].foreseen is decides
        assert memory.coming is not None
        assert bool(decide.ahead(memory, memory.coming.view, facts, now)[0].plans) is decides


@pytest.mark.parametrize(("else_at", "look_at"), [(HERE + 5, HERE + 1), (HERE + 0.995, HERE + 0.995)])
def test_what_was_foreseen_and_finds_no_free_slot_is_looked_at_when_it_is_due(else_at: float, look_at: float) -> None:
    memory = replace(foresees(in_place(0), FOUR), else_at=else_at)
    assert memory.coming is not None
    facts = Facts(session=in_place(0), free=0, news=False)
    todo, memory = decide.ahead(memory, memory.coming.view, facts, HERE + 0.99)
    assert not todo.plans
    assert (memory.coming, memory.ours) == (None, None)
    assert memory.look_at == pytest.approx(look_at)


def after_ahead(fired: Fired, *, foreseen: bool, **more: Any) -> Memory:
    """Return what the first node learns, of what it decided ahead."""
    memory = replace(foresees(in_place(0), FOUR), decided=NOW + SECOND, **more)
    facts = Facts(session=in_place(0), free=4, news=False)
    return decide.learn_ahead(memory, facts, fired, 0.001, HERE + 0.99, foreseen=foreseen)


TICKS = (planning.plan(ticking(), NOW + SECOND),)


@pytest.mark.parametrize(
    ("fired", "foreseen", "look_at"),
    [
        (Fired((), 1), True, HERE + 0.99),
        (Fired((), 1), False, HERE + 1),
        (Fired(()), True, HERE + 1),
        (wins(TICKS, 0), True, HERE + 1),
    ],
    ids=["foreseen, and lost", "looked at, and lost", "the job could not be planned", "its run was not claimed"],
)
def test_what_was_not_decided_ahead_is_looked_at_for_its_due_time(fired: Fired, foreseen: bool, look_at: float) -> None:
    assert after_ahead(fired, foreseen=foreseen).look_at == pytest.approx(look_at)


def test_node_that_decided_ahead_goes_on_to_the_next_due_time_or_looks_for_another_reason() -> None:
    number = place(in_place(0), FOUR, NOW + 2 * SECOND)
    memory = after_ahead(wins(TICKS, 1), foreseen=True)
    lead = memory.lead.seconds if number == 0 else 0.0
    assert memory.look_at == pytest.approx(HERE + 2 + number * STAGGER / SECOND - lead)
    assert after_ahead(wins(TICKS, 1), foreseen=True, else_at=HERE + 1.5).look_at == HERE + 1.5


def test_node_that_did_not_foresee_what_it_decided_ahead_looks_as_it_was_going_to() -> None:
    memory = Memory(look_at=HERE + 7, decided=SOON)
    after = decide.learn_ahead(memory, Facts(session="a"), Fired(plans(1)), 0.001, HERE, foreseen=False)
    assert after.look_at == HERE + 7


@pytest.mark.parametrize(
    ("look_at", "begins_in", "wait"), [(2.0, 1.0, 2.0), (2.0, 3.0, 3.0), (2.0, None, 2.0), (-1.0, None, 0.0)]
)
def test_node_sleeps_until_its_look_and_until_a_run_has_begun(
    look_at: float, begins_in: float | None, wait: float
) -> None:
    memory, facts = Memory(look_at=HERE + look_at), Facts(session="a", begins_in=begins_in)
    assert decide.sleep(memory, facts, HERE)[0] == wait
