"""How a lock is acquired. To wait for it is written once for threads and for event loops: a conversation."""

from __future__ import annotations

from collections.abc import Generator

from cronsensus.lock.conversing import NAP, Conversation, Pause, adrive, drive
from cronsensus.lock.gate import Gate, Wanted
from cronsensus.lock.lease import Lease
from cronsensus.lock.seat import Seat
from cronsensus.lock.working import on_worker


def acquire(gate: Gate, wanted: Wanted, patience: float | None, what: str, instead: str) -> Lease | None:
    """Take the lock, waiting up to ``patience`` seconds (``None``: for ever) while others hold it.

    Raises:
        StoreError: as ``Gate.take``.
        ConfigurationError: as ``drive``, which gets the rest.
    """
    waits = patience is None or patience > 0
    lease = gate.take(wanted, look=not waits)
    if lease is not None or not waits:
        return lease
    return drive(_waiting(gate, wanted, patience), what, instead)


async def aacquire(gate: Gate, wanted: Wanted, patience: float | None) -> Lease | None:
    """Do what ``acquire`` does without blocking the event loop."""
    waits = patience is None or patience > 0
    lease = await on_worker(lambda: gate.take(wanted, look=not waits), _give_back)
    if lease is not None or not waits:
        return lease
    return await adrive(_waiting(gate, wanted, patience), _give_back)


def _waiting(gate: Gate, wanted: Wanted, patience: float | None) -> Conversation[Lease | None]:
    """Wait for a lock that was refused, and take it."""
    lease: Lease | None
    until = float("inf") if patience is None else gate.clock.monotonic() + patience
    seat = wanted.trying.seat = gate.seat(wanted.name)
    try:
        while True:
            yield seat.stand
            lease = yield lambda: _take(gate, wanted, seat)
            if lease is not None or gate.clock.monotonic() >= until:
                return lease
            yield from _wait(gate, seat, until)
    finally:
        seat.give_up()


def _take(gate: Gate, wanted: Wanted, seat: Seat) -> Lease | None:
    news, seat.news = seat.news, False  # the lock is freed again, or somebody has it who tells when it is free
    try:
        lease = gate.take(wanted, seat)
    except BaseException:
        seat.news = news
        raise
    if lease is not None:
        seat.step_out()
    return lease


def _wait(gate: Gate, seat: Seat, until: float) -> Generator[Pause, bool, None]:
    """Wait until there is a reason to try again: told, a holder dead, time to look, or no time left."""
    look_at = min(until, gate.clock.monotonic() + seat.look_again)
    while (left := look_at - gate.clock.monotonic()) > 0:
        if (yield Pause(seat, min(left, NAP))) or seat.is_abandoned():
            return


def _give_back(answer: object) -> None:
    """Free what was acquired for a caller who is gone."""
    if isinstance(answer, Lease):
        answer.abandon()
