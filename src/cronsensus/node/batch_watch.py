"""Asks who may go on: claims at their gates, batches whose items are done, and what comes after other jobs.

When an item or an upstream ends on this node, when it has planned what waits for others, and every 5 s for all that is
parked.

A batch that sleeps is woken by whoever finds that nothing it waits for is open. Of two nodes whose items end in one
instant, each asks after the commit of its own, so at least one finds none open. What is lost, because a node died in
between, an operator acted or a run expired, is found by a sweep of all that sleeps. While a look at the store shows
that anything does, the nodes of the active set sweep, whatever jobs they have; where nothing is parked, nothing is
asked. Both only wake; what the batch does then it decides by what is recorded, so waking it too often costs a look, and
two at once do no harm.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cronsensus.clock import Clock
from cronsensus.errors import StoreError
from cronsensus.interrupts import Event
from cronsensus.logger import Logger
from cronsensus.model.batch import Children, Sleeper, Tolerance, phase
from cronsensus.model.gate import Gate
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, OccurrenceFilter
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.node import turn_order
from cronsensus.node.executors.base import Registered
from cronsensus.node.upstreams import CameAfter, Gates, UpstreamResults
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge

_log = Logger("cronsensus.node")

PAUSE = (0.005, 0.03)
"""Least seconds between two looks at batches whose items end here: while few are open, and while there are many."""
FEW = 20
SWEEP = turn_order.SWEEP.total_seconds()
"""Least seconds between two sweeps of all that sleeps."""
NOTHING = 3600.0
"""Seconds until the next look where none is wanted; each request wakes the thread."""
AGAIN = 1.0
"""Seconds after which what could not be asked is asked again."""
AT_GATE = timedelta(seconds=0.5)
"""How much later than the claim what it comes after may have ended: the audit, which cannot know when a gate was asked,
allows a second."""
TRUSTED = 1.0
"""Seconds for which a batch that was open counts as open: an item of it is begun without asking."""
_PAGE = 200
_SINGLY = 8
"""Up to so many that may go on are read one by one; more by a look at all that sleep."""
Ended = tuple[str, datetime]
"""A job, and a nominal time of it that is over."""


class BatchWatch:
    """Wakes batches, on a thread of its own and on a handle of its own, from the first batch on."""

    def __init__(
        self, store: Store, clock: Clock, registry: Mapping[str, Registered], wake: Callable[[], None]
    ) -> None:
        """Watch batches in ``store``; ``wake`` has the node look for work, where it woke one.

        ``on_over`` is told of a batch that is found to be over, on the thread. ``parked`` is whether this node's last
        look showed anything that is.
        """
        self._of = store
        self._clock = clock
        self._registry = registry
        self._wake = wake
        self._lock = threading.Lock()
        self._own: Store | None = None
        self._thread: threading.Thread | None = None
        self._asked: dict[int, str] = {}
        self._held: list[Sleeper] = []
        self._planned: set[Ended] = set()
        """What was planned here, parked: by job and nominal time."""
        self._decided: set[str] = set()
        """Jobs of which times were decided without an occurrence."""
        self._gated: list[Claim] = []
        self._together: set[Ended] = set()
        self._ended: set[Ended] = set()
        self._edges: dict[str, JobSpec] = {}
        self._behind: dict[str, set[str]] = defaultdict(set)
        self._known = 0
        self._event = Event()
        self._hurry = Event()
        """Set beside the other one where a claim waits at its gate: that waits for no pause."""
        self._stopping = Event()
        self._pause = PAUSE[0]
        self._looked_at = self._swept_at = float("-inf")
        self._sweep_at: float | None = None
        self.parked = False
        self._open_at: dict[int, float] = {}
        self.on_told: Callable[[], None] = self._wake_thread
        """Has ``look`` called soon; the simulation turns it by hand."""
        self.on_over: Callable[[int], None] = lambda _: None
        self.on_gate: Callable[[Claim, Gate | None, CameAfter], None] = lambda *_: None
        """Told, on the thread, what to do with a claim that was asked about; ``None``: it could not be asked."""

    @property
    def store(self) -> Store:
        """A handle for what batches ask, beside the node's own."""
        with self._lock:
            if self._own is None:
                self._own = self._of.sibling()
            return self._own

    def stop(self) -> None:
        """Stop watching, and close the handle."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        self._event.set()
        self._hurry.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        if self._own is not None:
            self._own.close()

    # --- may an item be begun? --------------------------------------------------------------------------------------

    def over(self, claims: Sequence[Claim]) -> set[int]:
        """Return the batches of these claims that are over, gone, or stopped: no item of theirs is begun any more.

        One with ``stop_after`` is asked about at each claim: what was claimed when the last failed is all that it may
        run besides.

        Raises:
            StoreError: they cannot be asked.
        """
        now = self._clock.monotonic()
        batches = {one.parent: self._tolerance(one.spec.function) for one in claims if one.parent is not None}
        unknown = {
            one: tolerance
            for one, tolerance in batches.items()
            if tolerance.stop_after or now - self._open_at.get(one, -TRUSTED) >= TRUSTED
        }
        if not unknown:
            return set()
        found = self._of.children(list(unknown), limit=max(one.stop_after or 1 for one in unknown.values()))
        over = {one for one, children in found.items() if _begins_nothing(children, unknown[one])}
        for one in over:
            self.on_over(one)
        self._open_at = {one: at for one, at in self._open_at.items() if now - at < TRUSTED}
        self._open_at |= dict.fromkeys(set(unknown) - over, now)
        return over

    def doubt(self) -> None:
        """Ask of the next item whether its batch is open: an operator has just cancelled something that runs here."""
        self._open_at = {}

    # --- what comes after what? ---------------------------------------------------------------------------------------

    def results_of(self, function: str) -> UpstreamResults | None:
        """Return how this program reads what the jobs returned that a job of its code comes after."""
        registered = self._registry.get(function)
        return None if registered is None else registered.upstreams

    def learn(self, specs: Iterable[JobSpec]) -> None:
        """Note which of these jobs come after others; any thread."""
        for spec in specs:
            if spec.after is not None and self._edges.get(spec.name) is not spec:
                with self._lock:
                    self._note_edge(spec)

    def _note_edge(self, spec: JobSpec) -> None:
        self._edges[spec.name] = spec
        for rule in () if spec.after is None else spec.after.upstreams:
            self._behind[rule.job].add(spec.name)

    def has_dependents(self, job: str) -> bool:
        """Whether any job is known to come after that one: from this program's code, a look, or the last sweep.

        Of one that is not known, what is parked is woken by a sweep.
        """
        if self._known != len(self._registry):  # asked at each end, so worked out when one is added
            with self._lock:
                registry = dict(self._registry)
                for name, one in registry.items():
                    for upstream in () if one.upstreams is None else one.upstreams.types:
                        self._behind[upstream].add(name)
                self._known = len(registry)
        return job in self._behind

    def _read_edges(self) -> Mapping[str, JobSpec]:
        """Return which jobs come after others, as the store says now."""
        found = {spec.name: spec for spec in every_edge(self.store)}
        with self._lock:
            self._edges, self._behind, self._known = {}, defaultdict(set), 0
            for spec in found.values():
                self._note_edge(spec)
        return found

    # --- may a claim begin? -------------------------------------------------------------------------------------------

    def ask_at_gates(self, claims: Sequence[Claim], together: Collection[Ended]) -> None:
        """Have claims asked about at their gates, on the thread: ``on_gate`` is told of each.

        What was claimed ``together`` with them is known to be active. That may be over by then: what is parked because
        of it is asked about once more, when the store has it parked.
        """
        with self._lock:
            self._gated += claims
            self._together |= {*together}
        self._hurry.set()
        self.on_told()

    def _ask_gates(self) -> None:
        with self._lock:
            asked, self._gated = self._gated, []
            together, self._together = self._together, set()
        if not asked:
            return
        left = deque(asked)
        try:
            gates = Gates(self.store, together, now=max(one.claimed_at for one in asked))
            gates.read([(one.spec, _sleeper(one)) for one in asked])
            while left:
                claim, one = left[0], _sleeper(left[0])
                gate, came_after = gates.decide(claim.spec, one, self.results_of(claim.spec.function))
                if gate.decision == "run" and _began_before(claim, gates.last_end(claim.spec, one)):
                    self.on_gate(claim, None, {})
                else:
                    self.on_gate(claim, gate, came_after)
                left.popleft()
        except Exception as error:  # noqa: BLE001 - logged, or of the store
            if not isinstance(error, StoreError):
                _log.exception("a mistake in cronsensus; please report it. Claims at their gates go back")
            for claim in left:  # what cannot be asked is not begun
                self.on_gate(claim, None, {})

    # --- may a batch go on? -----------------------------------------------------------------------------------------

    def tell(self, batch: int, function: str) -> None:
        """Note that an item of a batch has ended here, or that it went to sleep; asked on the thread."""
        with self._lock:
            self._asked[batch] = function
        self.on_told()

    def look(self) -> float:
        """Wake what may go on of what was told, and of all that sleeps if that is due; return the seconds until it is.

        Raises nothing; what could not be asked is asked again.
        """
        self._ask_gates()
        self._looked_at = self._clock.monotonic()
        with self._lock:
            asked, self._asked = self._asked, {}
            ended, self._ended = self._ended, set()
            held, self._held = self._held, []
            planned, self._planned = self._planned, set()
            decided, self._decided = self._decided, set()
        try:
            if ended or decided:
                self._look_behind(ended, decided)
            if asked:
                self._look_at_batches(asked)
            if planned:
                self._ask_gates()  # which came meanwhile: nobody waits for what follows
                self._look_at_planned(planned)
            if held:
                if not self.parked:
                    # The others may sleep for minutes, and if this node dies nobody else knows that anything is parked.
                    self.store.notify()
                self._look_at_held(held)
            if self._sweep_at is not None and self._looked_at >= self._sweep_at:
                self._sweep()
                self._sweep_at, self._swept_at = None, self._looked_at
        except StoreError as error:
            _log.debug("batches that may go on could not be looked for: %s", error)
            with self._lock:
                self._asked = asked | self._asked
                self._ended |= ended
                self._held += held
                self._planned |= planned
                self._decided |= decided
            self._sweep_at = self._looked_at + AGAIN
        except Exception:  # noqa: BLE001 - logged
            if not self._stopping.is_set():
                _log.exception("a mistake in cronsensus; please report it. Batches are looked at again")
            self._sweep_at = self._looked_at + SWEEP
        return NOTHING if self._sweep_at is None else max(0.0, self._sweep_at - self._clock.monotonic())

    def request_sweep(self) -> None:
        """Have the thread sweep all that sleeps, ``SWEEP`` after the last time at the earliest."""
        if self._sweep_at is None:
            self._sweep_at = max(self._clock.monotonic(), self._swept_at + SWEEP)
            self.on_told()

    def _wake_thread(self) -> None:
        self._ensure_thread()
        self._event.set()

    def tell_held(self, sleeper: Sleeper, spec: JobSpec) -> None:
        """Note that what comes after others was parked; asked on the thread whether they have ended meanwhile."""
        with self._lock:
            self._note_edge(spec)
            self._held.append(sleeper)
        self.on_told()

    def tell_ended(self, job: str, at: datetime) -> None:
        """Note that a nominal time of a job is over that others come after; they are woken on the thread."""
        with self._lock:
            self._ended.add((job, at))
        self.on_told()

    def tell_planned(self, plans: Sequence[Plan]) -> None:
        """Note plans that were carried out, by now committed.

        What one made parked may wait for what is over already: who ended that may have looked before it was there. Of
        what is made after this look, whoever ends what it waits for finds it. And nobody ends a time that was decided
        without an occurrence.
        """
        planned = {(plan.job, one.scheduled_for) for plan in plans for one in plan.occurrences if one.parked_on}
        decided = {plan.job for plan in plans if plan.verdicts and self.has_dependents(plan.job)}
        if planned or decided:
            with self._lock:
                self._planned |= planned
                self._decided |= decided
            self.on_told()

    def _ensure_thread(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopping.is_set():
                return
            self._thread = threading.Thread(target=self._run, name="cronsensus-batches", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        wait = 0.0
        while not self._stopping.is_set():
            self._event.wait(wait)
            while self._hurry.wait(max(0.0, self._looked_at + self._pause - self._clock.monotonic())):
                self._hurry.clear()
                if self._stopping.is_set():
                    return
                self._ask_gates()
            self._event.clear()
            wait = self.look()

    def _sweep(self) -> None:
        """Wake what may go on of all that is parked."""
        gates, edges = Gates(self.store), self._read_edges()
        for page in self._pages():
            self._wake_behind(page, gates, edges)
            self._wake_free(page, edges)
            self._look_at_batches({one.id: one.job for one in page if one.on == "items"})

    def _wake_free(self, sleepers: Sequence[Sleeper], edges: Mapping[str, JobSpec]) -> None:
        """Wake what is parked behind others and comes after nothing any more: its job was defined anew."""
        left = [one for one in sleepers if one.on == "upstreams" and one.job not in edges]
        living = {job: (view := self.store.job(job)) and view.retired_at is None for job in {one.job for one in left}}
        if (free := [one.id for one in left if living[one.job]]) and self.store.wake(free):
            self._wake()

    def _pages(self, last: int = 0) -> Iterator[list[Sleeper]]:
        while page := self.store.parked(after=last, limit=_PAGE):
            yield page
            if len(page) < _PAGE:
                return
            last = page[-1].id

    def _look_at_planned(self, planned: Collection[Ended]) -> None:
        """Wake what was planned here and waits for nothing: all that it comes after is over, or skipped."""
        edges = self._edges_of({job for job, _ in planned})
        made = datetime.min.replace(tzinfo=UTC)  # whenever: they have waited for no time yet
        gates = Gates(self.store, now=made)
        asked = [(edges[job], Sleeper(0, job, "upstreams", at, made)) for job, at in planned if job in edges]
        gates.read(asked)
        ready = {(one.job, one.scheduled_for) for spec, one in asked if gates.decide(spec, one)[0].decision != "wait"}
        if ready:
            found = self._parked_at({(job, at) for job, at in ready if at is not None})
            if found and self.store.wake([one.id for one in found]):
                self._wake()

    def _edges_of(self, jobs: Collection[str]) -> Mapping[str, JobSpec]:
        with self._lock:
            edges = dict(self._edges)
        return edges if edges.keys() >= {*jobs} else self._read_edges()

    def _parked_at(self, times: Collection[Ended]) -> list[Sleeper]:
        """Return what is parked of some nominal times."""
        if len(times) > 1:
            first = self.store.parked(limit=_PAGE)
            if len(first) < _PAGE or len(times) > _SINGLY:
                rest = self._pages(first[-1].id) if len(first) == _PAGE else ()
                return [one for page in (first, *rest) for one in page if (one.job, one.scheduled_for) in times]
        # However many others are parked, the next link of a chain is found by one read.
        return [
            Sleeper(one.id, one.job, one.parked_on, one.scheduled_for, one.created_at)
            for job, at in times
            for one in self.store.occurrences(
                OccurrenceFilter(job=job, states=(State.PENDING,), scheduled_from=at, scheduled_until=at)
            )
            if one.parked_on is not None
        ]

    def _look_behind(self, ended: Collection[Ended], decided: Collection[str] = ()) -> None:
        """Wake what is parked behind nominal times of jobs that are over, or behind jobs that have decided some."""
        with self._lock:
            names = {name for job in {*decided, *(job for job, _ in ended)} for name in self._behind.get(job, ())}
        edges = self._edges_of(names)
        behind = [
            (name, rule, at)
            for name in names & edges.keys()
            if (after := edges[name].after) is not None
            for rule in after.upstreams
            for job, at in ended
            if rule.job == job
        ]
        same = {(name, at) for name, rule, at in behind if rule.which == "same"}
        others = {name for name, rule, _ in behind if rule.which != "same"}
        others |= {name for job in decided for name in self._behind.get(job, ()) if name in edges}
        gates = Gates(self.store)
        if not others:
            self._wake_behind(self._parked_at(same), gates, edges, ended)
            return
        for page in self._pages():
            meant = [one for one in page if one.job in others or (one.job, one.scheduled_for) in same]
            self._wake_behind(meant, gates, edges, ended)

    def _wake_behind(
        self,
        sleepers: Sequence[Sleeper],
        gates: Gates,
        edges: Mapping[str, JobSpec],
        ended: Collection[Ended] = (),
    ) -> None:
        behind = [(edges[one.job], one) for one in sleepers if one.on == "upstreams" and one.job in edges]
        # One that waits for nothing else is not asked about: its gate is, at its claim.
        ready = [one.id for spec, one in behind if _only_after(spec, one, ended)]
        asked = [(spec, one) for spec, one in behind if not _only_after(spec, one, ended)]
        gates.read(asked)
        ready += [one.id for spec, one in asked if gates.decide(spec, one)[0].decision != "wait"]
        if ready and self.store.wake(ready):
            self._wake()

    def _look_at_held(self, held: list[Sleeper]) -> None:
        """Wake those that went to sleep while what they wait for ended; what has just ended goes first."""
        gates = Gates(self.store)
        edges = self._edges_of({one.job for one in held})
        while held:
            self._wake_behind(held[:_SINGLY], gates, edges)
            del held[:_SINGLY]
            if self._ended:
                with self._lock:
                    self._held += held
                held.clear()
                self.on_told()

    def _look_at_batches(self, batches: Mapping[int, str]) -> None:
        """Wake those of these batches that wait for nothing any more."""
        if not batches:
            return
        tolerances = {batch: self._tolerance(function) for batch, function in batches.items()}
        stops = [one.counts for one in tolerances.values() if one.stop_after]
        found = self.store.children(batches, limit=max(FEW, *stops) if stops else FEW)
        self._pause = PAUSE[all(one.open >= FEW for one in found.values())]
        for batch, children in found.items():
            if _begins_nothing(children, tolerances[batch]):
                self._open_at.pop(batch, None)
                self.on_over(batch)
        ready = [
            batch
            for batch, children in found.items()
            if children.state is State.PENDING
            and children.listed is not None
            and phase(children.listed, children, tolerances[batch]) != "wait"
        ]
        if ready and self.store.wake(ready):
            self._wake()

    def _tolerance(self, function: str) -> Tolerance:
        registered = self._registry.get(function)
        return Tolerance() if registered is None or registered.batch is None else registered.batch.tolerance


def _began_before(claim: Claim, end: datetime | None) -> bool:
    """Whether the record of a claim would say that it began before what it comes after had ended.

    It stood at its gate while that ended. Given back, it is claimed anew, and begins after it for everybody to see.
    """
    return end is not None and end > max(claim.claimed_at, claim.due_at) + AT_GATE


def _sleeper(claim: Claim) -> Sleeper:
    return Sleeper(claim.id, claim.job, "upstreams", claim.scheduled_for, claim.created_at)


def _begins_nothing(children: Children, tolerance: Tolerance) -> bool:
    """Whether no item of a batch is begun any more."""
    return children.state is None or children.state.final or tolerance.stops(children)


def _only_after(spec: JobSpec, one: Sleeper, ended: Collection[Ended]) -> bool:
    """Whether all that it comes after is one nominal time, and that is over."""
    if spec.after is None or len(spec.after.upstreams) != 1 or one.scheduled_for is None:
        return False
    [rule] = spec.after.upstreams
    return rule.which == "same" and (rule.job, one.scheduled_for) in ended
