"""Enqueue in a transaction of the user's: what it adds, what others add, and what goes on while one stays open."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.nodes import APPS, QUIET, cluster
from bench.options import Options
from bench.peers.environments import CannotInstall, python_of
from bench.places import Places
from bench.table import Row, milliseconds, say
from cronsensus import Scheduler

TIMES, ROUNDS = 400, 3
PEERS = ("procrastinate", "dbos", "pgqueuer")
OPEN_SECONDS = 20
CONNECTIONS, SECONDS = 16, 6


def bench(places: Places, options: Options) -> list[Row]:
    """Return what an enqueue adds to a transaction of one row, ours and theirs by turns; medians of the rounds."""
    times, rounds = (100, 1) if options.quick else (TIMES, options.rounds or ROUNDS)
    added: dict[str, list[float]] = {}
    for number in range(rounds):
        for kind in ("driver", "sqlalchemy"):
            added.setdefault(f"ours, {kind}", []).append(_added(_ours(places, kind, times)))
        for peer in PEERS if places.kind == "postgres" else ():
            try:
                added.setdefault(peer, []).append(_added(_theirs(places, peer, times)))
            except (CannotInstall, subprocess.CalledProcessError) as error:
                say(f"  {peer}: {getattr(error, 'stderr', error)}"[:500])
        told = ", ".join(f"{name} +{milliseconds(each[-1])}" for name, each in added.items() if each)
        say(f"  round {number + 1}: {told}, load {os.getloadavg()[0]:.1f}")
    rows = [
        Row("commit", f"added to a transaction of one row: {name}", f"+{milliseconds(statistics.median(each))}")
        for name, each in added.items()
        if each
    ]
    if places.kind != "sqlite":
        rows.append(_ticks_beside_an_open_transaction(places, 5 if options.quick else OPEN_SECONDS))
    if places.kind == "postgres":
        rows += _rates(places, 2 if options.quick else SECONDS)
    return rows


def _added(took: dict[str, float]) -> float:
    return took["enqueuing"] - took["bare"]


def _ours(places: Places, kind: str, times: int) -> dict[str, float]:
    return _measured(sys.executable, APPS / "committing_ours.py", places.fresh(), kind, str(times))


def _theirs(places: Places, peer: str, times: int) -> dict[str, float]:
    app = Path(__file__).parent / "peers" / "apps" / f"{peer}_commit.py"
    return _measured(str(python_of(peer)), app, places.fresh(), str(times))


def _measured(python: str, app: Path, url: str, *arguments: str) -> dict[str, float]:
    path = str(Path(__file__).parent / "peers" / "apps")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
    done = subprocess.run(
        [python, str(app), *arguments],
        env={**kept, **QUIET, "BENCH_URL": url, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    took: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return took


def _ticks_beside_an_open_transaction(places: Places, seconds: int) -> Row:
    """Hold a transaction open that has enqueued a job, and count how often that job's own schedule runs meanwhile."""
    import sqlalchemy as alchemy

    with cluster("ticking", places) as nodes:
        nodes.start(concurrency=None)
        nodes.wait_for_sessions(1)
        client = Scheduler(nodes.way)
        drivers = {"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
        engine = alchemy.create_engine(alchemy.make_url(nodes.way).set(drivername=drivers[places.kind]))
        with engine.connect() as connection:
            client.enqueue_in(connection, "tick")
            time.sleep(1.5)
            before = len(nodes.lines())
            time.sleep(seconds)
            ticks = len(nodes.lines()) - before
            connection.rollback()
        engine.dispose()
        client.stop()
    return Row(
        "commit", f"ticks of a job each second beside a transaction that holds a run of it for {seconds} s",
        f"{ticks} of {seconds}", f"≥ {seconds - 1}", ticks >= seconds - 1,
    )  # fmt: skip


def _rates(places: Places, seconds: float) -> list[Row]:
    """Count transactions a second of sixteen connections: bare, and with a run in each."""
    import psycopg

    url = places.fresh()
    scheduler = Scheduler(url)

    @scheduler.job()
    def ship(number: int) -> None: ...

    scheduler.define()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE bench_orders (number BIGINT)")
    found = {}
    for name in ("bare", "enqueuing"):
        counts = [0] * CONNECTIONS
        until = time.monotonic() + seconds

        def work(place: int, name: str = name, until: float = until, counts: list[int] = counts) -> None:
            with psycopg.connect(url) as connection:
                while time.monotonic() < until:
                    connection.execute("INSERT INTO bench_orders VALUES (%s)", [place])
                    if name == "enqueuing":
                        ship.enqueue_in(connection, place)
                    connection.commit()
                    counts[place] += 1

        threads = [threading.Thread(target=work, args=(place,)) for place in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found[name] = sum(counts) / seconds
    scheduler.stop()
    return [
        Row("commit", f"transactions a second of {CONNECTIONS} connections, {name}", f"{rate:,.0f}/s")
        for name, rate in found.items()
    ]
