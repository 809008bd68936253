"""kill -9 right before and right after the commit of a run's transaction: its effects are there exactly once."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from tests.chaos.cluster import Cluster

BOOKINGS = 30
"""Enough that some die on each side of their commit: with 20, once only two of them died after it."""
DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch) -> Iterator[Cluster]:
    marks = tmp_path / "marks"
    marks.touch()
    monkeypatch.setenv("BOOKING_MARKS", str(marks))
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    made = Cluster(tmp_path, app="transaction_jobs:scheduler", url=url)
    yield made
    made.end_all()


@pytest.fixture
def engine(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Engine]:
    """The user's own way to the database, and a table in it that has no key which would hide a second booking."""
    kind = request.node.callspec.params["cluster"]
    url = make_url(cluster.url).set(drivername=DRIVERS[kind]).difference_update_query(["schema", "busy_timeout"])
    made = create_engine(url, poolclass=NullPool)
    with made.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS bookings"))
        connection.execute(text("CREATE TABLE bookings (name VARCHAR(99), attempt INTEGER, pid INTEGER)"))
    yield made
    made.dispose()


def test_killed_around_the_commit_every_booking_is_made_exactly_once(
    cluster: Cluster, engine: Engine, dice: random.Random
):
    names = ["a", "b", "c"]
    cluster.start(*names)
    cluster.await_all()
    cluster.until(lambda: cluster.store.job("book"), "the job is declared")
    cluster.store.enqueue([Item(job="book", key=f"booking:{number}", args=(number,)) for number in range(BOOKINGS)])
    cluster.store.notify()
    random_kills = 0

    def all_stand_up() -> None:
        for name, process in list(cluster.processes.items()):
            if process.poll() is not None:
                cluster.start(name)

    def booked() -> bool:
        nonlocal random_kills
        if dice.random() < 0.005:
            random_kills += 1
            cluster.kill(dice.choice(names))
        all_stand_up()
        rows = cluster.store.occurrences(OccurrenceFilter(job="book"), limit=BOOKINGS)
        return all(row.state in {State.SUCCEEDED, State.FAILED} for row in rows)

    def the_doomed_are_dead() -> bool:
        """Those who die after their commit may still be about to."""
        with engine.begin() as connection:
            made = connection.execute(text("SELECT name, pid FROM bookings")).all()
        doomed = {pid for name, pid in made if int(name.rpartition(":")[2]) % 5 == 1}
        return doomed.isdisjoint(process.pid for process in cluster.every_process if process.poll() is None)

    cluster.until(booked, "everything is booked")
    cluster.until(the_doomed_are_dead, "who dies after the commit is dead")
    all_stand_up()
    cluster.await_all()
    exits = cluster.drain()

    with engine.begin() as connection:
        bookings = connection.execute(text("SELECT name, attempt, pid FROM bookings")).all()
    rows = cluster.store.occurrences(OccurrenceFilter(job="book"), limit=BOOKINGS)
    deaths = Counter(line.split()[0] for line in (cluster.folder / "marks").read_text().splitlines())
    print(f"killed before the commit {deaths['before']}, after it {deaths['after']}, at random {random_kills}")
    assert exits == [0, 0, 0]
    assert min(deaths["before"], deaths["after"]) >= 3, "the fault did not bite"
    # Counted in the user's own table.
    assert sorted(booking.name for booking in bookings) == sorted(row.key for row in rows)
    assert len(bookings) == BOOKINGS
    # And the record names the attempt, and the process, whose effect it is.
    by_key = {booking.name: booking for booking in bookings}
    assert {row.state for row in rows} == {State.SUCCEEDED}
    assert [(row.attempt, row.result) for row in rows] == [
        (by_key[row.key].attempt, str(by_key[row.key].pid)) for row in rows
    ]
