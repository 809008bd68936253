"""A Django project tests its tasks with the kit, inside of TestCase."""

from pathlib import Path

import pytest

pytest.importorskip("django")
from tests.integrations.django_project import Project


def test_a_testcase_runs_tasks_on_its_own_connection_and_the_scheduler_touches_no_database(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    both = project.manage("test", "shop.kit_tried", "--noinput", "--parallel", "2").stderr
    assert "Ran 4 tests" in both
    assert "is not shared with other processes" not in both
    alone = project.manage("test", "shop.kit_tried.WithoutADatabase", "--noinput")  # for which no database is made
    assert "Ran 1 test" in alone.stderr
