"""docs/stability.md promises until when a Python stays; what is declared keeps it."""

import re
import tomllib
from datetime import date
from pathlib import Path

from cronsensus.timing.clock import SystemClock

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROMISED = {
    minor: date.fromisoformat(day)
    for minor, day in re.findall(
        r"^\| (3\.\d+) \| (\S+) \|$", (ROOT / "docs/stability.md").read_text(encoding="utf-8"), re.MULTILINE
    )
}
DECLARED = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)}


def test_each_python_that_is_declared_has_its_day_and_the_oldest_is_the_floor() -> None:
    assert set(PROMISED) >= DECLARED
    oldest = min(DECLARED, key=lambda minor: int(minor.partition(".")[2]))
    assert PROJECT["requires-python"] == f">={oldest}"


def test_no_python_is_dropped_before_its_day() -> None:
    today = SystemClock().now().date()
    assert {minor for minor, day in PROMISED.items() if day >= today} <= DECLARED
    # A row that is taken out of the page would let its Python go: these stand here as well.
    assert {"3.11": date(2027, 10, 31), "3.12": date(2028, 10, 31), "3.13": date(2029, 10, 31)}.items() <= (
        PROMISED.items()
    )
