"""A pause that waits for its job behind a step: what the step decides was decided before the pause."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from cronsensus.audit import audit
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.step import Step
from cronsensus.planning import plan
from cronsensus.stores import open_store
from cronsensus.stores.sql import job_rows, stepping
from cronsensus.stores.sql.mysql import mysql_driver
from cronsensus.stores.sql.postgres import postgres_driver
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.triggers import at
from tests.stores.sql.lock_waits import waits_for_a_lock

LEASE = timedelta(seconds=60)
PATIENCE = 20.0


def postgres_waits(url: str) -> bool:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        asked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%cronsensus_jobs%'"
        return connection.execute(asked).fetchone() is not None


WAITS: dict[str, Callable[[str], bool]] = {"postgres": postgres_waits, "mysql": waits_for_a_lock}


def until(seen: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.005)


@pytest.fixture(params=["postgres", "mysql"])
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SqlStore, SqlStore, Callable[[], bool]]]:
    """Return two handles, and what asks whether somebody waits for a row."""
    url = request.getfixturevalue(f"{request.param}_url")
    # The step is to stand still until the pause waits, however busy the machine is; nobody is to end it for that.
    monkeypatch.setattr({"postgres": postgres_driver, "mysql": mysql_driver}[request.param], "VERB_IDLE_SECONDS", 60.0)
    node, operator = open_store(url), open_store(url)
    assert isinstance(node, SqlStore)
    assert isinstance(operator, SqlStore)
    node.migrate()
    yield node, operator, lambda: WAITS[request.param](url)
    node.close()
    operator.close()


def test_pause_that_waited_for_a_step_begins_after_what_the_step_decided(
    server: tuple[SqlStore, SqlStore, Callable[[], bool]],
) -> None:
    node, operator, somebody_waits = server
    due = node.now() + timedelta(seconds=0.6)
    node.define_jobs([JobSpec(name="job", function="job", trigger=at(due))], release="r1")
    node.open_session(a_session("s1"), lease=LEASE)
    [job] = node.look(ahead=timedelta(seconds=1)).jobs
    with ThreadPoolExecutor(1) as pool:
        with node._write_transaction() as tx:
            assert job_rows.find_locked(tx, "job") is not None
            paused = pool.submit(operator.pause, "job", by="me", why="")
            until(somebody_waits, "the pause does not wait")
            until(lambda: operator.now() >= due, "the time does not come")
            tx.catch_up()  # as of a step that begins now, and gets the row before the pause
            done = stepping.take_step(tx, "s1", Step(plans=(plan(job, due),)))
            assert done.carried_out == [True]
        assert paused.result(PATIENCE)
    [made] = node.occurrences(OccurrenceFilter(job="job"))
    found = node.job("job")
    assert found is not None
    assert found.paused_at is not None
    assert found.paused_at >= made.created_at >= due
    assert audit(node).ok
