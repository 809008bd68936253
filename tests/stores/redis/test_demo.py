"""The demo on a Redis server: real processes, a real kill, one verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_demo_ends_with_a_clean_audit(redis_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cronsensus", "demo", "--url", redis_url, "--seconds", "10", "-o", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["problems"] == []
    assert (data["duplicates"], data["missed"]) == (0, 0)
    assert data["ran"] == data["expected"] >= 5
    assert data["takeovers"] >= data["runs_cut"] >= 1
