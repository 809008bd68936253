"""Finding the application: by name, in the settings, or in this folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cronsensus.cli.group import Invocation

Command = Callable[..., Any]
Write = Callable[[str, str], Path]

JOBS = """
from cronsensus import Scheduler, every
scheduler = Scheduler("memory://")
@scheduler.job(every("1m"), timeout="30s")
def tick(): ...
"""


def test_an_application_is_named_as_module_and_attribute(command: Command, write: Write) -> None:
    write("myjobs.py", JOBS)
    answer = command("next", "tick", "--app", "myjobs:scheduler", "-n", "1")
    assert answer.code == 0
    assert answer.out.startswith("every minute")


def test_a_package_and_a_nested_attribute_are_found(command: Command, write: Write) -> None:
    write("shop/__init__.py", "")
    write("shop/jobs.py", JOBS + "\nclass holder:\n    inner = scheduler\n")
    assert command("next", "tick", "--app", "shop.jobs:holder.inner").code == 0


def test_a_module_with_one_scheduler_needs_no_attribute(command: Command, write: Write) -> None:
    write("myjobs.py", JOBS + "\nalias = scheduler\n")
    assert command("lint", "myjobs").code == 0


def test_the_environment_names_an_application(command: Command, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("myjobs.py", JOBS)
    monkeypatch.setenv("CRONSENSUS_APP", "myjobs:scheduler")
    assert command("next", "tick").code == 0


def test_pyproject_names_an_application(command: Command, write: Write) -> None:
    write("myjobs.py", JOBS)
    write("pyproject.toml", '[tool.cronsensus]\napp = "myjobs:scheduler"\n')
    assert command("next", "tick").code == 0


@pytest.mark.parametrize("name", ["jobs", "tasks", "app", "main"])
def test_an_application_that_lies_here_is_found_and_named(command: Command, write: Write, name: str) -> None:
    write(f"{name}.py", JOBS)
    answer = command("next", "tick")
    assert answer.code == 0
    assert f"using {name}:scheduler (found in {name}.py)" in answer.err


def test_a_file_that_has_nothing_to_do_with_us_is_not_imported(command: Command, write: Write) -> None:
    write("main.py", "raise SystemExit('imported!')")
    write("jobs.py", "from somewhere import scheduler_without_us  # never imported\n")
    answer = command("next", "tick")
    assert answer.code == 2
    assert "imported!" not in answer.text


def test_without_an_application_it_says_how_to_name_one(command: Command) -> None:
    for arguments in (["run"], ["lint"], ["next", "tick"]):
        answer = command(*arguments)
        assert answer.code == 2
        assert "there is no application here" in answer.err
        assert "--app MODULE:ATTR" in answer.err


def test_two_schedulers_in_a_file_are_one_too_many(command: Command, write: Write) -> None:
    write("jobs.py", JOBS + "\nsecond = Scheduler('memory://')\n")
    answer = command("next", "tick")
    assert answer.code == 2
    assert "'jobs' holds 2 Schedulers" in answer.err
    assert "--app jobs:scheduler or --app jobs:second" in answer.err


def test_a_module_without_scheduler_says_how_to_make_one(command: Command, write: Write) -> None:
    write("empty.py", "x = 1\n")
    answer = command("lint", "empty")
    assert answer.code == 2
    assert "'empty' holds no Scheduler" in answer.err
    assert 'scheduler = Scheduler("sqlite:///cronsensus.db")' in answer.err


def test_a_wrong_module_names_a_close_one(command: Command, write: Write) -> None:
    write("myjobs.py", JOBS)
    answer = command("lint", "myjbos:scheduler")
    assert answer.code == 2
    assert "there is no module 'myjbos'; did you mean 'myjobs'?" in answer.err
    assert str(Path.cwd()) in answer.err


def test_a_wrong_attribute_names_a_close_one(command: Command, write: Write) -> None:
    write("myjobs.py", JOBS)
    answer = command("lint", "myjobs:schedule")
    assert answer.code == 2
    assert "'myjobs' has no attribute 'schedule'; did you mean 'myjobs:scheduler'?" in answer.err


@pytest.mark.parametrize(
    ("attribute", "kind"), [("tick", "of type Job"), ("Scheduler", "the class"), ("every", "of type function")]
)
def test_app_that_is_no_scheduler_is_refused_with_its_kind(
    command: Command, write: Write, attribute: str, kind: str
) -> None:
    write("myjobs.py", JOBS)
    answer = command("lint", f"myjobs:{attribute}")
    assert answer.code == 2
    assert f"'myjobs:{attribute}' is {kind}, not a Scheduler" in answer.err
    assert "--app myjobs:scheduler" in answer.err


@pytest.mark.parametrize("typed", ["jobs.py", "./jobs.py:scheduler", "src/jobs.py", "my-jobs:scheduler", "a b:c", ":x"])
def test_app_that_is_no_module_name_is_refused_with_one(command: Command, typed: str) -> None:
    answer = command("lint", "--app", typed)
    assert answer.code == 2
    assert "MODULE:ATTR" in answer.err
    assert "as Python imports it, for example " in answer.err


def test_an_exception_while_importing_shows_the_users_own_lines(command: Command, write: Write) -> None:
    write("mailer.py", "def connect():\n    raise ValueError('no DSN')\n")
    write("myjobs.py", "import mailer\nmailer.connect()\n")
    answer = command("lint", "myjobs:scheduler")
    assert answer.code == 2
    assert "importing 'myjobs' failed" in answer.err
    assert "ValueError: no DSN" in answer.err
    assert "myjobs.py:2 in <module>:  mailer.connect()" in answer.err
    assert "mailer.py:2 in connect:  raise ValueError('no DSN')" in answer.err
    assert "importlib" not in answer.err
    assert "cronsensus/cli" not in answer.err


def test_a_package_that_is_not_installed_is_named(command: Command, write: Write) -> None:
    write("myjobs.py", "import not_installed_anywhere\n")
    answer = command("lint", "myjobs:scheduler")
    assert answer.code == 2
    assert "ModuleNotFoundError: No module named 'not_installed_anywhere'" in answer.err
    assert "install what provides 'not_installed_anywhere'" in answer.err


def test_a_syntax_error_shows_the_line(command: Command, write: Write) -> None:
    write("myjobs.py", "def broken(:\n    pass\n")
    answer = command("lint", "myjobs:scheduler")
    assert answer.code == 2
    assert "myjobs.py:1  def broken(:" in answer.err


def test_a_module_that_exits_is_told_to_guard_its_main_program(command: Command, write: Write) -> None:
    write("myjobs.py", "import sys\nsys.exit(4)\n")
    answer = command("lint", "myjobs:scheduler")
    assert answer.code == 2
    assert 'if __name__ == "__main__":' in answer.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('@scheduler.job(cron("61 * * * *"))\ndef a(): ...', "'61' is wrong in the minute field"),
        ('@scheduler.job(every("1m"), timout="5s")\ndef a(): ...', "did you mean 'timeout'?"),
        ('@scheduler.job(every("1m"))\ndef tick(): ...', "tick"),
        ('@scheduler.job(every("5 parsecs"))\ndef a(): ...', "cannot be read"),
    ],
)
def test_a_wrong_declaration_is_an_import_error_that_names_the_line(
    command: Command, write: Write, line: str, said: str
) -> None:
    path = write("myjobs.py", JOBS + "from cronsensus import cron\n" + line + "\n")
    answer = command("run", "myjobs:scheduler")
    assert answer.code == 2
    assert said in answer.err
    assert f"{path}:" in answer.err
    assert "src/cronsensus" not in answer.err


def test_url_is_enough_and_imports_no_application(command: Command, write: Write, cluster: Any) -> None:
    write("jobs.py", "raise SystemExit('imported! scheduler')")
    cluster.every("tick")
    answer = cluster("jobs", "list")
    assert answer.code == 0
    assert "imported" not in answer.text


def test_the_url_of_the_environment_is_enough(command: Command, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.every("tick")
    monkeypatch.setenv("CRONSENSUS_URL", cluster.url)
    assert command("jobs", "list").code == 0


@pytest.mark.parametrize("named", [True, False])
def test_commands_look_where_the_nodes_of_the_application_are(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    write("jobs.py", JOBS.replace("memory://", "sqlite:///of-the-app.db"))
    monkeypatch.setenv("CRONSENSUS_URL", "sqlite:///of-the-environment.db")
    answer = command("db", "upgrade", *(["--app", "jobs:scheduler"] if named else []))
    assert answer.code == 0
    assert Path("of-the-app.db").exists()
    assert not Path("of-the-environment.db").exists()
    said = "CRONSENSUS_URL says url sqlite:///of-the-environment.db, which does not count: jobs:scheduler gives"
    assert answer.err.count(said) == 1


def test_an_application_that_leaves_the_store_open_takes_that_of_the_environment(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("jobs.py", JOBS.replace('"memory://"', ""))
    monkeypatch.setenv("CRONSENSUS_URL", "sqlite:///of-the-environment.db")
    answer = command("db", "upgrade")
    assert Path("of-the-environment.db").exists()
    assert "does not count" not in answer.err


def test_the_application_says_which_store(command: Command, write: Write) -> None:
    write("jobs.py", JOBS.replace("memory://", "sqlite:///from-the-app.db"))
    assert command("db", "upgrade").code == 0
    assert Path("from-the-app.db").exists()


def test_a_url_on_the_command_line_wins_over_the_applications(command: Command, write: Write) -> None:
    write("jobs.py", JOBS.replace("memory://", "sqlite:///from-the-app.db"))
    assert command("db", "upgrade", "--app", "jobs:scheduler", "--url", "sqlite:///flag.db").code == 0
    assert Path("flag.db").exists()
    assert not Path("from-the-app.db").exists()


def test_without_a_store_it_says_how_to_name_one(command: Command) -> None:
    answer = command("jobs", "list")
    assert answer.code == 2
    assert "no store was named" in answer.err
    assert "--url sqlite:///cronsensus.db" in answer.err


def test_namespaces_are_apart(cluster: Any) -> None:
    cluster.every("tick")
    answer = cluster("jobs", "list", "--namespace", "other", "-o", "json")
    assert answer.data["jobs"] == []


def test_the_default_file_that_lies_here_is_used_and_named(command: Command) -> None:
    assert command("db", "upgrade", "--url", "sqlite:///cronsensus.db").code == 0
    answer = command("db", "check")
    assert answer.code == 0
    assert "using sqlite:///cronsensus.db (it lies here)" in answer.err


def test_a_password_in_the_url_is_not_shown_in_what_to_type_next() -> None:
    shown = Invocation(url="redis://shop:hush@shop.example.com/0").typed("cronsensus jobs list")
    assert shown == "cronsensus --url 'redis://shop:***@shop.example.com/0' jobs list"


def test_a_file_that_lies_here_under_another_name_is_pointed_out(command: Command, write: Write) -> None:
    write("shops.py", JOBS)
    assert "CRONSENSUS_APP=shops:scheduler" in command("jobs", "list").text
