"""How long does a process that leaves wait for a store that does not answer?

Whoever stops a process has little patience: a service manager kills what is not gone some seconds after the drain. A
verb may wait for a silent server for much longer, so last words are said on a thread of their own, which is left behind
when the time is over. What they would have freed is free when its lease ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

LEAVING = 4.0
"""Seconds that a node takes for leaving after its drain, however its store behaves."""


def within(seconds: float, do: Callable[[], object]) -> bool:
    """Do something that may hang; return whether it was over in time. What it raises is raised here."""
    raised: list[BaseException] = []

    def doing() -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            raised.append(error)

    thread = threading.Thread(target=doing, name="cronsensus-leaving", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down, and lets no thread begin
        do()
        return True
    thread.join(max(0.0, seconds))
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True
