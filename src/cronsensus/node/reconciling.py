"""Compare the runs of this node with those that the store lists for it, and correct differences.

::

    look: another number of runs than here ──▶ ask for a renewal now
                                                     │
    each renewal: the runs of this session ──▶ compare_held() ──▶ correct_differences(), in the node's next round
                                                              │ seen in two renewals, the second requested after the
                                                              │ first was judged, and after every answer to this node
                                                              ▼
        the store lists a run that ended here                    its end is sent again
        the store lists a run that this node does not know       it is adopted, and runs here
        a run here that the store does not list for this session it is stopped (``run.lease_lost``)

A store that lost its last moment (a failover to a standby that lags, a restart from a snapshot, a restored backup)
knows other runs than its nodes do. If no node compared, a run whose end was lost would be *running* for as long as the
node lives, and nothing that waits for it would ever run. Tokens are compared, not occurrences: an occurrence that was
claimed again after a loss is another run. Claims of other sessions of this process (``acquire``, ``once``) are not this
node's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cronsensus.membership.lease import LeaseRequest, SessionLease
from cronsensus.node.accepted_ends import Key
from cronsensus.node.active_runs import ActiveRuns
from cronsensus.node.claiming import Claiming
from cronsensus.process.logger import Logger
from cronsensus.stores.values import View
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

MOST_SESSIONS_SHOWN = 64
"""Most sessions that a look returns; if there are more, a live session may be missing."""
SETTLE_TIME = 5.0
"""Ignore a run for this many seconds after correcting it."""
REQUEST_EVERY = 0.5
"""Least seconds between two renewals that looks request."""
FORGOTTEN = "the store lost the moment in which this run was claimed, and may give it to another node"


class _News(NamedTuple):
    """The runs that a renewal listed."""

    session: str
    held: frozenset[Key]
    asked_at: float


class Reconciling:
    """Compares, and corrects. ``compare_held`` may be called from any thread, the rest on the node's rounds."""

    def __init__(
        self,
        clock: Clock,
        active_runs: ActiveRuns,
        claiming: Claiming,
        *,
        wake: Callable[[], None],
        request_renewal: Callable[[], None],
    ) -> None:
        """Compare the claims of ``active_runs``.

        Args:
            clock: for the order of requests and answers.
            active_runs: the node's claims.
            claiming: starts adopted claims.
            wake: starts a round of the node.
            request_renewal: requests a renewal of the session as soon as possible.
        """
        self._clock = clock
        self._active_runs = active_runs
        self._claiming = claiming
        self._wake = wake
        self._request_renewal = request_renewal
        self._news: _News | None = None
        self._suspects: frozenset[Key] = frozenset()
        self._corrected: dict[Key, float] = {}
        self._judged_at = -1e9
        self._asked_for_at = -1e9
        self.on_forgotten: Callable[..., None] = lambda *_, **__: None
        """Called with the sign by which the store was found to have lost a moment."""

    def reset_doubt(self) -> None:
        """Reset the doubt: it concerned the previous session."""
        self._news, self._suspects = None, frozenset()

    def compare_held(self, lease: SessionLease, held: tuple[Key, ...] | None, request: LeaseRequest) -> None:
        """Compare the runs that this node holds with those that the store lists in the answer to ``request``."""
        if held is None:
            return
        news = _News(lease.session, frozenset(held), request.at)
        self._news = news
        if self._suspects or self._find_unknown(news) or self._find_missing(news):
            self._wake()

    def compare_view(self, lease: SessionLease, view: View) -> None:
        """Request a renewal if a look returned another number of runs, or not the session at all."""
        if self._suspects or self._active_runs.in_doubt or self._active_runs.has_unsent_ends:
            return
        held_by_store = next((holder.holds for holder in view.holders if holder.id == lease.session), 0)
        least, most = self._active_runs.bound_run_count(lease.session)
        lives = lease.session in view.sessions or len(view.sessions) >= MOST_SESSIONS_SHOWN
        now = self._clock.monotonic()
        if (least <= held_by_store <= most and lives) or now - self._asked_for_at < REQUEST_EVERY:
            return
        self._asked_for_at = now
        self._request_renewal()

    def correct_differences(self, lease: SessionLease) -> None:
        """Correct differences that two renewals in a row have shown; called while no call of this node is under way."""
        news, self._news = self._news, None
        if news is None or news.session != lease.session or lease.is_lost:
            return
        unknown, missing = self._find_unknown(news), self._find_missing(news)
        seen_twice = self._suspects if news.asked_at > self._judged_at else frozenset()
        self._judged_at = self._clock.monotonic()
        self._suspects = frozenset(unknown | missing)
        for key in sorted(missing & seen_twice):
            self._stop_run(key)
        if unknown & seen_twice:
            self._adopt_runs(lease, unknown & seen_twice)
        now = self._clock.monotonic()
        self._corrected = {key: at for key, at in self._corrected.items() if now - at < SETTLE_TIME}
        self._corrected.update(dict.fromkeys(self._suspects & seen_twice, now))
        self._suspects -= seen_twice
        if self._suspects:
            self._request_renewal()

    # --- what differs ------------------------------------------------------------------------------------------------

    def _find_unknown(self, news: _News) -> set[Key]:
        """Return the runs that the store lists and that are unknown here."""
        accepted = self._active_runs.accepted_ends
        unknown = news.held - self._active_runs.list_open_claims() - self._corrected.keys()
        # A run whose end was recorded while the renewal was on its way may still be in its list.
        return {key for key in unknown if (at := accepted.accepted_at(key)) is None or at < news.asked_at}

    def _find_missing(self, news: _News) -> set[Key]:
        """Return the runs that were known here before the request, and that the store does not list."""
        working = self._active_runs.list_held_claims(news.session)
        return {key for key, since in working.items() if since < news.asked_at and key not in news.held}

    # --- what is done about it ---------------------------------------------------------------------------------------

    def _stop_run(self, key: Key) -> None:
        claim = self._active_runs.disown_run(key, FORGOTTEN)
        if claim is not None:
            self.on_forgotten(
                f"it does not know that this node claimed occurrence {claim.id} of {claim.job!r}", at=claim.claimed_at
            )
            _log.warning(
                "occurrence %d of %r (attempt %d) is stopped: %s", claim.id, claim.job, claim.attempt, FORGOTTEN
            )

    def _adopt_runs(self, lease: SessionLease, keys: set[Key]) -> None:
        not_known = set()
        for key in sorted(keys):
            if self._active_runs.send_again(key):
                self.on_forgotten(f"it does not know how occurrence {key[0]} ended")
                _log.warning("the store forgot how occurrence %d ended (token %d): its end is sent again", *key)
            else:
                not_known.add(key)
        if not_known:
            self._claiming.adopt_runs(lease, not_known)
