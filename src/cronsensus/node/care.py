"""What is done now and then: taking over from the dead, and pruning."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from cronsensus.clock import Clock
from cronsensus.membership.lease import SessionLease
from cronsensus.membership.liveness import Absence
from cronsensus.model.session import SessionView
from cronsensus.node.settings import NodeSettings
from cronsensus.node.telling import Telling
from cronsensus.stores.base import Store
from cronsensus.stores.values import View

HOUSEKEEPING = 3600.0
TIDY = 600.0
PRUNED_AT_ONCE = 1000


class Care:
    """Looks after what others leave behind."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: NodeSettings,
        *,
        evidence: Callable[[SessionView], bool],
        telling: Telling,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._evidence = evidence
        self._telling = telling
        self._absence = Absence()
        self._pruned_at = self._reclaimed_at = clock.monotonic()

    def note(self, view: View, asked_at: float, received_at: float) -> None:
        """Take in who showed no sign of life in a look, which was taken between the two (monotonic seconds)."""
        self._absence.note(view, asked_at, received_at)

    def take_over(self, lease: SessionLease, view: View) -> bool:
        """Reclaim the runs of sessions that are overdue or evidently dead; ``True``: there may be work to claim now.

        Sessions that hold nothing show in no view; a timer sweeps them away.
        """
        others = [holder for holder in view.holders if holder.id != lease.session]
        dead = [holder.id for holder in others if self._settings.fast_evidence and self._seems_dead(holder)]
        overdue = any(holder.expires_in <= timedelta(0) for holder in view.holders)
        now = self._clock.monotonic()
        if not dead and not overdue and now - self._reclaimed_at < TIDY:
            return False
        self._reclaimed_at = now
        taken = self._store.reclaim(dead)
        self._telling.taken(taken, self._settings.name, {holder.id: holder.node for holder in others})
        # Also where they failed for good: what waited behind them may go on.
        return bool(taken)

    def wants_look_at(self, lease: SessionLease, view: View) -> float | None:
        """Return when another look can tell whether a holder is dead, if one may be (monotonic seconds)."""
        if not self._settings.fast_evidence or not view.absent:
            return None
        return self._absence.wants_look_at({one.id for one in view.holders if one.id != lease.session})

    def prune(self) -> bool:
        """Prune what was kept long enough, if it is time to; return whether there is more.

        One batch a round, because what is due must not wait for care.
        """
        now = self._clock.monotonic()
        if now - self._pruned_at <= HOUSEKEEPING:
            return False
        more = self._store.prune(limit=PRUNED_AT_ONCE) >= PRUNED_AT_ONCE
        if not more:
            self._pruned_at = now
        return more

    def _seems_dead(self, session: SessionView) -> bool:
        return self._absence.is_gone(session.id) or self._evidence(session)
