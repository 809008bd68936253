"""Restores what a job may change about its process, so that the next job finds it unchanged."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Surroundings:
    """The working directory, the environment, the file mode mask, and what handles which signal; on the main thread.

    What a job did to modules, files and threads stays.
    """

    def __init__(self) -> None:
        """Note what they are now."""
        self._folder: str | None = None
        with contextlib.suppress(OSError):
            self._folder = str(Path.cwd())
        self._environment = dict(os.environ)
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers: dict[int, Any] = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def put_back(self) -> None:
        """Make them so again; timers and alarms are off."""
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            # None: of no Python; it cannot be put back from here.
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.umask(self._mask)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(self._folder)
