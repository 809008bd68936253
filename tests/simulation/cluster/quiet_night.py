"""Nights without faults, whose outcome does not depend on which node did what, nor on how often it asked.

What happens in a second happens at fixed places of it, so far apart that some milliseconds more or less do not change
what comes before what::

    .0  jobs come due, by jitter up to 0.2 later
    .35 people act, nodes start and leave
    .6  runs end: the first such moment after a number of seconds from the second in which they began

How long a run takes and how it ends is drawn by its job, key and attempt; nodes take turns in one order. So each
occurrence has one outcome, whatever the kernel asks of the store, as long as it does what is due within 0.15 seconds,
and what a run's end lets begin within 0.4.
``ledger`` tells the outcomes, and ``tests.simulation.quiet`` compares them with what they were.

Left out, because their outcome depends on the moment: leases that end, clocks that are set, runs that are cancelled or
cut off, ``grace=0``, pruning; and with more due than slots, all that asks how late it is or what runs beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, cast

from msgspec import structs

from cronsensus.audit import audit
from cronsensus.errors import CoordinationError, UnknownJob
from cronsensus.model.batch import shown_key
from cronsensus.model.ending import Ending, EndingKind
from cronsensus.model.job import JobSpec, JobView, Policies
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.stores.base import Store
from cronsensus.triggers import Trigger, any_of, at, cron, every
from tests.simulation.cluster.batch_night import JOB, BatchJudge, BatchScenario
from tests.simulation.cluster.clocks import SECOND, START, NodeClock
from tests.simulation.cluster.diamond_night import DiamondJudge, DiamondScenario
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.node import SimulatedNode
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.reckoning import EVERYTHING
from tests.simulation.cluster.scenario import Scenario
from tests.simulation.cluster.stage import Process
from tests.simulation.cluster.work import Work
from tests.simulation.cluster.world import LOOK, World

ACTS, ENDS = 350_000, 600_000
"""At which microsecond of a second people act, and runs end."""
NOTIFICATION_TAKES = 1000
"""Microseconds that a notification or an announcement takes."""
NOTICED = timedelta(seconds=3)
"""So soon after its job came due no run ends that its successor may cancel: until then its node hears of it."""
LONGEST = 50
"""More seconds than any run takes."""
AWAY = 5
"""Seconds from the moment when a node that left may be gone until it starts again."""
EVER = datetime.max.replace(tzinfo=UTC)
PATIENCE = 4000 * SECOND
SHAPES = [(1, 1, 1.0), (1, 3, 0.8), (1, 12, 0.9), (5, 40, 0.9)]
"""Seconds that an attempt takes at least and at most, and which share returns."""
KINDS: tuple[EndingKind, ...] = ("raised", "raised", "retry", "skipped", "cancelled")


class QuietScenario(Scenario):
    """Jobs and policies of a quiet night: of all kinds, as far as their outcome does not depend on the moment.

    Attributes:
        narrow: more may come due than there are slots.
    """

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.lasts: dict[str, tuple[int, int, float]] = {}
        self.narrow = rng.random() < 0.25
        self.releases = [[self._job(rng, name) for name in self.names]]
        if rng.random() < 0.4:
            first = self.releases[0]
            again = [self._job(rng, spec.name) if rng.random() < 0.6 else spec for spec in first]
            self.releases.append([spec for spec in again if rng.random() < 0.9] or again)
        settle_down(self, rng)
        self.hands = rng.choice([(1,), (1, 2)]) if self.narrow else (64,)
        self.micros = rng.randint(60, 150) * SECOND + ACTS

    def _job(self, rng: Random, name: str) -> JobSpec:
        shape = rng.choice(SHAPES[:2] if self.narrow else SHAPES)
        longest = max(shape[1], self.lasts.get(name, shape)[1])
        self.lasts[name] = (shape[0], longest, shape[2])
        overlap = rng.choice(
            ["queue", "allow"] if self.narrow else ["skip", "queue_one", "queue", "cancel_previous", "allow"]
        )
        if overlap == "queue" and longest > 3:
            self.lasts[name] = SHAPES[2]
        options: dict[str, Any] = {
            "overlap": overlap,
            "catch_up": rng.choice(["none", "latest", "all"]),
            "catch_up_window": rng.choice([30, 120, 86_400]),
            "retries": rng.choice([0, 0, 1, 3]),
            "retry_delay": rng.choice([0, 1, 3]),
            "retry_max_delay": 10,
            "priority": rng.choice([0, 0, 5]),
            "keep": 86_400,
        }
        if not self.narrow and rng.random() < 0.3:
            options["grace"] = rng.choice([1, 5, 30])
        if rng.random() < 0.3:
            options["concurrency"] = rng.choice([1, 2])
        trigger = _trigger(rng, slow=overlap == "cancel_previous" or self.narrow)
        return JobSpec(name=name, function=name, trigger=trigger, policies=Policies.read(options))


def _trigger(rng: Random, *, slow: bool) -> Trigger | None:
    draw = rng.random()
    jitter = rng.choice([0, 0, 0.05, 0.2])
    if slow or draw >= 0.4:
        return every(rng.choice([10, 20, 45] if slow else [3, 7, 10, 20, 45]), jitter=jitter)
    if draw < 0.1:
        return None
    if draw < 0.2:
        return at(START + timedelta(seconds=rng.randint(-50, 100)), jitter=jitter)
    if draw < 0.3:
        return cron(rng.choice(["*/20 * * * * *", "* * * * *"]), jitter=jitter)
    return any_of(every(rng.choice([3, 7, 10])), every(rng.choice([11, 30])), jitter=jitter)


class QuietBatches(BatchScenario):
    """A job with items, on a quiet night."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, prunes=False)
        self.lasts = {JOB: rng.choice([(1, 1, 0.9), (1, 3, 0.9), (1, 12, 0.95)])}
        settle_down(self, rng)
        self.micros = rng.randint(40, 90) * SECOND + ACTS


class QuietDiamonds(DiamondScenario):
    """Four jobs of one trigger, on a quiet night."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, prunes=False)
        self.lasts = dict.fromkeys(self.names, rng.choice(SHAPES[:3]))
        settle_down(self, rng)
        self.micros = rng.randint(60, 120) * SECOND + ACTS


def settle_down(scenario: Scenario, rng: Random) -> None:
    """Let nothing go wrong, and give nodes room for all that comes due."""
    scenario.rough = scenario.busy = scenario.batons = scenario.clock_steps = False
    scenario.punctual = False
    scenario.outsiders, scenario.mortality = 0, 0.0
    scenario.hands = (64,)
    scenario.lease = timedelta(seconds=3)
    scenario.nodes = rng.choice([1, 2, 2, 3, 4, 5])


class QuietWork(Work):
    """An attempt that takes whole seconds, and ends where attempts end."""

    def begin(self) -> None:
        """Draw how long it takes and how it ends, by what it is."""
        stage, claim = self.node.stage, self.call.claim
        rng = stage.chance[f"work {claim.job} {name_of(stage.store, claim.key, claim.parent)} {claim.attempt}"]
        shortest, longest, succeeds = cast("QuietScenario", stage.scenario).lasts[claim.spec.function]
        second = stage.clock.micros // SECOND + rng.randint(shortest, longest)
        kind = "returned" if rng.random() < succeeds else rng.choice(KINDS)
        self._obeys = rng.random() < 0.7
        self._result = str(rng.randint(0, 999))
        while self._may_be_cancelled_just_before(second):
            second += 1
        stage.at(second * SECOND + ENDS, partial(self._end, kind), self.node)
        if rng.random() < 0.3:
            stage.at(second * SECOND + ENDS - SECOND // 20, self._report_progress, self.node)

    def _report_progress(self) -> None:
        if not self.over:
            self.call.run.progress(50)

    def _may_be_cancelled_just_before(self, second: int) -> bool:
        end = START + timedelta(seconds=second, microseconds=ENDS)
        for release in self.node.stage.scenario.releases:
            for spec in release:
                if (
                    spec.name == self.call.claim.job
                    and spec.policies.overlap == "cancel_previous"
                    and spec.trigger is not None
                    and (due := spec.trigger.next_after(end - NOTICED)) is not None
                    and due <= end
                ):
                    return True
        return False

    def stop(self, reason: str, *, lease_lost: bool) -> None:
        """Ask it to stop: some do, when their time is over, and the others return as if nothing had been."""
        self.call.run.request_stop(reason, lease_lost=lease_lost)

    def _end(self, kind: EndingKind) -> None:
        super()._end("cancelled" if self._obeys and self.call.run.cancelled.is_set() else kind)

    def _make_ending(self, kind: EndingKind, reason: str | None) -> Ending:
        ending = super()._make_ending(kind, reason)
        return ending if kind != "returned" else structs.replace(ending, result=self._result)


class QuietWorld(World):
    """A night without faults.

    Attributes:
        reverse: let nodes take turns the other way round, which must not matter.
    """

    work = QuietWork
    reverse = False

    def __init__(self, seed: int, parts: Parts) -> None:
        super().__init__(seed, parts)
        rng = self.chance["scenario"]
        self._keeps_books = seed % 5 < 3
        if self._keeps_books:
            self.scenario = QuietScenario(rng)
        elif seed % 5 == 3:
            self.scenario, self.judge = QuietBatches(rng), cast("Judge", BatchJudge(self))
        else:
            self.scenario, self.judge = QuietDiamonds(rng), cast("Judge", DiamondJudge(self))

    # --- the moments -------------------------------------------------------------------------------------------------

    def _draw_place(self, node: Process | None) -> float:
        if node is None:
            return 0.0
        place = int(node.name[1:]) + 1
        return -place if self.reverse else place

    def _start_all(self) -> None:
        for index in range(self.scenario.nodes):
            self.at(ACTS, partial(self.start_node, f"n{index}"))
        self._plan_acts()
        self._plan_deploy()

    def start_node(self, name: str) -> None:
        """Start a process; each but the first may lack a function."""
        self._pids += 1
        functions, rng = frozenset(self.scenario.names), self.chance[f"node {name}"]
        if name != "n0" and rng.random() < 0.15:
            functions -= {rng.choice(self.scenario.names)}
        node = SimulatedNode(
            self, name, self._pids, release=self.release, functions=functions,
            clock=NodeClock(self.clock, skew=timedelta(0), rate=1.0),
            concurrency=rng.choice(self.scenario.hands), fast_evidence=False,
        )  # fmt: skip
        self.nodes.append(node)
        self.trace.add(self.clock.micros, name, "starts", f"release {self.release}", ",".join(sorted(functions)))
        node.begin()

    def node_gone(self, node: SimulatedNode) -> None:
        """Note the end of a process; when it starts again is planned."""
        self.nodes.remove(node)
        self._gone.add(node.pid)

    def hint_all(self, who: str) -> None:
        """Wake the nodes, once each."""
        for node in self.nodes:
            if not who.startswith(node.name):
                node.later(NOTIFICATION_TAKES, node.notify)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _plan_deploy(self) -> None:
        """Let nodes leave and start again once in most nights: one by one, or all at once, so that times are missed."""
        rng = self.chance["deploy"]
        if rng.random() < 0.3:
            return
        moment, apart = rng.randint(10, 40) * SECOND + ACTS, rng.choice([0, 0, 2, LONGEST + 2 * AWAY])
        if apart:
            # A node that leaves claims nothing after a run, nor tells others: they find what comes next when they look.
            self.scenario.watch = 0.25

        def deploy() -> None:
            self.release = len(self.scenario.releases) - 1
            for index, node in enumerate(list(self.nodes)):
                self.after(index * apart * SECOND, partial(node.leave, LONGEST * SECOND))
                self.after((index * apart + LONGEST + AWAY) * SECOND, partial(self.start_node, node.name))

        self.at(moment, deploy)
        self.scenario.micros += (LONGEST + AWAY + 20 + apart * self.scenario.nodes) * SECOND

    def _plan_acts(self) -> None:
        rng, number = self.chance["people"], 0
        second = 2
        while (second := second + rng.randint(1, 15)) * SECOND < self.scenario.micros - 5 * SECOND:
            number += 1
            self.at(second * SECOND + ACTS, partial(self._act, number))

    def _act(self, number: int) -> None:
        """Let people do one thing; what is refused is refused."""
        rng = self.chance[f"people {number}"]
        job = rng.choice(self.scenario.names)
        try:
            if not self._keeps_books:
                self._ask(rng, job, number, enqueues=False)
            elif (draw := rng.random()) < 0.15:
                self._do("pause", job, by="people", why="")
            elif draw < 0.4:
                self._do("resume", job, by="people")
            elif draw < 0.5:
                self._backfill(rng, job)
            else:
                self._ask(rng, job, number, enqueues=draw < 0.8)
        except (CoordinationError, UnknownJob) as error:
            self.trace.add(self.clock.micros, "people", "refused", str(error))
        self.hint_all("people")

    def _ask(self, rng: Random, job: str, number: int, *, enqueues: bool) -> None:
        if not enqueues:
            self._do("trigger", job, by="people", key=f"by hand {number}")
            return
        narrow = cast("QuietScenario", self.scenario).narrow
        items = [
            Item(
                job=job,
                key=f"key {rng.randint(0, 30)}",
                delay=timedelta(seconds=rng.choice([0, 0, 2, 20])),
                expires_in=None if narrow else rng.choice([None, None, timedelta(seconds=3)]),
                priority=rng.choice([None, 9]),
            )
            for _ in range(rng.choice([1, 1, 5]))
        ]
        self._do("enqueue", items)

    def _backfill(self, rng: Random, job: str) -> None:
        book = self.judge.jobs.get(job)
        if book is not None:
            now = self.clock.now()
            times = book.nominals(now - timedelta(seconds=60), now + timedelta(seconds=20))
            self._do("backfill", job, rng.sample(times, min(3, len(times))), by="people")

    def _do(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return self.commit("people", verb, args, kwargs)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """Pause all jobs, and let what there is come to its end."""
        for spec in self.store.jobs():
            if spec.retired_at is None and spec.paused_at is None:
                self._do("pause", spec.spec.name, by="people", why="")
        until = self.clock.micros + PATIENCE

        def look() -> None:
            if self.clock.micros >= until or all(one.state.final for one in self._occurrences()):
                self.over = True
            else:
                self.after(LOOK, look)

        self.after(LOOK, look)

    def _reckon(self) -> None:
        for one in self._occurrences():
            if not one.state.final:
                self.judge.broken("progress", f"#{one.id} {one.job} {one.key} is still {one.state} ({one.reason})")
        if self._keeps_books:
            super()._reckon()
        else:
            for finding in audit(self.store, tolerance=timedelta(seconds=30)).findings:
                self.judge.broken("audit", finding.sentence)

    def _occurrences(self) -> list[Occurrence]:
        return self.store.occurrences(OccurrenceFilter(), limit=EVERYTHING)

    def ledger(self) -> list[str]:
        """Return what became of each occurrence and of each nominal time, in one order for one outcome."""
        return sorted(self._outcomes())

    def _outcomes(self) -> Iterator[str]:
        for one in self._occurrences():
            name = name_of(self.store, one.key, one.parent)
            yield f"{one.job} {name} {one.origin} {one.state} {one.result} {one.attempt}"
        for view in self.store.jobs():
            name = view.spec.name
            for kept in self.store.ranges(name, limit=EVERYTHING):
                for nominal in self._nominals(view, kept.range.first, kept.range.last):
                    yield f"{name} {nominal} {kept.range.state} {kept.range.reason}"

    def _nominals(self, view: JobView, first: datetime, last: datetime) -> Iterator[datetime]:
        before = first - timedelta(microseconds=1)
        if self._keeps_books:
            yield from self.judge.jobs[view.spec.name].nominals(before, last)
            return
        assert view.spec.trigger is not None
        while (before := view.spec.trigger.next_after(before) or EVER) <= last:
            yield before


def name_of(store: Store, key: str, parent: int | None) -> str:
    """Return a name of an occurrence, without the numbers that the store gave."""
    batch = None if parent is None else store.occurrence(parent)
    return key if batch is None else f"{shown_key(key)} of {batch.key}"
