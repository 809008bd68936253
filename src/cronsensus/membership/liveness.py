"""Evidence that a process is dead: its pid on this host, and its missing sign of life in the store.

Evidence only shortens a takeover. A wrong verdict costs a run its result, because the token is replaced, and never
creates two results. Still the evidence should be right. A pid has a meaning only within a boot and a pid namespace
(containers on a host share the first, not the second), and a pid is reused, so the start time of the process is
compared too. It is read in the kernel's ticks since boot, which no step of the wall clock changes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from cronsensus.model.session import LockView, SessionView
from cronsensus.stores.boot import host_identity
from cronsensus.stores.values import View

_LINUX = sys.platform == "linux"


def started_at(pid: int) -> int | None:
    """Return when process ``pid`` started, in the host's own units; ``None`` if it and all its threads are gone.

    A killed process is a zombie as soon as its main thread is gone. Its other threads may still be in the kernel then,
    and complete a write. The last of them closes the files of the process and frees its file locks.

    Raises:
        PermissionError: another user owns it, and this host hides such processes (``hidepid``, ``ProtectProc``).
    """
    try:
        if _LINUX:
            # Fields 3 (state), 20 (threads) and 22; the name in field 2 may contain spaces and brackets, so count from
            # the last closing one.
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            return None if fields[0] in "ZX" and int(fields[17]) <= 1 else int(fields[19])
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        if _is_hidden(pid):
            raise PermissionError(f"process {pid} is there, and this user may not look at it") from None
        return None


def own_start() -> int:
    """Return when this process started; 0: unknown, so it cannot judge other processes by their pid either."""
    try:
        return started_at(os.getpid()) or 0
    except (OSError, ValueError, IndexError, psutil.Error):
        return 0


def _is_hidden(pid: int) -> bool:
    """Whether a hidden process exists: a signal to it is refused for lack of permission."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def is_dead(session: SessionView | LockView) -> bool:
    """Return whether the process of a session, or of a lock's holder, is certainly gone.

    ``False`` if this host cannot tell.
    """
    return session.pid is not None and is_gone(session.host, session.pid, session.pid_started)


def is_gone(host: str | None, pid: int, started: int | None) -> bool:
    """Return whether the process with this ``pid`` on ``host``, started at ``started``, is certainly gone.

    ``False`` if this host cannot tell.
    """
    return process_state(host, pid, started) == "gone"


ProcessState = Literal["runs", "stopped", "gone"]


def process_state(host: str | None, pid: int, started: int | None) -> ProcessState | None:
    """Return the kernel's state of the process with this ``pid`` on ``host``, started at ``started``.

    ``None`` if this host cannot tell. ``stopped``: by a signal; a process that a debugger or a frozen control group
    holds still counts as running.
    """
    if not can_judge(host) or not started:
        return None
    try:
        if started_at(pid) != started:
            return "gone"
        return "stopped" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else "runs"
    except psutil.NoSuchProcess:
        return "gone"
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def can_judge(host: str | None) -> bool:
    """Return whether this process sees the processes of ``host``, and itself in /proc.

    /proc may belong to another namespace, or be missing.
    """
    return host == host_identity() and bool(own_start())


ABSENT_FOR = 0.2
"""Least seconds between the two looks that together count as the absence of a session's sign of life."""
ROUND_TRIPS = 10
"""This many times the duration of a look is added to that. A live process whose connections were cut reconnects within
this time, even if it is as far from the store as this one."""
CERTAIN_AFTER = 1.03
"""How much later than that the second look is sent: it is judged by its own duration, and a look that took a little
longer than the first would be followed by a third."""


class _Absent(NamedTuple):
    """A session without a sign of life: first in a look that ended at ``since``, after a renewal at ``renewed_at``."""

    since: float
    renewed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Absences:
    """Since when each session has shown no sign of life. A single look may only show a cut connection.

    A session that renewed its lease meanwhile has a process: its absence is counted anew from that look on.
    """

    absent: Mapping[str, _Absent] = field(default_factory=dict)
    asked_at: float = 0.0
    patience: float = 0.0

    def update_absences(self, view: View, asked_at: float, received_at: float) -> Absences:
        """Return the absences after a look; sessions that it shows alive are forgotten."""
        renewed = {holder.id: holder.renewed_at for holder in view.holders}
        absent = {}
        for session in view.absent:
            absence = self.absent.get(session)
            if absence is None or absence.renewed_at != renewed.get(session):
                absence = _Absent(received_at, renewed.get(session))
            absent[session] = absence
        return Absences(absent, asked_at, ABSENT_FOR + ROUND_TRIPS * (received_at - asked_at - view.age))

    def is_gone(self, session: str) -> bool:
        """Whether a session was absent in two looks, the second sent long enough after the answer to the first."""
        absent = self.absent.get(session)
        return absent is not None and self.asked_at - absent.since >= self.patience

    def certain_at(self, sessions: Sequence[str]) -> float | None:
        """Return when another look can decide about ``sessions``; ``None`` if none of them is in doubt."""
        since = [self.absent[session].since for session in sessions if session in self.absent]
        return min(since) + CERTAIN_AFTER * self.patience if since else None
