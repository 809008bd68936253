"""The demo on each server: real processes, a real kill, one verdict.

On SQLite it is tested in ``tests/cli/test_demo.py``. The memory store lives and dies with one process, so of it
nothing can be taken over: the demo refuses it (tested there, too), and nodes on it are killed by the thousand in
``tests/simulation``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["postgres", "mysql", "redis"])
def test_the_demo_kills_a_node_and_ends_with_a_clean_audit(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    command = [sys.executable, "-m", "cronsensus", "demo", "--url", url, "--seconds", "10", "-o", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["problems"] == []
    assert (data["duplicates"], data["missed"]) == (0, 0)
    assert data["ran"] == data["expected"] >= 2  # on a busy machine the nodes take most of the time to start
    assert data["takeovers"] >= data["runs_cut"] >= 1
    assert data["trace"]["cut"] >= 1
