"""Orders and their runs in one transaction, half of them rolled back, writers and nodes killed: each has the other."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from cronsensus.audit import audit
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.chaos.cluster import HERE, Cluster
from tests.chaos.order_jobs import DRIVERS

WRITERS = 4
"""Processes of five threads each."""


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    made = Cluster(tmp_path, app="order_jobs:scheduler", url=url)
    yield made
    made.end_all()


@pytest.fixture
def engine(cluster: Cluster) -> Iterator[Engine]:
    url = make_url(cluster.url)
    url = url.set(drivername=DRIVERS[url.get_backend_name()]).difference_update_query(["schema", "busy_timeout"])
    made = create_engine(url, poolclass=NullPool)
    with made.begin() as connection:
        for table in ("orders", "shipped"):  # without a key, which would hide a second one
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
            connection.execute(text(f"CREATE TABLE {table} (number INTEGER)"))
    yield made
    made.dispose()


@pytest.mark.timeout(480)
def test_each_committed_order_is_shipped_once_and_nothing_else_is(
    cluster: Cluster, engine: Engine, dice: random.Random
) -> None:
    # Fewer on SQLite, which is in every commit.
    transactions = int(os.environ.get("CHAOS_TRANSACTIONS", "240" if cluster.url.startswith("sqlite") else "600"))
    names = ["a", "b", "c"]
    cluster.start(*names)
    cluster.await_all()
    cluster.until(lambda: cluster.store.job("ship"), "the job is declared")
    each = transactions // WRITERS
    logs = [cluster.folder / f"writer{number}.log" for number in range(WRITERS + 1)]
    writers = []
    for number, log in enumerate(logs):  # the last one dies
        with log.open("wb") as file:
            writers.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        str(HERE / "order_jobs.py"),
                        cluster.url,
                        str(number * each),
                        str(each),
                        "dies" if number == WRITERS else "lives",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=cluster.folder,
                    env={**os.environ, "PYTHONPATH": str(HERE)},
                )
            )
    kills = 0

    def all_written() -> bool:
        nonlocal kills
        if dice.random() < 0.01:
            kills += 1
            cluster.kill(dice.choice(names))
        for name, process in list(cluster.processes.items()):
            if process.poll() is not None:
                cluster.start(name)
        return all(process.poll() is not None for process in writers)

    def rows(table: str) -> list[int]:
        with engine.connect() as connection:
            return sorted(connection.execute(text(f"SELECT number FROM {table}")).scalars())

    try:
        cluster.until(all_written, "everything is written", within=240)
        orders = rows("orders")
        cluster.until(
            lambda: all_written() and len(rows("shipped")) >= len(orders), "everything is shipped", within=120
        )
        cluster.await_all()
        exits = cluster.drain()
    finally:
        for process in writers:
            process.kill()
            process.wait()
    assert [process.returncode for process in writers] == [0] * WRITERS + [-9]
    said = [line.split()[1] for log in logs for line in log.read_text().splitlines() if line.startswith("committed")]
    again = sum(line.startswith("again") for log in logs for line in log.read_text().splitlines())
    runs = cluster.store.occurrences(OccurrenceFilter(job="ship"), limit=10 * transactions)
    print(f"{len(orders)} orders of {transactions}, said {len(said)}, {again} tried again, {kills} nodes killed")
    assert len(orders) >= transactions // 2, "the writers did nothing"
    # Counted in the user's own tables: who was told that it is committed is among them, and who died may be.
    assert set(map(int, said)) <= set(orders)
    assert all(number % 2 for number in orders), "what was rolled back is there"
    assert rows("shipped") == orders
    assert sorted(run.args[0] for run in runs) == orders
    assert {run.state for run in runs} == {State.SUCCEEDED}
    assert [finding.sentence for finding in audit(cluster.store).findings] == []
    assert exits == [0, 0, 0]
