"""Messages of RabbitMQ: our consumer beside Dramatiq, one process and 8 threads each, on one broker, by turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pika

from bench.nodes import APPS, QUIET, wait_until
from bench.options import Options
from bench.peers.environments import CannotInstall, python_of
from bench.places import Places
from bench.table import Row, say
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import Store, open_store
from tests.servers.rabbitmq import RabbitmqServer

THREADS, PREFETCH = 8, 40
"""The prefetch is what ours has for so many threads."""
ROUNDS = 5
PATIENCE = 120
WORK: tuple[tuple[str, float, int, dict[str, float]], ...] = (
    ("of 10 ms", 0.01, 2000, {"redis": 0.95, "postgres": 0.95}),
    ("empty", 0.0, 6000, {"redis": 0.8, "postgres": 0.45}),
)
"""A name, seconds, how many messages, and the share of Dramatiq's rate that is the goal."""


def bench(places: Places, options: Options) -> list[Row]:
    """Return how many messages a second run and are recorded, and which share of Dramatiq's rate that is."""
    rounds = options.rounds or (2 if options.quick else ROUNDS)
    rows = []
    with RabbitmqServer() as broker:
        for name, seconds, count, goals in WORK:
            messages = count // 4 if options.quick else count
            ours, theirs = [], []
            for number in range(rounds):
                with suppress(CannotInstall):
                    theirs.append(measure_dramatiq(broker.url, messages, seconds))
                ours.append(measure_ours(broker.url, places, messages, seconds))
                beside = f"Dramatiq {theirs[-1]:,.0f}/s" if theirs else "Dramatiq is not installed"
                say(f"  {name}, round {number + 1}: ours {ours[-1]:,.0f}/s, {beside}, load {load()}")
            rate = statistics.median(ours)
            rows.append(Row("rabbitmq", f"messages {name}: done and recorded", f"{rate:,.0f}/s"))
            if theirs:
                share, goal = rate / statistics.median(theirs), goals.get(places.kind)
                rows += [
                    Row("rabbitmq", f"messages {name}, Dramatiq: done", f"{statistics.median(theirs):,.0f}/s"),
                    Row(
                        "rabbitmq", f"messages {name}: share of Dramatiq's rate; load {load()}", f"{share:.0%}",
                        "" if goal is None else f"≥ {goal:.0%}", None if goal is None else share >= goal,
                    ),
                ]  # fmt: skip
    return rows


def measure_ours(broker: str, places: Places, messages: int, seconds: float) -> float:
    """Return the rate of our consumer: until the store has recorded the last one."""
    queue, url = f"bench-{uuid.uuid4().hex[:8]}", places.fresh()
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
        for number in range(messages):
            properties = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
            channel.basic_publish("", queue, json.dumps({"number": number}).encode(), properties)
    environment = {
        "CRONSENSUS_URL": places.by_way(url), "BROKER": broker, "QUEUE": queue, "WORK": str(seconds),
        "MESSAGES": str(messages), "THREADS": str(THREADS),
    }  # fmt: skip
    with process([sys.executable, str(APPS / "consuming.py")], environment) as read:
        begun, _ = read()
        time.sleep(1)  # reading would slow down what is left to record
        with closing(open_store(url)) as store:
            wait_until(lambda: len(read_ends(store, queue)) == messages, PATIENCE, "a record of each message")
            ended = max(read_ends(store, queue))
    return (messages - messages // 10) / (ended - begun)


def read_ends(store: Store, queue: str) -> list[float]:
    """Return when each message was recorded as done."""
    where = OccurrenceFilter(job=f"rabbitmq:{queue}", states=(State.SUCCEEDED,))
    found: list[Occurrence] = []
    while page := store.occurrences(where, after=found[-1].id if found else None, limit=500, newest_first=False):
        found += page
    return [one.finished_at.timestamp() for one in found if one.finished_at is not None]


def measure_dramatiq(broker: str, messages: int, seconds: float) -> float:
    """Return the rate of Dramatiq: until the last one has run."""
    python = str(python_of("dramatiq"))
    environment = {
        "BROKER": broker, "WORK": str(seconds), "MESSAGES": str(messages), "THREADS": str(THREADS),
        "QUEUE": f"bench-{uuid.uuid4().hex[:8]}", "dramatiq_queue_prefetch": str(PREFETCH),
    }  # fmt: skip
    app = Path(__file__).parent / "peers" / "apps" / "dramatiq_rabbitmq_app.py"
    subprocess.run([python, str(app), "fill"], env={**os.environ, **environment}, check=True)
    with process([python, str(app), "work"], environment) as read:
        begun, ended = read()
    return (messages - messages // 10) / (ended - begun)


@contextmanager
def process(command: list[str], environment: dict[str, str]) -> Iterator[Callable[[], list[float]]]:
    """Start a process; give what waits for the times at which it had run a tenth, and all."""
    with tempfile.TemporaryDirectory(prefix="cronsensus-bench-") as folder:
        times, log = Path(folder) / "times", Path(folder) / "log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        with log.open("wb") as out:
            started = subprocess.Popen(
                command, env={**kept, **QUIET, **environment, "TIMES": str(times)}, stdout=out, stderr=out
            )

        def has_ended() -> bool:
            if started.poll() is not None:
                raise RuntimeError(f"{command} has ended: {log.read_text()[-2000:]}")
            time.sleep(0.02)  # two cores: what this took would be missed by what is measured
            return times.exists() and len(times.read_text().split()) == 2

        def read() -> list[float]:
            wait_until(has_ended, PATIENCE, "the last message")
            return [float(one) for one in times.read_text().split()]

        try:
            yield read
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def load() -> str:
    """Return the machine's load of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"
