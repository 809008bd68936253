"""A project of Django's, in real processes: its tasks, its transactions, its own tests."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

PROJECT = Path(__file__).parents[2] / "examples" / "django_shop"
TRIED = Path(__file__).parent / "django_tried"
PATIENCE = 60
ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


class Project:
    """A copy of the project in a folder of its own, on a database."""

    def __init__(self, folder: Path, url: str | None = None, **options: Any) -> None:
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3*"))
        for file in TRIED.glob("*.py"):
            shutil.copy(file, folder / "shop")
        self.folder = folder
        self.database: dict[str, Any] = {
            "ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "shop.sqlite3"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE"}, "TEST": {"NAME": str(folder / "test.sqlite3")},
        }  # fmt: skip
        if url is not None:
            read = make_url(url)
            self.database = {
                "ENGINE": f"django.db.backends.{ENGINES[read.get_backend_name()]}", "NAME": read.database,
                "HOST": read.host or "", "PORT": read.port or "", "USER": read.username or "",
                "PASSWORD": read.password or "", "TEST": {"NAME": f"test_{folder.name}"},
            }  # fmt: skip
        self.options = options

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process of the project is started with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        return kept | {"SHOP_DATABASE": json.dumps(self.database), "SHOP_CRONSENSUS": json.dumps(self.options)}

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``manage.py``, which must succeed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def prepare(self) -> None:
        """Make the tables."""
        self.manage("migrate", "-v0")

    @contextmanager
    def node(self) -> Iterator[None]:
        """Run a node; it must end well when it is told to."""
        log = self.folder / "node.log"
        with log.open("wb") as file:
            node = subprocess.Popen(
                [sys.executable, "manage.py", "cronsensus", "run"],
                cwd=self.folder, env=self.environment, stdout=file, stderr=file,
            )  # fmt: skip
        try:
            yield
            node.send_signal(signal.SIGTERM)
            assert node.wait(PATIENCE) == 0, log.read_text()
        finally:
            node.kill()
            node.wait()

    def shell(self, function: str) -> Any:
        """Call a function of ``shop.trying``; return what it printed."""
        text = f"import django; django.setup(); from shop.trying import {function}; {function}()"
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.folder, env=self.environment | {"DJANGO_SETTINGS_MODULE": "settings"},
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def django_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """Make a database: Django has its tables in the schema ``public``."""
    name = f"django_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield make_url(postgres_server_url).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name}")  # which nobody may have a connection to


@pytest.fixture
def django_mysql_url(mysql_url: str) -> str:
    """Return a URL with an empty database."""
    return mysql_url


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
def test_tasks_of_all_kinds_run_and_commit_with_the_rows_that_they_are_for(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = Project(tmp_path / "p", None if kind == "sqlite" else request.getfixturevalue(f"django_{kind}_url"))
    project.prepare()
    with project.node():
        seen = project.shell("all_kinds")
    ended: list[Any] = [
        ["SUCCESSFUL", "invoice of order 1", 1], ["SUCCESSFUL", [1, 7], 1], ["SUCCESSFUL", 42, 1],
        ["FAILED", None, 1], ["SUCCESSFUL", 8, 1],
    ]  # fmt: skip
    ended[0][1] = seen["results"][0][1]  # the order's number depends on how many were synced before
    assert str(ended[0][1]).startswith("invoice of order ")
    assert seen == {
        "queries": {"sqlite": 2, "postgres": 1, "mysql": 2}[kind], "gone": True, "results": ended,
        "errors": ["ValueError"], "same": 42, "invoices": 1, "twice": 0,
    }  # fmt: skip
    ledgers = [project.manage("cronsensus", "ledger", f"shop.tasks.{name}").stdout for name in ("tick", "tock")]
    assert all("succeeded" in ledger for ledger in ledgers), ledgers


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_admin_shows_jobs_and_runs_and_acts_with_a_reason(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = Project(tmp_path / "p", None if kind == "sqlite" else request.getfixturevalue(f"django_{kind}_url"))
    project.prepare()
    project.manage("makemigrations", "--check")
    with project.node():
        seen = project.shell("in_the_admin")
    assert seen["pages"] == [200] * 8
    assert (seen["error"], seen["state"]) == (True, "cancelled")
    no_reason, *said, twice = [texts[0] if texts else "" for texts in seen["said"]]
    assert "a pause needs a reason" in no_reason
    assert said == ["Paused: 1", "", "Resumed: 1", "Run now: 1", "Retried: 1", "Cancelled: 1"]
    assert "is cancelled and cannot be cancelled" in twice
    assert seen["history"] == ["paused: too loud", "resumed", "run now: to see it", "retried: once more",
                               "cancelled: not wanted"]  # fmt: skip
    assert seen["trail"] == [
        ["boss", "pause", "too loud"], ["boss", "resume", ""], ["boss", "trigger", "to see it"],
        ["boss", "retry", "once more"], ["boss", "cancel", "not wanted"],
    ]  # fmt: skip


def test_inside_atomic_on_sqlite_each_verb_takes_part_in_the_transaction(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    project.prepare()
    assert project.shell("verbs_in_atomic") == {"paused": True, "still": True, "quick": True}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_projects_own_tests_enqueue_in_the_database_of_the_test(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = None if kind == "sqlite" else request.getfixturevalue(f"django_{kind}_url")
    project = Project(tmp_path / f"p{os.getpid()}", url)
    for _ in range(2):  # the second time, the first one's database must be gone
        assert "Ran 3 tests" in project.manage("test", "--noinput").stderr
    if kind == "sqlite":
        with closing(sqlite3.connect(project.folder / "shop.sqlite3")) as connection:
            found = connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert found == [], "a test has touched the database of the project"


def test_the_system_check_says_what_is_wrong(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    assert "no issues" in project.manage("check").stdout
    del project.database["OPTIONS"]
    assert "cronsensus.W002" in project.manage("check").stderr
    project.options = {"url": "redis://localhost:1"}
    assert "cronsensus.W004" in project.manage("check").stderr
    for name, options, code in (
        (":memory:", {}, "is in memory, and nodes and threads cannot share that"),
        ("shop.sqlite3", {"databse": "x"}, "CRONSENSUS has no 'databse'"),
        ("shop.sqlite3", {"database": "other"}, "is none of DATABASES"),
    ):
        project.database["NAME"], project.options = name, options
        with pytest.raises(AssertionError, match=code):
            project.manage("check")
