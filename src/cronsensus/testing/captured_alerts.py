"""The messages that the alerts of a kit would have sent: found by the real code, and kept instead of sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronsensus.alerts.events import Mark, read_mark
from cronsensus.alerts.sending import Message, Target
from cronsensus.testing.virtual_time import FAR, Crank

if TYPE_CHECKING:
    from cronsensus.testing.stage import Stage

SOON = 2.0
"""Seconds of virtual time between the end of an attempt and the scan that reports it."""
EVERY = 600.0
"""Seconds of virtual time between two checks of jobs and nodes, if an alert needs them."""
_BY_RUNS = {"failed", "missed", "recovered"}
"""Events that only the end of a run, or a decision about times, causes."""


class CapturedAlerts:
    """Scans for events of each alert of a scheduler, as the agenda goes on.

    Attributes:
        messages: the messages that would have been sent, in order.
    """

    def __init__(self, kit: Stage) -> None:
        """Scan from now on; earlier events are not reported."""
        self.messages: list[Message] = []
        self._kit = kit
        self._alerts = kit.scheduler.alerts
        self._marks: dict[str, Mark] = {}
        self._looks_at = -1
        by_name = {} if self._alerts is None else self._alerts.by_name
        kit.store.migrate()
        for name in by_name:
            self._marks[name] = read_mark(kit.store)
        self._also_by_time = any(set(alert.on) - _BY_RUNS for alert in by_name.values())
        if self._also_by_time:
            Crank(kit.agenda, kit, self._look_again).wake()

    def look_soon(self) -> None:
        """Schedule a scan, because an attempt is about to end."""
        clock, agenda = self._kit.clock, self._kit.agenda
        if self._marks and self._looks_at < clock.micros:
            agenda.call_in(SOON, self.send_all, self._kit)
            self._looks_at = clock.micros + int(SOON * 1_000_000)

    def send_all(self) -> None:
        """Send until no alert has further events."""
        alerts, store = self._alerts, self._kit.store
        if alerts is None:
            return
        for name, mark in self._marks.items():
            while True:
                sent = len(self.messages)
                mark = alerts.send_next(alerts.by_name[name], store, mark, self._keep)  # noqa: PLW2901 - the next one
                if not mark.pending and len(self.messages) == sent:
                    break
            self._marks[name] = mark

    def _keep(self, _: Target, message: Message, __: str | None) -> None:
        self.messages.append(message)

    def _look_again(self) -> float:
        self.send_all()
        return EVERY if self._also_by_time else FAR
