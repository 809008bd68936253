"""How a key is won, or waited for, written once for threads and for event loops. Floor 5.

``winning`` is a conversation: it gives what is to be asked, or how long to wait, and gets the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from cronsensus.lock.working import on_worker
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.once.claims import Claims, Held, Wanted

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.25
GROWTH = 1.5

Got = Held | Occurrence | None
Conversation = Generator[Callable[[], Any] | float, Any, Got]


def winning(claims: Claims, wanted: Wanted, patience: float | None) -> Conversation:
    """Win the occurrence; or return it as it stands: final, or still running after ``patience`` seconds.

    ``None``: it lies below what was pruned. Who waits looks by itself, ever more seldom, and at once when something
    ended in this process.
    """
    until = float("inf") if patience is None else claims.clock.monotonic() + patience
    got: Got = yield lambda: claims.take(wanted)
    watched = _Watched(claims)
    pause = FIRST_PAUSE
    while isinstance(got, Occurrence) and not got.state.final:
        if (yield partial(watched.is_free, got)):
            got = yield lambda: claims.take(wanted)
            if not isinstance(got, Occurrence) or got.state.final:
                break
        left = until - claims.clock.monotonic()
        if left <= 0:
            break
        yield min(pause, left)
        pause = min(pause * GROWTH, LONGEST_PAUSE)
        got = yield lambda: claims.look(wanted)
        if got is None:
            got = yield lambda: claims.take(wanted)
    return got


class _Watched:
    """Who holds what is waited for, and whether that one lives, with few questions to the store."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._holder: SessionView | None = None
        self._of: str | None = None
        self._read_at = 0.0

    def is_free(self, seen: Occurrence) -> bool:
        """Whether it may be taken: nobody holds it, or who did is over by now."""
        if seen.state is State.PENDING:
            return True
        now = self._claims.clock.monotonic()
        holder = self._holder
        stale = holder is None or now >= self._read_at + holder.expires_in.total_seconds()
        if seen.session != self._of or stale:
            self._of, self._read_at = seen.session, now
            self._holder = holder = self._claims.holder(seen.session)
        return self._claims.bury(holder)


def drive(claims: Claims, conversation: Conversation) -> Got:
    """Have the conversation on this thread."""
    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            if isinstance(step, float):
                claims.pause(step)
                answer = None
            else:
                answer = step()
    except StopIteration as end:
        got: Got = end.value
        return got
    finally:
        conversation.close()


async def adrive(claims: Claims, conversation: Conversation) -> Got:
    """Have the conversation on an event loop. What it wins after its caller was cancelled is given back."""

    def in_vain(answer: object) -> None:
        if isinstance(answer, Held):
            claims.give_back(answer)

    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            if isinstance(step, float):
                await asyncio.sleep(step)
                answer = None
            else:
                answer = await on_worker(step, in_vain)
    except StopIteration as end:
        got: Got = end.value
        return got
    finally:
        conversation.close()
