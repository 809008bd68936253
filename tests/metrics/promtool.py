"""Prometheus's own judge of what it reads: Debian's package ``prometheus`` has it."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="service missing: promtool is not on PATH; scripts/servers installs it"
)


def promtool(*arguments: str, page: bytes = b"", folder: Path | None = None) -> str:
    """Return what it complains about, and what it says else."""
    done = subprocess.run(
        ["promtool", *arguments], input=page, capture_output=True, timeout=60, cwd=folder, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said
