"""A store whose clock was set back: what stands still, and until when, is said wherever somebody looks."""

from datetime import timedelta

import pytest

from cronsensus import Scheduler, every
from cronsensus.alerts.conditions import Expected, find_job_conditions, find_waiting_conditions
from cronsensus.alerts.events import read_events, read_mark
from cronsensus.cli.run import _greet
from cronsensus.insight.doctor import examine_store
from cronsensus.insight.health import read_health
from cronsensus.insight.standstill import find_standstill
from cronsensus.insight.summaries import job_next, run_result
from cronsensus.insight.why import explain_time
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.timing.instants import to_micros
from tests.hand_cluster import START, HandCluster

EIGHT_HOURS = 8 * 3600
STANDS = (
    "tick stands still until 2026-11-20 20:02:00Z (in 8h 57s): its watermark lies 7h 59m ahead of the store's clock"
)


@pytest.fixture
def cluster() -> HandCluster:
    """A cluster that ran eight hours ahead of the time, by a clock that was put right."""
    cluster = HandCluster()
    cluster.join()
    cluster.every("tick")
    cluster.clock.step(EIGHT_HOURS)
    cluster.advance(61)
    cluster.run_once()
    cluster.clock.step(-EIGHT_HOURS)
    return cluster


def test_doctor_says_what_stands_still_and_until_when_and_what_to_type(cluster: HandCluster) -> None:
    (told,) = [one for one in examine_store(cluster.store) if one.name == "standstill"]
    assert told.text == STANDS
    assert (told.level, told.then) == ("fail", "cronsensus jobs rewind 'tick'")


def test_why_says_that_the_job_stands_still(cluster: HandCluster) -> None:
    told = explain_time(cluster.store, cluster.job(), START + timedelta(hours=1)).sentences
    assert "tick stands still until" in " ".join(map(str, told))


def test_the_list_of_jobs_shows_that_a_job_stands_still_and_a_result_that_lies_ahead(cluster: HandCluster) -> None:
    now = cluster.store.now()
    assert job_next(cluster.job(), now)[0].startswith("stands still, in 8h")
    (run,) = cluster.store.occurrences(OccurrenceFilter())
    assert run_result(run, now) == "succeeded 8h ahead of the store's clock"


def test_a_probe_of_readiness_fails_while_a_job_stands_still(cluster: HandCluster) -> None:
    assert "tick stands still until" in read_health(cluster.store, ready=True).sentence
    assert read_health(cluster.store).ok


def test_alerts_tell_of_the_standstill_once_and_overdue_is_not_hidden_by_a_success_that_lies_ahead(
    cluster: HandCluster,
) -> None:
    now = cluster.store.now()
    events, wrong = find_waiting_conditions(cluster.store, {}, now, stalled=True, backlog=None)
    assert [(one.event, one.job) for one in events] == [("stalled", "tick")]
    assert "stands still until" in events[0].reason
    assert find_waiting_conditions(cluster.store, wrong, now, stalled=True, backlog=None) == ([], wrong)
    expected = {"tick": Expected(overdue=timedelta(hours=1))}
    events, wrong = find_job_conditions(cluster.store, expected, {}, now)
    assert [one.event for one in events] == ["overdue"]
    assert find_job_conditions(cluster.store, expected, wrong, now) == ([], wrong)


def test_a_failure_after_the_clock_was_set_back_is_told_and_those_before_it_are_not_told_again() -> None:
    cluster = HandCluster()
    cluster.join()
    cluster.declare("work")
    mark = read_mark(cluster.store)
    told = []
    for ahead in (EIGHT_HOURS, 600, 600 - EIGHT_HOURS):
        cluster.clock.step(ahead)
        cluster.store.trigger("work", by="ada")
        (claim,) = cluster.claim()
        cluster.fail(claim)
        for _ in range(2):
            events, mark = read_events(cluster.store, mark)
            told += [one.run for one in events]
        assert mark.at == to_micros(cluster.store.now())
    cluster.advance(EIGHT_HOURS)
    events, mark = read_events(cluster.store, mark)
    assert told == [1, 2, 3]
    assert events == []


@pytest.mark.parametrize("by", ["a pause", "a retirement", "a step of a second"])
def test_what_something_explains_is_no_standstill(by: str) -> None:
    cluster = HandCluster()
    cluster.join()
    cluster.every("tick")
    back = 1 if by == "a step of a second" else EIGHT_HOURS
    cluster.clock.step(back)
    cluster.advance(61)
    cluster.run_once()
    if by == "a pause":
        cluster.store.pause("tick", by="ada", why="holiday")
    if by == "a retirement":
        cluster.store.retire("tick", by="ada", why="holiday")
    cluster.clock.step(-back)
    assert find_standstill(cluster.job(), cluster.store.now()) is None


def test_a_node_greets_with_what_stands_still_and_does_not_promise_a_first_run_in_seconds(
    cluster: HandCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = Scheduler(cluster.url)
    scheduler.job(every("1m"), name="tick")(lambda: None)
    _greet("jobs:scheduler", scheduler, is_new=False)
    said = capsys.readouterr().err
    assert f"note: {STANDS}; take it back to now: cronsensus jobs rewind 'tick'" in " ".join(said.split())
    assert "first: tick in 8h" in said


def test_why_says_that_a_job_was_born_in_a_time_that_is_ahead_of_the_clock() -> None:
    cluster = HandCluster()
    cluster.clock.step(EIGHT_HOURS)
    cluster.every("tick")
    cluster.clock.step(-EIGHT_HOURS)
    told = " ".join(map(str, explain_time(cluster.store, cluster.job(), START).sentences))
    assert "was first declared 2026-11-20 20:00:00Z (8h ahead of the store's clock)" in told
    assert "tick stands still until 2026-11-20 20:01:00Z" in told
