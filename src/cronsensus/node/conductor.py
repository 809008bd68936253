"""The crank: one round of a node's work, in which order, and when to turn it again.

::

    step():  session ──▶ settle ──▶ look ──▶ fire ──▶ claim ──▶ start ──▶ take over ──▶ sleep until …
               │            │         │        │        │         │            │
             open one    finish()   look()  plan() +  claim()  executors   reclaim()
             if lost     in a batch          fire()

The conductor has no thread and no clock of its own: a thread turns the crank in production, a test or a simulation by
hand. What is done in a round is done by its parts (``session``, ``holding``, ``claiming``, ``firing``, ``care``), none
of which knows the conductor. Everything that decides is pure and elsewhere: ``plan`` (what a job owes), ``settle``
(what follows an ending), ``head_start`` (whose turn it is).

Failure handling: an error of the store ends the round, not the node. Nothing is started unless the lease is trusted. A
session that is lost stops all it was running (``run.lease_lost``); its endings are still sent, and the store refuses
them by their tokens. Then the node goes on as a new session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from cronsensus.clock import Clock
from cronsensus.errors import StoreEmptied, StoreError
from cronsensus.logger import Logger
from cronsensus.membership.lease import SessionLease
from cronsensus.membership.liveness import is_dead
from cronsensus.membership.loss import StoreWatch
from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.node.ahead import Reading
from cronsensus.node.care import Care
from cronsensus.node.claiming import Claiming
from cronsensus.node.executors.base import Executor, Registered
from cronsensus.node.firing import Fired, Firing
from cronsensus.node.holding import Holding
from cronsensus.node.reconciling import Reconciling
from cronsensus.node.resting import Resting
from cronsensus.node.session import OwnSession
from cronsensus.node.settings import NodeSettings
from cronsensus.node.tally import Tally
from cronsensus.node.telling import Telling
from cronsensus.node.waking import Waking, after_trouble
from cronsensus.stores.base import Store
from cronsensus.stores.values import View

_log = Logger("cronsensus.node")

PATIENCE = (0.1, 5.0)
"""First and longest wait after a store error, seconds."""
TELL_AGAIN = (10.0, 60.0)
"""Seconds after which a node tells again that it cannot use the store: for another reason, and for the same."""
HALTED = 60.0
"""Seconds between the rounds of a node that does nothing more."""


class Conductor:
    """Turns one node's crank; ``step`` returns the seconds until it wants to be turned again, if not woken before.

    Attributes:
        holding: what the node runs; for executors and the keeper too.
        reconciling: told by the keeper what the store believes this node to run.
        draining: whether it takes nothing new.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: NodeSettings,
        *,
        registry: Mapping[str, Registered],
        executors: Mapping[str, Executor],
        new_session: Callable[[], SessionSpec],
        declare: Callable[[Store], bool],
        on_session: Callable[[SessionLease], None] = lambda _: None,
        on_work: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        ask_again: Callable[[], None] = lambda: None,
        evidence: Callable[[SessionView], bool] = is_dead,
    ) -> None:
        """Make a conductor.

        Args:
            store: a handle of its own.
            clock: its monotonic side measures waits and trust; its wall clock decides nothing.
            settings: what the node was told.
            registry: functions by name; may grow while the node runs.
            executors: by the names of ``Registered.executor``.
            new_session: describes a session with a new id.
            declare: puts the application's jobs; called for each new session and again while it returns ``True``.
            on_session: told of each new session (the keeper renews it from then on).
            on_work: told when the lease begins to protect something, or must be asked about (the keeper hurries).
            wake: makes whoever turns the crank turn it now; called from executors' threads.
            ask_again: has the keeper renew the session as soon as it can.
            evidence: tells whether the process of a session is certainly gone.
        """
        self._store = store
        self._clock = clock
        self._settings = settings
        self._on_session = on_session
        self._on_work = on_work
        self.tally = Tally()
        self.draining = False
        telling = Telling(self.tally)
        self._waking = Waking()
        self._session = OwnSession(store, clock, settings, new_session=new_session, declare=declare, on_shorter=on_work)
        self.holding = Holding(
            store, clock, registry=registry, executors=executors, wake=wake, on_work=on_work, telling=telling
        )
        self._claiming = Claiming(store, clock, settings, self.holding, registry=registry, telling=telling)
        self.reconciling = Reconciling(clock, self.holding, self._claiming, wake=wake, ask=ask_again)
        self.watch = StoreWatch(settings.name, stop=settings.stop_on_store_loss, wake=wake)
        self._firing = Firing(store, clock, self._claiming, self._waking, telling, on_decided=self.watch.decided)
        self._resting = Resting(store, clock, settings, evidence=evidence)
        self._care = Care(store, clock, settings, evidence=evidence, telling=telling)
        self.reconciling.on_forgotten = self._claiming.on_forgotten = self.watch.forgot
        self._troubles = 0
        self._told_trouble = "", -1e9
        self._backlog_seen = False
        self._looked_at = -1e9
        self._look_at = -1e9

    @property
    def lease(self) -> SessionLease | None:
        """Return the present session's lease; ``None`` before the start."""
        return self._session.lease

    def begin(self) -> None:
        """Open the session and declare the jobs; raises what the store raises."""
        self._trusted_session()

    def cut_off(self) -> None:
        """Decide what becomes of what still runs; the store is told by ``end``."""
        if self.lease is not None and not self.lease.lost:
            self.holding.cut_off_all()

    def end(self) -> None:
        """Settle what ended, cut off what still runs, and close the session."""
        self.cut_off()
        self._session.close_half_open()
        if self.lease is not None and not self.lease.lost:
            self.holding.settle()
            self._session.close()

    # --- one round -------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """Do one round; return the seconds until the next, if nobody wakes the node before."""
        self.tally.steps += 1
        # Before anything that waits for the store: this is the moment that they were claimed ahead for.
        self.holding.begin_due()
        try:
            wait = self._round()
        except StoreEmptied:
            wait = self._halt()  # later helps no more than now
        except StoreError as error:
            wait = self._trouble(error)
        else:
            if self._troubles:
                _log.info("the store answers again after %d failed rounds", self._troubles)
                self._troubles = 0
        begins_in = self.holding.begins_in
        return wait if begins_in is None else min(wait, begins_in)

    def _round(self) -> float:
        if self.watch.halted:
            return self._halt()
        lease = self._trusted_session()
        self.watch.tell(self._store)
        self.reconciling.judge(lease)
        if self.holding.settle():
            # There is room for something else.
            self._resting.end()
        self._claiming.clear_doubt(lease)
        if self.draining:
            return self._watch_while_draining()
        if (wait := self._resting.goes_on(lease.session)) is not None:
            return wait
        if self._backlog_seen and self._clock.monotonic() < min(self._looked_at + self._settings.watch, self._look_at):
            # The hot path of a long queue: while claims come back full there is no need to look around each time, but
            # for what is due to be fired.
            if not self._claiming.free or (self._claiming.claim(lease) and not self._claiming.free):
                return max(0.0, min(self._settings.watch, self._look_at - self._clock.monotonic()))
            self._backlog_seen = False
        if (wait := self._firing.begin_what_waits(lease)) is not None:
            return wait
        asked = lease.ask()
        view = self._firing.look()
        received_at = self._clock.monotonic()
        read_at = (asked.at + received_at) / 2
        self._looked_at = read_at
        self._waking.compare_clocks(read_at, view.now)
        self.watch.looked(view.jobs, view.now)
        self._care.note(view, asked.at, received_at)
        self._claiming.look(lease, view, asked)
        self.reconciling.look(lease, view)
        not_yet = self._waking.left_to_others(lease.session, view)
        fired = Fired()
        due = view.due
        if not due:
            self._waking.lost_in_a_row = 0
        if (due or self._firing.share) and not_yet <= timedelta(0):
            fired = self._firing.fire(lease, view)
        claimed = fired.claimed
        if view.backlog and not fired.created and not_yet <= timedelta(0):
            claimed = self._claiming.claim(lease)
        self._waking.fruitless = self._waking.fruitless + 1 if view.backlog and not claimed else 0
        self._backlog_seen = claimed > 0 and not self._claiming.free
        if self.holding.notes.wanted_in == 0.0:
            self.holding.notes.flush(self._store)
        again = self._care.take_over(lease, view) or fired.again
        self._session.say_again()
        again |= self._care.prune()
        seen = Reading(view.now, received_at)
        return self._sleep(lease, view, seen, not_yet, fired.coming, again=again)

    def _trusted_session(self) -> SessionLease:
        """Return a session that may work, opening a new one if the last is lost."""
        lease = self.lease
        if lease is not None:
            if not lease.lost:
                self._know_store(lease)
                return lease
            self.holding.lose_session(lease)
        self.watch.check(self._store)
        self._refuse_if_halted()
        lease = self._session.open()
        self._claiming.begin()
        self.reconciling.begin()
        self._resting.end()
        self.tally.sessions += 1
        self._on_session(lease)
        self._know_store(lease)
        return lease

    def _know_store(self, lease: SessionLease) -> None:
        """Have the watch know in which store the session is; asked again if it could not be told."""
        if self.watch.session == lease.session or self._session.opened_at is None:
            return
        self.watch.opened(self._store, lease.session, self._session.opened_at)
        if self.watch.halted:  # emptied between the look and the opening
            with contextlib.suppress(StoreError):
                self._session.close()
        self._refuse_if_halted()

    def _refuse_if_halted(self) -> None:
        if self.watch.halted:
            raise StoreEmptied("the store was emptied, and on_store_loss='stop': nothing runs; restart this node")

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def _told(self) -> bool:
        """Whether hints reach this node; a store may find out only when it has a connection."""
        capabilities = self._store.capabilities
        return capabilities.notify or capabilities.clock == "process"

    def _sleep(
        self,
        lease: SessionLease,
        view: View,
        seen: Reading,
        not_yet: timedelta,
        coming: datetime | None,
        *,
        again: bool,
    ) -> float:
        """Return the seconds until something wants this node, by what its last look saw."""
        if again or self.holding.unsettled or lease.lost:
            self._look_at = self._looked_at
            return 0.0
        read_at = self._looked_at
        waits = [
            self._waking.wait(
                lease.session,
                view,
                not_yet,
                coming,
                free=self._claiming.free > 0,
                watch=self._settings.watch,
                told=self._told,
            ),
        ]
        if (notes := self.holding.notes.wanted_in) is not None:
            waits.append(notes)
        if self.holding.given_up:
            # A thread that returns at last frees a slot and tells nobody.
            waits.append(self._settings.watch)
        if (doubt := self._care.wants_look_at(lease, view)) is not None:
            waits.append(doubt - read_at)
        if not lease.trusted:
            self._on_work()
            waits.append(self._settings.watch)
        self._look_at = read_at + min(waits)
        if self._waking.resting:
            watch_from = self._waking.watch_from
            watch_at = None if watch_from is None else read_at + watch_from
            return self._resting.begin(lease.session, self._look_at, watch_at)
        if (ahead := self._firing.fire_ahead(lease, view, seen)) is not None:
            self._look_at = min(self._look_at, ahead)
        if (begins_in := self.holding.begins_in) is not None:
            # What waits begins a little after its due time by the best guess, and one look for both is enough.
            self._look_at = max(self._look_at, self._clock.monotonic() + begins_in)
        return max(0.0, self._look_at - self._clock.monotonic())

    def _halt(self) -> float:
        """Do nothing more: the store that this node knew is gone."""
        if self.lease is not None:
            self.lease.lose()
            self.holding.lose_session(self.lease)
        with contextlib.suppress(StoreError):
            # The store refuses them; whoever waits for what runs here to end need not wait any longer.
            self.holding.settle()
            self.watch.tell(self._store)
        return HALTED

    def _trouble(self, error: StoreError) -> float:
        self.tally.store_errors += 1
        self.watch.trouble(error)
        now, why = self._clock.monotonic(), str(error)
        if self._troubles == 0:
            self._told_trouble = why, now
            _log.error("the store cannot be used, so nothing is started until it can: %s", why)
        elif now - self._told_trouble[1] >= TELL_AGAIN[why == self._told_trouble[0]]:
            # What keeps a node from going on need not be what stopped it.
            self._told_trouble = why, now
            _log.error("the store still cannot be used, after %d failed rounds: %s", self._troubles, why)
        self._troubles += 1
        lease = self.lease
        if lease is not None and not lease.trusted:
            self.holding.lose_session(lease)
        return after_trouble(self._troubles, PATIENCE, self._settings.name if lease is None else lease.session)

    def _watch_while_draining(self) -> float:
        self.holding.notes.flush(self._store)
        return 0.0 if self.holding.unsettled else self._settings.watch
