"""A project of Django's, in real processes: its tasks, its transactions, its own tests."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.django_project import Project


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


def test_words_of_the_schedule_and_the_policies_stand_in_the_task_itself(tmp_path: Path) -> None:
    seen = Project(tmp_path / "p").shell("native_words")
    assert seen in (["at 03:00 every day, Europe/Paris", 3], "6.0")


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
    assert seen["attempts"] == [["1", "failed"]]
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
    # As after a reboot: this process is the first, and has to say so under SQLite's write lock.
    (project.folder / "shop.sqlite3-epoch").write_text("of another boot\n")
    assert project.shell("verbs_in_atomic") == {"paused": True, "still": True, "quick": True}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_projects_own_tests_enqueue_in_the_database_of_the_test(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = None if kind == "sqlite" else request.getfixturevalue(f"django_{kind}_url")
    project = Project(tmp_path / f"p{os.getpid()}", url)
    for how in ([], ["--parallel", "2"]):  # the second time, the first one's database must be gone
        assert "Ran 5 tests" in project.manage("test", "--noinput", *how).stderr
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


def test_the_system_check_misses_the_app_that_a_backend_is_of(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    with (project.folder / "settings.py").open("a") as settings:
        settings.write('\nINSTALLED_APPS.remove("cronsensus.integrations.django")\n')
    # Django 6 has its check of tasks only where something imports tasks before.
    code = "import shop.tasks; from django.core.management import call_command; call_command('check')"
    assert "cronsensus.E004" in project.manage("shell", "-c", code, code=1).stderr


def test_a_model_as_an_argument_and_tables_that_are_not_there_are_refused_with_what_to_write(tmp_path: Path) -> None:
    of_json, of_arity, of_tables = Project(tmp_path / "p").shell("careless_calls")
    assert of_json.startswith("TypeError: shop.tasks.send_invoice: ")
    assert "of a model its pk" in of_json
    assert re.search(r"shop/tasks\.py:\d+\) cannot be called like that", of_arity)
    assert "python manage.py migrate" in of_tables


def test_a_task_that_is_tried_again_has_not_finished(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    project.prepare()
    assert project.shell("finished_signals") == [["third_time", "SUCCESSFUL", 3], ["never", "FAILED", 2]]


def test_what_is_to_be_typed_next_begins_with_manage_py(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    project.prepare()
    assert "python manage.py cronsensus jobs list" in project.manage("cronsensus", "jobs", "show", "no", code=2).stderr
    none = project.manage("cronsensus", "nodes", "list").stderr
    assert "start one: python manage.py cronsensus run\n" in none
    assert "python manage.py cronsensus run --help" in project.manage("cronsensus", "run", "--no", code=2).stderr


def test_requests_that_are_transactions_and_aenqueue_in_atomic_take_their_tasks_with_them(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    project.database["ATOMIC_REQUESTS"] = True
    project.prepare()
    assert project.shell("requests", "several") == [[200, 500, 200], [1, 3]]
    assert project.shell("in_async", "several") == [1, 3, 5, 6]


def test_tasks_in_another_database_commit_with_that_one(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", database="jobs")
    with (project.folder / "settings.py").open("a") as settings:
        settings.write(
            "DATABASES['jobs'] = DATABASES['default'] | {\n"
            "    'NAME': BASE_DIR / 'jobs.sqlite3', 'TEST': {'NAME': BASE_DIR / 'test_jobs.sqlite3'}}\n"
        )
    project.prepare()
    project.manage("migrate", "-v0", "--database", "jobs")
    assert project.shell("two_databases", "several") == [[1, 3], False]
    assert "rows in default do not commit with tasks, which are in jobs" in project.manage("check").stderr
    tests = (project.folder / "shop" / "tests.py").read_text()
    refused = project.manage("test", "--noinput", "shop.tests.InATransaction", code=1).stderr
    assert "databases = {'default', 'jobs'}" in refused
    for kind in ("(TestCase):\n", "(TransactionTestCase):\n"):
        tests = tests.replace(kind, f"{kind}    databases = {{'default', 'jobs'}}\n\n")
    (project.folder / "shop" / "tests.py").write_text(tests)
    assert "Ran 5 tests" in project.manage("test", "--noinput").stderr
    assert project.shell("two_databases", "several")[0] == [1, 1, 3, 3], "a test has enqueued in the project's own"
