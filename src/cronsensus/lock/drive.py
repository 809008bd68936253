"""Run code that calls a store and waits, written once, on a thread or on an event loop.

A flow is a generator. It yields a call to make, or a pause, and is sent the answer. ``drive_flow`` runs it on the
caller's thread, ``adrive_flow`` on an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from cronsensus.lock.waiter import Waiter
from cronsensus.lock.worker_pool import on_worker
from cronsensus.node.loops import refuse_to_block

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait; the answer is whether ``waiter`` was woken."""

    waiter: Waiter
    seconds: float


Ask = Callable[[], Any]
Flow = Generator[Ask | Pause, Any, Result]


def drive_flow(flow: Flow[Result], what: str, instead: str) -> Result:
    """Run the flow on this thread.

    Args:
        flow: the generator to run.
        what: names the call in the error for a wait that would block an event loop on which jobs run.
        instead: what to write there.

    Raises:
        ConfigurationError: it has to wait, and would block an event loop.
    """
    answer: Any = None
    try:
        while True:
            step = flow.send(answer)
            if isinstance(step, Pause):
                refuse_to_block(what, instead)
                answer = step.waiter.wait(step.seconds)
            else:
                answer = step()
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        flow.close()


async def adrive_flow(flow: Flow[Result], on_late_answer: Callable[[Any], object]) -> Result:
    """Run the flow on an event loop; an answer that comes after a cancellation is passed to ``on_late_answer``."""
    answer: Any = None
    try:
        while True:
            step = flow.send(answer)
            if isinstance(step, Pause):
                answer = await step.waiter.await_(step.seconds)
            else:
                answer = await on_worker(step, on_late_answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        flow.close()
