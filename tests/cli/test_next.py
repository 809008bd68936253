"""``next``: what a schedule means in words, what to know of it, when it fires, and what clock changes do."""

from collections.abc import Callable
from typing import Any

import pytest

from cronsensus.triggers import cron

Command = Callable[..., Any]


def test_an_expression_needs_neither_a_store_nor_an_application(command: Command) -> None:
    answer = command("next", "0 9 * * MON-FRI", "-n", "3", "--from", "2026-11-20T12:00:00Z")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("at 09:00, Monday to Friday, UTC")
    assert [line[:20] for line in lines[2:]] == ["2026-11-23 09:00:00Z", "2026-11-24 09:00:00Z", "2026-11-25 09:00:00Z"]


def test_an_expression_that_names_no_zone_is_of_the_one_that_is_set(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONSENSUS_TZ", "Asia/Shanghai")
    answer = command("next", "0 9 * * *", "-n", "1", "--from", "2026-11-20T12:00:00Z")
    assert "2026-11-21 01:00:00Z" in answer.out
    answer = command("next", "0 9 * * *", "-n", "1", "--from", "2026-11-20T12:00:00Z", "--tz", "UTC")
    assert "2026-11-21 09:00:00Z" in answer.out


@pytest.mark.parametrize("name", ["next", "lint"])
def test_a_zone_in_front_of_an_expression_counts(command: Command, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CRONSENSUS_TZ", "Asia/Shanghai")
    assert "at 09:00 every day, Asia/Tokyo" in command(name, "TZ=Asia/Tokyo 0 9 * * *").out


def test_local_times_stand_beside_utc_and_a_missing_time_has_a_note(command: Command) -> None:
    answer = command("next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-27", "-n", "3")
    assert "Sat 2027-03-27 02:30:00 +01:00  2027-03-27 01:30:00Z" in answer.out
    assert "Sun 2027-03-28 03:00:00 +02:00  2027-03-28 01:00:00Z" in answer.out
    assert "02:30 does not exist that day: right after the gap" in answer.out
    assert "clocks go forward by 1h" in answer.out


def test_a_repeated_time_is_told_from_its_twin(command: Command) -> None:
    answer = command(
        "next",
        "30 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--dst",
        "both",
        "--from",
        "2027-10-30T12:00Z",
        "-n",
        "2",
        "-o",
        "json",
    )
    first, second = answer.data["times"]
    assert (first["utc"], second["utc"]) == ("2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z")
    assert first["local"] == "2027-10-31T02:30:00+02:00"
    assert first["note"] == "02:30 comes twice: this is the first"
    assert second["note"] == "02:30 comes twice: this is the second"


def test_intervals_can_be_asked_about_too(command: Command) -> None:
    answer = command("next", "every 90m", "-n", "1", "-o", "json")
    assert answer.data["words"] == "every 1 hour 30 minutes"
    assert len(answer.data["times"]) == 1


def test_an_expression_that_ends_shows_what_is_left(command: Command, cluster: Any) -> None:
    cluster.declare("once", cron("0 0 1 1 *", end="2027-06-01T00:00:00Z"))
    assert len(cluster("next", "once", "-n", "5", "-o", "json", "--from", "2026-11-20").data["times"]) == 1


def test_a_job_is_found_in_the_store(cluster: Any) -> None:
    cluster.declare("nightly", cron("0 3 * * *", tz="Asia/Tokyo"))
    answer = cluster("next", "nightly", "-n", "1", "-o", "json")
    assert answer.data["job"] == "nightly"
    assert answer.data["tz"] == "Asia/Tokyo"


def test_the_next_times_of_a_paused_job_come_with_a_warning(cluster: Any) -> None:
    cluster.every("tick")
    cluster.store.pause("tick", by="me", why="migration")
    assert "paused (migration): these times will be skipped" in cluster("next", "tick").err


def test_a_job_without_trigger_says_how_to_run_it(cluster: Any) -> None:
    cluster.declare("manual")
    answer = cluster("next", "manual")
    assert answer.code == 2
    assert "jobs trigger manual" in answer.err


def test_an_unknown_job_says_how_to_see_the_names(cluster: Any) -> None:
    answer = cluster("next", "nope")
    assert answer.code == 2
    assert "there is no job 'nope'" in answer.err
    assert "jobs list" in answer.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("61 * * * *", "minute"),
        ("0 0 30 2 *", "never"),
        ("0 9 * *", "write five fields"),
        ("* * * * * * * *", "has 8 fields, not 5 or 6"),
        ("@dayly", "cron expression"),
        ("every x", "cannot be read"),
        (
            "0 0 9 ? * 2 *",
            "is a text of Quartz (second minute hour day-of-month month day-of-week year)\n next: write '0 9 * * MON'",
        ),
        ("rate(5 minutes)", "next: write every('5m')"),
        ("* " * 5000, "is longer than 256 characters"),
    ],
)
def test_a_wrong_expression_is_explained(command: Command, typed: str, said: str) -> None:
    answer = command("next", typed)
    assert answer.code == 2
    assert said in answer.err


def test_a_misspelt_job_of_the_application_is_told_what_was_meant(command: Command, write: Any) -> None:
    write(
        "jobs.py",
        """
from cronsensus import Scheduler, every
scheduler = Scheduler("memory://misspelt")

@scheduler.job(every("5m"))
def tick(): ...
""",
    )
    answer = command("next", "tikc")
    assert answer.code == 2
    assert "did you mean 'tick'?" in answer.err
    assert answer.err.count("using jobs:scheduler") == 1


def test_a_retired_job_fires_no_more(cluster: Any) -> None:
    cluster.every("tick")
    cluster.store.retire("tick", by="ada", why="")
    answer = cluster("next", "tick")
    assert answer.code == 2
    assert "the job 'tick' is retired" in answer.err


def test_a_wrong_zone_names_a_close_one(command: Command) -> None:
    answer = command("next", "@daily", "--tz", "Europe/Berln")
    assert answer.code == 2
    assert "did you mean 'Europe/Berlin'" in answer.err
    assert command("next", "@daily", "--tz", "").code == 2


def test_dst_belongs_to_expressions(cluster: Any) -> None:
    cluster.every("tick")
    assert "--dst is for expressions" in cluster("next", "tick", "--dst", "skip").err


def test_it_says_what_the_coming_clock_changes_do(command: Command) -> None:
    answer = command("next", "30 2 * * *", "--tz", "Europe/Berlin")
    assert answer.code == 0
    assert answer.out.startswith("at 02:30 every day, Europe/Berlin\n")
    assert "02:30 does not exist that day: it runs once, right after the gap, at 03:00." in answer.out
    assert "with dst=skip: 02:30 does not exist that day: not run." in answer.out
    assert "02:30 comes twice that day: it runs the first time only." in answer.out
    assert "with dst=both: 02:30 comes twice that day: it runs both times." in answer.out
    assert "Clock changes" not in command("next", "@hourly").out


def test_clock_changes_are_data_in_json(command: Command) -> None:
    data = command("next", "*/20 2 * * *", "--tz", "America/New_York", "-n", "5", "-o", "json").data
    assert len(data["times"]) == 5
    assert {change["tz"] for change in data["clock_changes"]} == {"America/New_York"}
    assert {change["after"] - change["before"] for change in data["clock_changes"]} == {3600.0, -3600.0}


def test_what_is_rarely_meant_comes_before_the_times(command: Command) -> None:
    assert "not every month has a day 31; write L" in command("next", "0 0 31 * *").out
    words, note, *_ = command("next", "0 3 * * * *").out.splitlines()
    assert words == "at minute 3 of every hour, UTC"
    assert "for their times write '0 3 * * *' (a cron with the year last)" in note
    assert command("next", "0 9 * * 1-5", "-o", "json").data["notes"] == []


def test_explain_is_called_next(command: Command) -> None:
    answer = command("explain", "0 9 * * *")
    assert answer.code == 2
    assert "did you mean 'next'?" in answer.err
