"""``jobs``: list, show, pause, resume, trigger, backfill."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cronsensus import LeaseLost, Scheduler, current_run
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.triggers import cron


def test_the_list_has_words_next_time_last_result_and_state(cluster: Any) -> None:
    cluster.declare("nightly", cron("30 2 * * *", tz="Europe/Berlin"))
    cluster.every("tick")
    cluster.declare("manual")
    cluster.join()
    cluster.advance(60)
    cluster.run_once()
    answer = cluster("jobs", "list")
    assert answer.code == 0
    assert "at 02:30 every day, Europe/Berlin" in answer.out
    assert re.search(r"in 13h 28m +Sat 2026-11-21 02:30:00 \+01:00", answer.out)
    assert re.search(r"in 58s +2026-11-20 12:02:00Z", answer.out)
    assert "succeeded now" in answer.out
    assert "only when told to" in answer.out


def test_the_last_result_is_that_of_the_run_that_ended_last(cluster: Any) -> None:
    cluster.declare("pay", overlap="allow")
    cluster.join()
    cluster.store.enqueue([Item(job="pay", key="early"), Item(job="pay", key="late")])
    first, second = cluster.claim()
    cluster.finish(second)
    cluster.advance(600)
    cluster.fail(first)
    cluster.advance(5)
    assert "failed 5s ago: OSError" in cluster("jobs", "list").out


def test_the_list_says_that_nothing_runs_where_no_node_is_alive(cluster: Any) -> None:
    cluster.every("tick")
    cluster.advance(75)
    answer = cluster("jobs", "list")
    assert "overdue by 15s  2026-11-20 12:01:00Z" in answer.out
    assert "no node is alive, so nothing runs" in answer.err
    cluster.join()
    assert "no node is alive" not in cluster("jobs", "list").err


def test_a_run_is_enqueued_with_arguments_and_once_per_key(cluster: Any) -> None:
    cluster.declare("send_invoice")
    typed = (
        "jobs",
        "enqueue",
        "send_invoice",
        "--args",
        '[42, "a"]',
        "--kwargs",
        '{"copies": 2, "key": "front"}',
        "--key",
        "invoice:42",
    )
    answer = cluster(*typed)
    assert answer.code == 0
    assert "enqueued send_invoice: run" in answer.out
    (one,) = cluster.store.occurrences(OccurrenceFilter())
    assert (one.key, one.args, one.kwargs) == ("invoice:42", (42, "a"), {"copies": 2, "key": "front"})
    again = cluster(*typed, "-o", "json")
    assert (again.data["id"], again.data["created"]) == (one.id, False)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--args", "42", "write it like '[42, \"a\"]'"),
        ("--args", "[42", "is no JSON list"),
        ("--kwargs", "[1]", "is no JSON dict"),
    ],
)
def test_arguments_that_are_not_json_are_not_enqueued(cluster: Any, option: str, text: str, said: str) -> None:
    cluster.declare("send_invoice")
    answer = cluster("jobs", "enqueue", "send_invoice", option, text)
    assert answer.code == 2
    assert said in answer.text
    assert cluster.store.occurrences(OccurrenceFilter()) == []


INVOICES = """
from cronsensus import LeaseLost, Scheduler, current_run
scheduler = Scheduler("sqlite:///jobs.db")
@scheduler.job()
def send_invoice(order: int): ...
scheduler.store.migrate()
scheduler.store.define_jobs([send_invoice.spec], release="r")
"""


def test_with_the_code_at_hand_missing_arguments_are_seen_before_anything_is_made(
    command: Callable[..., Any], write: Callable[..., Any]
) -> None:
    write("jobs.py", INVOICES)
    for typed in (("trigger", "send_invoice"), ("enqueue", "send_invoice", "--args", "[1, 2]")):
        answer = command("jobs", *typed)
        assert answer.code == 2
        assert "cannot be called like that" in answer.err
    assert command("runs", "list", "-o", "json").data["runs"] == []
    assert command("jobs", "enqueue", "send_invoice", "--args", "[1]").code == 0


def test_paused_job_shows_operator_and_reason(cluster: Any) -> None:
    cluster.every("tick")
    cluster("jobs", "pause", "tick", "--reason", "mail server is down", "--by", "ada")
    assert "paused: mail server is down (by ada)" in cluster("jobs", "list").out
    (job,) = cluster("jobs", "list", "-o", "json").data["jobs"]
    assert job["paused"] == {"at": "2026-11-20T12:00:00Z", "by": "ada", "reason": "mail server is down"}
    assert job["next"] is None


def test_the_list_can_be_filtered_and_paged(cluster: Any) -> None:
    for name in ("invoice-a", "invoice-b", "mail"):
        cluster.every(name)
    cluster.store.pause("invoice-b", by="me", why="x")

    def names(*options: str) -> list[str]:
        return [job["name"] for job in cluster("jobs", "list", *options, "-o", "json").data["jobs"]]

    assert names("INVOICE") == ["invoice-a", "invoice-b"]
    assert names("--paused") == ["invoice-b"]
    first = cluster("jobs", "list", "--limit", "2", "-o", "json").data
    assert first["after"] == "invoice-b"
    assert names("--after", first["after"]) == ["mail"]
    assert "jobs list --after 'invoice-b'" in cluster("jobs", "list", "--limit", "2").err


def test_retired_jobs_are_shown_when_asked_for(cluster: Any) -> None:
    cluster.every("tick")
    cluster.store.retire("tick", by="me", why="")
    assert "tick" not in cluster("jobs", "list").out
    assert "retired" in cluster("jobs", "list", "--retired").out


def test_show_has_the_definition_the_times_the_runs_and_the_trail(cluster: Any) -> None:
    cluster.every("tick", "1m", timeout="30s", retries=2)
    cluster.join()
    cluster.advance(60)
    claim = cluster.run_once()
    cluster("jobs", "trigger", "tick", "--reason", "just so", "--by", "ada")
    answer = cluster("jobs", "show", "tick")
    assert "overlap=skip, catch_up=latest, retries=2, timeout=30s" in answer.out
    assert "decided up to  2026-11-20 12:01:00Z" in answer.out
    assert "2026-11-20 12:02:00Z  in 58s" in answer.out
    assert "by hand" in answer.out
    assert "ada" in answer.out
    assert "just so" in answer.out
    data = cluster("jobs", "show", "tick", "-o", "json").data
    assert [run["id"] for run in data["runs"]][-1] == claim.id
    assert data["trail"][0]["action"] == "trigger"
    assert len(data["times"]) == 5


def test_pause_is_recorded_with_operator_and_reason(cluster: Any) -> None:
    cluster.every("tick")
    answer = cluster("jobs", "pause", "tick", "--reason", "migration")
    assert answer.out == "paused tick\n"
    (entry,) = cluster.store.trail(target="tick")
    assert (entry.action, entry.why) == ("pause", "migration")
    assert "@" in entry.by


def test_pausing_twice_changes_nothing(cluster: Any) -> None:
    cluster.every("tick")
    cluster("jobs", "pause", "tick", "--reason", "one")
    again = cluster("jobs", "pause", "tick", "--reason", "two", "-o", "json")
    assert again.code == 0
    assert again.data == {"paused": [], "unchanged": ["tick"]}
    assert cluster.store.job("tick").paused_why == "one"


def test_several_jobs_are_paused_together_or_not_at_all(cluster: Any) -> None:
    cluster.every("send_digest")
    answer = cluster("jobs", "pause", "send_digest", "send_digst", "--reason", "x")
    assert answer.code == 2
    assert "there is no job 'send_digst'" in answer.err
    assert "did you mean 'send_digest'?" in answer.err
    assert cluster.store.job("send_digest").paused_at is None


def test_resuming_lets_it_fire_again(cluster: Any) -> None:
    cluster.every("tick")
    cluster.store.pause("tick", by="me", why="x")
    assert cluster("jobs", "resume", "tick").out == "resumed tick\n"
    assert cluster.store.job("tick").paused_at is None
    assert cluster("jobs", "resume", "tick").out == "tick was not paused\n"


def test_triggering_makes_a_run_beside_the_schedule(cluster: Any) -> None:
    cluster.every("tick")
    before = cluster.store.job("tick")
    answer = cluster("jobs", "trigger", "tick")
    assert answer.code == 0
    (run,) = cluster.store.occurrences(OccurrenceFilter(job="tick"))
    assert (run.origin, run.state) == (Origin.MANUAL, State.PENDING)
    assert f"runs logs -f {run.id}" in answer.err
    after = cluster.store.job("tick")
    assert (after.watermark, after.next_due) == (before.watermark, before.next_due)


def test_the_trail_says_who_did_what_and_why_page_by_page(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster("jobs", "pause", "tick", "--reason", "move", "--by", "ann")
    cluster("jobs", "resume", "tick", "--by", "bob")
    page = cluster("trail", "--limit", "1", "-o", "json").data
    assert [(act["by"], act["action"]) for act in page["trail"]] == [("bob", "resume")]
    (act,) = cluster("trail", "tick", "--after", str(page["after"]), "-o", "json").data["trail"]
    assert (act["by"], act["why"]) == ("ann", "move")
    assert "move" in cluster("trail").out
    assert cluster("trail", "--who", "nobody", "-o", "json").data["trail"] == []
    found = cluster("trail", "--action", "resume", "-o", "json").data["trail"]
    assert {one["action"] for one in found} == {"resume"}
    assert "nobody has done anything yet" in cluster("trail", "other").err


def test_the_trail_says_what_a_release_changed(cluster: Any) -> None:
    for release, retries in (("1", 0), ("2", 3)):
        spec = JobSpec(name="bill", function="bill", policies=Policies(retries=retries))
        cluster.store.define_jobs([spec], release=release, by="web-1")
    assert "retries 0 → 3 - release 2" in cluster("trail", "--action", "define").text
    assert "retries 0 → 3 - release 2" in cluster("jobs", "show", "bill").text


def test_a_backfill_can_be_looked_at_before(cluster: Any) -> None:
    cluster.every("tick", "1m")
    answer = cluster("jobs", "backfill", "tick", "--from", "2026-11-20 11:58", "--to", "2026-11-20 11:59", "--dry-run")
    assert answer.code == 0
    assert "2026-11-20 11:58:00Z" in answer.out
    assert "2 of 2 times would run" in answer.err
    assert cluster.store.occurrences(OccurrenceFilter()) == []


def test_a_backfill_leaves_alone_what_succeeded_or_runs(cluster: Any) -> None:
    cluster.every("tick", "1m", overlap="queue")
    cluster.join()
    cluster.advance(60)
    cluster.run_once()
    cluster.advance(58)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.advance(1)
    cluster.fail(claim)
    answer = cluster(
        "jobs", "backfill", "tick", "--from", "2026-11-20 12:00", "--to", "2026-11-20 12:02", "--yes", "-o", "json"
    )
    assert answer.code == 0
    assert answer.data["unchanged"] == 1
    made = [cluster.store.occurrence(number) for number in answer.data["created"]]
    assert [f"{one.scheduled_for:%H:%M}" for one in made] == ["12:00", "12:02"]
    again = cluster(
        "jobs", "backfill", "tick", "--from", "2026-11-20 12:00", "--to", "2026-11-20 12:02", "--yes", "-o", "json"
    )
    assert again.data == {"job": "tick", "created": [], "unchanged": 3}


@pytest.mark.parametrize("stdin", ["y\n", "n\n", ""])
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_backfill_in_a_pipe_cannot_ask_and_does_nothing(cluster: Any, stdin: str, output: str) -> None:
    cluster.every("tick", "1m")
    answer = cluster("jobs", "backfill", "tick", "--from", "2026-11-20 11:58", "-o", output, stdin=stdin)
    assert answer.code == 2
    assert "nothing was done" in answer.err
    assert "--yes" in answer.err
    assert cluster.store.occurrences(OccurrenceFilter()) == []


def test_a_backfill_in_a_pipe_with_yes_is_carried_out(cluster: Any) -> None:
    cluster.every("tick", "1m")
    answer = cluster("jobs", "backfill", "tick", "--from", "2026-11-20 11:58", "--reason", "outage", "--yes")
    assert answer.code == 0
    assert "times of its schedule are skipped (overlap=skip)" in answer.err
    assert "created 3 runs of tick" in answer.out
    assert cluster.store.trail(target="tick")[0].why == "outage"


def test_a_look_at_a_backfill_refuses_what_the_backfill_would_refuse(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    for _ in range(3):
        cluster.advance(60)
        cluster.run_once()
    cluster.advance(3600)
    cluster.store.prune(cluster.store.now())
    stretch = ("jobs", "backfill", "tick", "--from", "2026-11-20 12:01", "--to", "2026-11-20 12:04")
    look = cluster(*stretch, "--dry-run", "-o", "json")
    horizon = cluster.store.job("tick").horizon
    assert f"{horizon:%H:%M}" == "12:03"
    assert [(row["run"], row["pruned"]) for row in look.data["times"]] == [(False, True)] * 3 + [(True, False)]
    assert "1 of 4 times would run" in cluster(*stretch, "--dry-run").err
    answer = cluster(*stretch, "--yes")
    assert answer.code == 1
    assert "3 of these times lie at or below 2026-11-20 12:03:00Z" in answer.err
    assert "next: --from '2026-11-20 12:04:00Z'" in answer.err
    assert (
        cluster("jobs", "backfill", "tick", "--from", "2026-11-20 12:04:00Z", "--to", "2026-11-20 12:04", "--yes").code
        == 0
    )


def test_a_backfill_reads_local_times_in_the_zone_of_the_job(cluster: Any) -> None:
    cluster.declare("nightly", cron("30 2 * * *", tz="Asia/Tokyo"))
    answer = cluster(
        "jobs", "backfill", "nightly", "--from", "2026-11-19", "--to", "2026-11-20", "--dry-run", "-o", "json"
    )
    assert [row["scheduled_for"] for row in answer.data["times"]] == ["2026-11-18T17:30:00Z"]


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("2026-11-20 11:00", "2026-11-20 13:00", "lies in the future"),
        ("2026-11-20 11:00", "2026-11-20 10:00", "write them the other way round"),
        ("2026-01-01", "2026-11-01", "more than 10,000 nominal times"),
        ("whenever", "now", "is not a time"),
    ],
)
def test_an_impossible_stretch_is_refused(cluster: Any, start: str, end: str, said: str) -> None:
    cluster.every("tick", "1m")
    answer = cluster("jobs", "backfill", "tick", "--from", start, "--to", end)
    assert answer.code == 2
    assert said in answer.text


def test_a_job_without_trigger_cannot_be_backfilled(cluster: Any) -> None:
    cluster.declare("manual")
    answer = cluster("jobs", "backfill", "manual", "--from", "1d")
    assert answer.code == 2
    assert "jobs trigger manual" in answer.err


@pytest.mark.parametrize(
    "arguments", [["show", "nope"], ["resume", "nope"], ["trigger", "nope"], ["backfill", "nope", "--from", "1d"]]
)
def test_an_unknown_job_is_a_usage_error(cluster: Any, arguments: list[str]) -> None:
    answer = cluster("jobs", *arguments)
    assert answer.code == 2
    assert "there is no job 'nope' in namespace 'default'" in answer.err
    assert "jobs list" in answer.err


@pytest.mark.parametrize(("typed", "created", "code"), [("n\n", 0, 1), ("", 0, 1), ("y\n", 3, 0)])
def test_a_backfill_at_a_terminal_asks_first(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, typed: str, created: int, code: int
) -> None:
    monkeypatch.setattr("cronsensus.cli.asking._has_terminal", lambda: True)
    cluster.every("tick", "1m")
    answer = cluster("jobs", "backfill", "tick", "--from", "2026-11-20 11:58", stdin=typed)
    assert answer.code == code, answer
    assert "Run tick 3 times?" in answer.err
    assert len(cluster.store.occurrences(OccurrenceFilter())) == created
    assert cluster("jobs", "backfill", "tick", "--from", "2026-11-20 11:58", "--yes").code == 0


def test_guarded_functions_are_shown_when_asked_for(cluster: Any) -> None:
    cluster.declare("nightly", cron("30 2 * * *"))
    guarded = Scheduler(cluster.store).once("k", name="charge")(lambda: 1)
    guarded()
    answer = cluster("jobs", "list")
    assert "nightly" in answer.out
    assert "once:charge" not in answer.text
    assert "1 guarded function not shown; see them:" in answer.err
    assert "jobs list --all" in answer.err
    assert [one["name"] for one in cluster("jobs", "list", "-o", "json").data["jobs"]] == ["nightly"]
    everything = cluster("jobs", "list", "--all")
    assert "once:charge" in everything.out
    assert "not shown" not in everything.err


def test_a_key_that_was_cut_off_waits_for_its_next_call(cluster: Any) -> None:
    @Scheduler(cluster.store).once("k")
    def charge() -> None:
        run = current_run()
        assert run is not None
        cluster.store.reclaim([run.session])

    with pytest.raises(LeaseLost):
        charge()
    cluster.advance(600)
    assert "It was cut off, and is free for the next call of the guarded function" in cluster("doctor").text


def test_work_that_waits_of_a_retired_job_is_named_by_doctor_jobs_and_runs(cluster: Any) -> None:
    cluster.declare("mail")
    cluster.declare("idle")
    cluster.join(release="r2")
    made = cluster("jobs", "enqueue", "mail", "-o", "json").data
    cluster.store.define_jobs([], release="r2", complete=True, retire_after=timedelta(days=1))
    assert "retired; what waits is kept until 2026-11-21 12:00:00Z" in cluster("jobs", "list", "--retired").text
    told = cluster("doctor").text
    assert "no running release declares mail, and 1 run of it waiting; kept until 2026-11-21 12:00:00Z" in told
    assert "idle" not in told
    cluster.advance(3600)
    assert (
        f"run {made['id']} of mail was due 1h ago. No running release declares the job 'mail'" in cluster("doctor").text
    )
