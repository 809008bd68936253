"""``cronsensus audit``: a table and a sentence, or one JSON object; exit 1 if anything is wrong."""

import json

import pytest

from cronsensus.model.states import State


@pytest.fixture
def hour(cluster):
    """A cluster in which a job ran each minute of an hour."""
    cluster.every("tick", "1m")
    cluster.join()
    for _ in range(60):
        cluster.advance(60)
        cluster.fire()
        for claim in cluster.claim():
            cluster.finish(claim)
    return cluster


def forget_one(cluster, job="tick"):
    space = cluster.store._space
    row = next(iter(space.jobs[job].nominal.values()))[0]
    space.delete_run(row)


def test_a_ledger_in_order_is_told_in_a_sentence(hour):
    answer = hour("audit")
    assert answer.code == 0
    assert "ok: 60 nominal times" in answer.text
    assert "tick" in answer.out
    assert "60" in answer.out


def test_verdicts_in_a_row_add_up_to_what_was_expected(hour):
    hour.every("moody", "1m")
    hour.join()
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED):
        hour.advance(60)
        hour.fire()
        for claim in hour.claim():
            hour.finish(claim, State.SUCCEEDED if claim.job == "tick" else state)
    head, *rows = (line.split() for line in hour("audit").out.splitlines()[:4])
    assert head == [
        "JOB", "EXPECTED", "SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "MISSED", "STARTED", "DUPLICATES",
    ]  # fmt: skip
    assert rows[0] == ["moody", "4", "1", "1", "1", "1", "0", "4", "0"]
    assert rows[1] == ["tick", "64", "64", "0", "0", "0", "0", "64", "0"]


def test_audit_with_times_left_open_by_a_clock_set_back_succeeds(hour):
    hour.clock.step(-300)
    hour.store.pause("tick", by="ada", why="to see")
    hour.advance(301)
    answer = hour("audit")
    assert answer.code == 0
    assert "left open (see the notes)" in answer.text
    assert "the store's clock was set back then" in answer.text


def test_audit_counts_an_undecided_time_as_pending(hour):
    hour.store.close_session("session-of-node-1")
    hour.advance(130)
    answer = hour("audit", "--tolerance", "5m")
    assert answer.code == 0
    assert "ok so far: 60 of 62 nominal times" in answer.text
    assert "have exactly one verdict, 2 pending, and no node is alive; 60 attempts, all allowed" in answer.text


def test_a_finding_is_told_in_words_and_ends_with_exit_code_1(hour):
    forget_one(hour)
    answer = hour("audit")
    assert answer.code == 1
    assert "missing: 1 nominal time of 'tick' at 2026-11-20T12:01:00Z has no verdict" in answer.text
    assert "not ok: 1 finding" in answer.text


def test_json_is_one_object_on_one_line(hour):
    answer = hour("audit", "-o", "json")
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 1
    data = answer.data
    assert {name: data[name] for name in ("expected", "ran", "duplicates", "missed", "takeovers")} == {
        "expected": 60, "ran": 60, "duplicates": 0, "missed": 0, "takeovers": 0,
    }  # fmt: skip
    assert data["ok"] is True
    forget_one(hour)
    answer = hour("audit", "-o", "json")
    assert answer.code == 1
    assert json.loads(answer.out.splitlines()[-1])["missed"] == 1


def test_jobs_and_a_stretch_can_be_chosen(hour):
    hour.every("other", "1m")
    answer = hour("audit", "tick", "--from", "10m", "--to", "5m", "-o", "json")
    assert (answer.code, answer.data["expected"], answer.data["jobs_audited"]) == (0, 6, 1)
    answer = hour("audit", "tick", "--from", "2026-11-20T12:30:00Z", "--to", "2026-11-20T12:30:00Z", "-o", "json")
    assert answer.data["expected"] == 1


def test_an_unknown_job_and_a_time_that_is_none_are_usage_errors(hour):
    answer = hour("audit", "tock")
    assert (answer.code, "tock" in answer.text) == (2, True)
    answer = hour("audit", "--from", "yesterday")
    assert (answer.code, "--from" in answer.text) == (2, True)


def test_an_empty_store_says_what_to_do(cluster):
    answer = cluster("audit")
    assert answer.code == 0
    assert "start a node" in answer.text


def test_downtime_is_a_finding_once_the_tolerance_is_over(hour):
    hour.advance(120)
    assert hour("audit", "--tolerance", "5m").code == 0
    answer = hour("audit")
    assert answer.code == 1
    assert "does any node run?" in answer.text


def test_more_findings_than_a_page_are_counted(hour):
    for _ in range(59):
        hour.advance(60)
    space = hour.store._space
    rows = [rows[0] for rows in list(space.jobs["tick"].nominal.values())]
    for row in rows[::2]:
        space.delete_run(row)
    answer = hour("audit", "--tolerance", "100d")
    assert answer.code == 1
    assert answer.out.count("missing:") == 20
    assert "10 more findings" in answer.text
