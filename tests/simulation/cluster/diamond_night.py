"""Nights of diamonds: a job after two that come after one, while nodes die and wake-ups are lost.

What each began behind is looked at in the moment in which it begins, and the ledger when all is over: each nominal time
of the foot has one verdict, which is that of what it comes after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import cast

from cronsensus.audit import audit
from cronsensus.model.gate import After, Rule, When
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import Reason, State
from cronsensus.triggers import every
from tests.simulation.cluster.batch_night import KEEP, BatchJudge, BatchPeople, BatchTroubles, SleepersWorld
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.scenario import Scenario, Shape
from tests.simulation.cluster.stage import Attempt, Stage
from tests.simulation.cluster.troubles import Troubles

TOP, LEFT, RIGHT, FOOT = "top", "left", "right", "foot"
WAIT_FOR = timedelta(seconds=240)
"""Longer than any wake-up may take; what comes after a job that is paused before its time was decided waits so long."""
WELL = {"succeeded": {State.SUCCEEDED}, "ended": {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED}}
BEHIND = (Reason.UPSTREAM_FAILED, Reason.UPSTREAM_SKIPPED, Reason.UPSTREAM_MISSING, Reason.UPSTREAM_LATE)


class DiamondScenario(Scenario):
    """Four jobs of one trigger, on rough nights only."""

    def __init__(self, rng: Random, *, prunes: bool) -> None:
        super().__init__(rng)
        self.names = [TOP, LEFT, RIGHT, FOOT]
        self.executors = dict.fromkeys(self.names, "thread")
        shape = rng.choice([Shape(0.01, 0.5, 0.9), Shape(0.1, 3.0, 0.8), Shape(1.0, 12.0, 0.9)])
        self.shapes = dict.fromkeys(self.names, shape)
        trigger = every(rng.choice([5, 10, 30]))
        policies = Policies.read(
            {
                "overlap": rng.choice(["allow", "queue"]),
                "catch_up": "all",
                "grace": None,
                "max_crashes": 100,
                "retries": rng.choice([0, 2, 20]),
                "retry_delay": 0.5,
                "retry_max_delay": 2,
                "keep": KEEP[prunes],
            }
        )
        self.when: dict[str, When] = {name: rng.choice(["succeeded", "succeeded", "ended"]) for name in self.names}
        upstreams = {LEFT: [TOP], RIGHT: [TOP], FOOT: [LEFT, RIGHT]}
        self.afters = {
            name: After(tuple(Rule(one, self.when[name]) for one in some), WAIT_FOR) for name, some in upstreams.items()
        }
        self.releases = [
            [
                JobSpec(
                    name=name,
                    function=name,
                    trigger=trigger,
                    policies=replace(policies, overlap="allow") if name in upstreams else policies,
                    after=self.afters.get(name),
                )
                for name in self.names
            ]
        ]
        self.outsiders = 0
        self.clock_steps = False
        self.rough = True
        self.nodes = max(2, self.nodes)
        self.seconds_between_acts = 30.0


class DiamondJudge(BatchJudge):
    """Looks at what is recorded of its upstreams whenever an attempt begins."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.ends: dict[tuple[str, datetime], int] = defaultdict(int)

    def work_begins(self, work: Attempt) -> None:
        """Ask whether its upstreams are over, and well."""
        super().work_begins(work)
        claim, scenario = work.call.claim, cast("DiamondScenario", self.stage.scenario)
        if claim.job not in scenario.afters or claim.scheduled_for is None or self.stage.parts.forgets:
            return
        for rule in scenario.afters[claim.job].upstreams:
            where = OccurrenceFilter(
                job=rule.job, scheduled_from=claim.scheduled_for, scheduled_until=claim.scheduled_for
            )
            found = self.stage.store.occurrences(where)
            if not found and self.stage.parts.prunes:
                continue  # it was read at the claim, and may be pruned since
            if not found and rule.when == "ended":
                continue  # it was paused then
            if not found or found[0].state not in WELL[rule.when]:
                self.broken("gate", f"{claim} begins, and of its upstream {rule.job} there is {found}")


class DiamondPeople(BatchPeople):
    """Pause and resume jobs, and now and then cancel something."""

    def do_one(self) -> None:
        """Pause a job for a while, or cancel something of it."""
        draw, job = self._rng.random(), self._rng.choice([TOP, LEFT, RIGHT, FOOT])
        if draw < 0.3:
            self.do("pause", job, by="people", why="")
            self._stage.after(self._rng.randint(1, 20) * SECOND, lambda: self.do("resume", job, by="people"))
        else:
            self.cancel_some(job)

    def leave_alone(self) -> None:
        """Pause everything, so that what is left can come to its end."""
        for job in (TOP, LEFT, RIGHT, FOOT):
            self.do("pause", job, by="people", why="")


class DiamondWorld(SleepersWorld):
    """A night of diamonds."""

    def __init__(self, seed: int, parts: Parts) -> None:
        super().__init__(seed, parts)
        self._diamond = DiamondScenario(self.chance["scenario"], prunes=parts.prunes)
        self.scenario = self._diamond
        self.judge = cast("Judge", DiamondJudge(self))
        self.people = DiamondPeople(self, self.judge, self.nodes)
        self.troubles: Troubles = BatchTroubles(self, self.people, self.nodes, self.outsiders)
        self.feet = 0

    def _reckon(self) -> None:
        self._judge_ended()
        nights = defaultdict[datetime, dict[str, list[Occurrence]]](lambda: defaultdict(list))
        for one in self._everything():
            if one.scheduled_for is not None:
                nights[one.scheduled_for][one.job].append(one)
            if not one.state.final:
                self.judge.broken(
                    "progress", f"#{one.id} {one.job} is still {one.state} ({one.reason}), due {one.due_at}"
                )
        for time, night in nights.items():
            for job, after in self._diamond.afters.items():
                self._agrees(time, night[job], [(rule, night[rule.job]) for rule in after.upstreams])
            self.feet += any(one.state is State.SUCCEEDED for one in night[FOOT])
        self.trace.add(self.clock.micros, "judge", "FEET", self.feet)
        for finding in audit(self.store, tolerance=timedelta(seconds=30)).findings:
            self.judge.broken("audit", finding.sentence)

    def _agrees(
        self, time: datetime, found: Sequence[Occurrence], upstreams: Sequence[tuple[Rule, Sequence[Occurrence]]]
    ) -> None:
        """Ask whether one nominal time of a job became what its upstreams say."""
        if len(found) > 1:
            self.judge.broken("once", f"{found[0].job} has {len(found)} occurrences for {time}")
        if self.parts.prunes and not all(some for _, some in upstreams):
            return  # it was there when this ran; what was not is judged by what this says
        for one in found:
            ran = one.state in {State.SUCCEEDED, State.FAILED}
            well = all(some[0].state in WELL[rule.when] if some else rule.when == "ended" for rule, some in upstreams)
            reason = one.reason or ""
            skipped = one.state is State.SKIPPED and reason.startswith(tuple(map(str, BEHIND)))
            if reason.startswith(str(Reason.UPSTREAM_LATE)):
                until = one.created_at + WAIT_FOR
                well = all(some and some[0].finished_at and some[0].finished_at < until for _, some in upstreams)
            if (ran and not well) or (skipped and well):
                became = {rule.job: [str(each.state) for each in some] for rule, some in upstreams}
                self.judge.broken("gate", f"{one.job} of {time} is {one.state} ({one.reason}) behind {became}")
