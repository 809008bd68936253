"""Steps that stop in the middle, so that any two nodes' steps interleave at any verb.

A node's crank is plain code without places to wait in. Where a fault makes a step wait inside a verb, the step runs
on a thread of its own; but only one thread runs at any moment, the one that holds the baton, and it passes it on only
where the simulation says so. So the order of everything is the simulation's alone, and a seed replays exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crashed(BaseException):
    """The process that runs this step is gone: unwind, and let nothing of ours catch it."""


class Step:
    """A body of code that may suspend itself. ``resume`` lets it run until it suspends or ends."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._worker = _idle.pop() if _idle else _Worker()
        self._worker.take(body)
        self.over = False

    def resume(self, *, crash: bool = False) -> bool:
        """Pass the baton to the step and wait for it to come back; return whether the step is over.

        With ``crash`` the step wakes with ``Crashed`` where it was suspended.
        """
        if self._worker.turn(crash=crash):
            self.over = True
            _idle.append(self._worker)
            self._worker.raise_again()
        return self.over

    def suspend(self) -> None:
        """Give the baton back; called by the step itself. Returns when it is resumed.

        Raises:
            Crashed: the process of this step was killed meanwhile.
        """
        self._worker.wait()


class _Worker(threading.Thread):
    """A thread that runs one body after the other, each time it holds the baton."""

    def __init__(self) -> None:
        super().__init__(name="simulated step", daemon=True)
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._body: Callable[[], None] | None = None
        self._crash = False
        self._error: BaseException | None = None
        self.start()

    def take(self, body: Callable[[], None]) -> None:
        self._body, self._crash, self._error = body, False, None

    def turn(self, *, crash: bool) -> bool:
        """Run the body on until it waits or ends; return whether it ended. Called by whoever holds the baton."""
        self._crash = crash
        self._go.release()
        self._back.acquire()
        return self._body is None

    def wait(self) -> None:
        self._back.release()
        self._go.acquire()
        if self._crash:
            raise Crashed

    def raise_again(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def run(self) -> None:
        while True:
            self._go.acquire()
            try:
                if self._body is not None and not self._crash:
                    self._body()
            except Crashed:
                pass
            except BaseException as error:  # noqa: BLE001 - it is raised again where the baton goes
                self._error = error
            self._body = None
            self._back.release()


_idle: list[_Worker] = []
