"""An environment for each peer, with pinned versions, made when it is first asked for.

All of them at once: ``python bench/peers/environments.py``.
Of their own, because their demands on one another's dependencies cannot all be met in one. Which index pip asks is the
user's configuration.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"
ENVIRONMENTS = Path(__file__).parent.parent / ".peers"


class CannotInstall(Exception):
    """A peer's packages are not to be had here; the message says why."""


def python_of(name: str) -> Path:
    """Return the interpreter of a peer's environment.

    Raises:
        CannotInstall: pip failed.
    """
    found = _python_of(name)
    if isinstance(found, str):
        raise CannotInstall(found)
    return found


@cache  # a failure, too: pip's patience is long
def _python_of(name: str) -> Path | str:
    pins, folder = REQUIREMENTS / f"{name}.txt", ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / ".made-for"
    want = hashlib.sha256(pins.read_bytes() + sys.version.encode() + str(folder).encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == want:
        return python
    print(f"making the environment of {name} …", file=sys.stderr, flush=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "-qq", "--no-input", "--disable-pip-version-check", "install", "-r", str(pins)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no message"]
            return f"not installed: {lines[-1].removeprefix('ERROR: ')[:120]}"
    stamp.write_text(want)
    return python


if __name__ == "__main__":
    reasons = {pins.stem: _python_of(pins.stem) for pins in sorted(REQUIREMENTS.glob("*.txt"))}
    for name, found in reasons.items():
        print(f"{name}: {found}")
    sys.exit(any(isinstance(found, str) for found in reasons.values()))
