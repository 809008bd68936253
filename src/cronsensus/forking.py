"""Processes that fork, or are forked: what the child leaves to its parent, and which process is to start no node."""

from __future__ import annotations

import os
import sys
import weakref
from types import FrameType
from typing import Protocol


class Forkable(Protocol):
    """Something that has to change in a forked child."""

    def forked(self) -> None:
        """Make it usable in the child: one thread is left there, and any lock may have been another's."""


left_to_the_parent: list[object] = []
"""Objects of a forked child that only the parent may close: connections, threads' locks."""
_all: weakref.WeakSet[Forkable] = weakref.WeakSet()


def mind_forks(part: Forkable) -> None:
    """Call ``part.forked`` in every forked child, as long as there is such a part."""
    _all.add(part)


def _forked() -> None:
    for part in list(_all):
        part.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def forking_master() -> str | None:
    """Return which server's master imports the application here, to fork its workers later; ``None``: none does."""
    if "gunicorn.arbiter" in sys.modules:
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - a worker has the arbiter's module too; only the calls tell
        calls: list[tuple[str, str]] = []
        while frame is not None:
            calls.append((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
            frame = frame.f_back
        arbiter = [name for module, name in calls if module == "gunicorn.arbiter"]
        if "setup" in arbiter and "spawn_worker" not in arbiter:
            return "gunicorn's master (--preload)"
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and getattr(uwsgi, "worker_id", lambda: 1)() == 0:
        return "uWSGI's master"
    return None


def is_being_spawned() -> bool:
    """Whether ``multiprocessing`` imports the parent's modules here, before the child does what it is there for.

    A module that starts its scheduler at import would make a node of each child.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))
