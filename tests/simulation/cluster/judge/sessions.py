"""Rules on sessions: a dead one is dead for good, and what it held goes on as its job's policies say."""

from __future__ import annotations

from cronsensus.model.occurrence import Takeover
from cronsensus.model.states import State
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.judge.bench import Bench, Seen
from tests.simulation.cluster.judge.books import FUZZ, SessionBook, to_micros
from tests.simulation.cluster.stage import Process


class SessionRules(Bench):
    """Leases run on true time; no clock that is set makes one longer or shorter."""

    def open_session(self, seen: Seen) -> None:
        """Note a session."""
        spec = seen.args[0]
        self.sessions[spec.id] = SessionBook(spec.id, self.micros + to_micros(seen.kwargs["lease"]))

    def renew(self, seen: Seen) -> None:
        """Look at a renewal."""
        session = self.sessions.get(seen.args[0])
        if session is None:
            if seen.answer.alive:
                self.broken("session", f"{seen.args[0]} was never opened, and is alive")
            return
        if not seen.answer.alive:
            if session.alive(self.micros + FUZZ):
                self.broken("session", f"{session.id} is alive and was told that it is dead")
            return
        if not session.alive(self.micros - FUZZ):
            self.broken("session", f"{session.id} was dead and is alive again")
        works = any(one.session == session.id and one.state is State.RUNNING for one in self.records)
        lease = seen.kwargs["lease" if works else "idle_lease"]
        if seen.answer.lease != lease:
            self.broken("lease", f"{session.id} got {seen.answer.lease} instead of {lease}")
        session.until = self.micros + to_micros(lease)
        held = {(one.id, one.token) for one in self.records if one.session == session.id and one.state is State.RUNNING}
        if held != set(seen.answer.held or ()):
            self.broken("held", f"{session.id} was told of {seen.answer.held}, and holds {sorted(held)}")
        asked = {one.id for one in self.asked if one.session == session.id and one.state is State.RUNNING}
        if asked != set(seen.answer.cancel):
            self.broken("cancel", f"{session.id} was told to stop {sorted(seen.answer.cancel)}, not {sorted(asked)}")

    def trusts(self, node: Process, session: str, micros: int) -> None:
        """Look at how long a node that holds something trusts its lease: never for longer than it lasts."""
        book = self.sessions.get(session)
        if book is None or book.forgot:
            return
        left = book.until - self.micros
        if micros > left + FUZZ:
            what = f"trusts the lease of {session} for {micros / SECOND:g}s, and it lasts {left / SECOND:g}s"
            self.broken("trust", f"{node.name} {what}")

    def close_session(self, seen: Seen) -> None:
        """Look at what a session that ends in order leaves behind."""
        session = self.sessions.get(seen.args[0])
        if session is not None and not session.ended:
            self._end(session, seen.answer, crashed=False)

    def reclaim(self, seen: Seen) -> None:
        """Look at what was taken from the dead."""
        presumed_dead = seen.args[0] if seen.args else ()
        taken_from = {takeover.session for takeover in seen.answer}
        for session in self.sessions.values():
            if session.ended:
                continue
            over = not session.alive(self.micros - FUZZ) or session.id in presumed_dead
            if over or (session.id in taken_from and not session.alive(self.micros + FUZZ)):
                self._end(session, seen.answer, crashed=True)
        for takeover in seen.answer:
            if not self.sessions[takeover.session].ended:
                self.broken("takeover", f"#{takeover.id} was taken from {takeover.session}, which is alive")

    def _end(self, session: SessionBook, answer: list[Takeover], *, crashed: bool) -> None:
        session.ended = True
        became = {takeover.id: takeover.became for takeover in answer if takeover.session == session.id}
        for record in self.records:
            if record.state is not State.RUNNING or record.session != session.id:
                continue
            self._cut_off(record, crashed=crashed and not record.reserved)
            if became.pop(record.id, None) is not record.state:
                self.broken("takeover", f"{record} of {session.id}, which is over, did not become {record.state}")
        if became:
            self.broken("takeover", f"{sorted(became)} did not run for {session.id}")
