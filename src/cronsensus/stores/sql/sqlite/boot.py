"""Which boot of the host this is: monotonic clocks begin anew with each, and mean something only within. Floor 3."""

from __future__ import annotations

import contextlib
import subprocess
from functools import cache
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_OTHERS = ("kern.bootsessionuuid", "kern.boot_id")
"""What macOS and FreeBSD call it."""
_WAVERS_BY = 900
"""Seconds: a boot time worked out from two clocks wavers a little, and few hosts boot twice in a quarter of an hour."""


@cache
def boot_id() -> str:
    """Return the same text in every process of one boot, and another one in the next."""
    with contextlib.suppress(OSError):
        return _LINUX.read_text(encoding="ascii").strip()
    for name in _OTHERS:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run(  # noqa: S603 - fixed words
                ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True
            )
            if asked.stdout.strip():
                return asked.stdout.strip()
    import psutil

    return f"booted-{round(psutil.boot_time() / _WAVERS_BY)}"
