"""Has the store lost something: its last moment, or everything? Floor 4.

A failover to a standby that lags, a restart from a snapshot or a restored backup takes a store back to an earlier
moment; ``FLUSHALL``, a restart without data or a fresh database empties it. Nobody tells a node. The signs cost
nothing: they come with what a node asks anyway.

==================================================== ==================================================================
a renewal counts fewer renewals than this node did   the store lost a moment, after the last one that it still counts
a job's watermark is lower than this node knows it   the store lost a moment: watermarks only grow
a run is given here whose end here was accepted      the store lost a moment: final states have no exit
the node holds other runs than the store believes    the store lost a moment; see ``reconciling``
the store has another identity, or none              it was emptied, or is another one
==================================================== ==================================================================

What is found is logged at once, and written into the store's trail by the node's next round, for ``doctor`` and for the
audit. A loss of which no sign is left (nobody had written anything that is remembered elsewhere) is not found.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from cronsensus.errors import SchemaMismatch, StoreError
from cronsensus.instants import format_instant
from cronsensus.logger import Logger
from cronsensus.model.job import JobState
from cronsensus.model.ledger import Identity, Loss
from cronsensus.model.plan import Plan
from cronsensus.model.session import Renewal
from cronsensus.node.said import KEPT
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")

MOST_BEATS = 64
MOST_WATERMARKS = 10_000
BEFORE = timedelta(minutes=1)
"""How long before the opening of a session, of which the store counts no renewal, its loss is taken to begin."""
GIVEN_UP = timedelta(seconds=1)
"""For how long a session that was given up may still be alive in the store once another one is opened."""
ONE_LOSS = timedelta(seconds=30)
"""Signs that are noticed within this are taken for those of one loss."""


class StoreWatch:
    """Looks for the signs. ``renewed`` may be called from any thread; the rest belongs to the node's rounds."""

    def __init__(self, name: str, *, stop: bool, wake: Callable[[], None] = lambda: None) -> None:
        """Begin to watch.

        Args:
            name: the node's, for the trail.
            stop: whether the node does nothing more on a store that was emptied.
            wake: has the node turn a round.
        """
        self._name = name
        self._stop = stop
        self._wake = wake
        self._lock = threading.Lock()
        self._identity: Identity | None = None
        self._session = ""
        self._beats: OrderedDict[int, datetime] = OrderedDict()
        """When this node's renewals were, by their number."""
        self._watermarks: OrderedDict[tuple[int, str], tuple[datetime, datetime]] = OrderedDict()
        """Each with a time at which the store had it, or was just about to."""
        self._to_tell: list[Loss] = []
        self._last: Loss | None = None
        self._emptied = False

    @property
    def halted(self) -> bool:
        """Whether the node must not do anything more: the store was emptied, and ``on_store_loss`` is ``"stop"``."""
        return self._stop and self._emptied

    # --- signs --------------------------------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        """Look which store this is, before another session is opened in it."""
        with self._lock:
            known, session = self._identity, self._session
        if known is not None:
            # That session is given up, and its lease ends no later by this; the answer tells what the store remembers.
            self.renewed(session, store.renew(session, lease=GIVEN_UP))

    def opened(self, store: Store, session: str, now: datetime) -> None:
        """Remember in which store a session was opened."""
        identity = store.identity()
        with self._lock:
            self._identity = identity
            self._emptied = False
            self._session = session
            self._beats = OrderedDict({0: now})

    def renewed(self, session: str, renewal: Renewal) -> None:
        """Compare what a renewal tells with what this node knows."""
        if renewal.beats is None or renewal.store is None:
            return
        with self._lock:
            if session != self._session:
                return
            identity, last = self._identity, max(self._beats, default=0)
            since: datetime | None = None
            why = ""
            if identity is not None and renewal.store != identity.id:
                pass
            elif renewal.beats - renewal.alive < last:
                counted = renewal.beats - renewal.alive
                why = f"of {last} renewals of this node's session the store remembers {counted}"
                # None: not even the opening of the session, perhaps.
                earlier = [beat for beat in self._beats if 0 < beat <= counted] or [min(self._beats)]
                since = self._beats[earlier[-1]] - (timedelta(0) if counted else BEFORE)
                self._beats = OrderedDict({beat: self._beats[beat] for beat in earlier})
            if renewal.alive:
                self._beats[renewal.beats] = renewal.now
                if len(self._beats) > MOST_BEATS:
                    self._beats.popitem(last=False)
        if identity is not None and renewal.store != identity.id:
            self._found_empty(renewal.now)
        elif why:
            self._found_lost(since, renewal.now, why)

    def looked(self, jobs: Iterable[JobState], now: datetime) -> None:
        """Compare watermarks with what they were, and with what was decided here: they only grow."""
        signs: list[tuple[str, datetime]] = []
        with self._lock:  # a renewal that finds a loss forgets them all, on another thread
            for job in jobs:
                key = (job.id, job.spec.name)
                known = self._watermarks.get(key)
                self._know(key, job.watermark, now)
                if known is not None and job.watermark < known[0]:
                    why = f"{job.spec.name!r} is decided up to {format_instant(job.watermark)}, and was further"
                    signs.append((why, known[1]))
            while len(self._watermarks) > MOST_WATERMARKS:
                self._watermarks.popitem(last=False)
        for why, at in signs:
            self.forgot(why, now, at=at)

    def decided(self, plans: Iterable[Plan], now: datetime) -> None:
        """Note how far this node decided jobs after ``now``: its own plans, which the store has carried out.

        No look need show it: where each occurrence is fired ahead of its time, none is due any more.
        """
        with self._lock:
            for each in plans:
                self._know((each.job_id, each.job), each.watermark, now)

    def _know(self, key: tuple[int, str], watermark: datetime, now: datetime) -> None:
        self._watermarks[key] = watermark, now
        self._watermarks.move_to_end(key)

    def forgot(self, why: str, now: datetime | None = None, *, at: datetime | None = None) -> None:
        """Take in a sign that another part of the node found.

        Args:
            why: the sign.
            now: when it was found, by the store's clock; ``None``: just after the last renewal.
            at: a time just before what was forgotten; ``None``: it is an end, of those that are kept.
        """
        with self._lock:
            if not self._beats:
                return
            until = now or next(reversed(self._beats.values()))
            at = until - timedelta(seconds=KEPT) if at is None else min(at, until)
            # Not simply the last one: it may be younger than the loss.
            since = max((beat for beat in self._beats.values() if beat <= at), default=at)
        self._found_lost(since, until, why)

    def trouble(self, error: StoreError) -> None:
        """Take in why the store cannot be used: tables that are gone were there when this node began."""
        with self._lock:
            new = isinstance(error, SchemaMismatch) and self._identity is not None and not self._emptied
        if new:
            self._found_empty(None)

    # --- what follows -------------------------------------------------------------------------------------------------

    def tell(self, store: Store) -> None:
        """Write into the trail what was found since the last time."""
        with self._lock:
            losses, self._to_tell = self._to_tell, []
        while losses:
            try:
                store.note_loss(losses[0], by=self._name)
            except StoreError:
                with self._lock:
                    self._to_tell[:0] = losses
                raise
            losses.pop(0)

    def _found_lost(self, since: datetime | None, now: datetime | None, why: str) -> None:
        with self._lock:
            until = now or next(reversed(self._beats.values()), None)
            if until is None or (self._last is not None and until - self._last.until < ONE_LOSS):
                return
            self._last = loss = Loss(since, until, emptied=False, why=why)
            self._to_tell.append(loss)
            self._watermarks.clear()
        began = "at a time that is not known" if since is None else f"after {format_instant(since)}"
        _log.aside.warning(
            "the store lost a moment, %s and before %s (%s): it went back to an earlier state, as after a failover to "
            "a standby that lags, a restart from a snapshot, a restored backup. What it forgot is decided again, and "
            "may run again; see: cronsensus doctor",
            began, format_instant(until), why,
        )  # fmt: skip
        self._wake()

    def _found_empty(self, now: datetime | None) -> None:
        with self._lock:
            if self._emptied:
                return
            self._emptied = True
            identity = self._identity
            since = next(reversed(self._beats.values()), None)
            until = now or since
            if until is not None:
                self._to_tell.append(
                    Loss(since, until, emptied=True, why="the store is another one than the one that this node knew")
                )
            self._watermarks.clear()
        follows = (
            "This node does nothing more (on_store_loss='stop'); when the data is back, or is to begin anew, restart it"
            if self._stop
            else "The jobs declared in code begin anew in it; on_store_loss='stop' would have stopped this node"
        )
        _log.aside.critical(
            "the store was emptied, or is another one: the one that this node knew (%s) is gone, with its ledger, its "
            "queue and the jobs that were added at run time. %s",
            "unknown" if identity is None else identity.id, follows,
        )  # fmt: skip
        self._wake()
