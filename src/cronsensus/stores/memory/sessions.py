"""Verbs on sessions and on the locks that end with them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from cronsensus.errors import LeaseLost
from cronsensus.model.occurrence import Takeover
from cronsensus.model.session import LockGrant, Renewal, SessionSpec
from cronsensus.stores.memory.memory_handle import Handle, writes
from cronsensus.stores.memory.memory_wait_queues import MemoryQueues
from cronsensus.stores.memory.state import LockRow, OccurrenceRow, SessionRow


class SessionVerbs(Handle):
    """The verbs on sessions and locks."""

    @writes
    def _open_session(self, session: SessionSpec, lease: timedelta) -> datetime:
        """Begin a session; repeated while it lives, it only sets the lease."""
        now = self._now()
        row = self._space.sessions.get(session.id)
        if row is not None:
            if not self._is_alive(row):
                raise LeaseLost(f"session {session.id} is dead for good; open one with a new id")
            self._set_lease(row, lease, now)
            return now
        row = SessionRow(session, self._lease_end(lease), now, now, number=self._world.next_number("session"))
        self._space.sessions[session.id] = self._space.open[session.id] = row
        if session.is_node:
            self._space.open_nodes[session.id] = row
            self._space.know_release(session.release, self._now())
        return now

    @writes
    def _renew(self, session: str, lease: timedelta, idle_lease: timedelta) -> Renewal:
        """Set the lease, if the session is alive."""
        now = self._now()
        row = self._space.sessions.get(session)
        store = self._space.identity.id
        if row is None or not self._is_alive(row):
            beats = 0 if row is None else row.beats
            return Renewal(alive=False, lease=timedelta(0), cancel={}, drain=False, now=now, beats=beats, store=store)
        row.beats += 1
        granted_lease = self._lease_for(row, lease, idle_lease)
        self._set_lease(row, granted_lease, now)
        runs = [self._space.occurrences[occurrence] for occurrence in row.running]
        cancel = {occurrence.id: occurrence.cancel for occurrence in runs if occurrence.cancel is not None}
        held = tuple((occurrence.id, occurrence.token) for occurrence in runs)
        return Renewal(
            alive=True, lease=granted_lease, cancel=cancel, drain=row.draining, now=now, held=held,
            beats=row.beats, store=store,
        )  # fmt: skip

    def _lease_for(self, session: SessionRow, lease: timedelta, idle_lease: timedelta) -> timedelta:
        """Return the lease for what the session holds now."""
        return lease if session.running else idle_lease

    @writes
    def _close_session(self, session: str) -> list[Takeover]:
        row = self._space.open.get(session)
        return [] if row is None else self._end_session(row, "closed", "closed in order", crashed=False)

    @writes
    def _reclaim(self, presumed_dead: Collection[str]) -> list[Takeover]:
        """End the sessions that are dead."""
        takeovers: list[Takeover] = []
        for row in list(self._space.open.values()):
            if not self._is_alive(row):
                takeovers += self._end_session(row, "dead", "lease ran out", crashed=True)
            elif row.spec.id in presumed_dead:
                takeovers += self._end_session(row, "dead", "process gone", crashed=True)
        return takeovers

    def _end_session(self, session: SessionRow, ended_as: str, why: str, *, crashed: bool) -> list[Takeover]:
        now = self._now()
        takeovers = [
            self._take_over(self._space.occurrences[occurrence], session, why, now, crashed=crashed)
            for occurrence in list(session.running)
        ]
        for place in list(session.locks):
            self._free_lock(self._space.locks[place])
        session.ended_at, session.ended_as, session.ended_why = now, ended_as, why
        del self._space.open[session.spec.id]
        self._space.open_nodes.pop(session.spec.id, None)
        return takeovers

    def _take_over(
        self, row: OccurrenceRow, session: SessionRow, why: str, now: datetime, *, crashed: bool
    ) -> Takeover:
        recorded_reason = self._cut_off(row, why, now, crashed=crashed and not row.reserved)
        return Takeover(row.id, row.job.spec.name, row.key, row.token, session.spec.id, row.state, recorded_reason)

    @writes
    def _drain(self, session: str, *, by: str, why: str) -> bool:
        """Ask a node to take nothing new."""
        row = self._space.sessions.get(session)
        if row is None or not self._is_alive(row):
            return False
        row.draining = True
        self._space.record_in_trail(self._now(), by, "drain", session, why)
        return True

    # --- locks --------------------------------------------------------------------------------------------------------

    @writes
    def _lock(self, name: str, holder: str, *, ttl: timedelta, session: str | None, limit: int) -> LockGrant | None:
        """Take the first place of a lock that is free or overdue."""
        owner = None if session is None else self._live_session(session)
        held = {row.place: row.most for row in self._space.locks.values() if row.name == name and self._is_held(row)}
        if len(held) >= min([limit, *held.values()]):
            return None
        place = next(number for number in range(limit) if number not in held)
        row = self._space.locks.get((name, place))
        if row is not None:
            self._free_lock(row)
        grant = LockGrant(name=name, holder=holder, token=self._world.next_token(), place=place, session=session)
        row = LockRow(name, place, holder, session, grant.token, self._now(), self._lease_end(ttl), limit)
        self._space.locks[name, place] = row
        if owner is not None:
            owner.locks.add((name, place))
        return grant

    @writes
    def _extend(self, grant: LockGrant, ttl: timedelta) -> bool:
        row = self._lock_under(grant)
        if row is None:
            return False
        row.until = self._lease_end(ttl)
        return True

    @writes
    def _unlock(self, grant: LockGrant) -> bool:
        """Free a lock that is still held."""
        row = self._lock_under(grant)
        if row is None:
            return False
        self._free_lock(row)
        self._space.wake_next(grant.name)
        return True

    @writes
    def _break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]:
        """Free all places of a lock."""
        held = [row for row in self._space.locks.values() if row.name == name and self._is_held(row)]
        for row in held:
            self._free_lock(row)
            self._space.wake_next(name)
        if held:
            self._space.record_in_trail(self._now(), by, "break", name, why)
        held.sort(key=lambda row: row.place)
        return [LockGrant(name=name, holder=r.holder, token=r.token, place=r.place, session=r.session) for r in held]

    def _wait_queues(self) -> MemoryQueues:
        return MemoryQueues(self._space)

    def _wake_next(self, name: str) -> None:
        """Notify the handle that has waited longest for a lock."""
        with self._changed:
            self._space.wake_next(name)

    def _lock_under(self, grant: LockGrant) -> LockRow | None:
        """Return the lock if it is held under the grant's token, by its holder."""
        row = self._space.locks.get((grant.name, grant.place))
        granted = (grant.token, grant.holder, grant.session)
        return (
            row if row is not None and (row.token, row.holder, row.session) == granted and self._is_held(row) else None
        )

    def _free_lock(self, lock: LockRow) -> None:
        del self._space.locks[lock.name, lock.place]
        if lock.session is not None:
            self._space.sessions[lock.session].locks.discard((lock.name, lock.place))
