"""Identify a boot of a host, a process table and a monotonic clock.

A process number or a clock reading means nothing in another process table or under another clock. Containers of one
kernel may differ in each of these: LXC and systemd-nspawn give each a boot id of its own, most give each a pid
namespace, and a time namespace moves the monotonic clock.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from functools import cache
from pathlib import Path

from cronsensus.process.this_process import call_after_fork

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_OTHERS = ("kern.bootsessionuuid", "kern.boot_id")
"""Its names on macOS and FreeBSD."""
_WAVERS_BY = 900
"""Seconds: a boot time computed from two clocks varies a little, and few hosts boot twice in a quarter of an hour."""
_WORKED_OUT = "booted-"
_NAMESPACES = Path("/proc/self/ns")
_OFFSETS = Path("/proc/self/timens_offsets")
_CLOCKS = {"1": "monotonic", "7": "boottime"}
"""Their names on Linux 5.6."""


@cache
def boot_id() -> str:
    """Return a text that is the same in every process of a boot, and differs in the next boot.

    Two containers on one kernel may have different texts.
    """
    with contextlib.suppress(OSError):
        return _LINUX.read_text(encoding="ascii").strip()
    for name in _OTHERS:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            sysctl = subprocess.run(  # noqa: S603 - fixed words
                ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True
            )
            if sysctl.stdout.strip():
                return sysctl.stdout.strip()
    import psutil

    return f"{_WORKED_OUT}{round(psutil.boot_time() / _WAVERS_BY)}"


@cache
def host_identity() -> str:
    """Return the identity of this process table: boot id, pid namespace, and the clock of start times.

    A process reads other processes' start times by the clock of its own time namespace.
    """
    boot = boot_id()
    if boot.startswith(_WORKED_OUT):  # which two hosts may share
        boot = f"{os.uname().nodename if hasattr(os, 'uname') else 'host'}-{boot}"
    return f"{boot}/{_namespace_of('pid') or 'pid'}{_name_shift('boottime')}"


@cache
def lease_epoch() -> str:
    """Return the epoch of the monotonic clock: the boot id, and the time namespace's offset.

    Processes with the same text read the same clock.
    """
    return boot_id() + _name_shift("monotonic")


def _name_shift(clock: str) -> str:
    """Return the difference of this process's ``clock`` from the kernel's, as text; empty: there is none."""
    offset = _clock_offset(clock)
    if offset is None:
        return f"/{_namespace_of('time')}"
    return f"/{offset}" if offset else ""


def _clock_offset(clock: str) -> float | None:
    """Return the seconds by which this process's ``clock`` is ahead of the kernel's; ``None``: it cannot tell."""
    own = _namespace_of("time")
    if own != _namespace_of("time_for_children"):
        return None  # the file is about the children's namespace
    try:
        lines = _OFFSETS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0  # a system without time namespaces
    for line in lines:
        name, seconds, nanoseconds = line.split()
        if _CLOCKS.get(name, name) == clock:
            return int(seconds) + int(nanoseconds) / 1_000_000_000
    return 0.0


def _namespace_of(kind: str) -> str | None:
    try:
        return str((_NAMESPACES / kind).readlink())
    except OSError:
        return None


def _in_child() -> None:
    """Read anew in a forked child: it is in the namespaces that its parent has set up for children."""
    host_identity.cache_clear()
    lease_epoch.cache_clear()


call_after_fork(_in_child)
