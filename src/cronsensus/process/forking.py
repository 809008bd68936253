"""Forks: what a child leaves to its parent, and which processes must not start a node."""

from __future__ import annotations

import os
import sys
import weakref
from types import FrameType, ModuleType
from typing import NamedTuple, Protocol

from cronsensus.errors import ConfigurationError
from cronsensus.process.this_process import call_after_fork


class Forkable(Protocol):
    """Something that has to change in a forked child."""

    def forked(self) -> None:
        """Make this usable in the child, where only the forking thread exists, and locks of other threads stay held."""


left_to_the_parent: list[object] = []
"""Objects of a forked child that only the parent may close: connections, threads' locks."""
_all: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register_for_forks(part: Forkable) -> None:
    """Call ``part.forked`` in every forked child, as long as ``part`` exists."""
    _all.add(part)


def _forked() -> None:
    for part in list(_all):
        part.forked()


call_after_fork(_forked)


class Master(NamedTuple):
    """A server's process that forks its workers after it has imported the application."""

    name: str
    write: str
    """What to write instead, and where, with ``START`` and ``STOP`` for the calls."""


_GUNICORN = Master(
    "gunicorn's master (--preload)",
    "call START in post_worker_init(worker) and STOP in worker_exit(server, worker), two functions of gunicorn.conf.py",
)
_UWSGI = Master(
    "uWSGI's master",
    "write `from uwsgidecorators import postfork`, and `@postfork` above a function that calls START; or start uWSGI "
    "with --lazy-apps",
)


def forking_master() -> Master | None:
    """Return the server whose master process runs this code and forks its workers later; ``None``: there is none."""
    if "gunicorn.arbiter" in sys.modules and _is_arbiter():
        return _GUNICORN
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and _is_uwsgi_master(uwsgi):
        return _UWSGI
    return None


def _is_arbiter() -> bool:
    # A worker also has the arbiter's module, and the arbiter's frames below its own. Only their names differ.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    in_arbiter = False
    while frame is not None:
        if frame.f_globals.get("__name__") == "gunicorn.arbiter":
            if frame.f_code.co_name.startswith("spawn_"):
                return False
            in_arbiter = True
        frame = frame.f_back
    return in_arbiter


def _is_uwsgi_master(uwsgi: ModuleType) -> bool:
    try:
        if master := uwsgi.masterpid():
            return bool(master == os.getpid())
        return bool(uwsgi.worker_id() == 0 and uwsgi.numproc > 1)
    except AttributeError:  # another module of that name than the server's
        return False


def refuse_in_master(what: str, start: str, stop: str) -> None:
    """Refuse to start ``what`` in a process that forks its workers later, because threads do not survive a fork.

    The master would run everything by itself, without a worker to take over. And a fork while another thread holds a
    lock leaves the worker with a lock that nobody releases.

    Args:
        what: the subject of the message.
        start: the call that starts it.
        stop: the call that stops it.

    Raises:
        ConfigurationError: it is such a process; the message says what to write where.
    """
    if (master := forking_master()) is not None:
        write = master.write.replace("START", start).replace("STOP", stop)
        raise ConfigurationError(
            f"{what} is started in {master.name}, which forks its workers later, and they would run nothing; {write}"
        )


def is_being_spawned() -> bool:
    """Whether ``multiprocessing`` imports the parent's modules in this child, before the child does its work.

    A module that starts its scheduler at import would make a node of each child.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))
