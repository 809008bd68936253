"""Evidence that a process of this host is dead. Floor 4.

Evidence only shortens a takeover: a wrong verdict costs a run its result, because the token is gone, and never makes
two results. Still it must not lie. A pid means something only within one boot and one pid namespace (containers on
one host share the first, not the second), and a pid is reused, so the moment the process started is compared too.
That moment is read in the kernel's ticks since boot, which no step of the wall clock changes.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

import psutil

from cronsensus.model.session import SessionView

_LINUX = sys.platform == "linux"


@cache
def host_identity() -> str:
    """Return what names this process table: the boot id and the pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = f"{os.uname().nodename if hasattr(os, 'uname') else 'host'}-{int(psutil.boot_time()) // 60}"
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = "pid"
    return f"{boot}/{namespace}"


def started_at(pid: int) -> int | None:
    """Return when process ``pid`` started, in the host's own units; ``None`` when it is gone or a zombie."""
    try:
        if _LINUX:
            # Field 22; the name in field 2 may hold spaces and brackets, so count from the last closing one.
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            return None if fields[0] in "ZX" else int(fields[19])
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def is_dead(session: SessionView) -> bool:
    """Return whether the session's process is certainly gone; ``False`` whenever this host cannot tell."""
    if session.host != host_identity():
        return False
    try:
        started = started_at(session.pid)
    except (OSError, ValueError, IndexError, psutil.Error):
        return False
    return started is None or started != session.pid_started
