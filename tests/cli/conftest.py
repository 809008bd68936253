"""A store that this process shares with the commands, at a time that a test decides; and commands to run on it."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cronsensus.cli import cli
from tests.hand_cluster import HandCluster


class Answer:
    """What a command said: stdout, stderr, exit code."""

    def __init__(self, result: Result) -> None:
        self.out = result.stdout
        self.err = result.stderr
        self.code = result.exit_code
        self.exception = result.exception

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def text(self) -> str:
        return " ".join(f"{self.out} {self.err}".split())

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def invoke(*args: str, stdin: str | None = None) -> Answer:
    return Answer(CliRunner().invoke(cli, args, input=stdin))


class Cluster(HandCluster):
    """A cluster turned by hand, with commands that are run on its store."""

    def __call__(self, *args: str, stdin: str | None = None) -> Answer:
        """Run a command on this store."""
        return invoke(*args, "--url", self.url, stdin=stdin)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def command() -> Callable[..., Answer]:
    return invoke


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder where no application lies, and forget the modules that were imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def write(empty_folder: Path) -> Callable[[str, str], Path]:
    """Write a file into the folder where commands run."""

    def write_file(name: str, text: str) -> Path:
        path = empty_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
