"""Celery with a beat on each machine and workers that are killed, bare and guarded; on Redis, and once on RabbitMQ."""

from __future__ import annotations

import importlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.nodes import APPS, QUIET, wait_until
from bench.options import Options
from bench.places import Places, open_server
from bench.table import Row, milliseconds, quantile, say
from tests.servers.rabbitmq import RabbitmqServer

KILL_EVERY = 5.0
START = 8.0
"""Seconds until all processes have had their first turns."""
TASKS = 800
TRIPS = 220
WORKERS = 9
"""Workers of each kind, by turns, of which an empty task's round trip is measured."""


class Machines:
    """Beats and workers of one app."""

    def __init__(self, folder: Path, places: Places, broker: str, *, guarded: bool, **more: str) -> None:
        """Prepare them; ``more`` are further variables of their environment."""
        self.folder = folder
        self.evidence = folder / "evidence.txt"
        self.evidence.touch()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")},
            **QUIET,
            "CRONSENSUS_URL": places.by_way(places.fresh()),
            "EVIDENCE": str(self.evidence),
            "GUARDED": "1" if guarded else "",
            "BROKER": f"{broker}/1",
            "BACKEND": f"{broker}/2",
            "C_FORCE_ROOT": "1",
            "PYTHONPATH": str(APPS),
            **more,
        }
        self.running: list[tuple[tuple[str, ...], subprocess.Popen[bytes]]] = []
        self._workers = 0

    def start(self, *command: str) -> None:
        words = command
        if command[0] == "worker":
            self._workers += 1
            words = (*command, "-n", f"w{self._workers}@%h", "--without-gossip", "--without-mingle")
        else:
            words = (*command, "--pidfile=", "-s", str(self.folder / f"beat{len(self.running)}.db"))
        with (self.folder / "log").open("ab") as log:
            one = subprocess.Popen(
                [sys.executable, "-m", "celery", "-q", "-A", "celery_everywhere", *words],
                env=self.environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.running.append((command, one))

    def kill_one(self, kind: str = "") -> None:
        """Kill a process, or one of a kind, with its children, and start another in its place."""
        command, one = random.choice([process for process in self.running if kind in process[0]] or self.running)
        self.running.remove((command, one))
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        self.start(*command)

    def lines(self, what: str) -> list[list[str]]:
        return [line for line in map(str.split, self.evidence.read_text().splitlines()) if line[0] == what]

    def app(self) -> Any:
        """Return the app, to send tasks."""
        names = ("EVIDENCE", "GUARDED", "VISIBILITY", "BROKER", "BACKEND", "CRONSENSUS_URL")
        os.environ.update({name: self.environment.get(name, "") for name in names})
        sys.path.insert(0, str(APPS))
        sys.modules.pop("celery_everywhere", None)
        return importlib.import_module("celery_everywhere")

    def end(self) -> None:
        for _, one in self.running:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def bench(places: Places, options: Options) -> list[Row]:
    """Measure a schedule under kills, a task longer than the visibility timeout, many tasks, and the cost."""
    seconds = options.seconds or (30 if options.quick else 120)
    rows = []
    with open_server("redis") as server:
        broker = server.url.rpartition("/")[0]
        setups: tuple[tuple[str, list[tuple[str, ...]]], ...] = (
            ("3 beats, 2 workers", [("beat",)] * 3 + [("worker", "-c", "2")] * 2),
            ("3 workers -B", [("worker", "-c", "2", "-B")] * 3),
        )
        for name, commands in setups:
            say(f"  {name}, bare")
            runs = count_bare(places, broker, commands)
            rows.append(Row("celery", f"{name}, bare: runs of each second", f"{runs:.1f}"))
            rows += measure_times(places, broker, name, commands, seconds)
        with RabbitmqServer() as rabbitmq:
            name, commands = setups[0]
            rows += measure_times(places, broker, f"{name}, RabbitMQ", commands, seconds, queue=rabbitmq.url)
        rows += [measure_redbeat(places, broker, seconds // 4, guarded=guarded) for guarded in (False, True)]
        rows += measure_long_task(places, broker)
        rows += measure_many(places, broker, TASKS // 4 if options.quick else TASKS)
        rows += measure_cost(places, broker)
    return rows


def measure_times(
    places: Places, broker: str, name: str, commands: list[tuple[str, ...]], seconds: int, *, queue: str = ""
) -> list[Row]:
    """Return how often each second was run with the guard, and how late; ``queue``: messages go there, not to Redis."""
    say(f"  {name}")
    with machines(places, broker, guarded=True, **({"BROKER": queue} if queue else {})) as guarded:
        for command in commands:
            guarded.start(*command)
        wait_until(lambda: bool(guarded.lines("tick")), 60, "a first run")
        time.sleep(START)
        begun, kills = time.time(), 0
        while time.time() < begun + seconds:
            time.sleep(KILL_EVERY * random.uniform(0.8, 1.2))
            guarded.kill_one()
            kills += 1
        ended = time.time()
        time.sleep(8)
        ticks = guarded.lines("tick")
    due = range(int(begun) + 1, int(ended) + 1)
    at = [(int(datetime.fromisoformat(line[1]).timestamp()), float(line[-1])) for line in ticks]
    inside = [(second, started) for second, started in at if second in due]
    ran = Counter(second for second, _ in inside)
    first = {second: min(when for other, when in inside if other == second) for second in ran}
    late = [first[second] - second for second in first]
    missed, twice = len(due) - len(ran), sum(ran.values()) - len(ran)
    return [
        Row("celery", f"{name}, {kills} killed: missed of {len(due)}", str(missed), "0", missed == 0),
        Row("celery", f"{name}, {kills} killed: begun again (killed in the run)", str(twice)),
        Row("celery", f"{name}: late p50 / p95 / worst", " / ".join(
            milliseconds(one) for one in (quantile(late, 0.5), quantile(late, 0.95), max(late))),
            "p95 ≤ 100 ms", quantile(late, 0.95) <= 0.1),
    ]  # fmt: skip


def count_bare(places: Places, broker: str, commands: list[tuple[str, ...]]) -> float:
    """Return how often each second is run without the guard."""
    with machines(places, broker, guarded=False) as bare:
        for command in commands:
            bare.start(*command)
        time.sleep(START + 6)
        return len([line for line in bare.lines("tick") if time.time() - float(line[-1]) < 6]) / 6


def measure_redbeat(places: Places, broker: str, seconds: int, *, guarded: bool) -> Row:
    """Return how many seconds RedBeat sent something in while beats were killed: with its lock, or guarded."""
    scheduler = "cronsensus.integrations.celery:RedBeatScheduler" if guarded else "redbeat.RedBeatScheduler"
    name = "3 RedBeats, guarded" if guarded else "3 RedBeats with their lock"
    say(f"  {name}")
    with machines(places, broker, guarded=guarded, REDBEAT="1") as them:
        for _ in range(3):
            them.start("beat", "--scheduler", scheduler)
        them.start("worker", "-c", "2")
        wait_until(lambda: bool(them.lines("tick")), 60, "a first run")
        begun = time.time()
        for _ in range(3):
            time.sleep(seconds / 3)
            them.kill_one("beat")
        ended = time.time()
        time.sleep(4)
        started = [float(line[-1]) for line in them.lines("tick") if begun <= float(line[-1]) < ended]
    return Row("celery", f"{name}, 3 killed, {seconds} s: seconds with a run", f"{len(set(map(int, started)))}")


def measure_long_task(places: Places, broker: str) -> list[Row]:
    """Return how often a task of 7 s ran, with a visibility timeout of 3 s."""
    rows = []
    for guarded in (False, True):
        with machines(places, broker, guarded=guarded, VISIBILITY="3") as workers:
            for _ in range(3):
                workers.start("worker", "-c", "1")
            time.sleep(START)
            workers.app().work.delay(1, 7.0)
            time.sleep(20)
            runs = len(workers.lines("begun"))
        figure = f"task of 7 s, visibility 3 s, {'guarded' if guarded else 'bare'}: runs"
        rows.append(Row("celery", figure, str(runs), *(("1", runs == 1) if guarded else ())))
    return rows


def measure_many(places: Places, broker: str, count: int) -> list[Row]:
    """Return how many tasks were done while workers were killed, and how soon after the last one was sent."""
    with machines(places, broker, guarded=True) as workers:
        for _ in range(2):
            workers.start("worker", "-c", "2")
        time.sleep(START)
        work = workers.app().work
        for number in range(count):
            work.delay(number, 0.02)
        begun = time.time()
        for _ in range(2):
            time.sleep(2.0)
            workers.kill_one()
        while time.time() < begun + 60 and len({line[1] for line in workers.lines("ended")}) < count:
            time.sleep(0.1)
        took = time.time() - begun
        done = len({line[1] for line in workers.lines("ended")})
        again = len(workers.lines("ended")) - done
    return [
        Row("celery", f"{count} tasks, 2 workers killed, {took:.0f} s: done", str(done), str(count), done == count),
        Row("celery", f"{count} tasks, 2 workers killed: done twice (killed before the record)", str(again)),
    ]  # fmt: skip


def _trips(task: Any, count: int) -> list[float]:
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        task.delay().get(timeout=10, interval=0.0005)
        took.append(time.perf_counter() - begun)
    return took


def measure_cost(places: Places, broker: str) -> list[Row]:
    """Return the round trip of an empty task, bare and guarded, by turns."""
    # A worker is faster or slower than the next by half a millisecond for as long as it lives: so many of each.
    trips: dict[bool, list[float]] = {False: [], True: []}
    for guarded in (False, True) * WORKERS:
        with machines(places, broker, guarded=guarded) as workers:
            workers.start("worker", "-c", "1")
            nothing = workers.app().nothing
            nothing.delay().get(timeout=60)
            trips[guarded].append(statistics.median(_trips(nothing, TRIPS)[20:]))
    bare, guarded_trip = statistics.median(trips[False]), statistics.median(trips[True])
    added = guarded_trip - bare
    most = 0.003 if places.kind == "postgres" else 0.001
    return [
        Row("celery", "empty task, round trip p50, bare / guarded",
            f"{milliseconds(bare)} / {milliseconds(guarded_trip)}"),
        Row("celery", "empty task: added, p50", milliseconds(added), f"≤ {most * 1000:.0f} ms", added <= most),
    ]  # fmt: skip


@contextmanager
def machines(places: Places, broker: str, *, guarded: bool, **more: str) -> Iterator[Machines]:
    """Give a folder for an app whose broker is empty; end all its processes."""
    import redis

    for number in (1, 2):
        with redis.Redis.from_url(f"{broker}/{number}") as client:
            client.flushdb()
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-") as name:
        found = Machines(Path(name), places, broker, guarded=guarded, **more)
        try:
            yield found
        finally:
            found.end()
