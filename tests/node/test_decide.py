"""What a node does next: situations, and what follows from each. No clock, no store, no thread."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cronsensus import planning
from cronsensus.membership.liveness import ABSENT_FOR, AGAIN_AFTER, JOURNEYS, Absences
from cronsensus.model.job import Era, JobSpec, JobState, Policies
from cronsensus.model.plan import Plan
from cronsensus.model.session import SessionView
from cronsensus.node import decide, foresight, planned
from cronsensus.node.backoff import backoff
from cronsensus.node.decide import (
    AFTER_A_LOST_RACE,
    CLOCK_SET,
    FULL,
    HOUSEKEEPING,
    LEAST_DUE,
    LOOK_AFTER_CLAIM,
    MOST_DUE,
    POLL,
    RECENTLY_ACTIVE,
    TAKEOVER_ROUND_TRIPS,
    TIDY,
)
from cronsensus.node.foresight import FEW, FORECAST_OFF_FOR, HORIZON
from cronsensus.node.idle_mode import HINTED, NEIGHBOURS_KEPT, neighbours_to_check
from cronsensus.node.lead_time import LEADS, LOOKS, SLACK, LeadTime
from cronsensus.node.pace import GATHER, STALLED, Pace
from cronsensus.node.planned import SHARED_FROM
from cronsensus.node.situation import NEVER, Facts, Fired, Idle, Memory, Question, Todo
from cronsensus.node.turn_order import (
    ACTIVE,
    LOOKOUT,
    POLL_UNTOLD,
    STAGGER,
    idle_until,
    is_active,
    lookout,
    partition_of,
    place,
)
from cronsensus.stores.values import AT_ONCE, Partition, View
from cronsensus.triggers import every

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HERE = 1000.0
WATCH = 0.5
SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)
LEAD = LeadTime().seconds


def job(due_in: timedelta = AT_ONCE, *, number: int = 1, active: int = 0, overlap: str = "skip") -> JobState:
    """Return a job of each half minute that is due so long after ``NOW``."""
    trigger = every("30s", start=NOW + due_in)
    policies = Policies.read({"overlap": overlap})
    return JobState(
        id=number,
        spec=JobSpec(name=f"job-{number}", function="work", trigger=trigger, policies=policies),
        revision=1,
        watermark=NOW + due_in - 30 * SECOND,
        eras=(Era(since=NOW - 60 * SECOND, trigger=trigger, revision=1),),
        active=active,
        due_at=NOW + due_in,
    )


def jobs(count: int) -> tuple[JobState, ...]:
    return tuple(job(number=number) for number in range(count))


def holder(session: str = "b", *, left: timedelta = 9 * SECOND) -> SessionView:
    return SessionView(
        id=session, node=session, host="h", pid=1, pid_started=1, release="r1", version="1", concurrency=1, functions=1,
        state="alive", started_at=NOW, renewed_at=NOW, ended_at=None, ended_why=None, expires_in=left, holds=1,
    )  # fmt: skip


def view(*due: JobState, sessions: tuple[str, ...] = ("a",), coming: timedelta | None = None, **more: Any) -> View:
    seen: dict[str, Any] = {
        "more": False,
        "backlog": False,
        "next_job": None if coming is None else NOW + coming,
        "next_pending": None,
        "holders": (),
    }
    return View(now=NOW, jobs=due, sessions=sessions, **seen | more)


CROWD = tuple(f"s{number:02}" for number in range(3 * ACTIVE))
IDLE = max((one for one in CROWD if not is_active(one, CROWD, NOW)), key=lambda one: idle_until(one, CROWD, NOW))
BOTH = ("a", "b")
FIRST, LATER = sorted(BOTH, key=lambda one: place(one, BOTH, NOW))
ABSENT = view(holders=(holder(),), absent=("b",), sessions=BOTH)


def wins(plans: tuple[Plan, ...], want: int) -> Fired:
    return Fired(plans, 0, min(want, sum(len(each.occurrences) for each in plans)))


def loses(plans: tuple[Plan, ...], _: int) -> Fired:
    return Fired((), len(plans), 0)


KNOWS: dict[str, Any] = {"looked_at": HERE - 1, "look_at": HERE + 5, "backlog": False}
LONG_QUEUE: dict[str, Any] = {
    "full": True, "looked_at": HERE - 0.1, "look_at": HERE + 5, "pace": Pace(1000.0, HERE), "stepped_at": HERE - 0.01,
}  # fmt: skip
RESERVED: dict[str, Any] = {
    "free": 0, "unsettled": True, "reserved": 80, "few_reserved": False, "reserved_for": 0.05,
}  # fmt: skip

NOTED = (
    "settle", "adopt", "want", "internal", "reserve", "hand_back", "notify", "reclaim", "prune", "renew",
    "read_neighbours",
)  # fmt: skip


@dataclass(kw_only=True)
class Situation:
    """What is the case before a round, whose look is answered at ``NOW``, which is ``HERE`` by the node's clock.

    ``facts`` and ``memory`` are what differs from a node that has four free slots and remembers nothing.
    """

    session: str = "a"
    view: View = field(default_factory=view)
    facts: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    fired: Callable[[tuple[Plan, ...], int], Fired] = wins
    took: float = 0.0
    """Seconds of the look."""

    @property
    def given(self) -> tuple[Memory, Facts]:
        facts: dict[str, Any] = {"session": self.session, "free": 4}
        memory: dict[str, Any] = {"reclaimed_at": HERE, "pruned_at": HERE}
        return Memory(**memory | self.memory), Facts(**facts | self.facts)

    def follows(self) -> dict[str, Any]:
        """Play a round; return what it does, apart from the look."""
        follows: dict[str, Any] = {}

        def note(todo: Todo) -> Todo:
            for name in (
                "settle",
                "adopt",
                "want",
                "internal",
                "notify",
                "reclaim",
                "prune",
                "renew",
                "read_neighbours",
                "reserve",
                "hand_back",
            ):
                if (value := getattr(todo, name)) != getattr(Todo(), name):
                    follows[name] = value
            if todo.plans:
                follows["fires ahead" if todo.ahead else "fires"] = [each.job for each in todo.plans]
            return todo

        memory, facts = self.given
        todo, memory = decide.before_look(memory, facts, HERE - self.took)
        if note(todo).look is None:
            return follows if todo.sleep is None else follows | {"sleep": todo.sleep}
        memory = decide.looked(memory, self.view, HERE - self.took, HERE)
        todo, memory = decide.due(memory, self.view, facts, HERE)
        fired = self.fired(note(todo).plans, todo.want)
        again, memory = decide.learn(memory, self.view, facts, HERE, todo=todo, fired=fired)
        upkeep, memory = decide.maintain(memory, self.view, facts, HERE)
        # The sessions that are reclaimed held something, and that is to be claimed now.
        again |= note(upkeep).reclaim is not None
        if memory.partition is not None:
            follows["partition"] = memory.partition
        planned, memory = decide.next_look(
            memory, self.view, facts, HERE, early=todo.early, coming=fired.coming(NOW), again=again
        )
        if note(planned).sleep is not None:
            return follows | {"sleep": planned.sleep}
        todo, memory = decide.ahead(memory, self.view, facts, HERE)
        note(todo)
        return follows | {"sleep": decide.sleep(memory, facts, HERE)[0]}


TEN: dict[str, tuple[Situation, dict[str, Any]]] = {
    "a job is due, and no other node is there": (
        Situation(view=view(job())),
        {"fires": ["job-1"], "want": 4, "sleep": 30 - LEAD},
    ),
    "a job is due, and another node is first in turn order": (
        Situation(session=LATER, view=view(job(), sessions=BOTH), memory={"expected": NOW}),
        {"sleep": STAGGER / SECOND},
    ),
    "the store is 40 ms away, and a job is due in 50": (
        Situation(
            view=view(job(50 * MS), coming=50 * MS),
            memory={"lead": LeadTime(slowest=0.12, looks=(0.04,) * 4)},
            took=0.04,
        ),
        {"fires ahead": ["job-1"], "want": 4, "sleep": 0.03},
    ),
    "another node was faster with a job": (
        Situation(view=view(job()), fired=loses),
        {"fires": ["job-1"], "want": 4, "sleep": 2 * AFTER_A_LOST_RACE},
    ),
    "the answer of a step was lost": (
        Situation(view=view(job()), facts={"in_doubt": True}, memory={"alone": True}),
        {"adopt": True},
    ),
    "a neighbour's sign of life is gone since this look": (
        Situation(view=ABSENT),
        {"sleep": AGAIN_AFTER * ABSENT_FOR},
    ),
    "a neighbour's sign of life has been gone for two looks": (
        Situation(view=ABSENT, memory={"absences": Absences().after(ABSENT, HERE - 1, HERE - 1)}),
        {"reclaim": ("b",), "sleep": 0.0},
    ),
    "twelve nodes are there, and this one is in idle mode": (
        Situation(session=IDLE, view=view(sessions=CROWD, coming=SECOND)),
        {"read_neighbours": True, "sleep": 1 + WATCH},
    ),
    "more is due than one look takes, on six nodes": (
        Situation(session="s01", view=view(*jobs(3), sessions=CROWD[:6], more=True)),
        {"notify": True, "partition": Partition(1, 6), "sleep": 0.0},
    ),
    "the queue is long, and the last claim took every free slot": (
        Situation(memory={"full": True, "looked_at": HERE - 0.1, "look_at": HERE + 5}),
        {"want": 4},
    ),
}
"""Also in docs/tour.md."""

MORE: dict[str, tuple[Situation, dict[str, Any]]] = {
    "nothing is due and nothing runs": (Situation(), {"sleep": POLL}),
    "the same where no notification reaches the node": (
        Situation(facts={"told": False}),
        {"sleep": POLL_UNTOLD / SECOND},
    ),
    "a run of another node is watched": (Situation(view=view(holders=(holder(),))), {"sleep": WATCH}),
    "the lease of another node's run ends soon": (
        Situation(view=view(holders=(holder(left=100 * MS),))),
        {"sleep": 0.1},
    ),
    "an own run is not watched": (Situation(view=view(holders=(holder("a"),))), {"sleep": POLL}),
    "a session is overdue": (Situation(view=view(holders=(holder(left=AT_ONCE),))), {"reclaim": (), "sleep": 0.0}),
    "the process of a neighbour is gone": (
        Situation(view=view(holders=(holder(),)), facts={"gone": frozenset("b")}),
        {"reclaim": ("b",), "sleep": 0.0},
    ),
    "the same, and sessions are judged by their leases alone": (
        Situation(view=view(holders=(holder(),)), facts={"gone": frozenset("b"), "fast_evidence": False}),
        {"sleep": WATCH},
    ),
    "a sign of life is gone, and sessions are judged by their leases alone": (
        Situation(view=ABSENT, facts={"fast_evidence": False}),
        {"sleep": WATCH},
    ),
    "a node never takes itself for dead": (
        Situation(view=view(holders=(holder("a"),), absent=("a",)), facts={"gone": frozenset("a")}),
        {"sleep": POLL},
    ),
    "its own session is overdue": (
        Situation(view=view(holders=(holder("a", left=AT_ONCE),))),
        {"reclaim": (), "sleep": 0.0},
    ),
    "nothing was reclaimed for long": (Situation(memory={"reclaimed_at": HERE - TIDY}), {"reclaim": (), "sleep": 0.0}),
    "nothing was reclaimed for almost as long": (Situation(memory={"reclaimed_at": HERE - TIDY + 1}), {"sleep": POLL}),
    "nothing was pruned for an hour": (Situation(memory={"pruned_at": HERE - HOUSEKEEPING}), {"sleep": POLL}),
    "nothing was pruned for longer": (
        Situation(memory={"pruned_at": HERE - HOUSEKEEPING - 1}),
        {"prune": True, "sleep": POLL},
    ),
    "a far store takes long to tell of a missing sign": (
        Situation(view=ABSENT, took=0.1),
        {"sleep": WATCH - 0.05},
    ),
    "work waits": (Situation(view=view(backlog=True), fired=lambda *_: Fired(claimed=4)), {"want": 4, "sleep": WATCH}),
    "work waits that is for other nodes": (
        Situation(view=view(backlog=True), memory={"fruitless": 2}, fired=lambda *_: Fired()),
        {"want": 4, "sleep": 4 * WATCH},
    ),
    "work waits, and no slot is free": (
        Situation(view=view(backlog=True), facts={"free": 0}),
        {"sleep": POLL},
    ),
    "work waits, no slot is free, and internal jobs need none": (
        Situation(view=view(backlog=True), facts={"free": 0, "internal": True}, fired=lambda *_: Fired(claimed=1)),
        {"internal": True, "sleep": WATCH},
    ),
    "the same, and the lease is not trusted": (
        Situation(view=view(backlog=True), facts={"free": 0, "internal": True, "may_claim": False, "trusted": False}),
        {"renew": True, "sleep": WATCH},
    ),
    "work is due later": (
        Situation(view=view(next_pending=NOW + 5 * SECOND)),
        {"sleep": 5.0},
    ),
    "a job is due, and no slot is free": (
        Situation(view=view(job()), facts={"free": 0}),
        {"fires": ["job-1"], "sleep": 30 - LEAD},
    ),
    "a job is due, and the lease is not trusted": (
        Situation(view=view(job()), facts={"trusted": False, "may_claim": False}),
        {"fires": ["job-1"], "renew": True, "sleep": WATCH},
    ),
    "a job is due, and an earlier node did not come": (
        Situation(session=LATER, view=view(job(-STAGGER), sessions=BOTH), memory={"expected": NOW - 2 * STAGGER}),
        {"fires": ["job-1"], "want": 4, "sleep": 30 - STAGGER / SECOND - LEAD},
    ),
    "another race is lost": (
        Situation(view=view(job()), fired=loses, memory={"lost_races": 3}),
        {"fires": ["job-1"], "want": 4, "sleep": 16 * AFTER_A_LOST_RACE},
    ),
    "many jobs are due at once, on two nodes": (
        Situation(view=view(*jobs(SHARED_FROM), sessions=BOTH), facts={"free": 20}),
        {"fires": [f"job-{one}" for one in range(SHARED_FROM)], "want": SHARED_FROM // 2, "sleep": 30 - LEAD},
    ),
    "a few jobs are due at once, on two nodes": (
        Situation(view=view(*jobs(SHARED_FROM - 1), sessions=BOTH), facts={"free": 20}),
        {"fires": [f"job-{one}" for one in range(SHARED_FROM - 1)], "want": 20, "sleep": 30 - LEAD},
    ),
    "more is due than one look takes, on the active set": (
        Situation(session="s01", view=view(*jobs(3), sessions=CROWD[:ACTIVE], more=True)),
        {"partition": Partition(1, ACTIVE), "sleep": 0.0},
    ),
    "a partition of the due jobs": (
        Situation(view=view(job(), more=True), memory={"partition": Partition(0, 2)}),
        {"fires": ["job-1"], "want": 4, "partition": Partition(0, 2), "sleep": 0.0},
    ),
    "the last of a partition": (
        Situation(view=view(job()), memory={"partition": Partition(0, 2)}),
        {"fires": ["job-1"], "want": 4, "sleep": 0.0},
    ),
    "a partition in which nothing can be planned": (
        Situation(view=view(more=True), memory={"partition": Partition(0, 2)}),
        {"sleep": 0.0},
    ),
    "after its partition a node helps the others": (
        Situation(view=view(*jobs(3), more=True), memory={"helping": True}),
        {"fires": ["job-0", "job-1", "job-2"], "want": 4, "sleep": 0.0},
    ),
    "in a partition, created work waits": (
        Situation(memory={"partition": Partition(0, 2), "waits": True}),
        {"want": 4},
    ),
    "in a partition, few slots are free": (
        Situation(memory={"partition": Partition(0, 2), "fired_at": HERE - 0.01}, facts={"free": LEAST_DUE - 1}),
        {"sleep": FULL - 0.01},
    ),
    "the last step failed: half as many plans": (
        Situation(view=view(*jobs(4)), memory={"most_plans": 2}),
        {"fires": ["job-0", "job-1"], "want": 4, "sleep": 0.0},
    ),
    "a plan failed alone: its job is set aside": (
        Situation(view=view(*jobs(2)), memory={"most_plans": 1, "set_aside": ((0, 1, HERE + 1),)}),
        {"fires": ["job-1"], "want": 4, "sleep": 30 - LEAD},
    ),
    "a plan failed alone a minute ago: its job is tried again": (
        Situation(view=view(*jobs(2)), memory={"set_aside": ((0, 1, HERE),)}),
        {"fires": ["job-0", "job-1"], "want": 4, "sleep": 30 - LEAD},
    ),
    "a notification came": (Situation(facts={"notified": True}), {"want": 4}),
    "a notification came, and results wait for the store": (
        Situation(facts={"notified": True, "unsettled": True}),
        {"settle": True, "want": 4},
    ),
    "a notification came, and the last step with results failed": (
        Situation(facts={"notified": True, "unsettled": True}, memory={"alone": True}),
        {"settle": True},
    ),
    "a notification came, and no slot is free": (
        Situation(facts={"notified": True, "free": 0}, view=view(backlog=True)),
        {"sleep": POLL},
    ),
    "a notification came, and the answer of a step was lost": (
        Situation(facts={"notified": True, "in_doubt": True}),
        {"adopt": True},
    ),
    "a notification came, and the node drains": (
        Situation(facts={"notified": True, "draining": True}),
        {"sleep": WATCH},
    ),
    "a long queue of short runs, and results wait": (
        Situation(memory=LONG_QUEUE, facts={"free": 0, "unsettled": True}),
        {"settle": True, "reserve": 100},
    ),
    "a long queue of short runs, and few are left of what was reserved": (
        Situation(memory=LONG_QUEUE, facts={"free": 0, "unsettled": True, "reserved": 40, "reserved_for": 0.05}),
        {"settle": True, "reserve": 60},
    ),
    "a long queue of short runs, and enough is reserved": (
        Situation(memory=LONG_QUEUE, facts=RESERVED),
        {"sleep": pytest.approx(GATHER - 0.01)},
    ),
    "a long queue, enough is reserved, and results have waited": (
        Situation(memory=LONG_QUEUE | {"stepped_at": HERE - GATHER}, facts=RESERVED),
        {"settle": True},
    ),
    "a long queue, enough is reserved, and something is due": (
        Situation(memory=LONG_QUEUE | {"look_at": HERE}, facts=RESERVED),
        {"settle": True},
    ),
    "what is reserved waits for longer than it should": (
        Situation(memory=LONG_QUEUE, facts=RESERVED | {"reserved_for": STALLED + 0.01}),
        {"hand_back": True},
    ),
    "something is reserved, and the node drains": (
        Situation(memory=LONG_QUEUE, facts=RESERVED | {"draining": True}),
        {"hand_back": True},
    ),
    "something is reserved, and the lease is not trusted": (
        Situation(memory=LONG_QUEUE, facts=RESERVED | {"trusted": False, "may_claim": False}),
        {"hand_back": True},
    ),
    "a long queue of short runs, and the last step with results failed": (
        Situation(memory=LONG_QUEUE | {"alone": True}, facts={"free": 0, "unsettled": True}),
        {"settle": True},
    ),
    "a long queue of short runs, and attempts that are over keep slots": (
        Situation(memory=LONG_QUEUE, facts={"free": 0, "unsettled": True, "given_up": True}),
        {"settle": True},
    ),
    "a queue of short runs that is not known to be long": (
        Situation(memory=LONG_QUEUE | {"full": False}, facts={"unsettled": True}),
        {"settle": True},
    ),
    "a long queue of long runs, and results wait": (
        Situation(memory=LONG_QUEUE | {"pace": Pace(9.0, HERE)}, facts={"free": 0, "unsettled": True}),
        {"settle": True},
    ),
    "a long queue, and no slot is free": (
        Situation(memory={"full": True, "looked_at": HERE, "look_at": HERE + 0.2}, facts={"free": 0}),
        {"sleep": 0.2},
    ),
    "a long queue, and something is to be fired": (
        Situation(memory={"full": True, "looked_at": HERE, "look_at": HERE}),
        {"sleep": POLL},
    ),
    "a job is due in 9 ms, and to decide takes 10": (
        Situation(view=view(job(9 * MS), coming=9 * MS)),
        {"fires ahead": ["job-1"], "want": 4, "sleep": 0.009},
    ),
    "a job comes due soon whose last run goes on": (
        Situation(view=view(job(9 * MS, active=1), coming=9 * MS)),
        {"sleep": 0.009},
    ),
    "the same, and runs may overlap": (
        Situation(view=view(job(9 * MS, active=1, overlap="allow"), coming=9 * MS)),
        {"fires ahead": ["job-1"], "want": 4, "sleep": 0.009},
    ),
    "a job comes due soon, and no slot is free": (
        Situation(view=view(job(9 * MS), coming=9 * MS), facts={"free": 0}),
        {"sleep": 0.009},
    ),
    "a job comes due soon that was decided already": (
        Situation(view=view(job(9 * MS), coming=9 * MS), memory={"decided": NOW + 9 * MS}),
        {"sleep": 0.009},
    ),
    "a job comes due soon that the look did not reach": (Situation(view=view(coming=9 * MS)), {"sleep": 0.0}),
    "the store is near, and a job is due in 50 ms": (
        Situation(view=view(job(50 * MS), coming=50 * MS)),
        {"sleep": 0.05 - LEAD},
    ),
    "the store is near and was slow once, and a job is due in 200 ms": (
        Situation(
            view=view(job(200 * MS), coming=200 * MS), memory={"lead": LeadTime(slowest=0.3, looks=(0.001,) * 4)}
        ),
        {"sleep": 0.2 - LEADS[1]},
    ),
    "a job comes due later": (Situation(view=view(coming=5 * SECOND)), {"sleep": 5 - LEAD}),
    "a run waits for its due time": (
        Situation(view=view(coming=20 * MS), memory={"decided": NOW + 20 * MS}, facts={"begins_in": 0.021}),
        {"sleep": 0.021},
    ),
    "progress is to be written": (Situation(facts={"progress_in": 0.3}), {"sleep": 0.3}),
    "a run that was given up keeps its slot": (Situation(facts={"given_up": True}), {"sleep": WATCH}),
    "results wait for the store": (Situation(facts={"unsettled": True}), {"settle": True}),
    "results wait, and the queue is long: they go with a claim": (
        Situation(facts={"unsettled": True}, memory={"full": True, "looked_at": HERE - 0.1, "look_at": HERE + 5}),
        {"settle": True, "want": 4},
    ),
    "the step with both failed: results go alone": (
        Situation(
            facts={"unsettled": True},
            memory={"full": True, "looked_at": HERE - 0.1, "look_at": HERE + 5, "alone": True},
        ),
        {"settle": True},
    ),
    "results wait, and the answer of a claim was lost": (
        Situation(
            facts={"unsettled": True, "in_doubt": True},
            memory={"full": True, "looked_at": HERE - 0.1, "look_at": HERE + 5},
        ),
        {"settle": True},
    ),
    "results wait in a partition in which created work waits, too": (
        Situation(facts={"unsettled": True}, memory={"partition": Partition(0, 2), "waits": True}),
        {"settle": True, "want": 4},
    ),
    "progress is to be written now": (Situation(facts={"progress_in": 0.0}), {"settle": True}),
    "the session is lost": (Situation(facts={"lost": True}), {"sleep": 0.0}),
    "the node drains": (Situation(view=view(job()), facts={"draining": True}), {"sleep": WATCH}),
    "the node drains, and results wait": (Situation(facts={"draining": True, "unsettled": True}), {"settle": True}),
    "the node drains, and progress is to be written": (
        Situation(facts={"draining": True, "progress_in": 0.2}),
        {"sleep": 0.2},
    ),
    "idle nodes that no notification reaches are active": (
        Situation(
            session=IDLE,
            view=view(sessions=CROWD, coming=300 * MS),
            facts={"told": False},
            memory={"active_at": HERE},
        ),
        {"sleep": pytest.approx(0.3, abs=0.1)},
    ),
    "an idle node knows its neighbours": (
        Situation(session=IDLE, view=view(sessions=CROWD, coming=SECOND), memory={"neighbours_at": HERE - 1}),
        {"sleep": 1 + WATCH},
    ),
    "an idle node watches from now on what runs now": (
        Situation(
            session=IDLE,
            view=view(sessions=CROWD, holders=(holder(),)),
            memory={"neighbours_at": HERE - NEIGHBOURS_KEPT},
        ),
        {"sleep": WATCH},
    ),
    "idle mode goes on": (
        Situation(memory={"idle": Idle(until=HERE + 5, watch_at=HERE), "neighbours": (holder(),)}),
        {"sleep": WATCH},
    ),
    "idle mode ends with the process of a neighbour": (
        Situation(
            memory={"idle": Idle(until=HERE + 5, watch_at=HERE), "neighbours": (holder(),)},
            facts={"gone": frozenset("b")},
        ),
        {"sleep": POLL},
    ),
    "idle mode is over": (Situation(memory={"idle": Idle(until=HERE, watch_at=HERE)}), {"sleep": POLL}),
}


@pytest.mark.parametrize(("situation", "follows"), [*TEN.values(), *MORE.values()], ids=[*TEN, *MORE])
def test_each_situation_leads_to_its_decision(situation: Situation, follows: dict[str, Any]) -> None:
    assert situation.follows() == {
        name: pytest.approx(value) if name == "sleep" and isinstance(value, float) else value
        for name, value in follows.items()
    }


def test_decision_changes_none_of_its_arguments() -> None:
    for situation, _ in [*TEN.values(), *MORE.values()]:
        before = situation.given
        assert situation.follows() == situation.follows()
        assert situation.given == before


# --- over several rounds ----------------------------------------------------------------------------------------------


def test_a_claim_without_a_look_is_followed_by_a_look_unless_it_came_back_full() -> None:
    memory, facts = Situation(memory={"full": True, "looked_at": HERE, "look_at": HERE + 5}).given
    full = replace(facts, free=0)
    assert decide.before_look(memory, full, HERE, claimed=4)[0] == Todo(sleep=facts.watch)
    todo, after = decide.before_look(memory, replace(facts, free=1), HERE, claimed=3)
    assert (todo.look is not None, after.full) == (True, False)
    assert decide.before_look(memory, replace(facts, may_claim=False), HERE)[0].look is not None


@pytest.mark.parametrize(
    ("facts", "memory", "looks"),
    [
        ({}, {}, False),
        ({"news": True}, {}, True),
        ({"told": False}, {}, True),
        ({"trusted": False}, {}, True),
        ({}, {"backlog": True}, True),
        ({}, {"partition": Partition(0, 2)}, True),
        ({}, {"look_at": HERE}, True),
    ],
)
def test_the_end_of_a_run_alone_is_no_reason_to_look(
    facts: dict[str, Any], memory: dict[str, Any], looks: bool
) -> None:
    known: dict[str, Any] = {"backlog": False, "look_at": HERE + 5} | memory
    ended: dict[str, Any] = {"session": "a", "free": 3, "news": False} | facts
    todo, _ = decide.before_look(Memory(**known), Facts(**ended), HERE, claimed=0)
    assert todo.sleep == (None if looks else 5)


@pytest.mark.parametrize(("free", "limit"), [(0, LEAST_DUE), (LEAST_DUE + 1, LEAST_DUE + 1), (1000, MOST_DUE)])
def test_of_a_partition_a_node_looks_at_no_more_than_it_can_start(free: int, limit: int) -> None:
    memory, facts = Situation(memory={"partition": Partition(0, 2)}, facts={"free": free}).given
    todo, _ = decide.before_look(memory, facts, HERE)
    assert todo.look == Question(limit=limit, partition=Partition(0, 2), ahead=AT_ONCE)


@pytest.mark.parametrize(
    ("facts", "memory", "ahead"),
    [
        ({}, {}, HORIZON),
        ({"told": False}, {}, timedelta(seconds=LEAD + SLACK)),
        ({}, {"in_idle_mode": True}, timedelta(seconds=LEAD + SLACK)),
        ({}, {"blind_until": HERE + 1}, timedelta(seconds=LEAD + SLACK)),
    ],
    ids=["foresight", "no notification", "idle mode", "too many come due"],
)
def test_a_look_goes_as_far_as_can_be_foreseen_or_as_the_node_decides_ahead(
    facts: dict[str, Any], memory: dict[str, Any], ahead: timedelta
) -> None:
    todo, _ = decide.before_look(*Situation(facts=facts, memory=memory).given, HERE)
    assert todo.look == Question(limit=MOST_DUE, partition=None, ahead=ahead)


# --- foresight --------------------------------------------------------------------------------------------------------


def ticking() -> JobState:
    """Return a job of each second, the next of which is due in one."""
    eras = (Era(since=NOW - SECOND, trigger=every("1s", start=NOW), revision=1),)
    return replace(job(SECOND), watermark=NOW, eras=eras)


def foresees(session: str, sessions: tuple[str, ...], **more: Any) -> Memory:
    """Return what a node remembers that saw a job of each second, 1 s before it is due."""
    seen = view(ticking(), sessions=sessions, coming=SECOND, **more)
    memory, facts = Situation(session=session, memory={"wide": True, "backlog": False}).given
    memory = decide.looked(memory, seen, HERE, HERE)
    return decide.next_look(memory, seen, facts, HERE, early=AT_ONCE, coming=None, again=False)[1]


FOUR = ("a", "b", "c", "d")


def place_in(second: int, session: str) -> int:
    return place(session, FOUR, NOW + second * SECOND)


@pytest.mark.parametrize("session", FOUR)
def test_each_node_wakes_at_its_turn_and_the_first_has_its_plan_ready(session: str) -> None:
    memory, number = foresees(session, FOUR), place_in(1, session)
    assert memory.look_at == pytest.approx(HERE + 1 + number * STAGGER / SECOND)
    assert memory.ours == (NOW + SECOND if number == 0 else None)
    assert memory.listens is (number > 1)
    assert (memory.coming is None) is (number == 1), "the second looks whatever it heard"


def in_place(number: int) -> str:
    return next(one for one in FOUR if place_in(1, one) == number)


@pytest.mark.parametrize(
    ("number", "announced", "news", "looks"),
    [
        (1, {1: NOW + SECOND}, False, True),
        (2, {}, False, True),
        (2, {1: NOW + SECOND}, False, False),
        (2, {1: NOW + 2 * SECOND}, False, False),
        (2, {1: NOW}, False, True),
        (2, {2: NOW + SECOND}, False, True),
        (2, {1: NOW + SECOND}, True, True),
        (3, {1: NOW + SECOND}, False, False),
        (3, {}, False, True),
    ],
    ids=["the second looks anyway", "silence", "it heard", "it heard more", "it heard of the time before",
         "it heard of another job", "something is new", "the fourth heard", "silence at the fourth"],
)  # fmt: skip
def test_third_node_looks_at_its_turn_unless_a_decision_was_announced(
    number: int, announced: dict[int, datetime], news: bool, looks: bool
) -> None:
    session = in_place(number)
    memory = foresees(session, FOUR)
    facts = Facts(session=session, free=4, news=news, announced=announced)
    early, _ = decide.before_look(memory, facts, memory.look_at - 0.001)
    assert early.look is None or news
    todo, after = decide.before_look(memory, facts, memory.look_at)
    assert (todo.look is not None) is looks
    if not looks:
        assert after.look_at > HERE + 1.5, "it goes on to its next turn"
        assert after.coming is None or after.coming.instant == NOW + 2 * SECOND


def test_an_announcement_has_the_time_of_a_round_trip_to_arrive() -> None:
    session = in_place(2)
    memory, facts = Situation(session=session, memory={"wide": True, "backlog": False}).given
    seen = view(ticking(), sessions=FOUR, coming=SECOND)
    for _ in range(LOOKS):
        memory = decide.looked(memory, seen, HERE - 0.04, HERE)
    at = memory.looked_at
    memory = decide.next_look(memory, seen, facts, HERE, early=AT_ONCE, coming=None, again=False)[1]
    assert memory.look_at == pytest.approx(at + 1 + 2 * STAGGER / SECOND + 0.04)


@pytest.mark.parametrize(
    ("trip", "wait"), [(0.0, WATCH), (0.02, WATCH - TAKEOVER_ROUND_TRIPS * 0.02), (1.0, WATCH / 2)]
)
def test_far_from_the_store_a_node_looks_sooner_at_what_others_run(trip: float, wait: float) -> None:
    memory, facts = Situation().given
    seen = view(holders=(holder(),))
    for _ in range(LOOKS):
        memory = decide.looked(memory, seen, HERE - trip, HERE)
    memory = decide.next_look(memory, seen, facts, HERE, early=AT_ONCE, coming=None, again=False)[1]
    assert memory.look_at - memory.looked_at == pytest.approx(wait)


def test_foresight_ends_although_every_due_time_is_announced() -> None:
    session = in_place(3)
    memory = foresees(session, FOUR)
    facts = Facts(session=session, free=4, news=False, announced={1: NOW + 60 * SECOND})
    todo, after = decide.before_look(memory, facts, HERE + 60)
    assert todo.look is not None
    assert after.coming is None or after.coming.instant is not None


@pytest.mark.parametrize(
    ("told", "seen", "won", "foreseen", "announced"),
    [
        (True, {}, True, True, True),
        (True, {}, True, False, True),
        (True, {"sessions": BOTH}, True, True, False),
        (False, {}, True, True, False),
        (True, {"more": True}, True, True, False),
        (True, {"backlog": True}, True, True, False),
        (True, {}, False, True, False),
    ],
    ids=["decided ahead", "decided at a look, and due again soon", "two nodes", "no notifications", "a herd",
         "something waits", "lost"],
)  # fmt: skip
def test_what_was_decided_is_announced_where_three_nodes_may_have_foreseen_it(
    told: bool, seen: dict[str, Any], won: bool, foreseen: bool, announced: bool
) -> None:
    shown = view(ticking(), **{"sessions": FOUR, **seen})
    plans = (planning.plan(ticking(), NOW + SECOND),) if won else ()
    said = decide.announces(shown, Fired(plans), told=told, foreseen=foreseen)
    assert said == ({1: NOW + SECOND} if announced else {})


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_job_that_comes_seldom_is_announced_only_if_it_was_foreseen(foreseen: bool) -> None:
    seldom = job(AT_ONCE)
    fired = Fired((planning.plan(seldom, NOW),))
    said = decide.announces(view(seldom, sessions=FOUR), fired, told=True, foreseen=foreseen)
    assert bool(said) is foreseen


@pytest.mark.parametrize(
    ("facts", "late", "foreseen"),
    [({"news": False}, 0.0, True), ({"news": False}, LEAD + 0.01, True), ({"news": True}, 0.0, False),
     ({"news": False}, LEAD + 0.02, False), ({"news": False, "trusted": False}, 0.0, False)],
    ids=["its time has come", "it is late", "something is new", "the second has its turn", "no trust in the lease"],
)  # fmt: skip
def test_the_first_node_decides_what_it_foresaw_without_a_look_if_nothing_is_new(
    facts: dict[str, Any], late: float, foreseen: bool
) -> None:
    memory = foresees(in_place(0), FOUR)
    given = Facts(session=in_place(0), free=4, **facts)
    todo, _ = decide.before_look(memory, given, HERE + 1 - LEAD + late)
    assert (todo.foreseen, todo.look is None) == (foreseen, foreseen)


@pytest.mark.parametrize(("outcome", "looks"), [(wins, False), (loses, True)], ids=["won", "lost"])
def test_what_was_foreseen_wrongly_is_looked_at_at_once(outcome: Any, looks: bool) -> None:
    memory, session, now = foresees(in_place(0), FOUR), in_place(0), HERE + 1 - LEAD
    facts = Facts(session=session, free=4, news=False)
    assert memory.coming is not None
    todo, memory = decide.ahead(memory, memory.coming.view, facts, now)
    assert [each.watermark for each in todo.plans] == [NOW + SECOND]
    assert [each.not_before for each in todo.plans] == [NOW + SECOND], "by the store's clock, which may have been set"
    fired = outcome(todo.plans, todo.want)
    memory = decide.learn_ahead(memory, facts, fired, 0.001, now, foreseen=True)
    assert (memory.look_at == now) is looks
    assert (memory.decided is None) is looks
    if not looks:
        assert memory.look_at > HERE + 1.01, "the node knows when this is due next"


def test_a_plan_that_is_taken_ahead_waits_behind_no_other_any_more() -> None:
    memory, session, now = foresees(in_place(0), FOUR), in_place(0), HERE + 1 - LEAD
    facts = Facts(session=session, free=4, news=False)
    assert memory.coming is not None
    todo, memory = decide.ahead(memory, memory.coming.view, facts, now)
    memory = decide.failed(memory, todo.plans, now, passing=True)
    assert memory.behind == {each.job_id for each in todo.plans}
    lost = decide.learn_ahead(memory, facts, loses(todo.plans, todo.want), 0.001, now, foreseen=True)
    assert lost.behind == memory.behind, "the store did not take it"
    won = decide.learn_ahead(memory, facts, wins(todo.plans, todo.want), 0.001, now, foreseen=True)
    assert won.behind == frozenset()


@pytest.mark.parametrize(
    "more",
    [{"more": True}, {"backlog": True}, {"next_pending": NOW + SECOND}],
    ids=["more comes due than a look shows", "something waits", "something waits for its time"],
)
def test_a_node_foresees_nothing_of_what_it_does_not_see_whole(more: dict[str, Any]) -> None:
    memory = foresees("a", FOUR, **more)
    assert memory.coming is None
    assert memory.expected == NOW + SECOND


@pytest.mark.parametrize(("due", "blind"), [(jobs(FEW), False), (jobs(FEW + 1), True)], ids=["few", "many"])
def test_where_much_comes_due_a_node_foresees_nothing_for_a_while(due: tuple[JobState, ...], blind: bool) -> None:
    memory = decide.looked(Memory(wide=True), view(*due), HERE, HERE)
    assert memory.blind_until == (HERE + FORECAST_OFF_FOR if blind else NEVER)


def test_a_job_that_cannot_be_planned_is_left_to_a_look_at_its_due_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(foresight, "plan", broken)
    last = in_place(3)
    memory = foresees(last, FOUR)
    facts = Facts(session=last, free=4, news=False, announced={1: NOW + SECOND})
    todo, _ = decide.before_look(memory, facts, memory.look_at)
    assert todo.look is not None


@pytest.mark.parametrize(
    ("ago", "wait"), [(0, WATCH), (RECENTLY_ACTIVE, WATCH), (RECENTLY_ACTIVE + 1, POLL_UNTOLD / SECOND)]
)
def test_node_without_notifications_looks_often_after_recent_activity(ago: float, wait: float) -> None:
    told = Situation(facts={"told": False}, memory={"active_at": HERE - ago})
    assert told.follows() == {"sleep": pytest.approx(wait)}


@pytest.mark.parametrize("count", range(2, 12))
def test_nodes_without_notifications_look_in_turns_with_short_gaps(count: int) -> None:
    crowd = tuple(f"s{number:02}" for number in range(count))
    looks = []
    for session in crowd:
        at = NOW
        mine = []
        while at < NOW + 20 * SECOND:
            # An estimate of the store's clock may be a little off.
            at += lookout(session, crowd, at + 5 * MS) + 3 * MS
            mine.append(at)
        assert max(later - earlier for earlier, later in pairwise(mine)) <= min(count * LOOKOUT, POLL_UNTOLD) + 20 * MS
        looks.append(mine)
    for dead in range(count):
        others = sorted(at for number, mine in enumerate(looks) if number != dead for at in mine)
        gaps = [later - earlier for earlier, later in pairwise(others) if later < NOW + 19 * SECOND]
        assert max(gaps) <= 2 * LOOKOUT + 20 * MS


def test_a_node_that_is_quiet_has_its_turn_to_look_among_the_others() -> None:
    told = Situation(facts={"told": False}, memory={"active_at": HERE - 60}, view=view(sessions=BOTH))
    assert told.follows() == {"sleep": pytest.approx(lookout("a", BOTH, NOW) / SECOND)}


def test_a_notification_wakes_idle_nodes_one_after_the_other() -> None:
    waits = set()
    for session in CROWD:
        memory, facts = Situation(session=session, memory={"idle": Idle(until=HERE + 60, watch_at=HERE + 60)}).given
        todo, after = decide.before_look(memory, facts, HERE)
        assert todo.sleep is not None
        assert HINTED[0] <= todo.sleep <= HINTED[1]
        again, _ = decide.before_look(after, facts, HERE + todo.sleep)
        assert again.look is not None
        waits.add(todo.sleep)
    assert len(waits) == len(CROWD)


def test_neighbours_are_checked_at_their_time_only() -> None:
    memory = Memory(idle=Idle(until=HERE + 5, watch_at=HERE), neighbours=(holder(),))
    checked = {at: neighbours_to_check(memory, HERE + at) for at in (-0.1, 0.0, 5.0)}
    assert checked == {-0.1: (), 0.0: (holder(),), 5.0: ()}
    assert neighbours_to_check(replace(memory, idle=None), HERE) == ()


def test_a_partition_that_leads_nowhere_is_left() -> None:
    """Jobs that cannot be planned stay due: a node that asked for more of them at once would never sleep."""
    memory, facts = Situation().given
    seen = view(job(), more=True, sessions=BOTH)
    todo, memory = decide.due(memory, seen, facts, HERE)
    assert (todo.again, memory.partition) == (True, Partition(0, 2))
    nothing = view(more=True, sessions=BOTH)
    todo, memory = decide.due(memory, nothing, facts, HERE)
    again, memory = decide.learn(memory, nothing, facts, HERE, todo=todo, fired=Fired())
    assert (again, memory.partition, memory.helping) == (True, None, True), "everything is looked at, once"
    todo, memory = decide.due(memory, seen, facts, HERE)
    again, memory = decide.learn(memory, seen, facts, HERE, todo=todo, fired=Fired((), 1, 0))
    assert (again, memory.partition, memory.helping) == (False, None, False)


def test_a_job_that_cannot_be_planned_does_not_keep_the_others_from_firing(monkeypatch) -> None:
    def plan(one: JobState, *_: object) -> Plan:
        if one.id == 0:
            raise ValueError("broken")
        return planning.plan(one, NOW)

    monkeypatch.setattr(planned, "plan", plan)
    todo, _ = decide.due(Memory(), view(*jobs(2)), Facts(session="a"), HERE)
    assert [each.job for each in todo.plans] == ["job-1"]
    assert [(one.id, str(why)) for one, why in todo.not_planned] == [(0, "broken")]


def test_a_plan_that_the_store_cannot_take_is_found_by_halves_and_set_aside() -> None:
    memory, fired, rounds = Memory(), set[str](), 0
    while len(fired) < 5:
        seen = view(*(one for one in jobs(6) if one.spec.name not in fired))
        todo, memory = decide.due(memory, seen, Facts(session="a"), HERE)
        if any(each.job == "job-0" for each in todo.plans):
            memory = decide.failed(memory, todo.plans, HERE, passing=False)
        else:
            won = Fired(todo.plans)
            _, memory = decide.learn(memory, seen, Facts(session="a"), HERE, todo=todo, fired=won)
            fired |= {each.job for each in todo.plans}
        rounds += 1
    assert "job-0" not in fired
    assert [job for job, _, _ in memory.set_aside] == [0]
    assert rounds <= 3 + 4


def test_a_plan_that_always_fails_for_a_reason_that_passes_holds_up_no_other_job() -> None:
    memory, fired, rounds = Memory(), set[str](), 0
    while len(fired) < 5:
        seen = view(*(one for one in jobs(6) if one.spec.name not in fired))
        todo, memory = decide.due(memory, seen, Facts(session="a"), HERE)
        if any(each.job == "job-0" for each in todo.plans):
            memory = decide.failed(memory, todo.plans, HERE, passing=True)
        else:
            won = Fired(todo.plans)
            _, memory = decide.learn(memory, seen, Facts(session="a"), HERE, todo=todo, fired=won)
            fired |= {each.job for each in todo.plans}
        rounds += 1
        assert rounds <= 3 + 6, "the job that fails comes first each time"
    todo, memory = decide.due(memory, view(*jobs(2)), Facts(session="a"), HERE)
    _, memory = decide.learn(memory, view(), Facts(session="a"), HERE, todo=todo, fired=Fired(todo.plans))
    assert memory.behind == frozenset(), "it was taken, and waits behind no other any more"


def test_an_outage_sets_no_job_aside() -> None:
    todo, memory = decide.due(Memory(), view(job()), Facts(session="a"), HERE)
    for _ in range(5):
        memory = decide.failed(memory, todo.plans, HERE, passing=True)
    assert (memory.most_plans, memory.set_aside) == (1, ())


def test_a_node_alone_has_all_jobs_in_its_partition() -> None:
    assert partition_of("a", ["a"]) == Partition(0, 1)
    assert partition_of("x", ["a", "b"]) == Partition(0, 1), "more nodes than a look shows"
    assert partition_of("b", ["a", "b", "c"]) == Partition(1, 3)


def test_another_look_tells_of_a_missing_sign_later_where_the_store_is_far() -> None:
    for took in (0.0, 0.02):
        follows = Situation(view=ABSENT, took=took).follows()
        assert follows == {"sleep": pytest.approx(AGAIN_AFTER * (ABSENT_FOR + JOURNEYS * took), abs=1e-6)}


@pytest.mark.parametrize(
    ("passed", "moved", "set_by"),
    [
        (60.0, 60 * SECOND, AT_ONCE),
        (60.0, 60 * SECOND + CLOCK_SET, AT_ONCE),
        (60.0, 3600 * SECOND, 3540 * SECOND),
        (60.0, -60 * SECOND, -120 * SECOND),
    ],
)
def test_a_clock_that_was_set_is_noticed(passed: float, moved: timedelta, set_by: timedelta) -> None:
    before = decide.looked(Memory(), view(), HERE, HERE)
    assert decide.clock_set(Memory(), before) == AT_ONCE
    after = decide.looked(before, replace(view(), now=NOW + moved), HERE + passed, HERE + passed)
    assert decide.clock_set(before, after) == set_by


# --- how long to wait for a store that is away -----------------------------------------------------------------------

BOUNDS = (0.1, 5.0)


def test_backoff_grows_up_to_a_bound() -> None:
    for seed in ("node-1", "node-2", ""):
        waits = [backoff(failures, BOUNDS, seed) for failures in range(12)]
        assert 0.05 <= waits[0] <= 0.1
        assert all(2.5 <= wait <= 5.0 for wait in waits[6:])
        assert waits[6] > 4 * waits[2]


def test_backoff_differs_from_node_to_node_and_from_time_to_time() -> None:
    waits = sorted(backoff(7, BOUNDS, f"session-{number}") for number in range(30))
    assert waits[-1] - waits[0] > 1.5
    assert len({round(wait, 2) for wait in waits}) > 20
    assert len({backoff(failures, BOUNDS, "node-1") for failures in range(6, 16)}) == 10
    assert backoff(3, BOUNDS, "node-1") == backoff(3, BOUNDS, "node-1")


def test_the_tour_tells_of_the_same_situations() -> None:
    page = (Path(__file__).parents[2] / "docs/tour.md").read_text(encoding="utf-8")
    section = page.partition("## Ten situations")[2].partition("\n## ")[0]
    told = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    assert told[1:] == list(TEN)


def after_notifications(*, at: tuple[float, ...] = (HERE,), **more: Any) -> tuple[Memory, Facts]:
    """Return what a node remembers that has claimed at notifications, and taken less than it has slots for."""
    memory, facts = Situation(memory=KNOWS | more).given
    for now in at:
        todo, memory = decide.before_look(memory, replace(facts, notified=True), now)
        assert todo.want == 4
    return memory, facts


@pytest.mark.parametrize("claimed", [0, 1])
def test_look_for_a_notification_leaves_the_claim_at_it_a_moment(claimed: int) -> None:
    memory, facts = after_notifications()
    assert decide.before_look(memory, facts, HERE, claimed)[0].sleep == pytest.approx(LOOK_AFTER_CLAIM)
    assert decide.before_look(memory, facts, HERE + LOOK_AFTER_CLAIM)[0].look is not None


def test_look_for_a_notification_is_put_off_no_further_by_more_of_them() -> None:
    memory, facts = after_notifications(at=(HERE, HERE + LOOK_AFTER_CLAIM / 2))
    assert decide.before_look(memory, facts, HERE + LOOK_AFTER_CLAIM / 2, 0)[0].sleep == pytest.approx(
        LOOK_AFTER_CLAIM / 2
    )
    memory = decide.looked(memory, view(), HERE + LOOK_AFTER_CLAIM, HERE + LOOK_AFTER_CLAIM)
    _, memory = decide.before_look(memory, replace(facts, notified=True), HERE + LOOK_AFTER_CLAIM)
    assert decide.before_look(memory, facts, HERE + LOOK_AFTER_CLAIM, 0)[0].sleep == pytest.approx(LOOK_AFTER_CLAIM), (
        "that look is over"
    )


def test_look_for_a_notification_comes_in_time_for_what_is_due() -> None:
    memory, facts = after_notifications(look_at=HERE + 0.001)
    assert decide.before_look(memory, facts, HERE, 0)[0].sleep == pytest.approx(0.001)


def test_look_for_a_notification_is_not_put_off_by_a_claim_that_took_every_slot() -> None:
    memory, facts = after_notifications()
    assert decide.before_look(memory, replace(facts, free=0), HERE, 4)[0].look is not None
