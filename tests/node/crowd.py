"""Many nodes on one store, on a clock that jumps to the next wake-up: what they cost, what they notice, who races."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

from cronsensus import every
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.session import Renewal
from cronsensus.model.step import Done, Step
from cronsensus.node.executors.base import Call
from cronsensus.node.round import Round
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.values import NO_DELAY, View
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import RecordingExecutor, new_session, node_by_hand

LEASE = timedelta(seconds=10)
SECOND = timedelta(seconds=1)
RUNS = timedelta(milliseconds=1)
WIRE = 0.0005
"""Seconds that a notification takes."""
A_PLAN = 0.0001
"""Seconds that the store takes to carry out a plan, where steps take time."""


class Hands(RecordingExecutor):
    """Ends each call after ``lasts``."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        super().__init__()
        self.crowd, self.number = crowd, number

    def start(self, call: Call) -> None:
        super().start(call)
        self.crowd.after(self.crowd.lasts.total_seconds(), partial(self.end, call))

    def end(self, call: Call) -> None:
        if self.number not in self.crowd.dead:
            self.calls.remove(call)
            self.crowd.nodes[self.number].active_runs.receive_ending(call, Ending(kind="returned"))
            self.crowd.turn(self.number)


class Watched(MemoryStore):
    """A store that counts what nodes ask, and notifies them.

    With ``races`` a node sees what another one saw up to so many seconds before, unless it looked or acted since: as if
    both had looked before either of them acted. And a step takes ``A_PLAN`` for each plan.
    """

    crowd: Crowd
    races = 0.0
    busy = 0.0
    """Seconds that the turn of a node took so far."""
    kept: tuple[View, timedelta, int] | None = None
    """A look, how far ahead it saw, and in which turn it was asked."""

    def look(self, *, limit: int = 100, ahead: timedelta = NO_DELAY, **more: Any) -> View:
        self.crowd.note("look")
        if self.kept is not None:
            view, saw, in_turn = self.kept
            age = (self.crowd.clock.now() - view.now) / SECOND
            if ahead <= saw and age <= self.races and self.crowd.acted[self.crowd.turning] < in_turn:
                self.crowd.acted[self.crowd.turning] = self.crowd.turns
                return replace(view, age=age)
        self.crowd.acted[self.crowd.turning] = self.crowd.turns
        view = super().look(limit=limit, ahead=ahead, **more)
        if self.races:
            self.kept = view, ahead, self.crowd.turns
        return view

    def step(self, session: str, step: Step) -> Done:
        self.crowd.note("step")
        done = super().step(session, step)
        if step.plans or step.ends or done.claims:
            self.crowd.acted[self.crowd.turning] = self.crowd.turns
        if self.races:
            self.busy += len(step.plans) * A_PLAN
        return done

    def renew(self, *args: Any, **more: Any) -> Renewal:
        self.crowd.note("renew")
        return super().renew(*args, **more)

    def notify(self) -> None:
        for number in self.crowd.living:
            self.crowd.after(WIRE, partial(self.crowd.notify, number))


class Crowd:
    """Nodes on one store. A crank is turned when its node asked for it, when a run of it ends, and when it is notified.

    Each ``draw`` has other sessions, and so another turn order.

    Attributes:
        asked: how often each verb was asked.
        askers: the nodes that asked the store anything.
        dead: the nodes that are gone, and say nothing of it.
        turns: how many turns of cranks there were.
        turning: the node whose turn it is.
        acted: in which turn each node last saw or changed anything.
    """

    def __init__(
        self,
        size: int,
        *,
        hosts: int = 1,
        concurrency: int = 20,
        lasts: timedelta = RUNS,
        races: float = 0.0,
        draw: int = 0,
    ) -> None:
        self.clock, self.lasts, self.hosts = ManualClock(), lasts, hosts
        self.asked: Counter[str] = Counter()
        self.askers: set[int] = set()
        self.acted: Counter[int] = Counter()
        self.dead: set[int] = set()
        self.turns, self.turning = 0, -1
        self.store = Watched(clock=self.clock)
        self.store.crowd, self.store.races = self, races
        self.concurrency, self.draw = concurrency, draw
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._turn_of: dict[int, int] = {}
        self._busy_until: defaultdict[int, float] = defaultdict(float)
        self._woken: set[int] = set()
        self.hands = [Hands(self, number) for number in range(size)]
        self.keepers = [self._keeper(number) for number in range(size)]
        self.nodes = [self._node(number) for number in range(size)]
        for number, node in enumerate(self.nodes):
            node.open_session()
            self.after(0.001 * number, partial(self.turn, number))

    def _node(self, number: int) -> Round:
        host = f"host-{number % self.hosts}"
        return node_by_hand(
            self.store,
            self.clock,
            self.hands[number],
            lease=LEASE,
            name=str(number),
            concurrency=self.concurrency,
            new_session=new_session(
                str(number), id=f"{self.draw}-{number:02}", host=host, pid=1 + number, concurrency=self.concurrency
            ),
            on_session=self.keepers[number].keep_session,
            on_work=partial(self.keep, number),
            evidence=lambda view: view.host == host and int(view.node) in self.dead,
        )

    def _keeper(self, number: int) -> SessionRenewer:
        return SessionRenewer(
            self.clock,
            lease=LEASE,
            holds=lambda: bool(self.nodes[number].active_runs),
            on_renewal=lambda *_: None,
        )

    @property
    def living(self) -> list[int]:
        return [number for number in range(len(self.nodes)) if number not in self.dead]

    @property
    def sessions(self) -> dict[str, int]:
        """Return the nodes by the ids of their sessions."""
        return {node.lease.session: number for number, node in enumerate(self.nodes) if node.lease}

    def put(self, name: str, period: str, **policies: object) -> None:
        trigger = every(period, start=self.clock.now())
        self.define(JobSpec(name=name, function="work", trigger=trigger, policies=Policies.read(policies)))

    def define(self, *specs: JobSpec) -> None:
        self.store.define_jobs(specs, release="1")
        self.store.notify()

    def note(self, verb: str) -> None:
        self.asked[verb] += 1
        self.askers.add(self.turning)

    # --- time ----------------------------------------------------------------------------------------------------

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.monotonic() + seconds, next(self._order), what))

    def keep(self, number: int) -> None:
        """Turn a node's keeper."""
        if number in self.dead:
            return
        this = self._turn_of[~number] = next(self._order)
        self.turning = number
        self.after(self.keepers[number].renew(self.store) + 1e-5, partial(self._keep_if, number, this))

    def _keep_if(self, number: int, this: int) -> None:
        if self._turn_of[~number] == this:
            self.keep(number)

    def notify(self, number: int) -> None:
        self.nodes[number].notified = True
        self.turn(number)

    def turn(self, number: int, this: int | None = None) -> None:
        """Turn a node's crank, unless it was turned since that was asked for."""
        if number in self.dead or (this is not None and this != self._turn_of.get(number)):
            return
        if (busy := self._busy_until[number] - self.clock.monotonic()) > 0:
            if number not in self._woken:
                self._woken.add(number)
                self.after(busy + 1e-5, partial(self.turn, number))
            return
        self._woken.discard(number)
        this = self._turn_of[number] = next(self._order)
        self.turns, self.turning, self.store.busy = self.turns + 1, number, 0.0
        wait = self.nodes[number].run_round()
        self._busy_until[number] = self.clock.monotonic() + self.store.busy
        # A few microseconds late, as any thread is, and so never a little before.
        self.after(max(wait, self.store.busy) + 1e-5, partial(self.turn, number, this))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Let that much time pass, or less if something comes about; return how much."""
        begun = self.clock.monotonic()
        while self._events and self._events[0][0] <= begun + seconds and not until():
            at, _, what = heapq.heappop(self._events)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            what()
        if not until():
            self.clock.advance(max(0.0, begun + seconds - self.clock.monotonic()))
        return self.clock.monotonic() - begun

    # --- what came of it -----------------------------------------------------------------------------------------

    def ran(self, job: str = "job") -> list[Occurrence]:
        return self.store.occurrences(OccurrenceFilter(job=job), limit=10_000, newest_first=False)

    @property
    def running(self) -> Counter[str]:
        return Counter(str(one.node) for one in self.ran() if one.state == "running")

    def runs_elsewhere(self, node: str) -> bool:
        return any(name != node for name in self.running)


def lateness(one: Occurrence) -> float:
    """Return how many seconds after its due time a run began."""
    assert one.started_at is not None
    return (one.started_at - one.due_at) / SECOND


def latest(those: Sequence[Occurrence]) -> float:
    return max(map(lateness, those))
