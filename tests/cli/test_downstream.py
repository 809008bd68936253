"""A run, or times of a job, again with all that comes after: what the definitions in the store say that is."""

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.gate import After, Rule
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import Origin

PROGRAM = """
from cronsensus import Scheduler, every
scheduler = Scheduler("{url}")
@scheduler.job(every("1m"))
def extract(): ...
@scheduler.job(after=[extract])
def load(): ...
@scheduler.job(after=[load])
def check(): ...
@scheduler.job(every("1h"), after={{load: "all_in_period"}})
def report(): ...
"""
APP = ("--app", "nightly:scheduler")
BEHIND = {"overlap": "allow", "concurrency": 1, "catch_up": "all"}
EDGES = {"load": Rule("extract"), "check": Rule("load"), "report": Rule("load", which="all_in_period")}


def declare(cluster: Any, *jobs: str) -> None:
    """Declare jobs as the program does."""
    for job in jobs:
        after = {"after": After((EDGES[job],)), **BEHIND} if job in EDGES else {}
        cluster.every(job, "1h" if job == "report" else "1m", **after)


@pytest.fixture
def night(cluster: Any, write: Any) -> Any:
    """One minute of extract and load has run; check and report, which were declared later, have no run for it."""
    write("nightly.py", PROGRAM.format(url=cluster.url))
    cluster.join()
    declare(cluster, "extract", "load")
    cluster.advance(60)
    cluster.fire()
    for claim in cluster.claim():
        cluster.finish(claim)
    declare(cluster, "check", "report")
    return cluster


def runs(cluster: Any, job: str) -> list[Any]:
    found: list[Any] = cluster.store.occurrences(OccurrenceFilter(job=job), newest_first=False)
    return found


def test_a_run_is_tried_again_and_what_comes_after_it_behind_it(night):
    [first], [second] = runs(night, "extract"), runs(night, "load")
    answer = night("runs", "retry", str(first.id), "--downstream", "--again", "--yes", "--reason", "bad source")
    assert answer.code == 0, answer
    again, behind = runs(night, "extract")[-1], runs(night, "load")[-1]
    assert (again.retry_of, behind.retry_of) == (first.id, second.id)
    assert again.id < behind.id
    assert "report is left alone: it comes after other times" in answer.text
    assert "check is left alone: it has no run for" in answer.text
    assert [act.why for act in night.store.trail(target="load") if act.action == "retry"] == ["bad source"]


def test_without_it_the_jobs_that_do_not_follow_are_named(night):
    [first] = runs(night, "extract")
    answer = night("runs", "retry", str(first.id), "--again", *APP)
    assert "what comes after extract does not follow: load, check, report" in answer.err
    assert f"runs retry {first.id} --downstream" in answer.err
    answer = night("jobs", "trigger", "extract", *APP)
    assert "what comes after extract does not follow: load, check, report" in answer.err
    assert "jobs trigger extract --downstream" in answer.err
    assert "does not follow" not in night("jobs", "trigger", "report", *APP).err


def test_a_chain_is_run_now_for_a_time_of_its_own(night):
    before = {job: night.store.job(job).watermark for job in ("extract", "load", "check")}
    answer = night("jobs", "trigger", "extract", "--downstream", "--reason", "new prices", *APP)
    assert answer.code == 0, answer
    assert "after it: load, check" in answer.out
    assert "report is left alone: it comes after other times" in answer.err
    made = [runs(night, job)[-1] for job in ("extract", "load", "check")]
    assert [one.origin for one in made] == [Origin.MANUAL] * 3
    assert len({one.scheduled_for for one in made}) == 1
    assert {job: night.store.job(job).watermark for job in before} == before
    [line] = [one for one in night("ledger", "load", "-o", "json").data["lines"] if one["run"] == made[1].id]
    assert line["origin"] == "manual"


def test_a_chain_begins_with_its_first_job_and_with_all_that_its_jobs_come_after(night):
    answer = night("jobs", "trigger", "load", "--downstream")
    assert (answer.code, "begin with the first job" in answer.err) == (2, True)
    night.every("rates", "1m")
    night.every("prices", "1m", **BEHIND, after=After((Rule("load"), Rule("rates"))))
    answer = night("jobs", "trigger", "extract", "--downstream")
    assert "prices is left alone: it also comes after rates, which does not run now" in answer.err


def test_it_is_shown_before_and_nothing_is_done_unasked(night):
    [first] = runs(night, "extract")
    for more, code in ((["--dry-run"], 0), ([], 2)):
        answer = night("runs", "retry", str(first.id), "--downstream", "--again", *APP, *more)
        assert "load" in answer.out
        assert answer.code == code, answer
    assert len(runs(night, "extract")) == len(runs(night, "load")) == 1


def test_what_has_not_ended_is_left_alone(night):
    [first], [second] = runs(night, "extract"), runs(night, "load")
    night.store.retry(second.id, by="test", again=True)
    answer = night("runs", "retry", str(first.id), "--downstream", "--again", "--yes", *APP)
    assert "load is left alone: its run" in answer.text
    assert len(runs(night, "load")) == 2


def test_repeated_it_runs_again_only_what_was_left(night):
    """Whoever typed it died half-way, or types it twice."""
    [first], [second] = runs(night, "extract"), runs(night, "load")
    made = night.store.retry(first.id, by="test", again=True)
    typed = ("runs", "retry", str(first.id), "--downstream", "--yes", *APP)
    answer = night(*typed)
    assert answer.code == 0, answer
    assert f"run {first.id} was tried again already as run {made.id} (pending)" in answer.text
    [_, behind] = runs(night, "load")
    assert (behind.retry_of, len(runs(night, "extract"))) == (second.id, 2)
    for claim in (*night.claim(), *night.claim()):
        night.finish(claim)
    assert "load is left alone: run" in night(*typed).text
    assert (len(runs(night, "extract")), len(runs(night, "load"))) == (2, 2)


@pytest.mark.parametrize("more", [["--failed"], ["4712"]])
def test_downstream_is_for_one_run(night, more):
    answer = night("runs", "retry", *(["4711"] if more[0] != "--failed" else []), *more, "--downstream", *APP)
    assert answer.code == 2
    assert "--downstream is for one run" in answer.err


def test_times_are_filled_in_for_all_that_comes_after(night):
    begin = night.store.now() - timedelta(minutes=5)
    stretch = ("--from", begin.isoformat(), "--downstream", *APP)
    look = night("jobs", "backfill", "extract", *stretch, "--dry-run", "-o", "json").data
    assert [one["job"] for one in (look, *look["downstream"])] == ["extract", "load", "check"]
    made = night("jobs", "backfill", "extract", *stretch, "--yes", "-o", "json").data
    filled = {
        job: {one.scheduled_for for one in runs(night, job) if one.origin is Origin.BACKFILL}
        for job in ("extract", "load", "check")
    }
    assert filled["extract"] == filled["load"] < filled["check"]
    assert max(made["created"]) < min(made["downstream"][0]["created"])
    assert runs(night, "report") == []


def test_the_audit_finds_what_began_before_its_upstream_had_ended(cluster):
    cluster.join()
    declare(cluster, "extract", "load")
    cluster.advance(60)
    cluster.fire()
    claims = {one.job: one for one in cluster.claim()}
    cluster.finish(claims["load"])
    found = cluster("audit", "-o", "json").data["findings"]
    assert [(one["kind"], one["job"]) for one in found] == [("early", "load")]
    assert f"comes after 'extract', whose run {claims['extract'].id} is running" in found[0]["sentence"]
    cluster.advance(5)
    cluster.finish(claims["extract"])
    answer = cluster("audit")
    assert answer.code == 1
    assert "ended at" in answer.text


def test_the_audit_finds_nothing_where_each_began_after_its_upstreams(night):
    night.fire()
    assert night("audit", "extract", *APP).code == 0
    [first], [second] = runs(night, "extract"), runs(night, "load")
    for one in (first, second):
        night.store.retry(one.id, by="test", again=True)
        [claim] = night.claim()
        night.advance(1)
        night.finish(claim)
    again = [one for one in night("audit", *APP, "-o", "json").data["findings"] if one["occurrences"] != [second.id]]
    assert again == []
