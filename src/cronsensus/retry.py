"""Decide whether an attempt that ended is retried, and after which delay. Pure."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from msgspec import structs

from cronsensus.model.ending import Ending
from cronsensus.model.ends import Again, End, Final, Then
from cronsensus.model.job import Policies
from cronsensus.model.occurrence import Claim, RunError
from cronsensus.model.states import Reason, State

JITTER = 0.25
"""Share of a retry's delay that is jitter, so that a thousand failures of one cause are not retried at once."""


def decide_end(claim: Claim, ending: Ending) -> End:
    """Return what to record of an attempt that ended like this: whether it is retried, and when."""
    return End.of(claim, _what_follows(claim, ending), ending.elapsed)


def _what_follows(claim: Claim, ending: Ending) -> Then:
    match ending.kind:
        case "returned":
            return Final(State.SUCCEEDED, result=ending.result)
        case "skipped":
            reason = f"{Reason.JOB_SAID_SO}: {ending.reason or 'nothing to do'}"
            return Final(State.SKIPPED, reason, error=ending.error)
        case "cancelled":
            return Final(State.CANCELLED, ending.reason or Reason.OPERATOR, error=ending.error)
        case "snoozed":
            then = Again(timedelta(0), failed=False) if ending.then is None else ending.then
            return structs.replace(then, reason=ending.reason)
        case "raised" | "timed_out" | "retry":
            return _failed(claim, ending)


def decide_cut_off(claim: Claim, reason: str) -> End | None:
    """Return the end of an attempt that its own node cut off; ``None``: the claim is released, and it runs again.

    With ``on_crash="fail"`` it fails: the attempt may have done part of its work, which must not be done twice.
    """
    if claim.spec.policies.on_crash == "retry":
        return None
    return End.of(claim, Final(State.FAILED, f"{Reason.CRASHED}: {reason}"))


def _failed(claim: Claim, ending: Ending) -> Final | Again:
    policies = claim.spec.policies
    reason = Reason.TIMEOUT if ending.kind == "timed_out" else ending.reason
    if ending.permanent or claim.failures >= policies.retries:
        return Final(State.FAILED, reason, error=ending.error or _default_error(ending, policies))
    delay = ending.retry_after if ending.retry_after is not None else retry_delay(policies, claim.id, claim.failures)
    return Again(delay, failed=True, reason=reason, error=ending.error)


def _default_error(ending: Ending, policies: Policies) -> RunError:
    """Return the error to record for a failed last attempt that has none."""
    if ending.kind == "retry":
        explanation = f"a retry was asked for, but {'none is left' if policies.retries else 'the job has retries=0'}"
        return RunError(type="Retry", message=f"{ending.reason} ({explanation})" if ending.reason else explanation)
    if ending.kind == "timed_out":
        return RunError(type="TimeoutError", message="ran longer than its timeout")
    return RunError(type="Exception", message="failed without a word")


def retry_delay(policies: Policies, occurrence: int, failures: int) -> timedelta:
    """Return how long to wait before the attempt that follows ``failures`` + 1 failed ones.

    Exponential: ``retry_delay * retry_factor ** failures``, at most ``retry_max_delay``, of which up to a quarter is
    taken off by a hash of occurrence and failure, so every node computes the same.
    """
    first_delay, longest_delay = policies.retry_delay.total_seconds(), policies.retry_max_delay.total_seconds()
    try:
        seconds = min(first_delay * policies.retry_factor**failures, longest_delay)
    except OverflowError:
        seconds = longest_delay if first_delay else 0.0
    digest = hashlib.blake2b(f"{occurrence}:{failures}".encode(), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    return timedelta(seconds=seconds * (1 - JITTER * share))
