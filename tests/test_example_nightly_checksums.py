"""The example of a nightly batch: its nodes die before each line of an item, and each file is in the report once."""

import hashlib
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from cronsensus import State
from cronsensus.testing import Kit, kit

EXAMPLE = Path(__file__).parent.parent / "examples" / "nightly_checksums.py"
FILES = 60
NIGHT = "2027-01-01 01:59:50"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for number in range(FILES):
        path = tmp_path / "data" / f"{number % 7}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number % 256]) * 4_000)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path / "data"), "sqlite:///night.db"])
    spec = importlib.util.spec_from_file_location("nightly_checksums", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_three_nodes_sum_a_folder_and_wherever_one_of_them_dies_each_file_is_in_the_report(example: ModuleType) -> None:
    """A node dies and its items go on elsewhere (XXL-JOB #26)."""
    sums = {
        str(path.relative_to(example.FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in example.FOLDER.rglob("*.bin")
    }
    points = 0

    def travel_a_night(night: Kit) -> None:
        night.travel("5m")
        [batch, *items] = sorted(night.runs(), key=lambda run: run.id)
        assert batch.state is State.SUCCEEDED
        assert Counter(run.state for run in items) == {State.SUCCEEDED: FILES}

    with kit(example.scheduler, start=NIGHT, tz="Europe/Berlin", nodes=3) as nights:
        for point in nights.crash_everywhere(
            example.checksum, reset=lambda: example.REPORT.unlink(missing_ok=True), run=travel_a_night
        ):
            assert json.loads(example.REPORT.read_text()) == sums, point
            points += 1
    assert points >= 5
