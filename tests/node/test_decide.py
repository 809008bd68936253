"""What a node does next: situations, and what follows from each. No clock, no store, no thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cronsensus import planning
from cronsensus.membership.liveness import ABSENT_FOR, CERTAIN_AFTER, ROUND_TRIPS, Absences
from cronsensus.model.job import JobSpec, JobState
from cronsensus.model.plan import Plan
from cronsensus.node import careful, decide
from cronsensus.node.backoff import MOST_DOUBLINGS, backoff_seconds
from cronsensus.node.careful import Careful
from cronsensus.node.decide import (
    CLOCK_SET_BY,
    DEFERRED_LOOK_SECONDS,
    ENSURE_RUNS_EVERY,
    LOOK_AFTER_WORK,
    LOOKS_APART,
    LOST_RACE_PAUSE,
    PRUNE_EVERY,
    RECENTLY_ACTIVE,
    RECLAIM_EVERY,
    SHARED_FROM,
    SHORTEST_SLEEP,
    TAKEOVER_ROUND_TRIPS,
)
from cronsensus.node.herd import SLOTS_WAIT, Herd
from cronsensus.node.lead_time import EARLY_SLACK, LEAST_AND_MOST_LEAD, LOOKS_MEASURED, LeadTime
from cronsensus.node.settings import POLL
from cronsensus.node.situation import Adopt, Facts, Fired, Firing, Look, Memory, Next, Sleep, Work
from cronsensus.node.turn_order import (
    IN_FRONT,
    LOOKOUT,
    POLL_WITHOUT_NOTIFICATIONS,
    STAGGER,
    SWEEP_EVERY,
    is_in_front,
    place_of,
    seconds_to_lookout,
    turn_of,
)
from cronsensus.stores.values import NO_DELAY, Partition, View
from tests.node.views import NOW, SECOND, holder, job, jobs, view

HERE = 1000.0
WATCH = 0.5
MS = timedelta(milliseconds=1)
LEAD = LeadTime().seconds
BOTH = ("a", "b")
FIRST, SECOND_ONE = sorted(BOTH, key=lambda one: place_of(one, BOTH, NOW))
CROWD = tuple(f"s{number:02}" for number in range(3 * IN_FRONT))
LATE = max(CROWD, key=lambda one: turn_of(one, CROWD, NOW + SECOND))
PART = Herd(Partition(0, 2))
ABSENT = view(holders=(holder(),), absent=("b",), sessions=BOTH)

# --- before a look ----------------------------------------------------------------------------------------------------

ASLEEP: dict[str, Any] = {"looked_at": HERE - 1, "look_at": HERE + 5, "backlog": False}
BACKLOG: dict[str, Any] = ASLEEP | {"backlog": True}
AHEAD = timedelta(seconds=LEAD + EARLY_SLACK)
NOW_LOOK = Look(AHEAD)
TOLD = Work(4, ahead=AHEAD)

BEFORE: dict[str, tuple[dict[str, Any], dict[str, Any], Next]] = {
    "nothing has come": (ASLEEP, {}, Sleep(5.0)),
    "the alarm has come": (ASLEEP | {"look_at": HERE}, {}, NOW_LOOK),
    "the alarm comes in less than a clock counts": (ASLEEP | {"look_at": HERE + SHORTEST_SLEEP / 2}, {}, NOW_LOOK),
    "the alarm comes in as much as a clock counts": (
        ASLEEP | {"look_at": HERE + 2 * SHORTEST_SLEEP}, {}, Sleep(2 * SHORTEST_SLEEP),
    ),
    "it is asked to look": (ASLEEP, {"woken": True}, NOW_LOOK),
    "the store is 40 ms away, and the alarm has come": (
        {"lead": LeadTime(slowest=0.12, looks=(0.04,) * 4)}, {}, Look(timedelta(seconds=0.18 + EARLY_SLACK)),
    ),
    "a notification came": (ASLEEP, {"notified": True}, TOLD),
    "a notification came, and results wait": (ASLEEP, {"notified": True, "unsettled": True}, TOLD),
    "a notification came, and no slot is free": (ASLEEP, {"notified": True, "free_slots": 0}, Sleep(LOOK_AFTER_WORK)),
    "a notification came, and it has just looked": (
        ASLEEP | {"looked_at": HERE - 0.01}, {"notified": True, "free_slots": 0}, Sleep(LOOKS_APART - 0.01),
    ),
    "a notification came, and something is due sooner": (
        ASLEEP | {"look_at": HERE + 0.001}, {"notified": True, "free_slots": 0}, Sleep(0.001),
    ),
    "a notification came, and the answer of a step was lost": (ASLEEP, {"notified": True, "in_doubt": True}, Adopt()),
    "a notification came, and the node drains": (ASLEEP, {"notified": True, "draining": True}, Sleep(WATCH)),
    "a notification came, and the last results were not taken": (
        ASLEEP | {"careful": Careful(results_alone=True)}, {"notified": True, "unsettled": True}, Work(0),
    ),
    "a run ended": (ASLEEP, {"unsettled": True}, Work(0)),
    "a run ended, and more waits than was taken": (BACKLOG, {"unsettled": True}, Work(4)),
    "the same, and the last results were not taken": (
        BACKLOG | {"careful": Careful(results_alone=True)}, {"unsettled": True}, Work(0),
    ),
    "the same, and the answer of a claim was lost": (BACKLOG, {"unsettled": True, "in_doubt": True}, Work(0)),
    "the same, and the node drains": (BACKLOG, {"unsettled": True, "draining": True}, Work(0)),
    "the same, and the session is lost": (BACKLOG, {"unsettled": True, "lost": True}, Work(0)),
    "more waits, and nothing has ended here": (BACKLOG, {}, Sleep(5.0)),
    "progress is to be written now": (ASLEEP, {"progress_in": 0.0}, Work(0)),
    "progress is to be written soon": (ASLEEP, {"progress_in": 0.3}, Sleep(0.3)),
    "progress is to be written after the alarm": (ASLEEP, {"progress_in": 9.0}, Sleep(5.0)),
    "the answer of a step was lost": (ASLEEP | {"look_at": HERE}, {"in_doubt": True}, Adopt()),
    "the session is lost": (ASLEEP | {"look_at": HERE}, {"lost": True, "in_doubt": True}, Sleep(0.0)),
    "the node drains, and the alarm has come": (ASLEEP | {"look_at": HERE}, {"draining": True}, Sleep(WATCH)),
    "the node drains, and progress is to be written": (ASLEEP, {"draining": True, "progress_in": 0.2}, Sleep(0.2)),
    "a partition comes next": (
        ASLEEP | {"look_at": HERE, "herd": PART, "backlog": False}, {"free_slots": 40},
        Look(AHEAD, 40, Partition(0, 2)),
    ),
    "a partition comes next, and what was made waits": (BACKLOG | {"look_at": HERE, "herd": PART}, {}, Work(4)),
    "a partition comes next, and few slots are free": (
        ASLEEP | {"look_at": HERE, "herd": PART._replace(fired_at=HERE - 0.01)}, {}, Sleep(SLOTS_WAIT - 0.01),
    ),
    "its lease is not trusted": (ASLEEP, {"notified": True, "free_slots": 0, "trusted": False}, Sleep(LOOK_AFTER_WORK)),
}  # fmt: skip


def next_step(memory: dict[str, Any], facts: dict[str, Any], *, worked: bool = False) -> tuple[Next, Memory]:
    known: dict[str, Any] = {"session": "a", "free_slots": 4}
    return decide.next_step(Memory(**memory), Facts(**known | facts), HERE, worked=worked)


@pytest.mark.parametrize(("memory", "facts", "follows"), BEFORE.values(), ids=BEFORE)
def test_each_situation_before_a_look_leads_to_its_next_step(
    memory: dict[str, Any], facts: dict[str, Any], follows: Next
) -> None:
    step, _ = next_step(memory, facts)
    assert type(step) is type(follows)
    assert step == (pytest.approx(follows) if isinstance(follows, Sleep) else follows)


def test_what_was_done_in_this_round_is_not_done_again_in_it() -> None:
    busy = {"notified": True, "unsettled": True, "progress_in": 0.0}
    assert next_step(ASLEEP, busy, worked=True)[0] == Sleep(0.0), "a run ended meanwhile: at once, in the next round"
    assert next_step(ASLEEP | {"look_at": HERE}, busy, worked=True)[0] == NOW_LOOK


def test_a_notification_of_which_a_claim_took_all_is_looked_for_once_and_no_later_by_more_of_them() -> None:
    memory, facts = Memory(**ASLEEP), Facts(session="a", free_slots=4, notified=True)
    for later in (0.0, LOOK_AFTER_WORK / 2):
        step, memory = decide.next_step(memory, facts, HERE + later)
        assert step == TOLD
        memory = decide.note_work(memory, facts, HERE + later, want=4, claimed=1, pending_again=False)
    quiet = replace(facts, notified=False)
    assert decide.next_step(memory, quiet, HERE + LOOK_AFTER_WORK / 2)[0] == pytest.approx(Sleep(LOOK_AFTER_WORK / 2))
    assert decide.next_step(memory, quiet, HERE + LOOK_AFTER_WORK)[0] == NOW_LOOK


def test_late_nodes_leave_a_notification_to_those_in_front_and_look_one_after_the_other() -> None:
    for notified in (True, False):
        waits = []
        for session in CROWD:
            memory = Memory(**ASLEEP, defers=True)
            facts = Facts(session=session, free_slots=4, notified=notified, woken=not notified)
            step, memory = decide.next_step(memory, facts, HERE)
            assert isinstance(step, Sleep)
            assert DEFERRED_LOOK_SECONDS[0] <= step.seconds <= DEFERRED_LOOK_SECONDS[1]
            waits.append(step.seconds)
            assert decide.next_step(memory, facts, HERE + step.seconds)[0] == NOW_LOOK
        assert len(set(waits)) == len(CROWD)


@pytest.mark.parametrize(
    ("backlog", "done", "facts", "after"),
    [
        (False, {"want": 4, "claimed": 4}, {}, (True, False)),
        (False, {"want": 4, "claimed": 1}, {}, (False, False)),
        (True, {"want": 4, "claimed": 4}, {}, (True, False)),
        (True, {"want": 4, "claimed": 3}, {}, (False, True)),
        (True, {}, {}, (True, False)),
        (False, {}, {}, (False, False)),
        (False, {"pending_again": True}, {}, (False, True)),
        (False, {}, {"hears_notifications": False}, (False, True)),
    ],
    ids=["as many as wanted: more may wait", "fewer: nothing is left", "more still waits", "the queue is at its end",
         "a result, and more waits", "a result: nothing new to see", "a run is tried again", "no notification comes"],
)  # fmt: skip
def test_a_look_follows_work_only_where_it_may_show_something_new(
    backlog: bool, done: dict[str, Any], facts: dict[str, Any], after: tuple[bool, bool]
) -> None:
    told: dict[str, Any] = {"want": 0, "claimed": 0, "pending_again": False} | done
    memory = decide.note_work(Memory(**ASLEEP | {"backlog": backlog}), Facts(session="a", **facts), HERE, **told)
    assert (memory.backlog, memory.look_at == HERE) == after


def test_results_that_were_taken_go_with_claims_again() -> None:
    alone = Memory(**BACKLOG, careful=Careful(results_alone=True))
    after = decide.note_work(alone, Facts(session="a"), HERE, want=0, claimed=0, pending_again=False)
    assert decide.next_step(after, Facts(session="a", free_slots=4, unsettled=True), HERE)[0] == Work(4)


# --- after a look -----------------------------------------------------------------------------------------------------


def wins(plans: tuple[Plan, ...], want: int) -> Fired:
    return Fired(plans, 0, min(want, sum(len(each.occurrences) for each in plans)))


def loses(plans: tuple[Plan, ...], _: int) -> Fired:
    return Fired((), len(plans), 0)


@dataclass(kw_only=True)
class Situation:
    """A look that is answered at ``NOW``, which is ``HERE`` by the node's clock.

    ``facts`` and ``memory`` are what differs from a node that has four free slots and remembers nothing.
    """

    session: str = "a"
    view: View = field(default_factory=view)
    facts: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    fired: Callable[[tuple[Plan, ...], int], Fired] = wins
    took: float = 0.0
    """Seconds of the look."""

    def play(self) -> tuple[Firing, dict[str, Any], Memory]:
        """Play what follows from the look: what is fired, what is done besides and when the alarm is, the memory."""
        known: dict[str, Any] = {"reclaimed_at": HERE, "pruned_at": HERE}
        here: dict[str, Any] = {"session": self.session, "free_slots": 4}
        memory, facts = Memory(**known | self.memory), Facts(**here | self.facts)
        memory = decide.note_look(memory, self.view, HERE - self.took, HERE)
        firing = decide.plan_firing(memory, self.view, facts, HERE)
        fired = self.fired(firing.plans, firing.want)
        upkeep, memory = decide.plan_upkeep(memory, self.view, facts, HERE)
        again = upkeep.reclaim is not None  # what was held is to be claimed now
        memory = decide.set_alarm(
            memory, self.view, facts, HERE, firing=firing, fired=fired, firing_seconds=0.0, look_at_once=again
        )
        step, memory = decide.next_step(memory, facts, HERE, worked=True)
        rest = {"look": True} if isinstance(step, Look) else {"sleep": step[0]} if isinstance(step, Sleep) else {}
        besides = {name: value for name, value in upkeep._asdict().items() if value not in {None, False}}
        return firing, besides | rest, memory

    def follows(self) -> dict[str, Any]:
        """Return what a node does after this look."""
        firing, follows, _ = self.play()
        if firing.plans:
            follows["fires ahead" if firing.ahead else "fires"] = [each.job for each in firing.plans]
        return follows | {name: getattr(firing, name) for name in ("want", "internal") if getattr(firing, name)}


TEN: dict[str, tuple[Situation, dict[str, Any]]] = {
    "a job is due, and no other node is there": (
        Situation(view=view(job())),
        {"fires": ["job-1"], "want": 4, "sleep": 30 - LEAD},
    ),
    "a job is due, and another node is first in turn order": (
        Situation(session=SECOND_ONE, view=view(job(), sessions=BOTH)),
        {"sleep": STAGGER / SECOND},
    ),
    "the store is 40 ms away, and a job is due in 150": (
        Situation(view=view(job(150 * MS)), memory={"lead": LeadTime(slowest=0.12, looks=(0.04,) * 4)}, took=0.04),
        {"fires ahead": ["job-1"], "want": 4, "sleep": 30.15 - 0.9 * 0.18 - 0.02},
    ),
    "another node was faster with a job": (
        Situation(view=view(job()), fired=loses),
        {"fires": ["job-1"], "want": 4, "sleep": LOST_RACE_PAUSE},
    ),
    "a neighbour's sign of life is gone since this look": (
        Situation(view=ABSENT),
        {"sleep": CERTAIN_AFTER * ABSENT_FOR},
    ),
    "a neighbour's sign of life has been gone for two looks": (
        Situation(view=ABSENT, memory={"absences": Absences().update_absences(ABSENT, HERE - 1, HERE - 1)}),
        {"reclaim": ("b",), "look": True},
    ),
    "another node runs something": (Situation(view=view(holders=(holder(),))), {"sleep": WATCH}),
    "twelve nodes are there, and this one is the last of them": (
        Situation(session=LATE, view=view(job(SECOND), sessions=CROWD)),
        {"sleep": (turn_of(LATE, CROWD, NOW + SECOND) - NOW) / SECOND},
    ),
    "more is due than one look takes, on two nodes": (
        Situation(view=view(*jobs(3), sessions=BOTH, more=True)),
        {"look": True},
    ),
    "work waits that this node cannot take": (
        Situation(view=view(backlog=True), fired=lambda *_: Fired()),
        {"want": 4, "sleep": WATCH},
    ),
}
"""Also in docs/tour.md."""

MORE: dict[str, tuple[Situation, dict[str, Any]]] = {
    "nothing is due and nothing runs": (Situation(), {"sleep": POLL}),
    "the same, and the program has alerts": (Situation(facts={"internal": True}), {"sleep": ENSURE_RUNS_EVERY}),
    "the same where no notification reaches the node": (
        Situation(facts={"hears_notifications": False}), {"sleep": POLL_WITHOUT_NOTIFICATIONS / SECOND},
    ),
    "the lease of another node's run ends soon": (
        Situation(view=view(holders=(holder(left=100 * MS),))), {"sleep": 0.1},
    ),
    "a late node comes after the end of the lease of what runs": (
        Situation(session=LATE, view=view(job(60 * SECOND), sessions=CROWD, holders=(holder(left=2 * SECOND),))),
        {"sleep": 2 + WATCH},
    ),
    "an own run is not watched": (Situation(view=view(holders=(holder("a"),))), {"sleep": POLL}),
    "a session is overdue": (Situation(view=view(holders=(holder(left=NO_DELAY),))), {"reclaim": (), "look": True}),
    "its own session is overdue": (
        Situation(view=view(holders=(holder("a", left=NO_DELAY),))), {"reclaim": (), "look": True},
    ),
    "the process of a neighbour is gone": (
        Situation(view=view(holders=(holder(),)), facts={"gone": frozenset("b")}), {"reclaim": ("b",), "look": True},
    ),
    "the same, and sessions are judged by their leases alone": (
        Situation(view=view(holders=(holder(),)), facts={"gone": frozenset("b"), "fast_evidence": False}),
        {"sleep": WATCH},
    ),
    "a sign of life is gone, and sessions are judged by their leases alone": (
        Situation(view=ABSENT, facts={"fast_evidence": False}), {"sleep": WATCH},
    ),
    "a node never takes itself for dead": (
        Situation(view=view(holders=(holder("a"),), absent=("a",)), facts={"gone": frozenset("a")}), {"sleep": POLL},
    ),
    "nothing was reclaimed for long": (
        Situation(memory={"reclaimed_at": HERE - RECLAIM_EVERY}), {"reclaim": (), "look": True},
    ),
    "nothing was reclaimed for almost as long": (
        Situation(memory={"reclaimed_at": HERE - RECLAIM_EVERY + 1}), {"sleep": POLL},
    ),
    "nothing was pruned for an hour": (Situation(memory={"pruned_at": HERE - PRUNE_EVERY}), {"sleep": POLL}),
    "nothing was pruned for longer": (
        Situation(memory={"pruned_at": HERE - PRUNE_EVERY - 1}), {"prune": True, "sleep": POLL},
    ),
    "something is parked": (Situation(view=view(parked=True)), {"sweep": True, "sleep": SWEEP_EVERY / SECOND}),
    "work waits": (Situation(view=view(backlog=True), fired=lambda *_: Fired(claimed=4)), {"want": 4, "sleep": WATCH}),
    "work waits that this node could not take three times": (
        Situation(view=view(backlog=True), memory={"misses": 2}, fired=lambda *_: Fired()),
        {"want": 4, "sleep": 4 * WATCH},
    ),
    "work waits that this node could not take for ever": (
        Situation(view=view(backlog=True), memory={"misses": 5000}, fired=lambda *_: Fired()),
        {"want": 4, "sleep": POLL},
    ),
    "work waits, and no slot is free": (Situation(view=view(backlog=True), facts={"free_slots": 0}), {"sleep": POLL}),
    "work waits, no slot is free, and internal jobs need none": (
        Situation(
            view=view(backlog=True), facts={"free_slots": 0, "internal": True}, fired=lambda *_: Fired(claimed=1)
        ),
        {"internal": True, "sleep": WATCH},
    ),
    "work is due later": (Situation(view=view(next_pending=NOW + 5 * SECOND)), {"sleep": 5.0}),
    "a job is due, and no slot is free": (
        Situation(view=view(job()), facts={"free_slots": 0}, fired=lambda plans, _: Fired(plans)),
        {"fires": ["job-1"], "sleep": 30.0},
    ),
    "a job is due, and the lease is not trusted": (
        Situation(view=view(job()), facts={"trusted": False, "free_slots": 0}), {"fires": ["job-1"], "sleep": WATCH},
    ),
    "a job is due, and the node before did not come": (
        Situation(session=SECOND_ONE, view=view(job(-STAGGER), sessions=BOTH)), {"fires": ["job-1"], "want": 4},
    ),
    "a third race in a row is lost": (
        Situation(view=view(job()), fired=loses, memory={"misses": 2}),
        {"fires": ["job-1"], "want": 4, "sleep": 4 * LOST_RACE_PAUSE},
    ),
    "many jobs are due at once, on two nodes": (
        Situation(session=FIRST, view=view(*jobs(SHARED_FROM), sessions=BOTH), facts={"free_slots": 20}),
        {"fires": [f"job-{one}" for one in range(SHARED_FROM)], "want": SHARED_FROM // 2},
    ),
    "a few jobs are due at once, on two nodes": (
        Situation(session=FIRST, view=view(*jobs(SHARED_FROM - 1), sessions=BOTH), facts={"free_slots": 20}),
        {"fires": [f"job-{one}" for one in range(SHARED_FROM - 1)], "want": 20},
    ),
    "more is due than one look takes, and something waits": (
        Situation(view=view(*jobs(3), more=True, backlog=True)), {"want": 4, "look": True},
    ),
    "a partition of what is due": (
        Situation(view=view(job(), more=True), memory={"herd": PART}),
        {"fires": ["job-1"], "want": 4, "sleep": SLOTS_WAIT},
    ),
    "the last of a partition": (
        Situation(view=view(job()), memory={"herd": PART}), {"fires": ["job-1"], "want": 4, "look": True},
    ),
    "a partition in which nothing is due": (Situation(view=view(), memory={"herd": PART}), {"look": True}),
    "a partition that another node fires": (
        Situation(view=view(job(), more=True), memory={"herd": PART}, fired=loses),
        {"fires": ["job-1"], "want": 4, "sleep": LOST_RACE_PAUSE},
    ),
    "after its partition a node helps the others": (
        Situation(view=view(*jobs(3), more=True), memory={"herd": Herd(helping=True)}),
        {"fires": ["job-0", "job-1", "job-2"], "want": 4, "look": True},
    ),
    "the last step failed: half as many plans": (
        Situation(view=view(*jobs(4)), memory={"careful": Careful(most=2)}),
        {"fires": ["job-0", "job-1"], "want": 4, "look": True},
    ),
    "a plan failed alone: its job is set aside": (
        Situation(view=view(*jobs(2)), memory={"careful": Careful(set_aside=((0, 1, HERE + 1),))}),
        {"fires": ["job-1"], "want": 4, "sleep": 30 - LEAD},
    ),
    "a plan failed alone a minute ago: its job is tried again": (
        Situation(view=view(*jobs(2)), memory={"careful": Careful(set_aside=((0, 1, HERE),))}),
        {"fires": ["job-0", "job-1"], "want": 4, "sleep": 30 - LEAD},
    ),
    "a job is due in 9 ms, and to decide takes 10": (
        Situation(view=view(job(9 * MS))), {"fires ahead": ["job-1"], "want": 4, "sleep": 30.009 - 0.9 * LEAD},
    ),
    "a job comes due soon whose last run goes on": (Situation(view=view(job(9 * MS, active=1))), {"sleep": 0.009}),
    "the same, and runs may overlap": (
        Situation(view=view(job(9 * MS, active=1, overlap="allow"))),
        {"fires ahead": ["job-1"], "want": 4, "sleep": 30.009 - 0.9 * LEAD},
    ),
    "a job comes due soon, and no slot is free": (
        Situation(view=view(job(9 * MS)), facts={"free_slots": 0}), {"sleep": 0.009},
    ),
    "the store is near, and a job is due in 50 ms": (Situation(view=view(job(50 * MS))), {"sleep": 0.05 - LEAD}),
    "the store is near and was slow once, and a job is due in 200 ms": (
        Situation(view=view(job(200 * MS)), memory={"lead": LeadTime(slowest=0.3, looks=(0.001,) * 4)}),
        {"sleep": 0.2 - LEAST_AND_MOST_LEAD[1]},
    ),
    "a job comes due later than was asked for": (Situation(view=view(coming=5 * SECOND)), {"sleep": 5 - LEAD}),
    "the same, and no slot is free": (Situation(view=view(coming=5 * SECOND), facts={"free_slots": 0}), {"sleep": 5.0}),
    "what was fired is due again already": (
        Situation(
            view=view(job()), fired=lambda plans, _: Fired((replace(plans[0], next_due=NOW),), 0, 1)
        ),
        {"fires": ["job-1"], "want": 4, "look": True},
    ),
    "the store could not show all of one moment": (Situation(view=view(coming=NO_DELAY)), {"look": True}),
    "progress is to be written": (Situation(facts={"progress_in": 0.3}), {"sleep": 0.3}),
    "a run ended meanwhile": (Situation(facts={"unsettled": True}), {"sleep": 0.0}),
    "a run that was given up keeps its slot": (Situation(facts={"given_up": True}), {"sleep": WATCH}),
    "no node is late that no notification reaches": (
        Situation(
            session=LATE, view=view(sessions=CROWD, coming=300 * MS), facts={"hears_notifications": False},
            memory={"active_at": HERE},
        ),
        {"sleep": (turn_of(LATE, CROWD, NOW + 300 * MS, hears_notifications=False) - NOW) / SECOND},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("situation", "follows"), [*TEN.values(), *MORE.values()], ids=[*TEN, *MORE])
def test_each_look_leads_to_its_decisions(situation: Situation, follows: dict[str, Any]) -> None:
    got = situation.follows()
    if "sleep" not in follows and "look" not in follows:
        got.pop("sleep", None)  # a turn of its own, as told below
    assert got == {name: pytest.approx(value) if name == "sleep" else value for name, value in follows.items()}


def test_the_tour_tells_of_the_same_situations() -> None:
    page = (Path(__file__).parents[2] / "docs/tour.md").read_text(encoding="utf-8")
    section = page.partition("## Ten situations")[2].partition("\n## ")[0]
    told = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    assert told[1:] == list(TEN)


@pytest.mark.parametrize("known", [{}, {"coming": 700 * MS}], ids=["not yet in sight", "in sight"])
def test_each_node_wakes_at_its_turn_for_the_next_due_time_and_the_first_before_it(known: dict[str, Any]) -> None:
    four = ("a", "b", "c", "d")
    seen = view(*(() if known else (job(700 * MS),)), sessions=four, **known)
    due = NOW + 700 * MS
    for session in four:
        number = place_of(session, four, due)
        expected = 0.7 - LEAD if number == 0 else 0.7 + number * STAGGER / SECOND
        assert Situation(session=session, view=seen).follows() == {"sleep": pytest.approx(expected)}


def test_a_node_is_late_by_what_comes_next() -> None:
    for seen in (view(sessions=CROWD, coming=SECOND), view(job(SECOND), sessions=CROWD), view(sessions=CROWD)):
        instant = None if seen == view(sessions=CROWD) else NOW + SECOND
        for session in CROWD:
            late = Situation(session=session, view=seen).play()[2].defers
            assert late is not is_in_front(session, CROWD, instant)
            assert not Situation(session=session, view=seen, facts={"hears_notifications": False}).play()[2].defers


def test_what_a_node_fired_itself_and_did_not_take_is_watched_at_its_due_time() -> None:
    nothing = Situation(view=view(job(9 * MS)), fired=lambda plans, _: Fired(plans, 0, 0))
    assert nothing.follows()["sleep"] == pytest.approx(0.009)
    assert nothing.play()[2].backlog


@pytest.mark.parametrize(
    ("seen", "fired", "misses"),
    [
        (view(backlog=True), Fired(), 3),
        (view(backlog=True), Fired(claimed=1), 0),
        (view(job()), Fired((), 1, 0), 3),
        (view(), Fired(), 0),
    ],
    ids=["nothing of it was for this node", "something was", "a race was lost", "nothing was to be had"],
)
def test_rounds_that_bring_nothing_are_counted(seen: View, fired: Fired, misses: int) -> None:
    assert Situation(view=seen, memory={"misses": 2}, fired=lambda *_: fired).play()[2].misses == misses


@pytest.mark.parametrize(
    ("trip", "wait"), [(0.0, WATCH), (0.02, WATCH - TAKEOVER_ROUND_TRIPS * 0.02), (1.0, WATCH / 2)]
)
def test_far_from_the_store_a_node_looks_sooner_at_what_others_run(trip: float, wait: float) -> None:
    near = LeadTime(looks=(trip,) * LOOKS_MEASURED)
    _, _, memory = Situation(view=view(holders=(holder(),)), memory={"lead": near}, took=trip).play()
    assert memory.look_at - memory.looked_at == pytest.approx(wait)


@pytest.mark.parametrize(
    ("ago", "wait"), [(0, WATCH), (RECENTLY_ACTIVE, WATCH), (RECENTLY_ACTIVE + 1, POLL_WITHOUT_NOTIFICATIONS / SECOND)]
)
def test_node_without_notifications_looks_often_after_recent_activity(ago: float, wait: float) -> None:
    untold = Situation(facts={"hears_notifications": False}, memory={"active_at": HERE - ago})
    assert untold.follows() == {"sleep": pytest.approx(wait)}


@pytest.mark.parametrize(
    ("seen", "lately"),
    [(view(holders=(holder("a"),)), True), (view(job(SECOND)), True), (view(backlog=True), True), (view(), False)],
    ids=["a run", "a job comes due", "something waits", "nothing"],
)
def test_what_runs_waits_or_comes_due_is_activity(seen: View, lately: bool) -> None:
    assert (Situation(view=seen).play()[2].active_at == HERE) is lately


@pytest.mark.parametrize("count", range(2, 12))
def test_nodes_without_notifications_look_in_turns_with_short_gaps(count: int) -> None:
    crowd = tuple(f"s{number:02}" for number in range(count))
    looks = []
    for session in crowd:
        at = NOW
        mine = []
        while at < NOW + 20 * SECOND:
            # An estimate of the store's clock may be a little off.
            at += seconds_to_lookout(session, crowd, at + 5 * MS) + 3 * MS
            mine.append(at)
        assert (
            max(later - earlier for earlier, later in pairwise(mine))
            <= min(count * LOOKOUT, POLL_WITHOUT_NOTIFICATIONS) + 20 * MS
        )
        looks.append(mine)
    for dead in range(count):
        others = sorted(at for number, mine in enumerate(looks) if number != dead for at in mine)
        gaps = [later - earlier for earlier, later in pairwise(others) if later < NOW + 19 * SECOND]
        assert max(gaps) <= 2 * LOOKOUT + 20 * MS


def test_while_anything_is_parked_those_in_front_look_each_five_seconds_and_sweep() -> None:
    seen = view(sessions=CROWD, parked=True)
    for one in CROWD:
        follows = Situation(session=one, view=seen).follows()
        assert follows.get("sweep", False) is is_in_front(one, CROWD, NOW)
        assert follows["sleep"] >= SWEEP_EVERY.total_seconds()
        assert is_in_front(one, CROWD, NOW + follows["sleep"] * SECOND)


def test_another_look_tells_of_a_missing_sign_later_where_the_store_is_far() -> None:
    for took in (0.0, 0.02):
        follows = Situation(view=ABSENT, took=took).follows()
        assert follows == {"sleep": pytest.approx(CERTAIN_AFTER * (ABSENT_FOR + ROUND_TRIPS * took), abs=1e-6)}


def test_a_run_of_an_internal_job_needs_no_free_slot_when_it_is_made_either() -> None:
    own = job()
    own = replace(own, spec=JobSpec(name="cronsensus:x", function="cronsensus:x", trigger=own.spec.trigger))
    assert Situation(view=view(own), facts={"free_slots": 0, "internal": True}).follows()["internal"]
    assert "internal" not in Situation(view=view(job()), facts={"free_slots": 0, "internal": True}).follows()


@pytest.mark.parametrize(
    ("passed", "moved", "set_by"),
    [
        (60.0, 60 * SECOND, NO_DELAY),
        (60.0, 60 * SECOND + CLOCK_SET_BY, NO_DELAY),
        (60.0, 3600 * SECOND, 3540 * SECOND),
        (60.0, -60 * SECOND, -120 * SECOND),
    ],
)
def test_a_clock_that_was_set_is_noticed(passed: float, moved: timedelta, set_by: timedelta) -> None:
    before = decide.note_look(Memory(), view(), HERE, HERE)
    assert decide.clock_set(Memory(), before) == NO_DELAY
    after = decide.note_look(before, replace(view(), now=NOW + moved), HERE + passed, HERE + passed)
    assert decide.clock_set(before, after) == set_by


def test_a_look_that_a_server_answered_after_it_stood_still_says_nothing_of_its_clock() -> None:
    """The clock was read at the end of twelve seconds, and the middle of them is what the node goes by."""
    before = decide.note_look(Memory(), view(), HERE, HERE)
    thawed = decide.note_look(before, replace(view(), now=NOW + 12 * SECOND), HERE, HERE + 12)
    assert decide.clock_set(before, thawed) == NO_DELAY
    after = decide.note_look(thawed, replace(view(), now=NOW + 13 * SECOND), HERE + 13, HERE + 13)
    assert decide.clock_set(thawed, after) == NO_DELAY


def test_a_node_shares_a_queue_with_all_that_a_look_shows_and_with_itself() -> None:
    for sessions in ((), ("a",), CROWD):
        assert decide.note_look(Memory(), view(sessions=sessions), HERE, HERE).nodes == max(1, len(sessions))


@pytest.mark.parametrize(
    ("known", "part"),
    [
        ({}, SHARED_FROM // 2),
        ({"planned": SHARED_FROM + 1}, SHARED_FROM // 2 + 1),
        ({"free_slots": 3}, 3),
        ({"planned": SHARED_FROM - 1}, 20),
        ({"nodes": 1}, 20),
        ({"nodes": 0}, 20),
        ({"backlog": True}, 20),
    ],
    ids=["its half", "half of an odd number", "few slots", "few runs", "alone", "a look that shows no node",
         "more waits"],
)  # fmt: skip
def test_of_many_runs_a_node_claims_a_fair_part(known: dict[str, Any], part: int) -> None:
    given = {"planned": SHARED_FROM, "nodes": 2, "free_slots": 20, "backlog": False} | known
    due = [job(-SECOND, number=number) for number in range(given["planned"])]
    seen = view(*due, sessions=BOTH[: given["nodes"]], backlog=given["backlog"])
    assert decide.plan_firing(Memory(), seen, Facts(session="a", free_slots=given["free_slots"]), HERE).want == part


# --- plans that fail --------------------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_planned_does_not_keep_the_others_from_firing(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(one: JobState, *_: object) -> Plan:
        if one.id == 0:
            raise ValueError("broken")
        return planning.plan(one, NOW)

    monkeypatch.setattr(careful, "plan", plan)
    firing = decide.plan_firing(Memory(), view(*jobs(2)), Facts(session="a"), HERE)
    assert [each.job for each in firing.plans] == ["job-1"]
    assert [(one.id, str(why)) for one, why in firing.not_planned] == [(0, "broken")]


@pytest.mark.parametrize("passing", [False, True])
def test_a_plan_that_fails_each_time_is_found_by_halves_and_holds_up_no_other_job(passing: bool) -> None:
    memory, fired, rounds = Memory(), set[str](), 0
    while len(fired) < 5:
        seen = view(*(one for one in jobs(6) if one.spec.name not in fired))
        facts = Facts(session="a")
        firing = decide.plan_firing(memory, seen, facts, HERE)
        if any(each.job == "job-0" for each in firing.plans):
            memory = replace(memory, careful=memory.careful.after_failure(firing.plans, HERE, temporary=passing))
        else:
            won = Fired(firing.plans)
            memory = decide.set_alarm(
                memory, seen, facts, HERE, firing=firing, fired=won, firing_seconds=0.0, look_at_once=False
            )
            fired |= {each.job for each in firing.plans}
        rounds += 1
        assert rounds <= 3 + 6, "the job that fails comes first each time"
    assert "job-0" not in fired
    assert [one for one, _, _ in memory.careful.set_aside] == ([] if passing else [0])


# --- how long to wait for a store that is away ------------------------------------------------------------------------

BOUNDS = (0.1, 5.0)


def test_backoff_grows_up_to_a_bound() -> None:
    for seed in ("node-1", "node-2", ""):
        waits = [backoff_seconds(failures, BOUNDS, seed) for failures in range(12)]
        assert 0.05 <= waits[0] <= 0.1
        assert all(2.5 <= wait <= 5.0 for wait in waits[6:])
        assert waits[6] > 4 * waits[2]
    assert backoff_seconds(5000, BOUNDS, "a") <= 5.0
    assert backoff_seconds(MOST_DOUBLINGS, (0.1, 1e9), "a") <= 0.1 * 2**MOST_DOUBLINGS


def test_backoff_differs_from_node_to_node_and_from_time_to_time() -> None:
    waits = sorted(backoff_seconds(7, BOUNDS, f"session-{number}") for number in range(30))
    assert waits[-1] - waits[0] > 1.5
    assert len({round(wait, 2) for wait in waits}) > 20
    assert len({backoff_seconds(failures, BOUNDS, "node-1") for failures in range(6, 16)}) == 10
    assert backoff_seconds(3, BOUNDS, "node-1") == backoff_seconds(3, BOUNDS, "node-1")
