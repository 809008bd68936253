"""What a process wrote that was killed, byte by byte in another place: it is read, and it goes on.

No version was released yet, so today's writes it, by ``tests/upgrade/record.py``. What ``dump.py`` tells of a release
is to be kept beside it, and loaded here too.
"""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from cronsensus import Scheduler
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import open_store
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from tests.upgrade import dump

RECORD = Path(__file__).parent.parent / "upgrade" / "record.py"
LEASE = timedelta(seconds=10)


def record(url: str) -> None:
    done = subprocess.run([sys.executable, str(RECORD), url], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def load_sqlite(recorded: str, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(recorded)


def load_redis(recorded: str, url: str) -> None:
    server, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(server) as client:
        for line in recorded.splitlines():
            name, kind, rows = json.loads(line)
            key = f"{{{prefix}:{name}"
            if kind == "string":
                client.set(key, rows.encode("latin-1"))
                continue
            for row in rows:
                if kind == "hash":
                    client.hset(key, *(one.encode("latin-1") for one in row))
                elif kind == "zset":
                    client.zadd(key, {row[0].encode("latin-1"): row[1]})
                elif kind == "set":
                    client.sadd(key, row.encode("latin-1"))
                else:
                    client.rpush(key, row.encode("latin-1"))


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        record(f"sqlite:///{tmp_path / 'written.db'}")
        load_sqlite(dump.of_file(str(tmp_path / "written.db")), tmp_path / "recorded.db")
        return f"sqlite:///{tmp_path / 'recorded.db'}"
    written = str(request.getfixturevalue("redis_url"))
    record(written)
    url = f"{written}_recorded"
    load_redis(dump.of_redis(written), url)
    return url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as store:
        store.migrate()
        store.check()
        yield store


def one_of(store: Store, job: str):
    [found] = store.occurrences(OccurrenceFilter(job=job))
    return found


def test_a_store_that_was_recorded_is_read_and_its_dead_process_is_taken_over(store: Store, url: str) -> None:
    done, failed, running = (one_of(store, job) for job in ("order", "failing", "long"))
    assert (done.state, done.result, done.attempt) == (State.SUCCEEDED, '{"number":1}', 1)
    assert (failed.state, failed.failures, failed.error.message) == (State.PENDING, 1, "as it was: 2")
    assert (running.state, running.node, running.progress) == (State.RUNNING, "recorded", (1.0, 2.0))
    hourly = store.job("hourly")
    assert hourly is not None
    assert hourly.paused_why == "to see it later"
    [node] = [one for one in store.sessions() if one.is_node]
    assert node.id == running.session

    [taken] = store.reclaim([node.id])
    assert (taken.id, taken.became) == (running.id, State.PENDING)
    store.open_session(a_session("s1"), lease=LEASE)
    [claim] = take(store, "s1", 10, ["long"], lease=LEASE)
    assert (claim.id, claim.attempt, claim.crashes, claim.args) == (running.id, 2, 1, (4,))
    assert claim.token > running.token
    late, own = settle(
        store,
        [
            an_end(id=running.id, token=running.token, state=State.SUCCEEDED),
            an_end(id=running.id, token=claim.token, state=State.SUCCEEDED),
        ],
    )
    assert (late.accepted, own.accepted) == (False, True)
    assert [run.end for run in store.runs(running.id)] == ["crashed", "succeeded"]
    assert store.resume("hourly", by="ann")

    ran = []
    with Scheduler(url) as scheduler:

        @scheduler.once(key="charge:{number}", keep="36500d")
        def charge(number: int) -> str:
            ran.append(number)
            return "again"

        assert charge(3) == "charged 3"
    assert ran == []
