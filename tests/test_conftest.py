import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SUITE = """
import pytest

def test_with_a_server():
    pytest.skip("service missing: no postgres on this machine")

@pytest.mark.skip(reason="service missing: no redis")
def test_with_another():
    raise AssertionError

def test_skipped_for_another_reason():
    pytest.skip("only on Windows")

@pytest.mark.xfail(reason="service missing")
def test_expected_to_fail():
    raise AssertionError

def test_plain():
    pass
"""

WHOLE_FILE = """
import pytest
pytest.skip("service missing: no rabbitmq", allow_module_level=True)
"""


@pytest.mark.parametrize(
    ("ci", "counts"),
    [("true", "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors"), ("", "1 passed, 4 skipped, 1 xfailed")],
    ids=["in CI a failure", "elsewhere a skip"],
)
def test_a_missing_service_is(tmp_path: Path, ci: str, counts: str) -> None:
    tmp_path.joinpath("conftest.py").write_text(HERE.joinpath("conftest.py").read_text())
    tmp_path.joinpath("test_suite.py").write_text(SUITE)
    tmp_path.joinpath("test_whole_file.py").write_text(WHOLE_FILE)
    # PYTEST_* would carry this run's own options and worker into the inner one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CI": ci, "PYTHONPATH": str(HERE.parent)}  # the copy names a plugin that lies in this tree
    command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "--rootdir", ".", "."]

    inner = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert counts in inner.stdout
    assert ("In CI a missing service is a failure." in inner.stdout) == (ci == "true")
