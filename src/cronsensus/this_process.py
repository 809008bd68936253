"""This process's number, asked of the kernel once and again after a fork: what is compared often is not asked often."""

from __future__ import annotations

import os


class ThisProcess:
    """The process that this code runs in.

    Attributes:
        pid: its number; a forked child has its own before any code of ours runs there.
    """

    __slots__ = ("pid",)

    def __init__(self) -> None:
        """Ask the kernel."""
        self.pid = os.getpid()

    def ask_again(self) -> None:
        """Read the pid again, because of a fork."""
        self.pid = os.getpid()


this_process = ThisProcess()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.ask_again)
