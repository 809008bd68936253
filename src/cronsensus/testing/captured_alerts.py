"""What the alerts of a kit would have sent: found by their own code, and kept in place of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronsensus.alerts.events import Mark, read_mark
from cronsensus.alerts.sending import Message, Target
from cronsensus.testing.virtual_time import FAR, Crank

if TYPE_CHECKING:
    from cronsensus.testing.stage import Stage

SOON = 2.0
"""Seconds of virtual time between the end of an attempt and the look that tells of it."""
EVERY = 600.0
"""Seconds of virtual time between two looks at what is expected of jobs and nodes, where an alert asks for that."""
_BY_RUNS = {"failed", "missed", "recovered"}
"""What only the end of a run, or a decision about times, brings about."""


class CapturedAlerts:
    """Looks for what each alert of a scheduler would tell, as the agenda goes on.

    Attributes:
        messages: what would have been sent, in order.
    """

    def __init__(self, kit: Stage) -> None:
        """Look from now on; what was before is not told."""
        self.messages: list[Message] = []
        self._kit = kit
        self._alerts = kit.scheduler.alerts
        self._marks: dict[str, Mark] = {}
        self._looks_at = -1
        by_name = {} if self._alerts is None else self._alerts.by_name
        kit.store.migrate()
        for name in by_name:
            self._marks[name] = read_mark(kit.store)
        self._also_by_time = any(set(one.on) - _BY_RUNS for one in by_name.values())
        if self._also_by_time:
            Crank(kit.agenda, kit, self._look_again).wake()

    def look_soon(self) -> None:
        """Look, now that an attempt is about to end."""
        clock, agenda = self._kit.clock, self._kit.agenda
        if self._marks and self._looks_at < clock.micros:
            agenda.call_in(SOON, self.send_all, self._kit)
            self._looks_at = clock.micros + int(SOON * 1_000_000)

    def send_all(self) -> None:
        """Send until no alert has anything more to tell."""
        alerts, store = self._alerts, self._kit.store
        if alerts is None:
            return
        for name, mark in self._marks.items():
            while True:
                sent = len(self.messages)
                mark = alerts.send_next(alerts.by_name[name], store, mark, self._keep)  # noqa: PLW2901 - the next one
                if not mark.letter and len(self.messages) == sent:
                    break
            self._marks[name] = mark

    def _keep(self, _: Target, message: Message, __: str | None) -> None:
        self.messages.append(message)

    def _look_again(self) -> float:
        self.send_all()
        return EVERY if self._also_by_time else FAR
