"""``cronsensus migrate apscheduler``: the program is printed; a mistake is answered by what to type."""

import sys
from typing import Any

import pytest

SHOP = """
from apscheduler.schedulers.background import BackgroundScheduler
scheduler = BackgroundScheduler(timezone="UTC")
def report(): print("ran")
scheduler.add_job(report, "cron", second="*", id="report")
scheduler.start()
other = object()
"""


@pytest.fixture
def shop(empty_folder, monkeypatch):
    (empty_folder / "old_shop.py").write_text(SHOP)
    yield
    sys.modules.pop("old_shop", None)


def test_what_is_printed_is_a_program_and_the_scheduler_was_not_started(command, shop):
    answer = command("migrate", "apscheduler", "old_shop:scheduler")
    assert answer.code == 0, answer
    assert not sys.modules["old_shop"].scheduler.running
    space: dict[str, Any] = {}
    exec(compile(answer.out, "printed", "exec"), space)
    assert [*space["scheduler"].jobs] == ["report"]
    assert "1 job written, 0 left out" in answer.err


def test_migration_as_data_has_code_and_remarks(command, shop):
    data = command("migrate", "apscheduler", "old_shop:scheduler", "-o", "json").data
    assert "from old_shop import report" in data["code"]
    assert (data["jobs"], data["left_out"]) == (1, 0)
    assert data["remarks"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old_shop", "next: cronsensus migrate apscheduler old_shop:scheduler"),
        ("no_shop:scheduler", "there is no module 'no_shop'"),
        ("old_shp:scheduler", "did you mean 'old_shop'?"),
        ("old_shop:schedulr", "'old_shop' has no attribute 'schedulr'"),
        ("old_shop:other", "'old_shop:other' is a object, and no scheduler of APScheduler 3"),
    ],
)
def test_wrong_name_is_answered_by_what_to_type(command, shop, name, words):
    answer = command("migrate", "apscheduler", name)
    assert answer.code == 2
    assert words in answer.text


def test_missing_apscheduler_is_answered_by_what_to_install(command, shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "apscheduler.schedulers.base", None)
    monkeypatch.setattr("importlib.metadata.version", _missing)
    answer = command("migrate", "apscheduler", "old_shop:scheduler")
    assert answer.code == 2
    assert 'pip install "cronsensus[apscheduler]"' in answer.text


def _missing(name):
    raise LookupError(name)


def test_apscheduler_of_version_4_is_answered_by_which_to_install(command, shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "apscheduler.schedulers.base", None)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.0.0a6")
    answer = command("migrate", "apscheduler", "old_shop:scheduler")
    assert answer.code == 2
    assert "is for APScheduler 3, and 4.0.0a6 is installed" in answer.text
    assert 'pip install "apscheduler>=3.10,<4"' in answer.text


PROJ = """
from celery import Celery
app = Celery("old_proj", broker="memory://", set_as_current=False)
app.conf.beat_schedule = {"nightly": {"task": "old_proj.report", "schedule": 30.0, "args": (42,)}}
@app.task(shared=False)
def report(n): print("ran", n)
other = object()
"""


@pytest.fixture
def proj(empty_folder):
    (empty_folder / "old_proj.py").write_text(PROJ)
    yield
    sys.modules.pop("old_proj", None)


@pytest.mark.parametrize(
    ("options", "words"), [([], "old_proj.report(42)"), (["--keep-celery"], "old_proj.report.apply_async(args=[42], ")]
)
def test_entries_of_beat_are_printed_as_a_program(command, proj, options, words):
    answer = command("migrate", "celery", "old_proj:app", *options)
    assert answer.code == 0, answer
    space: dict[str, Any] = {"__name__": "printed"}
    exec(compile(answer.out, "printed", "exec"), space)
    assert {name: job.rule.describe() for name, job in space["scheduler"].jobs.items()} == {
        "nightly": "every 30 seconds"
    }
    assert words in answer.out
    assert "1 job written, 0 left out" in answer.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old_proj", "next: cronsensus migrate celery old_proj:app"),
        ("old_proj:ap", "'old_proj' has no attribute 'ap'"),
        ("old_proj:other", "'old_proj:other' is a object, and no app of Celery"),
    ],
)
def test_wrong_name_of_an_app_is_answered_by_what_to_type(command, proj, name, words):
    answer = command("migrate", "celery", name)
    assert answer.code == 2
    assert words in answer.text


def test_missing_celery_is_answered_by_what_to_install(command, proj, monkeypatch):
    monkeypatch.setitem(sys.modules, "celery", None)
    answer = command("migrate", "celery", "old_proj:app")
    assert answer.code == 2
    assert 'pip install "cronsensus[celery]"' in answer.text


CRONTAB = "0 5 * * * /usr/bin/backup --all\n@daily report%\n"


def test_crontab_from_stdin_is_printed_as_a_program(command):
    answer = command("migrate", "crontab", "-", "--tz", "Europe/Berlin", stdin=CRONTAB)
    assert answer.code == 0, answer
    space: dict[str, Any] = {"__name__": "printed"}
    exec(compile(answer.out, "printed", "exec"), space)
    jobs = space["scheduler"].jobs
    assert {name: str(job.rule.tz) for name, job in jobs.items()} == dict.fromkeys(
        ("backup", "report"), "Europe/Berlin"
    )
    assert "2 jobs written, 0 left out" in answer.err


def test_crontabs_of_a_system_name_their_files(command, write):
    write("crontab", "0 5 * * * root backup\n")
    write("more", "\nnonsense\n0 6 * * * www-data cleanup\n")
    answer = command("migrate", "crontab", "--system", "crontab", "more", "--tz", "UTC")
    assert answer.code == 1  # because of the line that cannot be read
    assert "# more:2: not read: 'nonsense' has no command" in answer.out
    assert "# more:3\n" in answer.out
    assert "2 jobs written, 1 left out" in answer.err


def test_crontab_migration_as_data_has_code_and_remarks(command):
    data = command("migrate", "crontab", "-o", "json", "--tz", "UTC", stdin="x\n" + CRONTAB).data
    assert "def backup()" in data["code"]
    assert (data["jobs"], data["left_out"], data["unreadable"]) == (2, 1, 1)
    assert data["remarks"][0]["place"] == "line 1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "'nowhere' cannot be read"),
        (["--tz", "Berlin"], "did you mean 'Europe/Berlin'?"),
    ],
)
def test_crontab_or_zone_that_is_not_there_is_answered_by_what_to_type(command, arguments, words):
    answer = command("migrate", "crontab", *arguments, stdin="")
    assert answer.code == 2
    assert words in answer.text
