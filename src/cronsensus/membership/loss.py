"""Detect that the store lost data: its last moment, or everything.

A failover to a standby that lags, a restart from a snapshot or a restored backup takes a store back to an earlier
moment; ``FLUSHALL``, a restart without data or a fresh database empties it. Nobody notifies a node of that, nor a
process that only holds locks or guards functions. They detect it by signs in the answers of verbs that are called
anyway, so this costs next to nothing.

==================================================== ==================================================================
a renewal counts fewer renewals than this node did   the store lost a moment, after the last one that it still counts
a job's watermark is lower than this node knows it   the store lost a moment: watermarks only grow
a run is claimed again whose end was accepted        the store lost a moment: final states have no exit
the node holds other runs than the store believes    the store lost a moment; see ``reconciling``
the store has another identity, or none              it was emptied, or is another one
==================================================== ==================================================================

A detected loss is logged at once, and written into the store's trail by the node's next round, for ``doctor`` and for
the audit. A loss without a sign (of writes that no process remembers) is not detected.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Literal

from cronsensus.errors import SchemaMismatch, StoreError
from cronsensus.model.job import JobState
from cronsensus.model.ledger import Identity, Loss
from cronsensus.model.plan import Plan
from cronsensus.model.session import Renewal
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.timing.instants import format_instant

_log = Logger("cronsensus.node")

ENDS_KEPT = 60.0
"""Seconds for which a node remembers the end of a run after the store has accepted it."""
MOST_RENEWALS = 64
MOST_WATERMARKS = 2_000
ASSUMED_BEFORE = timedelta(minutes=1)
"""How long before the opening of a session a loss is assumed to begin, if the store counts no renewal of it."""
ABANDONED_LEASE = timedelta(seconds=1)
"""For how long an abandoned session may still be alive in the store once another one is opened."""
SAME_LOSS_WITHIN = timedelta(seconds=30)
"""Signs within this time are taken for signs of the same loss."""
_OF_A_NODE = "its ledger, its queue and the jobs that were added at run time"
_OF_A_PROCESS = "its locks, and with what it knew of guarded calls: one that was made may be made again"
_CONSEQUENCES = {
    ("node", False): (
        _OF_A_NODE,
        "The jobs declared in code begin anew in it; on_store_loss='stop' would have stopped this node",
    ),
    ("node", True): (
        _OF_A_NODE,
        "This node does nothing more (on_store_loss='stop'); when the data is back, or is to begin anew, restart it",
    ),
    ("process", False): (
        _OF_A_PROCESS,
        "Locks and guarded calls begin anew in it; on_store_loss='stop' would have refused them",
    ),
    ("process", True): (
        _OF_A_PROCESS,
        "This process does nothing more in it (on_store_loss='stop'); when the data is back or begins anew, restart it",
    ),
}
"""The lost data and the consequence, by the kind of subject and by whether it stops."""


class StoreWatch:
    """Watches for the signs, for a node or for a process that only holds locks or guarded calls (a ``SessionHost``).

    Of a node's watch, any thread may call ``detect_loss``; the other methods belong to the node's rounds. A
    ``SessionHost`` calls ``note_opened``, ``detect_loss``, ``note_trouble`` and ``record_losses``, from any thread.
    """

    def __init__(
        self,
        name: str,
        *,
        stop: bool,
        wake: Callable[[], None] = lambda: None,
        subject: Literal["node", "process"] = "node",
    ) -> None:
        """Begin to watch.

        Args:
            name: the node's, for the trail.
            stop: whether to stop for good when the store was emptied.
            wake: starts a round of the node.
            subject: its kind in messages: a node, or a process.
        """
        self._name = name
        self._stop = stop
        self._wake = wake
        self._subject = subject
        self._lock = threading.Lock()
        self._identity: Identity | None = None
        self._session = ""
        self._beats: OrderedDict[int, datetime] = OrderedDict()
        """The times of this node's renewals, by number; 0: the opening. Older ones are thinned out."""
        self._watermarks: OrderedDict[tuple[int, str], tuple[datetime, datetime]] = OrderedDict()
        """The highest known watermark of each job, with a time at which the store had it, or was about to have it."""
        self._unrecorded: list[Loss] = []
        self._last: Loss | None = None
        self._emptied = False

    @property
    def is_halted(self) -> bool:
        """Whether the subject must stop for good: the store was emptied, and ``on_store_loss`` is ``"stop"``."""
        return self._stop and self._emptied

    @property
    def session(self) -> str:
        """The session for which the store's identity was read."""
        return self._session

    @property
    def has_unrecorded_losses(self) -> bool:
        """Whether there is a loss that ``record_losses`` has not written yet."""
        return bool(self._unrecorded)

    # --- signs --------------------------------------------------------------------------------------------------------

    def check_store(self, store: Store) -> None:
        """Check which store this is, before another session is opened in it."""
        with self._lock:
            identity, session = self._identity, self._session
        if identity is not None:
            # That session is abandoned. This does not prolong its lease, and the answer shows what the store remembers.
            self.detect_loss(session, store.renew(session, lease=ABANDONED_LEASE))

    def note_opened(self, store: Store, session: str, now: datetime) -> None:
        """Remember the store in which a session was opened; it may differ from the previous session's."""
        identity = store.identity()
        with self._lock:
            previous = self._identity
        if previous is not None and (identity is None or identity.id != previous.id):
            self._note_emptied(now)
        with self._lock:
            self._identity = identity
            # A stopped subject stays stopped, even if another thread opens a session meanwhile.
            self._emptied = self._emptied and self._stop
            self._session = session
            self._beats = OrderedDict({0: now})

    def detect_loss(self, session: str, renewal: Renewal) -> None:
        """Detect by the answer of a renewal whether the store has lost a moment that this process knows of."""
        if renewal.beats is None or renewal.store is None:
            return
        with self._lock:
            if session != self._session:
                return
            identity, last_renewal = self._identity, max(self._beats, default=0)
            lost_after, sign = renewal.now, ""
            if identity is not None and renewal.store != identity.id:
                pass
            elif renewal.beats - renewal.alive < last_renewal:
                counted = renewal.beats - renewal.alive
                sign = f"of {last_renewal} renewals of this {self._subject}'s session the store remembers {counted}"
                still_counted = [number for number in self._beats if number <= counted]
                # If none is counted, the store may not even remember the opening of the session.
                lost_after = self._beats[still_counted[-1]] - (timedelta(0) if counted else ASSUMED_BEFORE)
                self._beats = OrderedDict({number: self._beats[number] for number in still_counted})
            if renewal.alive:
                self._beats[renewal.beats] = renewal.now
                if len(self._beats) > MOST_RENEWALS:
                    # Not the oldest: a loss that reaches back further than those kept would seem shorter.
                    for number in [*self._beats][1:-1:2]:
                        del self._beats[number]
        if identity is not None and renewal.store != identity.id:
            self._note_emptied(renewal.now)
        elif sign:
            self._note_loss(lost_after, renewal.now, sign)

    def compare_watermarks(self, jobs: Iterable[JobState], now: datetime) -> None:
        """Compare watermarks with their earlier values, and with the plans of this node: they only grow."""
        signs: list[tuple[str, datetime]] = []
        with self._lock:  # a renewal on another thread that finds a loss clears them all
            for job in jobs:
                key = (job.id, job.spec.name)
                highest = self._watermarks.get(key)
                self._note_watermark(key, job.watermark, now)
                if highest is not None and job.watermark < highest[0]:
                    sign = f"{job.spec.name!r} is decided up to {format_instant(job.watermark)}, and was further"
                    signs.append((sign, highest[1]))
            while len(self._watermarks) > MOST_WATERMARKS:
                self._watermarks.popitem(last=False)
        for sign, at in signs:
            self.note_sign_of_loss(sign, now, at=at)

    def note_plans(self, plans: Iterable[Plan], now: datetime) -> None:
        """Record how far this node decided jobs after ``now``: its own plans, which the store has carried out.

        A look may never show them: if each occurrence is fired ahead of its time, no job is due any more.
        """
        with self._lock:
            for plan in plans:
                self._note_watermark((plan.job_id, plan.job), plan.watermark, now)

    def _note_watermark(self, key: tuple[int, str], watermark: datetime, now: datetime) -> None:
        self._watermarks[key] = watermark, now
        self._watermarks.move_to_end(key)

    def note_sign_of_loss(self, sign: str, now: datetime | None = None, *, at: datetime | None = None) -> None:
        """Record a sign that another part of the node found.

        Args:
            sign: the sign.
            now: when it was found, by the store's clock; ``None``: just after the last renewal.
            at: a time just before the lost write; ``None``: the sign is one of the ends kept here.
        """
        with self._lock:
            if not self._beats:
                return
            found_at = now or next(reversed(self._beats.values()))
            at = found_at - timedelta(seconds=ENDS_KEPT) if at is None else min(at, found_at)
            # Not simply the last renewal: it may be younger than the loss.
            lost_after = max((beat for beat in self._beats.values() if beat <= at), default=at)
        self._note_loss(lost_after, found_at, sign)

    def note_trouble(self, error: StoreError) -> bool:
        """Record why the store cannot be used: missing tables existed when this node started.

        Returns whether this error is the first sign that the store was emptied.
        """
        with self._lock:
            is_first_sign = isinstance(error, SchemaMismatch) and self._identity is not None and not self._emptied
        if is_first_sign:
            self._note_emptied(None)
        return is_first_sign

    # --- recording --------------------------------------------------------------------------------------------------

    def record_losses(self, store: Store) -> None:
        """Write the losses that were found since the last time into the trail."""
        with self._lock:
            losses, self._unrecorded = self._unrecorded, []
        while losses:
            try:
                store.note_in_trail(losses[0], by=self._name)
            except StoreError:
                with self._lock:
                    self._unrecorded[:0] = losses
                raise
            losses.pop(0)

    def _note_loss(self, lost_after: datetime, found_at: datetime, sign: str) -> None:
        with self._lock:
            if self._last is not None and found_at - self._last.until < SAME_LOSS_WITHIN:
                return
            self._last = loss = Loss(lost_after, found_at, emptied=False, why=sign)
            self._unrecorded.append(loss)
            self._watermarks.clear()
        _log.aside.warning(
            "the store lost a moment, after %s and before %s (%s): it went back to an earlier state, as after a "
            "failover to a standby that lags, a restart from a snapshot, a restored backup. What it forgot is decided "
            "again, and may run again; see: cronsensus doctor",
            format_instant(lost_after), format_instant(found_at), sign,
        )  # fmt: skip
        self._wake()

    def _note_emptied(self, now: datetime | None) -> None:
        with self._lock:
            if self._emptied:
                return
            self._emptied = True
            identity = self._identity
            last_renewal = next(reversed(self._beats.values()), None)
            found_at = now or last_renewal
            if found_at is not None:
                sign = f"the store is another one than the one that this {self._subject} knew"
                self._unrecorded.append(Loss(last_renewal, found_at, emptied=True, why=sign))
            self._watermarks.clear()
        _log.aside.critical(
            "the store was emptied, or is another one: the one that this %s knew (%s) is gone, with %s. %s",
            self._subject, "unknown" if identity is None else identity.id, *_CONSEQUENCES[self._subject, self._stop],
        )  # fmt: skip
        self._wake()
