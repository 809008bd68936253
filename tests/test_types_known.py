"""What a type checker knows of the names that users import: each has a declared type, which all checkers read alike."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import cronsensus

ROOT = Path(__file__).parent.parent

# The first run makes the environment of basedpyright.
pytestmark = pytest.mark.timeout(600)


def reached() -> Iterator[str]:
    """Give what ``__all__`` names, where it is defined, and the bases of its classes."""
    for name in cronsensus.__all__:
        yield f"cronsensus.{name}"
        value = getattr(cronsensus, name)
        for one in value.__mro__ if inspect.isclass(value) else [value]:
            if getattr(one, "__module__", "").startswith("cronsensus."):
                yield f"{one.__module__}.{one.__qualname__}"


def test_each_name_that_users_import_and_all_its_members_have_a_known_type(tmp_path):
    subprocess.run(["scripts/setup", ".venv-types", "requirements/types.lock"], cwd=ROOT, check=True)
    programs = ROOT / ".venv-types" / "bin"
    answer = subprocess.run(
        [programs / "basedpyright", "--ignoreexternal", "--verifytypes", "cronsensus", "--outputjson"],
        cwd=tmp_path,
        # It heeds no --pythonpath here: the package is that of the first python on the path.
        env={**os.environ, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])},
        stdout=subprocess.PIPE,
        check=False,  # it fails unless all that is inside of the package has declared types, too
    )
    report = json.loads(answer.stdout)
    assert not report["generalDiagnostics"]
    names = set(reached())
    symbols = [
        one
        for one in report["typeCompleteness"]["symbols"]
        if one["name"] in names or any(one["name"].startswith(f"{name}.") for name in names)
    ]
    assert len(symbols) > 400
    assert not {
        one["name"]: [said["message"] for said in one["diagnostics"]] for one in symbols if not one["isTypeKnown"]
    }
