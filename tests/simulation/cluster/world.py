"""The simulated world: one queue of events, sources of chance, one store, and whoever acts on it."""

from __future__ import annotations

import heapq
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cronsensus.errors import CronsensusError
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.stores.base import Store
from cronsensus.stores.memory.snapshots import restore_snapshot, take_snapshot
from tests.simulation.cluster.chance import Chance
from tests.simulation.cluster.clocks import SECOND, NodeClock, StoreClock
from tests.simulation.cluster.cranks import Crank
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.node import SimulatedNode, is_gone
from tests.simulation.cluster.outsiders import Outsider
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.people import People
from tests.simulation.cluster.reckoning import nobody_waits, nothing_is_left, reckon
from tests.simulation.cluster.scenario import Scenario
from tests.simulation.cluster.stage import Process
from tests.simulation.cluster.tally import Tally
from tests.simulation.cluster.trace import Trace
from tests.simulation.cluster.troubles import Troubles
from tests.simulation.cluster.work import Work

AFTERWARDS = 20 * SECOND
"""How long the jobs go on when nothing goes wrong any more."""
PATIENCE = 150 * SECOND
"""How long everything that is due may take from then on to come to its end."""
LOOK = 10 * SECOND
MOST_EVENTS = 200_000


class World:
    """One simulation, from its seed to its verdict."""

    work: type[Work] = Work
    """What runs do."""

    def __init__(self, seed: int, parts: Parts) -> None:
        self.chance = Chance(seed)
        self.parts = parts
        self.clock = StoreClock()
        self.trace = Trace()
        self.scenario = Scenario(self.chance["scenario"])
        self._memory = parts.store(self.clock)
        self.store: Store = self._memory
        self.judge = Judge(self)
        self.nodes: list[SimulatedNode] = []
        self.people = People(self, self.judge, self.nodes)
        self.outsiders: list[Outsider] = []
        self.troubles = Troubles(self, self.people, self.nodes, self.outsiders)
        self.current: Crank | None = None
        self.calm = False
        self.over = False
        self.tally = Tally()
        self.faults = 0
        self.verbs = 0
        self.turns = 0
        self.release = 0
        self._gone: set[int] = set()
        self._pids = 0
        self._forgot_at = -1
        self._order = 0
        self._events: list[tuple[int, float, int, Callable[[], None], Process | None]] = []

    # --- time --------------------------------------------------------------------------------------------------------

    def at(self, micros: int, action: Callable[[], None], node: Process | None = None) -> None:
        """Do something at a moment; what is due in one moment is done in an order that is drawn.

        Each process draws the places of its own events, and the world those of all others.
        What a ``node`` does is done when it goes on, if it stands still then; and not at all, if it is gone.
        """
        self._order += 1
        place = self._draw_place(node)
        heapq.heappush(self._events, (max(micros, self.clock.micros), place, self._order, action, node))

    def _draw_place(self, node: Process | None) -> float:
        return self.chance["order" if node is None else f"order {node.name}"].random()

    def after(self, micros: int, action: Callable[[], None]) -> None:
        """Do something after a while."""
        self.at(self.clock.micros + micros, action)

    def run(self) -> None:
        """Let it all happen."""
        self._start_all()
        self.troubles.begin()
        self.at(self.scenario.micros, self._calm_down)
        try:
            self.go_on(lambda: False)
            if not self.judge.violations:
                self._reckon()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this night, and its seed is told
            self.judge.broken("raised", "".join(traceback.format_exception(error)))
        finally:
            for node in list(self.nodes):
                node.gone = True
                for crank in list(node.suspended):
                    crank.kill()

    def _start_all(self) -> None:
        starts = self.chance["starts"]
        for index in range(self.scenario.nodes):
            self.after(starts.randint(0, 5 * SECOND), lambda index=index: self.start_node(f"n{index}"))  # type: ignore[misc]
        for index in range(self.scenario.outsiders if self.scenario.rough else 0):
            self.after(starts.randint(0, 20 * SECOND), lambda index=index: self.start_outsider(f"o{index}"))  # type: ignore[misc]

    def go_on(self, until: Callable[[], bool]) -> None:
        """Let events happen until something is so, or the simulation is over.

        A turn that is suspended calls this, and so sleeps below everything that happens meanwhile: of several suspended
        turns the last one goes on first. In some simulations each has a thread of its own, and there is no such order.
        """
        events, judge, clock = self._events, self.judge, self.clock
        while events and not judge.violations and not self.over and not until():
            micros, _, count, action, node = heapq.heappop(events)
            if node is not None:
                if node.gone:
                    continue
                if micros < node.thaw_at:
                    self.at(node.thaw_at, action, node)
                    continue
            clock.advance_to(micros)
            action()
            if count > MOST_EVENTS:
                judge.broken("spins", f"{MOST_EVENTS} events and no end")

    def _reckon(self) -> None:
        reckon(self.judge)

    def _calm_down(self) -> None:
        self.calm = True
        self.troubles.end()
        self.start_node("helper")
        self.after(AFTERWARDS, self._finish)
        for micros in range(AFTERWARDS // 2, AFTERWARDS + LOOK, LOOK // 4):
            self.after(micros, self._look_around)

    def _look_around(self) -> None:
        nobody_waits(self.judge, self.nodes)
        if self.parts.forgets:
            outside = set(self.outsiders)
            self.judge.nobody_goes_on(work for work in self.judge.live.values() if work.node not in outside)

    def _finish(self) -> None:
        self.people.leave_alone()
        since, until = self.clock.now(), self.clock.micros + PATIENCE

        def look() -> None:
            if self.clock.micros >= until or all(record.final for record in self.judge.records):
                nothing_is_left(self.judge, since)
                self.over = True
            else:
                self.after(LOOK, look)

        self.after(LOOK, look)

    @property
    def witness(self) -> Judge:
        """Return who looks at everything."""
        return self.judge

    def interfere(self, job: str) -> None:
        """Let somebody change something about a job in this moment."""
        self.people.interfere(job)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def start_node(self, name: str) -> None:
        """Start a process."""
        rng = self.chance[f"node {name}"]
        self._pids += 1
        functions = frozenset(self.scenario.names)
        if not self.calm and rng.random() < 0.15:
            functions -= {rng.choice(self.scenario.names)}
        clock = NodeClock(
            self.clock,
            skew=timedelta(seconds=rng.choice([0, 0.2, -3, 3600, -3600])),
            rate=1 + rng.uniform(-1, 1) * self.scenario.drift,
        )
        node = SimulatedNode(
            self, name, self._pids, release=self.release, functions=functions, clock=clock,
            concurrency=rng.choice(self.scenario.hands), fast_evidence=self.scenario.fast_evidence,
        )  # fmt: skip
        self.nodes.append(node)
        self.trace.add(self.clock.micros, name, "starts", f"release {self.release}", ",".join(sorted(functions)))
        node.begin()

    def start_outsider(self, name: str) -> None:
        """Start a program with a timer of its own."""
        self._pids += 1
        outsider = Outsider(self, self.judge, name, self._pids)
        self.outsiders.append(outsider)
        outsider.begin()

    def process_gone(self, pid: int) -> None:
        """Note the end of a process that is no node."""
        self._gone.add(pid)

    def node_gone(self, node: SimulatedNode) -> None:
        """Note the end of a process; somebody starts it again, after a while."""
        self.nodes.remove(node)
        self._gone.add(node.pid)
        if not self.calm:
            pause = self.chance[f"node {node.name}"].uniform(0.2, 25)
            self.after(int(pause * SECOND), lambda: self.start_node(node.name))

    def is_dead(self, session: SessionView) -> bool:
        """Return whether the process of a session is certainly gone."""
        return is_gone(session, self._gone)

    # --- the store ---------------------------------------------------------------------------------------------------

    def commit(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the store carry a verb out, under the eyes of the judge."""
        self.verbs += 1
        try:
            answer = getattr(self.store, verb)(*args, **kwargs)
        except (CronsensusError, LookupError) as error:
            self.trace.add(self.clock.micros, who, verb, args, "raised", str(error))
            raise
        self.trace.add(self.clock.micros, who, verb, args, answer)
        if verb == "notify":
            self.hint_all(who)
        else:
            self.tally.note_answer(verb, args, answer)
            self.judge.saw(verb, args, kwargs, answer)
        return answer

    def commit_late(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let the store carry a verb out for which nobody waits any more."""
        try:
            self.commit(who, verb, args, kwargs)
        except CronsensusError:
            return

    def remember(self) -> None:
        """Let the store forget, a moment later, whatever comes from now on: as if a standby took over that lags."""
        before, books = take_snapshot(self._memory), self.judge.remember()
        asked_at = self.clock.micros
        micros = int(0.1 * 50 ** self.chance["forgetting"].random() * SECOND)

        def forget() -> None:
            if self._forgot_at > asked_at:
                return  # this moment is forgotten itself
            self._forgot_at = self.clock.micros
            self.faults += 1
            self.trace.add(self.clock.micros, "store", "FORGETS", f"{micros / SECOND:g}s")
            restore_snapshot(self._memory, before)
            self.judge.forget(books)

        self.after(micros, forget)

    def hint_all(self, who: str) -> None:
        """Wake the nodes: some notifications are lost, some come twice, none is needed."""
        for node in self.nodes:
            if not who.startswith(node.name):
                rng = self.chance[f"hints {node.name}"]
                for _ in range(rng.choice([1, 1, 1, 2] if self.calm else [0, 1, 1, 2])):
                    node.later(rng.randint(0, 30_000), node.notify)

    def number_of(self, job: str, key: str) -> int:
        """Return the id under which the store keeps an occurrence."""
        return self.store.occurrences(OccurrenceFilter(job=job, key=key), limit=1)[0].id

    def was_pruned(self, occurrence: int) -> bool:
        """Return whether the store has forgotten an occurrence."""
        return self.store.occurrence(occurrence) is None
