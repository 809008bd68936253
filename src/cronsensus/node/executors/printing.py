"""Print in the node's process what its job processes print, as for jobs that run in threads."""

from __future__ import annotations

import contextlib
import os
import select
import sys

_PIECE = 4096
"""Bytes that a pipe into which can be written takes at once, without waiting."""


def print_here(stream: str, text: str) -> None:
    """Print a line to this process's ``"stdout"`` or ``"stderr"``, unless its reader is not ready.

    The thread that calls this also ends jobs that are over their time. So it waits for no reader: what finds none is
    kept with the run alone.
    """
    target = getattr(sys, stream)
    with contextlib.suppress(Exception):  # none at all, closed, or an object of the application's
        line = f"{text}\n"
        try:
            descriptor = target.fileno()
        except (OSError, ValueError, AttributeError):
            target.write(line)
            return
        data = line.encode(errors="backslashreplace")
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
        while data and ready.poll(0):
            data = data[os.write(descriptor, data[:_PIECE]) :]
