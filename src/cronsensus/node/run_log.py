"""The log of a node about jobs and their runs, and its counts. It decides nothing.

Only what the store has accepted is logged: a refused ending is not the outcome of the run, and after a lost answer the
end is logged when the answer comes. A failure is a warning while there is another attempt, and an error, with its
traceback, when there is none. The record has the exception itself, if the job ran in this process and no secret is in
it (else its masked text, see ``logger``). Its message template has the job's name, because tools such as Sentry show
the template and group by it. A successful run is a line on level ``INFO``, its start a line on ``DEBUG``; neither costs
anything if the level is off.

The number of a run is that of ``cronsensus runs show``. Records about a run carry ``job``, ``run``, ``key``,
``attempt`` and ``token`` as extra fields.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cronsensus.model.ends import Again, End, Final, Parked, recorded_as
from cronsensus.model.occurrence import SCHEDULED_KEY_PREFIX, Claim, RunError, Settled, Takeover
from cronsensus.model.plan import Plan
from cronsensus.model.states import Reason, State
from cronsensus.node.run_transaction import log_unrecorded
from cronsensus.node.stats import NodeStats
from cronsensus.process.logger import ExcInfo, Logger
from cronsensus.timing.instants import format_instant

_log = Logger("cronsensus.runs")
_node_log = Logger("cronsensus.node")

_TOO_LATE_REASONS = frozenset({Reason.COALESCED, Reason.LATE, Reason.NO_CATCH_UP, Reason.BEYOND_WINDOW})
"""Reasons of nominal times that were found too late to run: worth a warning, since they may never run."""
_MOST_NAMES = 5


class RunLog:
    """Logs and counts; keeps the claim of each ended run until the store has accepted the end."""

    def __init__(self, stats: NodeStats) -> None:
        self._stats = stats
        self._waiting: dict[tuple[int, int], tuple[Claim, ExcInfo]] = {}

    def log_starts(self, claims: Sequence[Claim]) -> None:
        """Log which runs start, and count those that are reserved."""
        self._stats.claimed += len(claims)
        is_debug = _log.isEnabledFor(logging.DEBUG)
        for claim in claims:
            if claim.reserved:
                continue
            if claim.crashes:
                _log.info(
                    "%s was taken over, and runs here as attempt %d",
                    _name_run(claim),
                    claim.attempt,
                    extra=_details_of(claim),
                )
            elif is_debug:
                _log.debug("%s starts, attempt %d", _name_run(claim), claim.attempt, extra=_details_of(claim))

    def log_reserved_start(self, claim: Claim) -> None:
        """Log the start of a reserved run."""
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s starts, attempt %d", _name_run(claim), claim.attempt, extra=_details_of(claim))

    def remember_end(self, claim: Claim, end: End, raised: ExcInfo = None) -> None:
        """Keep the claim of this end, and the job's exception, if the end is going to be logged."""
        quiet = end.state is State.SUCCEEDED or end.state is State.SKIPPED or recorded_as(end.then) is None
        if not quiet or _log.isEnabledFor(logging.INFO):
            self._waiting[claim.id, claim.token] = claim, raised

    def log_end(self, answer: Settled, end: End) -> None:
        """Log how a run ended, now that the store has answered."""
        claim, exception = self._waiting.pop((answer.id, answer.token), (None, None))
        if not answer.accepted:
            self.log_refusal(answer.id, answer.token, end.state)
            return
        self._stats.settled += 1
        if answer.state is State.SUCCEEDED is not end.state:
            log_unrecorded(end)
        if claim is None:
            return
        fields, then = _details_of(claim), end.then
        match answer.state:
            case State.FAILED:
                trace = end.error.traceback if end.error is not None and exception is None else ""
                _log.error(
                    f"run %d of {repr(claim.job).replace('%', '%%')} (%s) failed at attempt %d: %s%s",
                    claim.id, _of_what(claim), claim.attempt, _format_reason(then.reason, end.error),
                    f"\n{trace}" if trace else "",
                    extra=fields, exc_info=exception,
                )  # fmt: skip
            case State.PENDING if not isinstance(then, Final):
                self._goes_on(claim, then, fields)
            case State.CANCELLED:
                _log.info("%s was cancelled: %s", _name_run(claim), then.reason, extra=fields)
            case _ if answer.state is end.state:
                outcome = then.reason or f"in {end.elapsed.total_seconds():.3f}s"
                _log.info("%s %s: %s", _name_run(claim), answer.state, outcome, extra=fields)

    def _goes_on(self, claim: Claim, then: Again | Parked, fields: dict[str, Any]) -> None:
        match then:
            case Parked(listed=None):
                _log.debug("%s waits for its %s", _name_run(claim), then.on, extra=fields)
            case Parked(listed=listed):
                _log.info("%s waits for its %s %s", _name_run(claim), listed, then.on, extra=fields)
            case Again(failed=False, note=None):
                template = "%s waits: %s; it looks again in %.1fs"
                _log.info(
                    template, _name_run(claim), then.reason or "not yet", then.after.total_seconds(), extra=fields
                )
            case Again(failed=False):
                _log.debug("%s looked, and looks again", _name_run(claim), extra=fields)
            case Again():
                # A job that asks for a retry itself has not failed.
                level = logging.INFO if then.error is None else logging.WARNING
                event = "asked for a retry" if then.error is None else "failed"
                _log.log(
                    level,
                    "attempt %d of %s %s: %s; it is tried again in %.1fs",
                    claim.attempt, _name_run(claim), event, _format_reason(then.reason, then.error),
                    then.after.total_seconds(), extra=fields,
                )  # fmt: skip

    def log_refusal(self, occurrence: int, token: int, state: State) -> None:
        """Log that the store refused the end of a run."""
        self._stats.refused += 1
        _node_log.warning(
            "refused the end of occurrence %d (token %d, %s): it was taken over or closed meanwhile",
            occurrence, token, state,
        )  # fmt: skip

    def log_release(self, claim: Claim, reason: str) -> None:
        """Log that this node cut off a run, for another to claim."""
        template = "%s is cut off in attempt %d, and given back for others to run: %s"
        _log.warning(template, _name_run(claim), claim.attempt, reason, extra=_details_of(claim))

    def log_takeovers(self, takeovers: Sequence[Takeover], by: str, names: Mapping[str, str]) -> None:
        """Log the runs that this node took over from dead sessions.

        Args:
            takeovers: the store's answer.
            by: this node's name.
            names: of nodes, by session.
        """
        self._stats.taken_over += len(takeovers)
        for takeover in takeovers:
            fields = {"job": takeover.job, "run": takeover.id, "key": takeover.key, "token": takeover.token}
            run_name = takeover.key.removeprefix(SCHEDULED_KEY_PREFIX)
            node = names.get(takeover.session, f"session {takeover.session}")
            if takeover.became is State.FAILED:
                # The template has the job's name, as for a function that raised: tools group by it.
                _log.error(
                    f"run %d of {repr(takeover.job).replace('%', '%%')} (%s) failed for good, because its process "
                    "died: it was running on %s, which is gone (%s); noticed by %s",
                    takeover.id, run_name, node, takeover.reason, by, extra=fields,
                )  # fmt: skip
                continue
            consequence = (
                "it waits for the next free node" if takeover.became is State.PENDING else f"it is {takeover.became}"
            )
            _log.warning(
                "%s: run %d of %r (%s) was running on %s, which is gone (%s); %s",
                by, takeover.id, takeover.job, run_name, node, takeover.reason, consequence, extra=fields,
            )  # fmt: skip

    def log_plans(self, plans: Sequence[Plan], *, lost: int = 0) -> None:
        """Log which nominal times the accepted ``plans`` do not run; ``lost``: how many plans were refused."""
        self._stats.fired += sum(len(plan.occurrences) for plan in plans)
        self._stats.lost_races += lost
        reasons: Counter[str] = Counter()
        jobs: dict[str, None] = {}
        oldest = None
        for plan in plans:
            for verdict in plan.verdicts:
                if verdict.reason in _TOO_LATE_REASONS:
                    # No count means too many to count: count it as one.
                    reasons[f"{verdict.state}: {verdict.reason}"] += verdict.count or 1
                    jobs[plan.job] = None
                    oldest = verdict.first if oldest is None else min(oldest, verdict.first)
                elif verdict.reason == Reason.OVERLAP:
                    _log.info(
                        "%r is not run for %s: the run before is still active (overlap)",
                        plan.job, format_instant(verdict.first), extra={"job": plan.job},
                    )  # fmt: skip
        if oldest is None:
            return
        others = f" and {len(jobs) - _MOST_NAMES} more" if len(jobs) > _MOST_NAMES else ""
        names = ", ".join(list(jobs)[:_MOST_NAMES]) + others
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        _log.warning(
            "nominal times since %s were found late and are not run (%s), of %s; why: cronsensus why %s %s",
            format_instant(oldest), counts, names, next(iter(jobs)), format_instant(oldest),
        )  # fmt: skip


def _name_run(claim: Claim) -> str:
    return f"run {claim.id} of {claim.job!r} ({_of_what(claim)})"


def _of_what(claim: Claim) -> str:
    return claim.key if claim.scheduled_for is None else format_instant(claim.scheduled_for)


def _details_of(claim: Claim) -> dict[str, Any]:
    return {"job": claim.job, "run": claim.id, "key": claim.key, "attempt": claim.attempt, "token": claim.token}


def _format_reason(reason: str | None, error: RunError | None) -> str:
    return reason or "no reason given" if error is None else _format_error(error)


def _format_error(error: RunError) -> str:
    return f"{error.type}: {error.message}" if error.message else error.type
