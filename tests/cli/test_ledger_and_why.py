"""``ledger`` and ``why``: what became of each nominal time, and the reason in plain sentences."""

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.insight import ledger as ledger_module
from cronsensus.model.ends import End, Parked
from cronsensus.model.states import State
from cronsensus.model.step import Step
from cronsensus.triggers import at, cron


def verdicts(cluster: Any, *options: str, job: str = "tick") -> list[tuple[str, str]]:
    lines = cluster("ledger", job, *options, "-o", "json").data["lines"]
    return [(line["scheduled_for"][11:16], line["verdict"]) for line in lines]


def why(cluster: Any, time: str, job: str = "tick") -> str:
    answer = cluster("why", job, time)
    assert answer.code == 0, answer
    return " ".join(answer.out.split())


# --- ledger -----------------------------------------------------------------------------------------------------------


def test_each_nominal_time_has_a_line(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.run_once()
    cluster.advance(58)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.advance(61)
    cluster.fire()
    cluster.fail(claim)
    assert verdicts(cluster) == [("12:01", "succeeded"), ("12:02", "failed"), ("12:03", "skipped")]
    answer = cluster("ledger", "tick")
    assert "OSError: no route to mail server" in answer.out
    assert "overlap" in answer.out
    first, second, third = cluster("ledger", "tick", "-o", "json").data["lines"]
    assert (first["node"], first["attempts"], first["started_after"], first["seconds"]) == ("node-1", 1, 0.0, 2.0)
    assert second["error"] == "OSError: no route to mail server"
    assert (third["reason"], third["count"]) == ("overlap", 1)


def test_a_retried_run_says_when_it_first_started(cluster: Any) -> None:
    cluster.every("tick", "1m", retries=1)
    cluster.join()
    cluster.advance(61)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.finish(claim, State.PENDING, retry_in=timedelta(seconds=5))
    cluster.advance(5)
    (claim,) = cluster.claim()
    cluster.finish(claim)
    (line,) = cluster("ledger", "tick", "-o", "json").data["lines"]
    assert (line["attempts"], line["started_after"]) == (2, 1.0)


def test_short_ranges_are_expanded_and_long_ones_are_not(cluster: Any) -> None:
    cluster.every("tick", "1s")
    cluster.join()
    cluster.advance(20)
    cluster.fire()
    assert len(verdicts(cluster)) == 20
    cluster.advance(1000)
    cluster.fire()
    lines = cluster("ledger", "tick", "-o", "json").data["lines"]
    (long,) = [line for line in lines if line["until"]]
    assert (long["verdict"], long["reason"], long["count"]) == ("skipped", "coalesced", 999)
    assert "(999 times)" in cluster("ledger", "tick").out


def test_a_range_is_cut_to_the_stretch_that_was_asked_for(cluster: Any) -> None:
    cluster.every("tick", "1s")
    cluster.join()
    cluster.advance(1000)
    cluster.fire()
    data = cluster("ledger", "tick", "--from", "2026-11-20 12:01", "--to", "2026-11-20 12:01:09", "-o", "json").data
    assert len(data["lines"]) == 10
    assert (data["from"], data["to"]) == ("2026-11-20T12:01:00Z", "2026-11-20T12:01:09Z")


def test_the_newest_lines_come_first_into_the_limit(cluster: Any) -> None:
    cluster.every("tick", "1m", overlap="allow", catch_up="all")
    cluster.join()
    cluster.advance(600)
    cluster.fire()
    data = cluster("ledger", "tick", "--limit", "3", "-o", "json").data
    assert [line["scheduled_for"][11:16] for line in data["lines"]] == ["12:08", "12:09", "12:10"]
    older = cluster("ledger", "tick", "--limit", "3", "--to", data["more_before"], "-o", "json").data
    assert [line["scheduled_for"][11:16] for line in older["lines"]] == ["12:05", "12:06", "12:07"]
    assert cluster("ledger", "tick", "--to", "12:03", "-o", "json").data["more_before"] is None
    assert "there are older ones" in cluster("ledger", "tick", "--limit", "3").err


def test_ledger_shows_an_unfired_time_as_undecided(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.advance(120)
    assert verdicts(cluster) == [("12:01", "undecided"), ("12:02", "undecided")]
    assert "no node has fired it yet" in cluster("ledger", "tick").out


def test_a_decided_time_without_a_verdict_is_a_fault(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(180)
    cluster.fire()
    cluster.store._space.jobs["tick"].ranges.clear()
    assert verdicts(cluster)[0] == ("12:01", "no verdict")
    assert "audit" in cluster("ledger", "tick").err


def test_operators_runs_stand_under_their_nominal_time(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    claim = cluster.run_once()
    cluster("runs", "retry", str(claim.id), "--again")
    assert verdicts(cluster) == [("12:01", "succeeded"), ("12:01", "pending")]
    assert f"manual of run {claim.id}" in cluster("ledger", "tick").out


def test_pruned_times_are_not_taken_for_a_fault(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.run_once()
    cluster.advance(600)
    assert cluster("db", "prune", "--before", "1m", "--yes").out.startswith("deleted 1")
    answer = cluster("ledger", "tick")
    assert "no verdict" not in answer.out
    assert "pruned up to 2026-11-20 12:01:00Z" in answer.err
    assert "was pruned up to" in why(cluster, "2026-11-20 12:01")


def test_time_of_a_pruned_era_is_neither_judged_nor_explained(cluster: Any) -> None:
    cluster.every("tick", "1m", keep="1d")
    cluster.join()
    cluster.advance(60)
    cluster.run_once()
    cluster.every("tick", "7m", keep="1d")
    cluster.advance(3 * 86400)
    cluster.fire()
    cluster("db", "prune")
    assert len(cluster.store.history("tick").eras) == 1
    assert "was pruned up to" in why(cluster, "2026-11-20 12:00:30")
    assert cluster("audit").code == 0


def test_a_stretch_without_nominal_times_says_where_they_are(cluster: Any) -> None:
    cluster.every("tick", "1h")
    answer = cluster("ledger", "tick")
    assert answer.code == 0
    assert "next tick" in answer.err


def test_a_million_nominal_times_are_shown_quickly(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.every("tick", "1ms", catch_up_window="1s")
    cluster.join()
    cluster.advance(3600)
    cluster.fire()
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 100)
    lines = cluster("ledger", "tick", "-o", "json").data["lines"]
    assert {line["verdict"] for line in lines} >= {"missed", "pending"}
    assert sum(line["count"] for line in lines) == 3_600_000


# --- why --------------------------------------------------------------------------------------------------------------


def test_why_it_ran(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    claim = cluster.run_once()
    said = why(cluster, "2026-11-20 12:01")
    assert f"Yes: it ran and succeeded, as run {claim.id}." in said
    assert "Attempt 1 on node-1, started 2026-11-20 12:01:00Z, succeeded after 2s." in said


def test_why_it_failed_and_what_to_type(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.fail(claim)
    said = why(cluster, "2026-11-20 12:01")
    assert "It ran and failed" in said
    assert "OSError: no route to mail server" in said
    assert f"cronsensus runs retry {claim.id}" in said


def test_why_it_was_taken_over(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join("node-1")
    cluster.join("node-2")
    cluster.advance(60)
    cluster.fire()
    cluster.claim("session-of-node-1")
    cluster.store.reclaim(["session-of-node-1"])
    (claim,) = cluster.claim("session-of-node-2")
    cluster.finish(claim)
    said = why(cluster, "2026-11-20 12:01")
    assert "Attempt 1 on node-1" in said
    assert "ended with its node after 0ms: the run was taken over" in said
    assert "Attempt 2 on node-2" in said


def test_why_not_at_a_time_that_is_no_nominal_time(cluster: Any) -> None:
    cluster.declare("daily", cron("0 9 * * *", tz="Europe/Berlin"))
    cluster.advance(3 * 86400)
    said = why(cluster, "2026-11-22 09:05", job="daily")
    assert "is not a nominal time of daily (at 09:00 every day, Europe/Berlin)" in said
    assert "Sun 2026-11-22 09:00:00 +01:00 and Mon 2026-11-23 09:00:00 +01:00" in said
    data = cluster("why", "daily", "2026-11-22 09:05", "-o", "json").data
    assert (data["verdict"], data["nominal"], data["before"], data["after"]) == (
        None,
        False,
        "2026-11-22T08:00:00Z",
        "2026-11-23T08:00:00Z",
    )


def test_why_not_before_the_job_was_declared(cluster: Any) -> None:
    cluster.every("tick", "1h")
    said = why(cluster, "2026-11-20 11:00")
    assert "was first declared 2026-11-20 12:00:00Z, and a job starts after that" in said
    assert "cronsensus jobs backfill tick --from" in said


def test_why_not_while_it_was_paused(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(30)
    cluster("jobs", "pause", "tick", "--reason", "migration", "--by", "ada")
    cluster.advance(60)
    said = why(cluster, "2026-11-20 12:01")
    assert "the job is paused: by ada, because: migration" in said
    cluster("jobs", "resume", "tick")
    cluster.advance(31)
    cluster.fire()
    said = why(cluster, "2026-11-20 12:01")
    assert "skipped" in said
    assert "the job was paused 2026-11-20 12:00:30Z, until 2026-11-20 12:01:30Z, by ada, because: migration" in said


def test_why_not_in_the_future(cluster: Any) -> None:
    cluster.every("tick", "1m")
    assert "it lies in the future, in 1m" in why(cluster, "2026-11-20 12:01")
    cluster.store.pause("tick", by="ada", why="migration")
    assert "Unless it is resumed by then, it will be skipped." in why(cluster, "2026-11-20 12:01")


def test_why_not_because_the_one_before_still_ran(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.advance(60)
    cluster.fire()
    said = why(cluster, "2026-11-20 12:02")
    assert f"run {claim.id}, for 2026-11-20 12:01:00Z was not over when this time was decided, and overlap=skip" in said


def test_why_not_because_it_was_coalesced_after_a_downtime(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.advance(300)
    cluster.join("node-1")
    cluster.fire()
    said = why(cluster, "2026-11-20 12:02")
    assert "it was found 2026-11-20 12:05:00Z, 3m after its time, together with 3 others" in said
    assert "catch_up=latest runs only the last" in said
    assert "That was 2026-11-20 12:05:00Z." in said
    assert "No node was alive then: node-1 came 2026-11-20 12:05:00Z." in said


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ({"catch_up": "none"}, "catch_up=none runs nothing late"),
        ({"grace": "30s"}, "and grace is 30s"),
        ({"catch_up_window": "1m", "catch_up": "all"}, "and catch_up_window is 1m"),
    ],
)
def test_why_not_because_it_was_found_too_late(cluster: Any, policies: dict[str, str], said: str) -> None:
    cluster.every("tick", "1m", **policies)
    cluster.advance(300)
    cluster.join("node-1")
    cluster.fire()
    assert said in why(cluster, "2026-11-20 12:02")


def test_why_explains_a_start_missed_within_its_grace(cluster: Any) -> None:
    cluster.every("tick", "1m", grace="10s")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    cluster.advance(11)
    assert cluster.claim() == []
    said = why(cluster, "2026-11-20 12:01")
    assert "it did not start in time (late)" in said
    assert "grace is 10s" in said


def test_why_not_because_it_was_retired(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.advance(90)
    cluster.store.retire("tick", by="ada", why="")
    assert "the job was retired before it ran" in why(cluster, "2026-11-20 12:01")
    cluster.advance(90)
    assert "tick was retired 2026-11-20 12:01:30Z" in why(cluster, "2026-11-20 12:02")


def test_why_it_was_cancelled(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.advance(60)
    cluster.fire()
    cluster("runs", "cancel", "1", "--reason", "wrong month", "--by", "ada")
    assert "It was cancelled: by ada 2026-11-20 12:01:00Z, because: wrong month." in why(cluster, "2026-11-20 12:01")


def test_why_it_was_cancelled_by_the_next_one(cluster: Any) -> None:
    cluster.every("tick", "1m", overlap="cancel_previous")
    cluster.advance(60)
    cluster.fire()
    cluster.advance(60)
    cluster.fire()
    assert "the next one was due, and overlap=cancel_previous" in why(cluster, "2026-11-20 12:01")


def test_why_it_skipped_itself(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.finish(claim, State.SKIPPED, reason="job: no orders")
    assert "The job skipped itself: no orders." in why(cluster, "2026-11-20 12:01")


def test_why_a_job_without_trigger_did_not_run(cluster: Any) -> None:
    cluster.declare("manual")
    assert "it only runs when it is told to" in why(cluster, "2026-11-20 12:01", job="manual")


def test_why_nothing_is_fired_when_no_node_is_there(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.advance(90)
    said = why(cluster, "2026-11-20 12:01")
    assert "it was due 30s ago, and no node has fired it" in said
    assert "start one: cronsensus run MODULE:ATTR" in said


# --- why it still waits -----------------------------------------------------------------------------------------------


def test_it_waits_because_no_node_is_alive(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.advance(60)
    cluster.fire()
    assert "It waits, as run 1. No node is alive: start one" in why(cluster, "2026-11-20 12:01")


def test_a_one_off_in_the_past_has_its_answer_too(cluster: Any) -> None:
    cluster.declare("once", at("2026-11-20T11:00:00Z"))
    cluster.join()
    cluster.run_once()
    said = why(cluster, "2026-11-20 11:00", job="once")
    assert "Yes: it ran" in said
    assert "It started 1h after its nominal time." in said


def test_the_nearest_times_are_those_of_the_trigger_that_held_then(cluster: Any) -> None:
    cluster.every("tick", "7m")
    cluster.advance(540)
    cluster.every("tick", "1h")
    cluster.advance(7200)
    data = cluster("why", "tick", "2026-11-20 12:30", "-o", "json").data
    assert (data["before"], data["after"]) == ("2026-11-20T12:03:00Z", "2026-11-20T13:00:00Z")


def test_a_run_over_its_timeout_says_that_it_keeps_its_place(cluster: Any) -> None:
    cluster.every("tick", "1m", timeout="10s")
    cluster.join()
    cluster.advance(61)
    cluster.fire()
    cluster.claim()
    cluster.advance(9)
    assert "over its timeout" not in why(cluster, "2026-11-20 12:01")
    cluster.advance(6)
    assert "over its timeout of 10s (timeout: still working)" in why(cluster, "2026-11-20 12:01")


def test_why_without_a_time_is_about_the_latest(cluster: Any) -> None:
    cluster.join("node-1")
    cluster.every("tick", "1h")
    assert "no time of tick has come yet" in cluster("why", "tick").text
    cluster.advance(3 * 3600 + 60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.finish(claim)
    answer = cluster("why", "tick")
    assert answer.out.startswith("tick, 2026-11-20 15:00:00Z: succeeded")


def test_why_at_a_time_of_day_is_about_the_latest_in_the_jobs_zone(cluster: Any) -> None:
    cluster.declare("nightly", cron("0 3 * * *", tz="Asia/Shanghai"))
    cluster.advance(24 * 3600)
    cluster.join()
    cluster.run_once()
    for typed in ("03:00", "3am", "today 03:00"):
        assert cluster("why", "nightly", typed).out.startswith("nightly, Sat 2026-11-21 03:00:00 +08:00: succeeded")
    assert "was first declared" in why(cluster, "yesterday 03:00", job="nightly")


def test_why_now_of_a_paused_job_is_about_the_time_that_has_come(cluster: Any) -> None:
    cluster.every("tick", "1m")
    cluster.store.pause("tick", by="ada", why="migration")
    assert "why: it is paused by ada, because: migration" in cluster("why", "tick", "now").text
    cluster.advance(90)
    for typed in ("now", "10s", "12:01:15"):
        assert "the job is paused: by ada, because: migration" in why(cluster, typed)
    assert "What became of 2026-11-20 12:01:00Z:" in why(cluster, "10s")


def test_what_waits_for_another_job_is_no_batch(cluster: Any) -> None:
    cluster.join("node-1")
    cluster.every("load", "1h")
    cluster.advance(3600)
    cluster.fire()
    (claim,) = cluster.claim()
    waits = End.of(claim, Parked("upstreams", reason="waits for extract"))
    cluster.store.step(claim.session, Step(ends=(waits,)))
    assert "waits for extract" in cluster("ledger", "load").text
    assert "0 items" not in cluster("ledger", "load").text
    assert "parked" in cluster("runs", "list").text
    cluster.store.wake([claim.id])
    cluster.advance(600)
    (claim,) = cluster.claim()
    cluster.advance(2)
    cluster.finish(claim)
    assert " 2s " in cluster("ledger", "load").text
    assert " 2s " in cluster("runs", "list").text
