"""The options of a lock: their bounds, and what to write instead of an unknown one."""

from __future__ import annotations

from datetime import timedelta

from cronsensus.config import OnStoreLoss
from cronsensus.errors import InvalidOption
from cronsensus.model.job import check_choice, unknown_option
from cronsensus.timing.durations import Duration, format_duration, parse_duration

TTL_BOUNDS = (timedelta(seconds=1), timedelta(days=1))
SHORTEST_UNRENEWED = timedelta(milliseconds=100)
MOST_HOLDERS = 1000
OPTIONS = {"ttl", "limit", "renew", "blocking", "blocking_timeout", "namespace", "on_store_loss"}
_WRITE_INSTEAD = {
    "timeout": "ttl='30s', which is renewed while the lock is held",
    "sleep": "nothing: a waiter is notified, and does not poll",
    "thread_local": "nothing: each thread and each task holds what it acquired itself",
    "token": "nothing: the store gives the token, which grows with every holder; read it from lock.token",
    "raise_on_release_error": "nothing: a lease that was lost is an error only if the block itself did not fail",
}


def unknown_here(option: str, known: set[str], where: str) -> InvalidOption:
    """Return the error for an option that does not exist."""
    if option in _WRITE_INSTEAD:
        return InvalidOption(f"unknown option {option!r} for {where}; write {_WRITE_INSTEAD[option]}")
    return unknown_option(option, known, where=where)


def read_ttl(ttl: Duration | None, *, renew: bool) -> timedelta:
    """Return a TTL.

    Raises:
        InvalidOption, InvalidDuration: an impossible one.
    """
    if ttl is None:
        raise InvalidOption(
            "ttl=None: a lock without a TTL would be held for ever by a process that died; write ttl='30s', and it is "
            "renewed for as long as it is held"
        )
    read = parse_duration(ttl, what="ttl")
    least, most = TTL_BOUNDS if renew else (SHORTEST_UNRENEWED, TTL_BOUNDS[1])
    if not least <= read <= most:
        why = (
            "a shorter one could not be renewed in time, over a slow commit or a busy machine"
            if renew and read < least
            else "a longer one would outlive a crash by far; what is held longer is renewed"
            if read > most
            else "a shorter one would be over before it is answered for"
        )
        raise InvalidOption(f"ttl={ttl!r}: from {format_duration(least)} to {format_duration(most)}; {why}")
    return read


def read_limit(limit: object) -> int:
    """Return how many may hold a lock.

    Raises:
        InvalidOption: an impossible number.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_HOLDERS:
        raise InvalidOption(f"limit={limit!r}: a whole number from 1 to {MOST_HOLDERS}")
    return limit


def read_stop(on_store_loss: object) -> bool:
    """Return whether a lock is refused once its store was emptied.

    Raises:
        InvalidOption: an unknown choice.
    """
    return check_choice(on_store_loss, OnStoreLoss, what="on_store_loss") == "stop"


def read_timeout(timeout: Duration | None) -> float | None:
    """Return seconds; ``None``: for ever.

    Raises:
        InvalidDuration: no such time.
    """
    return None if timeout is None else parse_duration(timeout, what="blocking_timeout").total_seconds()
