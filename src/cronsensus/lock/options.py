"""Read and check the options of a lock; for an unknown option, the error says what to write instead."""

from __future__ import annotations

from datetime import timedelta

from cronsensus.config import OnStoreLoss
from cronsensus.errors import InvalidOption
from cronsensus.model.job import check_choice, unknown_option
from cronsensus.timing.durations import Duration, format_duration, parse_duration

TTL_BOUNDS = (timedelta(seconds=1), timedelta(days=1))
SHORTEST_TTL_UNRENEWED = timedelta(milliseconds=100)
MAX_HOLDERS = 1000
OPTIONS = {"ttl", "limit", "renew", "blocking", "blocking_timeout", "namespace", "on_store_loss"}
_WRITE_INSTEAD = {
    "timeout": "ttl='30s', which is renewed while the lock is held",
    "sleep": "nothing: a waiter is notified, and does not poll",
    "thread_local": "nothing: each thread and each task holds what it acquired itself",
    "token": "nothing: the store gives the token, which grows with every holder; read it from lock.token",
    "raise_on_release_error": "nothing: a lease that was lost is an error only if the block itself did not fail",
}


def unknown_option_error(option: str, known: set[str], where: str) -> InvalidOption:
    """Return the error for an unknown option, with what to write instead."""
    if option in _WRITE_INSTEAD:
        return InvalidOption(f"unknown option {option!r} for {where}; write {_WRITE_INSTEAD[option]}")
    return unknown_option(option, known, where=where)


def read_ttl(ttl: Duration | None, *, renew: bool) -> timedelta:
    """Return the TTL of a lock.

    Raises:
        InvalidOption: it is ``None``, or out of bounds.
        InvalidDuration: it is no duration.
    """
    if ttl is None:
        raise InvalidOption(
            "ttl=None: a lock without a TTL would be held for ever by a process that died; write ttl='30s', and it is "
            "renewed for as long as it is held"
        )
    duration = parse_duration(ttl, what="ttl")
    shortest, longest = TTL_BOUNDS if renew else (SHORTEST_TTL_UNRENEWED, TTL_BOUNDS[1])
    if shortest <= duration <= longest:
        return duration
    if duration > longest:
        why = "a longer one would outlive a crash by far; what is held longer is renewed"
    elif renew:
        why = "a shorter one could not be renewed in time, over a slow commit or a busy machine"
    else:
        why = "a shorter one would be over before it is answered for"
    raise InvalidOption(f"ttl={ttl!r}: from {format_duration(shortest)} to {format_duration(longest)}; {why}")


def read_limit(limit: object) -> int:
    """Return how many may hold a lock at once.

    Raises:
        InvalidOption: it is no whole number within the bounds.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_HOLDERS:
        raise InvalidOption(f"limit={limit!r}: a whole number from 1 to {MAX_HOLDERS}")
    return limit


def read_on_store_loss(on_store_loss: object) -> bool:
    """Return whether the lock refuses to be acquired after its store has lost its data (``"stop"``).

    Raises:
        InvalidOption: it is no choice of ``on_store_loss``.
    """
    return check_choice(on_store_loss, OnStoreLoss, what="on_store_loss") == "stop"


def read_timeout(timeout: Duration | None) -> float | None:
    """Return the blocking timeout in seconds; ``None``: wait without limit.

    Raises:
        InvalidDuration: it is no duration.
    """
    return None if timeout is None else parse_duration(timeout, what="blocking_timeout").total_seconds()
