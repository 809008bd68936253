"""This process: its pid, and what is reset in it after a fork, or after gevent has patched its threads.

A forked child has its parent's objects, and none of its threads: locks may be held by nobody, and connections are the
parent's. After gevent's patch locks switch to other greenlets; a lock from before the patch blocks all of them. In both
cases these objects are made anew. After a fork Python calls what was given to ``call_after_fork``; after a fork in C,
as uWSGI's, and after a patch, a start does, by ``catch_up``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from cronsensus.errors import ConfigurationError

_Act = Callable[[], object]


class ThisProcess:
    """The process that this code runs in.

    Attributes:
        pid: its number; a forked child has its own before any code of ours runs there.
    """

    __slots__ = ("pid",)

    def __init__(self) -> None:
        """Read the pid from the kernel."""
        self.pid = os.getpid()

    def ask_again(self) -> None:
        """Read the pid again, after a fork."""
        self.pid = os.getpid()


def call_after_fork(act: _Act, *, before: _Act | None = None, in_parent: _Act | None = None) -> None:
    """Call ``act`` in every forked child, and where gevent has patched the process since.

    Args:
        act: must not wait, and must work even if nothing was opened.
        before: called in the parent before a fork of Python's.
        in_parent: called in the parent after one.
    """
    _acts.append(act)
    if hasattr(os, "register_at_fork"):
        hooks = {"before": before, "after_in_parent": in_parent, "after_in_child": act}
        os.register_at_fork(**{name: hook for name, hook in hooks.items() if hook is not None})


def catch_up() -> None:
    """Start everything anew after an unnoticed fork or patch; call it before anything is started.

    Raises:
        ConfigurationError: threads of the library run already that were started before the patch.
    """
    global _is_patched  # noqa: PLW0603 - of the process
    is_another = os.getpid() != this_process.pid
    if is_another or (not _is_patched and _has_greenlets()):
        if not is_another and any(thread.name.startswith("cronsensus") for thread in threading.enumerate()):
            raise ConfigurationError(
                "gevent has patched this process after cronsensus had started threads in it, whose locks stop all "
                "greenlets; patch first: `from gevent import monkey; monkey.patch_all()` as the program's first line"
            )
        _is_patched = _has_greenlets()
        for act in _acts:
            act()


def _has_greenlets() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


_acts: list[_Act] = []
_is_patched = _has_greenlets()
this_process = ThisProcess()
call_after_fork(this_process.ask_again)
