"""``observe=True``: nothing that runs is changed, and what a guard would have prevented is counted."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from hypothesis import given
from hypothesis import strategies as st

from cronsensus import Scheduler, StoreUnavailable
from cronsensus.errors import InvalidOption
from cronsensus.external import observing
from cronsensus.external.observed import ObservedJob, compress_times, expand_times, read_observed
from cronsensus.external.observing import Observation
from cronsensus.integrations.apscheduler import guard
from cronsensus.model.occurrence import OccurrenceFilter
from tests.scratch import scratch_folder

PATIENCE = 30.0
NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def url():
    with scratch_folder() as folder:
        yield f"sqlite:///{folder / 'observed.db'}"


class Runs:
    """Counts runs outside of the library."""

    def __init__(self):
        self.seen = []
        self.changed = threading.Condition()

    def __call__(self):
        with self.changed:
            self.seen.append(1)
            self.changed.notify_all()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count, PATIENCE)


def replica(url, runs, at, **options) -> BackgroundScheduler:
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": 30})
    guard(scheduler, url, **options)
    scheduler.add_job(runs, "date", run_date=at, id="report")
    scheduler.start()
    return scheduler


def stop(scheduler):
    with scheduler._jobstores_lock:
        pass  # else the thread, which removes the job just now, does not find it any more: APScheduler's own race
    scheduler.shutdown()


def observed(url, **which):
    reader = Scheduler(url)
    try:
        return read_observed(reader._opened.ready(), **which)
    finally:
        reader.stop()


def soon() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)


def test_replicas_that_observe_each_run_and_all_runs_but_one_would_have_been_prevented(url):
    runs, at = Runs(), soon()
    started = [replica(url, runs, at, observe=True) for _ in range(3)]
    runs.wait_for(3)
    for one in started:
        stop(one)
    assert observed(url).jobs == (ObservedJob("apscheduler:report", 1, 3, 3, 0, 2),)
    reader = Scheduler(url)
    assert reader.store.occurrences(OccurrenceFilter(job="apscheduler:report")) == []
    reader.stop()


def test_beside_a_guarded_replica_all_runs_of_those_that_observe_would_have_been_prevented(url):
    runs, at = Runs(), soon()
    started = [replica(url, runs, at, observe=True) for _ in range(2)]
    started += [replica(url, runs, at, observe=False) for _ in range(2)]
    runs.wait_for(3)
    for one in started:
        stop(one)
    assert len(runs.seen) == 3
    assert observed(url).jobs == (ObservedJob("apscheduler:report", 1, 2, 2, 1, 2),)


def test_without_the_store_a_replica_that_observes_starts_runs_and_stops(caplog):
    runs = Runs()
    scheduler = replica(NOBODY, runs, soon(), observe=True)
    runs.wait_for(1)
    stop(scheduler)
    assert len(runs.seen) == 1
    assert "what this process ran is not recorded yet; it runs on as ever" in caplog.text


def test_job_that_the_guard_would_refuse_runs_and_is_not_counted(url, caplog):
    runs = Runs()
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, url, observe=True)
    scheduler.add_job(runs, "interval", seconds=1, id="own start")
    scheduler.start()
    runs.wait_for(1)
    stop(scheduler)
    assert "not observed, and refused without observe" in caplog.text
    assert observed(url).jobs == ()


@pytest.mark.parametrize(("said", "runs_bare"), [("1", True), ("on", True), ("0", False), ("", False)])
def test_environment_says_whether_to_observe(said, runs_bare, monkeypatch):
    monkeypatch.setenv("CRONSENSUS_OBSERVE", said)
    scheduler = BackgroundScheduler()
    guard(scheduler, NOBODY, wait=0)
    if runs_bare:
        scheduler.start()
        scheduler.shutdown()
    else:
        with pytest.raises(StoreUnavailable):
            scheduler.start()


def test_environment_that_says_neither_yes_nor_no_is_refused_and_code_is_above_it(monkeypatch):
    monkeypatch.setenv("CRONSENSUS_OBSERVE", "perhaps")
    with pytest.raises(InvalidOption, match="CRONSENSUS_OBSERVE='perhaps' says neither yes nor no"):
        guard(BackgroundScheduler(), NOBODY)
    scheduler = BackgroundScheduler()
    guard(scheduler, NOBODY, observe=True)
    scheduler.start()
    scheduler.shutdown()


def test_record_whose_answer_was_lost_is_counted_once(url, monkeypatch):
    observation = Observation(Scheduler(url), first=PATIENCE)
    observation.note("apscheduler:report", NINE)
    record = observation._once

    def lose(key):
        record(key)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(observation, "_once", lose)
    observation._write()
    monkeypatch.setattr(observation, "_once", record)
    observation.note("apscheduler:report", NINE + timedelta(hours=1))
    observation._write()
    observation.close()
    assert observed(url).jobs == (ObservedJob("apscheduler:report", 2, 2, 1, 0, 0),)


def test_runs_above_what_is_remembered_while_the_store_is_away_are_said_to_be_missing(url, monkeypatch):
    monkeypatch.setattr(observing, "MOST_TIMES", 2)
    observation = Observation(Scheduler(url), first=PATIENCE)
    for hour in range(5):
        observation.note("apscheduler:report", NINE + timedelta(hours=hour))
    observation.close()
    found = observed(url)
    assert (found.jobs[0].runs, found.forgotten) == (2, 3)


def test_only_the_jobs_and_times_that_were_asked_for_are_counted(url):
    observation = Observation(Scheduler(url), first=PATIENCE)
    for hour in range(5):
        observation.note("apscheduler:report", NINE + timedelta(hours=hour))
        observation.note("apscheduler:other", NINE + timedelta(hours=hour))
    observation.close()
    found = observed(url, jobs=["apscheduler:report"], since=NINE + timedelta(hours=1), until=NINE + timedelta(hours=3))
    assert [(one.job, one.times) for one in found.jobs] == [("apscheduler:report", 3)]


@given(st.lists(st.integers(0, 2**53)))
def test_packed_times_are_the_same_when_unpacked(times):
    assert list(expand_times(compress_times(times))) == sorted(times)


def test_times_of_a_regular_job_are_packed_into_one():
    assert compress_times(range(0, 1440 * 60, 60)) == [[0, 60, 1440]]
