"""The example with three jobs in a row: its node dies before each line of each job, and each night is there once."""

import importlib.util
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from cronsensus.testing import kit

EXAMPLE = Path(__file__).parent.parent / "examples" / "extract_load_report.py"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "sqlite:///nightly.db", str(tmp_path / "sales.db")])
    spec = importlib.util.spec_from_file_location("extract_load_report", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("job", ["extract", "load", "report"])
def test_wherever_a_node_dies_each_night_is_loaded_once_and_reported(example: ModuleType, job: str) -> None:
    sales = Path(example.SALES)
    points = 0
    with kit(example.scheduler, start="2027-01-01 02:59:30", nodes=2) as nights:
        for point in nights.crash_everywhere(
            getattr(example, job), reset=lambda: sales.unlink(missing_ok=True), run=travel_three_nights
        ):
            with closing(sqlite3.connect(sales)) as connection:
                rows = connection.execute("SELECT run FROM night").fetchall()
            assert len(set(rows)) == len(rows) == 3, point
            points += 1
    assert points >= 3


def travel_three_nights(nights) -> None:
    nights.travel("3m")
    for job in ("extract", "load", "report"):
        assert [str(run.state) for run in nights.runs(job)] == ["succeeded"] * 3
