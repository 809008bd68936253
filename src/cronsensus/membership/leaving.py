"""Bound the time that an ending process waits for a store that does not answer.

A service manager kills a process that is still there some seconds after the drain, and a verb may wait for a silent
server for much longer. So the last verbs of a process run on a thread of their own, which is abandoned when the time is
over. What they would have freed is free when its lease ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

LEAVING_SECONDS = 4.0
"""Most seconds between the end of a node's drain and its end, however its store behaves."""


def ended_within(seconds: float, do: Callable[[], object]) -> bool:
    """Call a function that may hang; return whether it ended in time. What it raises is raised here."""
    raised: list[BaseException] = []

    def doing() -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            raised.append(error)

    thread = threading.Thread(target=doing, name="cronsensus-leaving", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down and starts no thread
        do()
        return True
    thread.join(max(0.0, seconds))
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True
