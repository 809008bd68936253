"""Each error: what happened, why, the next thing to type, and the exit code."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from cronsensus import errors
from cronsensus.cli import errors as cli_errors
from cronsensus.cli.errors import CommandError, describe_error, report_error

Command = Callable[..., Any]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("nxt", "next"),
        ("job", "jobs"),
        ("list", "jobs list"),
        ("worker", "run"),
        ("lst", "jobs list"),
    ],
)
def test_an_unknown_command_names_the_one_that_was_meant(command: Command, typed: str, meant: str) -> None:
    answer = command(typed)
    assert answer.code == 2
    assert f"no such command {typed!r}; did you mean {meant!r}?" in answer.err
    assert "cronsensus --help" in answer.err


def test_an_unknown_command_like_no_other_gets_the_list(command: Command) -> None:
    assert "there are: demo, next" in command("xyzzy").err


def test_an_unknown_subcommand_names_the_one_that_was_meant(command: Command) -> None:
    answer = command("jobs", "puase")
    assert answer.code == 2
    assert "did you mean 'pause'?" in answer.err
    assert "cronsensus jobs --help" in answer.err


def test_an_unknown_option_names_the_one_that_was_meant(command: Command) -> None:
    answer = command("run", "--concurency", "3")
    assert answer.code == 2
    assert "no such option '--concurency'; did you mean '--concurrency'?" in answer.err
    assert "cronsensus run --help" in answer.err


def test_error_for_a_wrong_number_is_in_plain_words(command: Command) -> None:
    answer = command("run", "--concurrency", "many")
    assert answer.code == 2
    assert "'many' is not a whole number" in answer.err


def test_a_missing_argument_says_which(command: Command) -> None:
    answer = command("jobs", "show")
    assert answer.code == 2
    assert "missing argument 'JOB'" in answer.err


def test_a_missing_reason_is_a_usage_error(cluster: Any) -> None:
    cluster.every("tick")
    answer = cluster("jobs", "pause", "tick")
    assert answer.code == 2
    assert "missing option '--reason'" in answer.err
    assert cluster.store.job("tick").paused_at is None


def test_a_blank_reason_is_refused(cluster: Any) -> None:
    cluster.every("tick")
    assert "say why" in cluster("jobs", "pause", "tick", "--reason", "  ").err


def test_an_unknown_scheme_is_a_usage_error(command: Command) -> None:
    answer = command("jobs", "list", "--url", "sqlte:///x.db")
    assert answer.code == 2
    assert "did you mean sqlite://?" in answer.err


def test_a_path_instead_of_a_url_is_shown_as_a_url(command: Command) -> None:
    answer = command("jobs", "list", "--url", "jobs.db")
    assert answer.code == 2
    assert "sqlite:///jobs.db" in answer.err


def test_a_store_without_a_schema_says_how_to_make_one(command: Command) -> None:
    Path("empty.db").touch()
    answer = command("jobs", "list", "--url", "sqlite:///empty.db")
    assert answer.code == 3
    assert "empty.db holds no cronsensus schema" in answer.err


def test_a_file_that_is_not_there_is_a_question_before_it_is_made(command: Command) -> None:
    answer = command("jobs", "list", "--url", "sqlite:///none.db")
    assert answer.code == 3
    assert f"there is no file {Path.cwd()}/none.db" in answer.err
    assert "see that the path is right" in answer.err
    assert not Path("none.db").exists()


def test_the_next_command_to_type_is_about_the_same_store(command: Command) -> None:
    answer = command("jobs", "list", "--url", "sqlite:///my shop.db", "--namespace", "shop")
    assert "cronsensus --url 'sqlite:///my shop.db' --namespace shop db upgrade" in answer.err


def test_next_command_has_only_options_that_were_typed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONSENSUS_URL", "sqlite:///none.db")
    assert ": cronsensus db upgrade" in command("jobs", "list").err


def test_a_directory_that_is_not_there_is_named(command: Command) -> None:
    answer = command("db", "upgrade", "--url", "sqlite:///no/such/folder/x.db")
    assert answer.code == 3
    assert "mkdir -p" in answer.err


def test_a_file_that_is_no_database_is_named(command: Command, write: Callable[..., Any]) -> None:
    write("x.db", "this is a text about databases, and no database " * 100)
    answer = command("jobs", "list", "--url", "sqlite:///x.db")
    assert answer.code == 3
    assert "not an SQLite database" in answer.err


EVERY_ERROR = [
    (errors.StoreUnavailable, 3),
    (errors.StoreBusy, 3),
    (errors.StoreReadOnly, 3),
    (errors.StoreFull, 3),
    (errors.StoreCorrupt, 3),
    (errors.SchemaMismatch, 3),
    (errors.UnknownStore, 2),
    (errors.MissingExtra, 2),
    (errors.InvalidTrigger, 2),
    (errors.InvalidDuration, 2),
    (errors.InvalidOption, 2),
    (errors.UnknownJob, 2),
    (errors.DuplicateJob, 2),
    (errors.UnsupportedFunction, 2),
    (errors.InvalidPayload, 2),
    (errors.ConfigurationError, 2),
    (errors.InvalidTransition, 1),
    (errors.OccurrenceTooOld, 1),
    (errors.LeaseLost, 1),
]


@pytest.mark.parametrize(("kind", "code"), EVERY_ERROR, ids=lambda value: getattr(value, "__name__", value))
def test_each_error_has_its_exit_code_and_a_next_step(kind: type[errors.CronsensusError], code: int) -> None:
    what, _, then, exit_code = describe_error(kind("it broke"))
    assert what == "it broke"
    assert exit_code == code
    if kind not in {errors.LeaseLost, errors.MissingExtra}:
        assert then


def test_an_error_that_says_what_to_do_is_not_told_something_else() -> None:
    what, _, then, _ = describe_error(errors.StoreFull("no space left on /data; free some"))
    assert (what, then) == ("no space left on /data", "free some")


def test_the_cause_is_shown_without_what_the_driver_adds() -> None:
    error = errors.StoreUnavailable("cannot reach db:5432")
    error.__cause__ = OSError("connection refused\n[SQL: SELECT 1]")
    assert describe_error(error)[1] == "OSError: connection refused"


def test_a_cause_that_repeats_the_error_is_left_out() -> None:
    error = errors.StoreUnavailable("cannot connect: connection refused")
    error.__cause__ = OSError("connection refused")
    assert describe_error(error)[1] == ""


def test_passwords_are_masked_in_errors(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(errors.StoreUnavailable("cannot reach postgresql://app:s3cret@db/x?password=s3cret"))
    shown = capsys.readouterr().err
    assert "s3cret" not in shown
    assert "postgresql://app:***@db/x?password=***" in shown


def test_control_characters_in_errors_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(CommandError("no job \x1b[31mred\x07", why="line\nline \u202e", then="x"))
    shown = capsys.readouterr().err
    assert "\x1b" not in shown.replace("\x1b[31m\x1b[1merror: \x1b[0m", "")
    assert "\\x1b[31mred\\x07" in shown
    assert "\\u202e" in shown


def test_a_mistake_of_ours_says_how_to_report_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cronsensus.cli.next.find_target", lambda *_, **__: 1 / 0)
    answer = command("next", "@daily")
    assert answer.code == 1
    assert "a mistake in cronsensus: ZeroDivisionError" in answer.err
    assert "--debug" in answer.err
    assert "Traceback" not in answer.err


def test_debug_shows_the_traceback(command: Command) -> None:
    answer = command("next", "61 * * * *", "--debug")
    assert answer.code == 2
    assert "Traceback (most recent call last)" in answer.err
    assert "Traceback" not in command("next", "61 * * * *").err


def test_stopping_with_ctrl_c_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = click.exceptions.Abort()
    stopped.__cause__ = KeyboardInterrupt()
    assert report_error(stopped) == cli_errors.STOPPED_CODE == 130
    assert capsys.readouterr().err == "stopped\n"


def test_an_error_of_the_system_is_told_plainly() -> None:
    assert describe_error(PermissionError(13, "Permission denied", "/x"))[0].startswith("PermissionError: [Errno 13]")


def test_every_error_of_a_command_has_three_labels_at_most(command: Command) -> None:
    for arguments in (["nope"], ["next", "x y"], ["jobs", "list"], ["run"], ["next", "99 * * * *"]):
        for line in command(*arguments).err.splitlines():
            assert re.match(r"error: |  why: | next: |       ", line), line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--drain-timeout", "soon"], "cannot be read; write seconds"),
        (["run", "--concurrency", "0"], "0 is not in the range"),
        (["run", "--log-level", "loud"], "'loud' is not one of"),
        (["jobs", "list", "-o", "yaml"], "'yaml' is not one of 'table', 'json'"),
        (["next", "@daily", "-n", "0"], "0 is not in the range"),
        (["next", "@daily", "--dst", "maybe"], "'maybe' is not one of"),
    ],
)
def test_a_wrong_value_says_what_is_possible(command: Command, arguments: list[str], said: str) -> None:
    answer = command(*arguments)
    assert answer.code == 2
    assert said in answer.text
    assert f"cronsensus {arguments[0]}" in answer.err


def test_a_run_that_vanished_meanwhile_is_no_mistake_of_ours() -> None:
    assert describe_error(LookupError("there is no occurrence 7")) == (
        "there is no occurrence 7",
        "",
        "cronsensus runs list",
        2,
    )
    assert "a mistake in cronsensus" in describe_error(KeyError("x"))[0]
