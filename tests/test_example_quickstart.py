"""The smallest example runs as it stands, and leaves when it is asked to."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "quickstart.py"


def test_the_quickstart_greets_and_drains(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLE)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
        process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert "hello from one of us" in said
    assert process.returncode == 0
    assert (tmp_path / "quickstart.db").exists()
