"""How what asks and waits is written once for threads and for event loops.

A conversation gives what is to be asked, or for how long to wait, and gets the answer. ``drive`` has it on the caller's
thread, ``adrive`` on an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from cronsensus.lock.seat import Seat
from cronsensus.lock.working import on_worker
from cronsensus.node.loops import refuse_to_block

NAP = 0.1
"""Seconds between two looks for signs of death, which ask no store."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait in ``seat``; the answer is whether it was rung."""

    seat: Seat
    seconds: float


Ask = Callable[[], Any]
Conversation = Generator[Ask | Pause, Any, Found]


def drive(conversation: Conversation[Found], what: str, instead: str) -> Found:
    """Have the conversation on this thread.

    Args:
        conversation: which may have to wait.
        what: is called, for an error where a wait would block an event loop on which jobs run.
        instead: what to write there.

    Raises:
        ConfigurationError: it has to wait, and would block one.
    """
    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            if isinstance(step, Pause):
                refuse_to_block(what, instead)
                answer = step.seat.wait(step.seconds)
            else:
                answer = step()
    except StopIteration as end:
        found: Found = end.value
        return found
    finally:
        conversation.close()


async def adrive(conversation: Conversation[Found], in_vain: Callable[[Any], object]) -> Found:
    """Have the conversation on an event loop. Answers for a caller who was cancelled go to ``in_vain``."""
    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            if isinstance(step, Pause):
                answer = await step.seat.await_(step.seconds)
            else:
                answer = await on_worker(step, in_vain)
    except StopIteration as end:
        found: Found = end.value
        return found
    finally:
        conversation.close()
