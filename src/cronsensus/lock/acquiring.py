"""How a lock is acquired, written once for threads and for event loops. Floor 5.

``acquiring`` is a conversation: it gives what is to be asked, or for how long to wait, and gets the answer. ``drive``
has it on the caller's thread, ``adrive`` on an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from cronsensus.lock.gate import Gate, Wanted
from cronsensus.lock.lease import Lease
from cronsensus.lock.seat import Seat
from cronsensus.lock.working import on_worker

NAP = 0.1
"""Seconds between two looks for signs of death, which ask no store."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait in ``seat``; the answer is whether it was rung."""

    seat: Seat
    seconds: float


Ask = Callable[[], Any]
Conversation = Generator[Ask | Pause, Any, Lease | None]


def acquiring(gate: Gate, wanted: Wanted, patience: float | None) -> Conversation:
    """Take the lock, waiting up to ``patience`` seconds (``None``: for ever) while others hold it."""
    waits = patience is None or patience > 0
    lease: Lease | None = yield lambda: gate.take(wanted, look=not waits)
    if lease is not None or not waits:
        return lease
    until = float("inf") if patience is None else gate.clock.monotonic() + patience
    seat = gate.seat(wanted.name)
    try:
        while True:
            yield seat.stand
            lease = yield lambda: _take(gate, wanted, seat)
            if lease is not None or gate.clock.monotonic() >= until:
                return lease
            yield from _wait(gate, seat, until)
    finally:
        seat.leave()


def _take(gate: Gate, wanted: Wanted, seat: Seat) -> Lease | None:
    lease = gate.take(wanted, seat)
    if lease is not None:
        seat.step_out()
    return lease


def _wait(gate: Gate, seat: Seat, until: float) -> Generator[Pause, bool, None]:
    """Wait until there is a reason to try again: told, a holder dead, time to look, or no time left."""
    look_at = min(until, gate.clock.monotonic() + seat.look_again)
    while (left := look_at - gate.clock.monotonic()) > 0:
        if (yield Pause(seat, min(left, NAP))) or seat.is_abandoned():
            return


def drive(conversation: Conversation) -> Lease | None:
    """Have the conversation on this thread."""
    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            answer = step.seat.wait(step.seconds) if isinstance(step, Pause) else step()
    except StopIteration as end:
        found: Lease | None = end.value
        return found
    finally:
        conversation.close()


async def adrive(conversation: Conversation) -> Lease | None:
    """Have the conversation on an event loop. What it gets after its caller was cancelled is given back."""
    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            if isinstance(step, Pause):
                answer = await step.seat.await_(step.seconds)
            else:
                answer = await on_worker(step, _give_back)
    except StopIteration as end:
        found: Lease | None = end.value
        return found
    finally:
        conversation.close()


def _give_back(answer: object) -> None:
    if isinstance(answer, Lease):
        answer.abandon()
