"""The base of all verbs: the lock, the clock, and the checks "is the session alive?" and "is the run current?"."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any, TypeVar

from cronsensus.errors import LeaseLost, UnknownJob
from cronsensus.model.claim_order import level_of
from cronsensus.model.ledger import CLOCK_SET_BACK
from cronsensus.model.occurrence import Claim
from cronsensus.model.session import SessionView
from cronsensus.model.states import Origin, Reason, State
from cronsensus.payload.codec import read_call
from cronsensus.process.background import Background
from cronsensus.process.interrupts import Condition
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores.clock_watch import STORE_ACTOR, ClockReading
from cronsensus.stores.memory.state import JobRow, LockRow, OccurrenceRow, SessionRow, Space, World
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import to_micros

Verb = TypeVar("Verb", bound=Callable[..., Any])

_background = Background("cronsensus-memory", most=1, log=Logger("cronsensus.stores"))


def writes(verb: Verb) -> Verb:
    """Make a verb atomic: it runs under the lock, and no exception of a signal handler can interrupt it."""

    def step(self: Handle, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._changed:
            self._note_set_back()
            return verb(self, *args, **kwargs)

    @wraps(verb)
    def whole(self: Handle, *args: Any, **kwargs: Any) -> Any:
        # A clock that is moved by hand is that of a simulation or a test, which chooses the thread of each call.
        if threading.current_thread() is not threading.main_thread() or not isinstance(self._world.clock, SystemClock):
            return step(self, args, kwargs)
        return _background.undisturbed(partial(step, self, args, kwargs))

    return whole  # type: ignore[return-value]


class Handle:
    """One handle on a namespace of a world.

    Verbs take ``self._changed`` first and then read the clock, once; those that write are marked by ``writes``.
    """

    namespace: str
    _world: World
    _space: Space
    _notified: bool

    @property
    def _changed(self) -> Condition:
        return self._world.changed

    def _notify(self) -> None:
        """Wake the other handles of this namespace."""
        with self._changed:
            for other in list(self._space.handles):
                if other is not self:
                    other._notified = True  # noqa: SLF001 - a handle of the same class
            self._changed.notify_all()

    def _note_set_back(self) -> None:
        """Record in the trail that the clock was set back, if it was."""
        monotonic = self._monotonic()
        reading = ClockReading(to_micros(self._now()), monotonic, monotonic)
        set_back = self._space.clock_watch.compare_reading(reading)
        if set_back is not None:
            self._space.record_in_trail(self._now(), STORE_ACTOR, CLOCK_SET_BACK, "", set_back.why, **set_back.details)
        self._space.clock_watch.keep_reading(reading)

    def _now(self) -> datetime:
        return self._world.clock.now()

    def _monotonic(self) -> float:
        return self._world.clock.monotonic()

    def _lease_end(self, lease: timedelta) -> float:
        return self._monotonic() + lease.total_seconds()

    def _set_lease(self, session: SessionRow, lease: timedelta, now: datetime) -> None:
        """Set the end of a lease, also to an earlier moment."""
        session.until, session.renewed_at = self._lease_end(lease), now

    # --- alive, held, current -----------------------------------------------------------------------------------------

    def _is_alive(self, session: SessionRow) -> bool:
        """Whether the session was not ended and its lease has not run out."""
        return session.ended_at is None and self._monotonic() < session.until

    def _is_live_node(self, session: SessionRow) -> bool:
        """Whether the session is alive and a node."""
        return session.spec.is_node and self._is_alive(session)

    def _live_session(self, session: str) -> SessionRow:
        row = self._space.sessions.get(session)
        if row is None or not self._is_alive(row):
            raise LeaseLost(f"session {session} is not alive; what it held may be with another node by now")
        return row

    def _is_held(self, lock: LockRow) -> bool:
        """Whether the lock is not overdue, and its session (if it has one) alive."""
        if self._monotonic() >= lock.until:
            return False
        return lock.session is None or self._is_alive(self._space.sessions[lock.session])

    def _current_run(self, occurrence: int, token: int, session: str | None) -> OccurrenceRow | None:
        """Return the occurrence if it is running under ``token`` and, if one is named, for ``session``."""
        row = self._space.occurrences.get(occurrence)
        if row is None or row.state is not State.RUNNING or row.token != token:
            return None
        return row if session in {None, row.session} else None

    # --- jobs and occurrences -----------------------------------------------------------------------------------------

    def _living_job(self, name: str) -> JobRow:
        job = self._space.jobs.get(name)
        if job is None:
            raise UnknownJob(f"no job is called {name!r} in the store")
        if job.retired_at is not None:
            raise UnknownJob(f"the job {name!r} is retired")
        return job

    def _create_occurrence(
        self,
        job: JobRow,
        key: str | None,
        origin: Origin,
        due_at: datetime,
        now: datetime,
        *,
        scheduled_for: datetime | None = None,
        expires_at: datetime | None = None,
        priority: int | None = None,
        level: int | None = None,
        payload: str | None = None,
        retry_of: int | None = None,
        parent: int | None = None,
        parked_on: str | None = None,
    ) -> OccurrenceRow:
        """Insert a pending occurrence; ``priority`` and ``payload`` are by default the job's own."""
        priority = job.spec.policies.priority if priority is None else priority
        return self._space.insert_row(
            OccurrenceRow(
                id=self._world.next_number("occurrence"),
                job=job,
                key=self._space.unused_key(job) if key is None else key,
                origin=origin,
                scheduled_for=scheduled_for,
                due_at=due_at,
                expires_at=expires_at,
                priority=priority,
                level=level_of(priority, origin, parent) if level is None else level,
                payload=job.payload if payload is None else payload,
                created_at=now,
                retry_of=retry_of,
                parent=parent,
                parked_on=parked_on,
            )
        )

    def _start_run(self, row: OccurrenceRow, session: SessionRow, now: datetime, *, at: datetime) -> Claim:
        """Make a pending occurrence running for ``session``, its attempt to start at ``at``; return the claim."""
        self._space.start_run(row, session, at)
        args, kwargs, headers = read_call(row.payload)
        return Claim(
            id=row.id,
            spec=row.job.spec,
            key=row.key,
            origin=row.origin,
            scheduled_for=row.scheduled_for,
            due_at=row.due_at,
            attempt=row.attempt,
            token=row.token,
            session=session.spec.id,
            args=args,
            kwargs=kwargs,
            claimed_at=now,
            crashes=row.crashes,
            failures=row.failures,
            parent=row.parent,
            listed=row.listed,
            created_at=row.created_at,
            note=row.note,
            headers=headers,
        )

    def _cut_off(self, row: OccurrenceRow, why: str, now: datetime, *, crashed: bool) -> str:
        """Decide what becomes of a run that is cut off; return the recorded reason."""
        policies = row.job.spec.policies
        reason = f"{Reason.CRASHED}: {why}"
        recorded_reason = reason if crashed else why
        row.crashes += crashed
        at_most_once = policies.on_crash == "fail"
        given_up = crashed and row.crashes >= policies.max_crashes
        self._space.end_run(row, "crashed" if crashed else "released", now, reason=recorded_reason)
        if row.cancel is not None:
            self._space.close_run(row, State.CANCELLED, now, reason=row.cancel)
        elif at_most_once or given_up:
            self._space.close_run(row, State.FAILED, now, reason=reason)
        else:
            row.reason = recorded_reason
            self._space.requeue_run(row, min(row.due_at, now + MOST_AHEAD))
        return recorded_reason

    # --- views --------------------------------------------------------------------------------------------------------

    def _session_view(self, row: SessionRow) -> SessionView:
        spec, ended = row.spec, row.ended_at is not None
        left = timedelta(0) if ended else timedelta(seconds=row.until - self._monotonic())
        state = (
            row.ended_as if ended else "dead" if not self._is_alive(row) else "draining" if row.draining else "alive"
        )
        return SessionView(
            id=spec.id,
            node=spec.node,
            host=spec.host,
            pid=spec.pid,
            pid_started=spec.pid_started,
            release=spec.release,
            version=spec.version,
            concurrency=spec.concurrency,
            functions=spec.functions,
            state=state,
            started_at=row.started_at,
            renewed_at=row.renewed_at,
            ended_at=row.ended_at,
            ended_why=row.ended_why,
            expires_in=left,
            holds=len(row.running) + len(row.locks),
            tzdata=spec.tzdata,
            zones=spec.zones,
        )


def _in_child() -> None:
    global _background  # noqa: PLW0603 - the parent's thread does not exist here
    _background = Background("cronsensus-memory", most=1, log=Logger("cronsensus.stores"))


call_after_fork(_in_child)
