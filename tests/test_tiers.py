"""What is in which tier of the tests."""

from pathlib import Path

import pytest

from tests.tiers import LONG, is_long, is_long_file

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("file", sorted({pattern.split("::")[0].split("[[]")[0] for pattern, _ in LONG} - {"*40ms*"}))
def test_long_tier_names_files_that_exist(file: str):
    assert any(ROOT.glob(file)), f"no file is like {file}"


def test_long_tier_takes_by_path_and_by_parameter():
    assert is_long("tests/lock/test_lock.py::test_waiter_acquires_after_the_release[mysql-0ms]")
    assert not is_long("tests/lock/test_lock.py::test_waiter_acquires_after_the_release[postgres-0ms]")
    assert is_long("tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[125]")
    assert not is_long("tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[25]")


def test_file_with_a_test_of_the_short_tier_is_collected():
    assert is_long_file("tests/faults/test_full.py")
    assert not is_long_file("tests/lock/test_lock.py")
    assert not is_long_file("tests/stores/test_postgres.py")
