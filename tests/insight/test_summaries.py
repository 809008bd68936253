"""What a job, a run or an error comes to, in a few words."""

from dataclasses import replace
from datetime import timedelta

from cronsensus.insight.as_data import job_data, occurrence_data
from cronsensus.insight.summaries import error_text, job_next, job_state, run_result, run_state, took, what_for
from cronsensus.model.occurrence import Occurrence, RunError
from cronsensus.model.states import Origin, State
from cronsensus.triggers import cron
from tests.hand_cluster import START, HandCluster


def newest(cluster: HandCluster) -> Occurrence:
    found = cluster.store.occurrence(1)
    assert found is not None
    return found


def running(cluster: HandCluster) -> Occurrence:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    cluster.claim()
    return newest(cluster)


def test_job_state_has_a_word_for_programs_and_a_text_for_people(cluster: HandCluster) -> None:
    cluster.every("tick")
    assert (job_state(cluster.job()).state, job_state(cluster.job()).text) == ("active", "active")
    cluster.store.pause("tick", by="ada", why="migration")
    found = job_state(cluster.job())
    assert (found.state, found.text) == ("paused", "paused: migration (by ada)")
    retired = replace(cluster.job(), retired_at=START)
    assert job_state(retired).state == "retired"
    kept = job_state(replace(retired, waiting_until=START + timedelta(days=1)))
    assert (kept.state, kept.text) == ("kept", "retired; what waits is kept until 2026-11-21 12:00:00Z")


def test_job_next_says_how_long_and_when_in_the_zone_of_the_job(cluster: HandCluster) -> None:
    cluster.declare("tick", cron("0 14 * * *", tz="Europe/Berlin"))
    assert job_next(cluster.job(), START) == ("in 1h", "Fri 2026-11-20 14:00:00 +01:00")
    assert job_next(cluster.job(), START + timedelta(hours=2))[0] == "overdue by 1h"


def test_job_next_without_a_time_says_why(cluster: HandCluster) -> None:
    cluster.declare("tick")
    assert job_next(cluster.job(), START) == ("only when told to", "")
    cluster.store.pause("tick", by="ada", why="")
    assert job_next(cluster.job(), START) == ("-", "")


def test_run_state_tells_progress_and_that_it_is_asked_to_stop(cluster: HandCluster) -> None:
    one = replace(running(cluster), progress=(3.0, 8.0), cancel_requested=True)
    assert run_state(one) == "running, 3 of 8 done, asked to stop"
    assert took(one, START + timedelta(seconds=65)) == "5s so far"


def test_run_result_of_a_failure_names_the_error(cluster: HandCluster) -> None:
    one = replace(
        running(cluster),
        state=State.FAILED,
        finished_at=START + timedelta(seconds=90),
        error=RunError(type="OSError", message="no route\nto mail server", traceback=""),
    )
    assert run_result(one, START + timedelta(seconds=100)) == "failed 10s ago: OSError: no route"
    assert took(one, START) == "30s"
    assert error_text(None) == ""


def test_what_for_names_the_nominal_time_or_the_key(cluster: HandCluster) -> None:
    one = running(cluster)
    assert what_for(one) == "2026-11-20 12:01:00Z"
    assert what_for(replace(one, origin=Origin.MANUAL, scheduled_for=None)) == "by hand"
    enqueued = replace(one, origin=Origin.ENQUEUE, scheduled_for=None, key="invoice:" + "7" * 30)
    assert what_for(enqueued) == "invoice:777…777777777777 (enqueue)"


def test_data_of_a_run_has_no_number_that_json_lacks(cluster: HandCluster) -> None:
    data = occurrence_data(replace(running(cluster), progress=(1.0, float("inf"))))
    assert data["progress"] == [1.0, None]
    assert (data["job"], data["state"], data["error"]) == ("tick", "running", None)


def test_data_of_a_paused_job_has_no_next_time(cluster: HandCluster) -> None:
    cluster.every("tick")
    assert job_data(cluster.job())["next"] == START + timedelta(seconds=60)
    cluster.store.pause("tick", by="ada", why="migration")
    data = job_data(cluster.job())
    assert data["next"] is None
    assert data["paused"] == {"at": START, "by": "ada", "reason": "migration"}
