"""The site of the documentation: ``make docs`` builds it, and fails on a dead link."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "site" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_stands_on_exactly_one_shelf() -> None:
    shelves = load("shelves")
    placed = [name for shelf in (shelves.ENGLISH | shelves.CHINESE).values() for name in shelf]
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    decisions = {name for name in pages if name.startswith("adr/")}
    made = {"changelog", "adr/index"} | {name for name in placed if name.startswith("reference/")}
    assert sorted([*placed, *shelves.FRONT]) == sorted(pages - decisions | made)
