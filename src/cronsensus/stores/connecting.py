"""Report that a store has not answered yet, while a caller waits for it.

A lookup of a name takes 20 seconds to fail without a name server, and a firewall that drops packets takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cronsensus.process.background import Whole
from cronsensus.process.interrupts import Event
from cronsensus.security.masking import mask

SLOW = 1.0
"""Seconds after which a first answer is slow."""


@contextmanager
def connecting(url: str, report: Callable[[str], None], after: float = SLOW) -> Iterator[None]:
    """Call ``report`` with one sentence, from another thread, if the block takes longer than ``after`` seconds.

    The sentence has the store's URL, without its password.
    """
    over = Event()

    def watch() -> None:
        if not over.wait(after):
            report(f"connecting to {mask(url)}: no answer yet")

    # Not a threading.Timer: a signal handler that raises in its start would leave a hanging thread behind.
    watching = Whole(watch, "cronsensus-connecting")
    try:
        watching.start_act()
        yield
    finally:
        over.set()
        if not watching.withdraw():
            watching.wait(SLOW)
