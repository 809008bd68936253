"""Decide what follows the end of an attempt. Pure."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from cronsensus.model.ending import Ending
from cronsensus.model.job import Policies
from cronsensus.model.occurrence import Claim, Outcome, RunError
from cronsensus.model.states import Reason, State

JITTER = 0.25
"""Share of a retry's delay that is drawn by hash, so that a thousand failures of one cause do not come back as one
herd."""


def settle(claim: Claim, ending: Ending) -> Outcome:
    """Return the outcome that the store is to record for an attempt that ended like this."""
    match ending.kind:
        case "returned":
            return Outcome(
                id=claim.id,
                token=claim.token,
                session=claim.session,
                state=State.SUCCEEDED,
                result=ending.result,
                elapsed=ending.elapsed,
            )
        case "skipped":
            return _final(claim, ending, State.SKIPPED, f"{Reason.JOB_SAID_SO}: {ending.reason or 'nothing to do'}")
        case "cancelled":
            return _final(claim, ending, State.CANCELLED, ending.reason or Reason.OPERATOR)
        case "snoozed":
            return Outcome(
                id=claim.id,
                token=claim.token,
                session=claim.session,
                state=State.PENDING,
                reason=f"{Reason.WAITING}: {ending.reason or 'not yet'}",
                retry_in=ending.retry_after,
                elapsed=ending.elapsed,
                waiting=True,
                listed=ending.listed,
                quiet=ending.quiet,
                result=ending.result,
            )
        case "raised" | "timed_out" | "retry":
            return _failed(claim, ending)


def cut_off(claim: Claim, why: str) -> Outcome | None:
    """Return the outcome of an attempt that its own node cut off; ``None``: it is given back, to be run again.

    A job with ``on_crash="fail"`` may have begun its work, and that must not be done twice.
    """
    if claim.spec.policies.on_crash == "retry":
        return None
    return Outcome(
        id=claim.id, token=claim.token, session=claim.session, state=State.FAILED, reason=f"{Reason.CRASHED}: {why}"
    )


def _final(claim: Claim, ending: Ending, state: State, reason: str) -> Outcome:
    return Outcome(
        id=claim.id,
        token=claim.token,
        session=claim.session,
        state=state,
        reason=reason,
        error=ending.error,
        elapsed=ending.elapsed,
    )


def _failed(claim: Claim, ending: Ending) -> Outcome:
    policies = claim.spec.policies
    reason = Reason.TIMEOUT if ending.kind == "timed_out" else ending.reason
    if ending.hopeless or claim.failures >= policies.retries:
        error = ending.error or _last_word(ending, policies)
        return Outcome(
            id=claim.id,
            token=claim.token,
            session=claim.session,
            state=State.FAILED,
            reason=reason,
            error=error,
            elapsed=ending.elapsed,
        )
    delay = ending.retry_after if ending.retry_after is not None else retry_delay(policies, claim.id, claim.failures)
    return Outcome(
        id=claim.id, token=claim.token, session=claim.session, state=State.PENDING, reason=reason, error=ending.error,
        retry_in=delay, elapsed=ending.elapsed,
    )  # fmt: skip


def _last_word(ending: Ending, policies: Policies) -> RunError:
    """Return what is recorded of a last attempt that left no error behind."""
    if ending.kind == "retry":
        asked = f"a retry was asked for, but {'none is left' if policies.retries else 'the job has retries=0'}"
        return RunError(type="Retry", message=f"{ending.reason} ({asked})" if ending.reason else asked)
    if ending.kind == "timed_out":
        return RunError(type="TimeoutError", message="ran longer than its timeout")
    return RunError(type="Exception", message="failed without a word")


def retry_delay(policies: Policies, occurrence: int, failures: int) -> timedelta:
    """Return how long to wait before the attempt that follows ``failures`` + 1 failed ones.

    Exponential: ``retry_delay * retry_factor ** failures``, at most ``retry_max_delay``, of which up to a quarter is
    taken off by a hash of occurrence and failure, so every node computes the same.
    """
    first, most = policies.retry_delay.total_seconds(), policies.retry_max_delay.total_seconds()
    try:
        seconds = min(first * policies.retry_factor**failures, most)
    except OverflowError:
        seconds = most if first else 0.0
    digest = hashlib.blake2b(f"{occurrence}:{failures}".encode(), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    return timedelta(seconds=seconds * (1 - JITTER * share))
