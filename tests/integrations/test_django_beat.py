"""``manage.py cronsensus import_beat``: django-celery-beat's rows as code, or as jobs that are added at run time."""

import re
from pathlib import Path

from tests.integrations.django_project import Project

BEAT_AS_CODE = """from cronsensus import at, cron, every
from cronsensus.integrations.django import scheduler
import shop.tasks


@scheduler.job(
    cron("0 3 * * MON-FRI", tz="Europe/Paris"), name="close the day", grace="5m"
)
def close_the_day() -> None:
    shop.tasks.double.call(number=2)


@scheduler.job(every("1m30s"))
def disabled() -> None:
    shop.tasks.double.call(1)


@scheduler.job(at("2099-01-01T12:00:00+00:00"))
def later() -> None:
    shop.tasks.double.call(1)


@scheduler.job(every("1m30s", start="2020-01-01T12:00:00+00:00"))
def often() -> None:
    shop.tasks.double.call(1)


"""


def test_rows_of_django_celery_beat_become_code_or_jobs_and_each_that_does_not_says_why(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", modules=["jobs", "tasks"])
    with (project.folder / "settings.py").open("a") as settings:
        settings.write('INSTALLED_APPS.append("django_celery_beat")\n')
    project.prepare()
    assert project.shell("fill", "beat_rows") == 11
    printed = project.manage("cronsensus", "import_beat")
    code, _, remarks = printed.stdout.partition("# What is not the same:")
    assert code == BEAT_AS_CODE
    assert "4 written, 7 left out" in printed.stderr
    left_out = {
        "both": "Celery wants both to match", "expired": "it has expired", "once": "write at(…)",
        "over": "its one time is over", "sunset": "a job of each morning", "unknown": "no task at 'shop.tasks.gone'",
        "wants context": "--apply",
    }  # fmt: skip
    for name, why in left_out.items():
        assert re.search(rf"# {name}: not written: .*{re.escape(why)}", remarks), name
    assert "# later: queue='slow' is left out" in remarks
    assert "# disabled: it is disabled" in remarks
    added = project.manage("cronsensus", "import_beat", "--apply")
    assert added.stdout.split("\n")[:-1] == [
        f"added: {n}" for n in ("close the day", "later", "often", "wants context")
    ]
    assert "disabled: not added" in added.stderr
    assert project.manage("cronsensus", "import_beat", "--apply").stdout == added.stdout
    listed = project.manage("cronsensus", "jobs", "show", "close the day").stdout
    assert "at 03:00, Monday to Friday, Europe/Paris" in listed
    (project.folder / "shop" / "imported.py").write_text(code)
    project.options = {"namespace": "other", "modules": ["jobs", "tasks", "imported"]}
    project.manage("migrate", "-v0")
    assert "close the day" in project.manage("cronsensus", "jobs", "list").stdout
