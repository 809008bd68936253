"""What people type who leave out quotes, write a dot for a colon, or know another program."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

APP = """
from cronsensus import Scheduler
scheduler = Scheduler("memory://typed")

@scheduler.job()
def mail(number, text="x", *, copies=1):
    return number
"""


def test_expression_without_quotes_is_understood_where_the_shell_left_it(command: Command) -> None:
    answer = command("next", "0", "9", "*", "*", "MON-FRI")
    assert answer.code == 0
    assert "09:00, Monday to Friday" in answer.out


def test_stars_that_the_shell_replaced_are_named(command: Command, empty_folder: Path) -> None:
    (empty_folder / "app.py").touch()
    (empty_folder / "jobs.db").touch()
    answer = command("next", "0", "9", *["app.py", "jobs.db"] * 3)
    assert answer.code == 2
    assert "the shell has replaced each *" in answer.err
    assert 'next: write the expression in quotes: "0 9 * * *"' in answer.err


def test_application_with_a_dot_for_a_colon_is_guessed(command: Command, write: Any) -> None:
    write("jobs.py", APP)
    answer = command("run", "jobs.scheduler")
    assert answer.code == 2
    assert "'jobs.scheduler' is not MODULE:ATTR; did you mean 'jobs:scheduler'?" in answer.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("enqueue", "mail", "5"), "did you mean 'jobs enqueue'?"),
        (("jobs", "remove", "mail"), "scheduler.remove_job(NAME)"),
        (("jobs", "delete", "mail"), "scheduler.remove_job(NAME)"),
        (("jobs", "run", "mail"), "cronsensus jobs trigger NAME"),
        (("runs", "kill", "4"), "cronsensus runs cancel ID"),
        (("jobs", "edit", "mail"), "scheduler.change_job(NAME, …)"),
        (("jobs", "disable", "mail"), "cronsensus jobs pause NAME"),
        (("ui",), "did you mean 'dashboard'?"),
    ],
)
def test_command_of_another_program_is_answered_with_ours(command: Command, typed: tuple[str, ...], said: str) -> None:
    answer = command(*typed)
    assert answer.code == 2
    assert said in answer.err


def test_arguments_after_a_job_are_json_or_else_text(cluster: Any) -> None:
    cluster.declare("mail")
    made = cluster("jobs", "enqueue", "mail", "5", "ann", '"6"', "[1, 2]", "-o", "json").data
    cluster.join()
    (claim,) = cluster.claim()
    assert claim.id == made["id"]
    assert claim.args == (5, "ann", "6", [1, 2])


def test_a_negative_number_as_an_argument_is_told_how_to_be_one(cluster: Any) -> None:
    cluster.declare("mail")
    answer = cluster("jobs", "enqueue", "mail", "42", "-1")
    assert answer.code == 2
    assert "if it is an argument, write -- before it: cronsensus" in answer.err
    assert "jobs enqueue NAME -- -1" in answer.err
    assert "-- before it" not in cluster("jobs", "list", "-1").err


@pytest.mark.parametrize("typed", [("enqueue",), ("trigger",)])
def test_work_that_no_live_node_can_run_is_told_when_it_is_made(cluster: Any, typed: tuple[str, ...]) -> None:
    cluster.declare("mail")
    assert "no node is alive, so it waits" in cluster("jobs", *typed, "mail").err
    cluster.join("web-1", declares={"bill": "shop.bill"})
    assert "no live node declares mail (web-1 do not), so it waits" in cluster("jobs", *typed, "mail").err
    cluster.join("web-2", declares={"mail": "shop.mail"})
    assert "note: no" not in cluster("jobs", *typed, "mail").err


def test_named_runs_are_shown_and_left_alone_by_a_dry_run(cluster: Any) -> None:
    cluster.declare("mail")
    run = str(cluster("jobs", "trigger", "mail", "-o", "json").data["runs"][0]["id"])
    answer = cluster("runs", "cancel", run, "--dry-run", "--reason", "x")
    assert (answer.code, "mail" in answer.out) == (0, True)
    assert cluster("runs", "show", run, "-o", "json").data["state"] == "pending"
    cluster("runs", "cancel", run, "--reason", "x")
    answer = cluster("runs", "retry", run, "--dry-run")
    assert (answer.code, "mail" in answer.out) == (0, True)
    assert len(cluster("runs", "list", "-o", "json").data["runs"]) == 1


def test_arguments_given_in_both_ways_are_refused(cluster: Any) -> None:
    cluster.declare("mail")
    answer = cluster("jobs", "enqueue", "mail", "5", "--args", "[5]")
    assert answer.code == 2
    assert "given twice" in answer.err


def test_error_under_output_json_is_a_document(cluster: Any) -> None:
    answer = cluster("jobs", "show", "nope", "-o", "json")
    assert answer.code == 2
    assert "error: there is no job 'nope'" in answer.err
    told = json.loads(answer.out)["error"]
    assert told["message"].startswith("there is no job 'nope'")
    assert told["next"].startswith("see the names: cronsensus --url memory://")
    assert told["exit_code"] == 2
