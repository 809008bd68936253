"""What people are told of rows that cannot be read."""

import json
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from cronsensus import every
from cronsensus.errors import StoreCorrupt
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.stores import open_store
from cronsensus.testing.conformance.fixtures import a_session, state_of
from cronsensus.testing.conformance.steps import take, win_named

HOUR = timedelta(hours=1)


def said(url, *words):
    """Ask as a person does; return the exit code, and what was said on both channels."""
    command = [sys.executable, "-m", "cronsensus", "--url", url, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def poisoned(tmp_path):
    """Return a store with one definition and two runs that cannot be read, and one time that one of them is of."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = open_store(url)
    store.migrate()
    store.define_jobs(
        [JobSpec(name="bad", function="f", trigger=every("1m")), JobSpec(name="good", function="f")], release="1"
    )
    store.open_session(a_session("s1"), lease=HOUR)
    time = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    assert win_named(store, "s1", "good", scheduled_for=time, lease=HOUR)
    store.enqueue([Item(job="good", key="broken", args=(1,)), Item(job="good", key="whole", args=(2,))])
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("UPDATE cronsensus_jobs SET spec = '{' WHERE name = 'bad'")
        connection.execute("UPDATE cronsensus_occurrences SET attempt = 'one' WHERE scheduled_for IS NOT NULL")
        connection.execute("UPDATE cronsensus_occurrences SET payload = '[1' WHERE key = 'broken'")
    yield store, url, time
    store.close()


def test_doctor_names_what_cannot_be_read(poisoned):
    _, url, _ = poisoned
    code, out, _ = said(url, "doctor", "-o", "json")
    assert code == 1
    found = [one for one in json.loads(out)["checks"] if one["check"] == "unreadable"]
    assert {one["level"] for one in found} == {"fail"}
    texts = " | ".join(one["text"] for one in found)
    assert "job 'bad'" in texts
    assert "run 1 is left out" in texts
    assert "run 2 is left out" in texts
    assert all(one["next"] for one in found)


def test_why_names_the_run_and_the_definition_that_cannot_be_read(poisoned):
    _, url, time = poisoned
    _, out, _ = said(url, "why", "good", time.isoformat())
    assert "run 1 is left out" in out
    code, _, err = said(url, "why", "bad", time.isoformat())
    assert code
    assert "job 'bad'" in err
    assert "define the job anew" in err


def test_a_node_says_it_once_and_runs_the_rest(poisoned, caplog):
    store, _, _ = poisoned
    for _ in range(3):
        assert store.look().jobs == ()
        take(store, "s1", 10, ["f"], lease=HOUR)
    assert [line.getMessage().split(":")[0] for line in caplog.records] == [
        "run 2 of job 2 waits, cannot be run, and",
    ]
    assert [one.key for one in store.occurrences(OccurrenceFilter(session="s1"))] == ["whole"]


def test_the_one_thing_that_was_asked_for_is_an_error_that_names_it(poisoned):
    store, _, _ = poisoned
    with pytest.raises(StoreCorrupt, match="job 'bad'"):
        store.job("bad")
    with pytest.raises(StoreCorrupt, match="run 2"):
        store.occurrence(2)
    assert [view.spec.name for view in store.jobs()] == ["good"]


def test_a_definition_is_mended_by_defining_the_job_again(poisoned):
    store, _, _ = poisoned
    store.define_jobs([JobSpec(name="bad", function="f", trigger=every("2m"))], release="r1")
    assert store.job("bad").spec.trigger == every("2m")
    assert state_of(store, "bad")
