"""What a release says of itself agrees."""

import re
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_newest_heading_of_the_changelog_is_the_version_to_be_released() -> None:
    newest = re.search(r"^## \[(.+?)\] - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"]


def test_release_check_tries_every_extra() -> None:
    loader = SourceFileLoader("release_check", str(ROOT / "scripts" / "release_check"))
    spec = spec_from_loader("release_check", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    assert set(module.EXTRAS) == set(PROJECT["optional-dependencies"])
