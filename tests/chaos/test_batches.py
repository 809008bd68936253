"""A batch whose nodes are killed one after the other: each item is done, its effect is there once, in good time."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from cronsensus.audit import audit
from cronsensus.model.states import State
from tests.chaos.batch_jobs import ITEMS, LINES
from tests.chaos.cluster import Cluster

DRIVERS = {"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
NODES = ("a", "b", "c")
SLOTS = 2
KILL_EVERY = 3.0
TAKEOVER = 1.0
"""Seconds after which what a killed process ran goes on elsewhere on one host; less, unless the machine is busy."""


@pytest.fixture(params=["postgres", "mysql", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lines.txt"
    path.touch()
    monkeypatch.setenv(LINES, str(path))
    return path


@pytest.fixture
def cluster(request: pytest.FixtureRequest, kind: str, lines: Path, tmp_path: Path) -> Iterator[Cluster]:
    url = request.getfixturevalue(f"{kind}_url")
    slots = {"CRONSENSUS_CONCURRENCY": str(SLOTS), "CRONSENSUS_URL": url}
    made = Cluster(tmp_path, app="batch_jobs:scheduler", url=url, environment=slots)
    yield made
    made.end_all()


@pytest.fixture
def engine(kind: str, cluster: Cluster) -> Iterator[Engine | None]:
    """The user's own way to the database, and a table in it that has no key which would hide a second effect."""
    if kind not in DRIVERS:
        yield None
        return
    url = make_url(cluster.url).set(drivername=DRIVERS[kind]).difference_update_query(["schema"])
    made = create_engine(url, poolclass=NullPool)
    with made.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS effects"))
        connection.execute(text("CREATE TABLE effects (item INTEGER)"))
    yield made
    made.dispose()


@pytest.mark.timeout(300)
def test_killed_every_three_seconds_each_item_is_done_once_and_in_good_time(
    cluster: Cluster, engine: Engine | None, lines: Path
) -> None:
    cluster.start(*NODES)
    cluster.await_all()
    cluster.until(lambda: cluster.store.job("close_day"), "the job is declared")
    begun = time.monotonic()
    batch = cluster.store.trigger("close_day", by="test").id
    cluster.store.notify()
    kills: dict[int, float] = {}
    while (found := cluster.store.occurrence(batch)) is not None and not found.state.final:
        threading.Event().wait(0.05)
        assert time.monotonic() - begun < 200, cluster.logs[-3000:]
        if time.monotonic() - begun > KILL_EVERY * (len(kills) + 1):
            victim = NODES[len(kills) % len(NODES)]
            cluster.kill(victim)
            kills[cluster.processes[victim].pid] = time.monotonic()
            cluster.start(victim)
    ended = time.monotonic()

    assert found is not None
    assert (found.state, found.result) == (State.SUCCEEDED, str(ITEMS))
    children = cluster.store.children([batch], limit=2 * ITEMS)[batch]
    assert (children.succeeded, children.total) == (ITEMS, ITEMS)
    assert audit(cluster.store).findings == []
    if engine is not None:
        with engine.connect() as connection:
            effects = Counter(connection.execute(text("SELECT item FROM effects")).scalars())
        assert effects == Counter(range(ITEMS))
    assert len(kills) >= 3
    said = [line.split() for line in lines.read_text().splitlines()]
    cut, bound = within(said, kills, begun, ended)
    print(f"{ended - begun:.1f} s, at most {bound:.1f} s; {len(kills)} kills cut {cut} items off")
    assert cut, "the fault did not bite: no kill cut an item off"
    assert ended - begun <= bound


def within(said: list[list[str]], kills: dict[int, float], begun: float, ended: float) -> tuple[int, float]:
    """Return how many items were cut off, and how long the batch might take: by the work done, and the slots alive."""
    alive: dict[int, float] = {}
    open_at = defaultdict[tuple[str, int], float](float)
    worked, cut = 0.0, 0
    for event, item, process, moment in said:
        pid, at = int(process), float(moment)
        alive.setdefault(pid, at)
        if event == "begin":
            open_at[item, pid] = at
        else:
            worked += at - open_at.pop((item, pid))
    for (_, pid), at in open_at.items():
        worked += max(0.0, kills[pid] - at)
        cut += 1
    slots = SLOTS * sum(kills.get(pid, ended) - at for pid, at in alive.items()) / (ended - begun)
    return cut, 1.15 * worked / slots + 1 + TAKEOVER * len(kills)
