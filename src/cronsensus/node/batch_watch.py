"""Wakes batches whose items are done: when an item ends on this node, and every 5 s for all that is parked.

A batch that sleeps is woken by whoever finds that nothing it waits for is open. Of two nodes whose items end in one
instant, each asks after the commit of its own, so at least one finds none open. What is lost, because a node died in
between, an operator acted or a run expired, is found by a sweep of all that sleeps. While a look at the store shows
that anything does, the nodes of the active set sweep, whatever jobs they have; where nothing is parked, nothing is
asked. Both only wake; what the batch does then it decides by what is recorded, so waking it too often costs a look, and
two at once do no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime

from cronsensus.clock import Clock
from cronsensus.errors import StoreError
from cronsensus.interrupts import Event
from cronsensus.logger import Logger
from cronsensus.model.batch import Children, Sleeper, Tolerance, phase
from cronsensus.model.gate import Rule
from cronsensus.model.occurrence import Claim, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node import turn_order
from cronsensus.node.executors.base import Registered
from cronsensus.node.upstreams import After, Gates
from cronsensus.stores.base import Store

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
        self._ended: set[Ended] = set()
        self._behind: Mapping[str, Mapping[str, Rule]] = {}
        self._known = 0
        self._event = Event()
        self._stopping = Event()
        self._pause = PAUSE[0]
        self._looked_at = self._swept_at = float("-inf")
        self._sweep_at: float | None = None
        self.parked = False
        self._open_at: dict[int, float] = {}
        self.on_told: Callable[[], None] = self._wake_thread
        """Has ``look`` called soon; the simulation turns it by hand."""
        self.on_over: Callable[[int], None] = lambda _: None

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

    def after_of(self, job: str) -> After | None:
        """Return what the occurrences of a job come after; ``None``: nothing, as of one that was added at run time."""
        registered = self._registry.get(job)
        return None if registered is None else registered.after

    def has_dependents(self, job: str) -> bool:
        """Whether a job of this node comes after that one."""
        return job in self._dependents()

    @property
    def has_gates(self) -> bool:
        """Whether any job of this node comes after another."""
        return bool(self._dependents())

    def _dependents(self) -> Mapping[str, Mapping[str, Rule]]:
        """Return which jobs come after which, and how; asked at each end, so worked out when one is added."""
        if self._known != len(self._registry):
            found: dict[str, dict[str, Rule]] = {}
            registry = dict(self._registry)
            for name, one in registry.items():
                for rule in () if one.after is None else one.after.rules:
                    found.setdefault(rule.job, {})[name] = rule
            self._behind, self._known = found, len(registry)
        return self._behind

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
        self._looked_at = self._clock.monotonic()
        with self._lock:
            asked, self._asked = self._asked, {}
            ended, self._ended = self._ended, set()
            held, self._held = self._held, []
        try:
            if ended:
                self._look_behind(ended)
            if asked:
                self._look_at_batches(asked)
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

    def tell_held(self, sleeper: Sleeper) -> None:
        """Note that what comes after others went to sleep; asked on the thread whether they have ended meanwhile."""
        with self._lock:
            self._held.append(sleeper)
        self.on_told()

    def tell_ended(self, job: str, at: datetime) -> None:
        """Note that a nominal time of a job is over that others come after; they are woken on the thread."""
        with self._lock:
            self._ended.add((job, at))
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
            if self._stopping.wait(max(0.0, self._looked_at + self._pause - self._clock.monotonic())):
                return
            self._event.clear()
            wait = self.look()

    def _sweep(self) -> None:
        """Wake what may go on of all that sleeps."""
        gates = Gates(self.store)
        for page in self._pages():
            self._wake_behind(page, gates)
            self._wake_left(page)
            self._look_at_batches({one.id: one.job for one in page if one.on == "items"})

    def _pages(self) -> Iterator[list[Sleeper]]:
        last = 0
        while page := self.store.parked(after=last, limit=_PAGE):
            yield page
            if len(page) < _PAGE:
                return
            last = page[-1].id

    def _look_behind(self, ended: Collection[Ended]) -> None:
        """Wake what sleeps behind nominal times of jobs that are over."""
        behind = [(name, rule, at) for job, at in ended for name, rule in self._dependents().get(job, {}).items()]
        same = {(name, at) for name, rule, at in behind if rule.which == "same"}
        others = {name for name, rule, _ in behind if rule.which != "same"}
        gates = Gates(self.store)
        if not others and len(same) <= _SINGLY:
            # However many others sleep, the next link of a chain is found by one read.
            for name, at in same:
                where = OccurrenceFilter(job=name, states=(State.PENDING,), scheduled_from=at, scheduled_until=at)
                sleepers = [
                    Sleeper(one.id, one.job, one.parked_on, one.scheduled_for, one.created_at)
                    for one in self.store.occurrences(where)
                    if one.parked_on is not None
                ]
                self._wake_behind(sleepers, gates, ended)
            return
        for page in self._pages():
            meant = [one for one in page if one.job in others or (one.job, one.scheduled_for) in same]
            self._wake_behind(meant, gates, ended)

    def _wake_behind(self, sleepers: Sequence[Sleeper], gates: Gates, ended: Collection[Ended] = ()) -> None:
        behind = [(after, one) for one in sleepers if one.on == "upstreams" and (after := self.after_of(one.job))]
        # One that waits for nothing else is not asked about: its gate is, at its claim.
        ready = [one.id for after, one in behind if _only_after(after, one, ended)]
        asked = [(after, one) for after, one in behind if not _only_after(after, one, ended)]
        gates.read(asked)
        ready += [one.id for after, one in asked if gates.decide(after, one)[0].decision != "wait"]
        if ready and self.store.awaken(ready):
            self._wake()

    def _look_at_held(self, held: list[Sleeper]) -> None:
        """Wake those that went to sleep while what they wait for ended; what has just ended goes first."""
        gates = Gates(self.store)
        while held:
            self._wake_behind(held[:_SINGLY], gates)
            del held[:_SINGLY]
            if self._ended:
                with self._lock:
                    self._held += held
                held.clear()
                self.on_told()

    def _wake_left(self, sleepers: Sequence[Sleeper]) -> None:
        """Wake what a release before held behind others, if all nodes run one that knows nothing of them."""
        left = [one.id for one in sleepers if one.on == "upstreams" and self._comes_after_nothing(one.job)]
        if left and self._is_one_release() and self.store.awaken(left):
            self._wake()

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
        if ready and self.store.awaken(ready):
            self._wake()

    def _comes_after_nothing(self, job: str) -> bool:
        """Whether this node has a job and knows nothing that it comes after: what sleeps, a release before held."""
        registered = self._registry.get(job)
        return registered is not None and registered.after is None

    def _is_one_release(self) -> bool:
        """Whether all nodes run one release: else one that knows better may be there, and see to what it holds."""
        return len({one.release for one in self.store.sessions() if one.is_node}) <= 1

    def _tolerance(self, function: str) -> Tolerance:
        registered = self._registry.get(function)
        return Tolerance() if registered is None or registered.batch is None else registered.batch.tolerance


def _begins_nothing(children: Children, tolerance: Tolerance) -> bool:
    """Whether no item of a batch is begun any more."""
    return children.state is None or children.state.final or tolerance.stops(children)


def _only_after(after: After, one: Sleeper, ended: Collection[Ended]) -> bool:
    """Whether all that it comes after is one nominal time, and that is over."""
    if len(after.rules) != 1 or one.scheduled_for is None:
        return False
    [rule] = after.rules
    return rule.which == "same" and (rule.job, one.scheduled_for) in ended
