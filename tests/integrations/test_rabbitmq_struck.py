"""Consumers of RabbitMQ in real processes: killed at random, while the broker is restarted, and killed by a message."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from cronsensus import Scheduler
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from tests.scratch import scratch_folder
from tests.servers.programs import ServiceMissing
from tests.servers.rabbitmq import RabbitmqServer

APP = Path(__file__).parent / "rabbitmq_app.py"
MESSAGES = 2000
PATIENCE = 90.0


class Consumers:
    """Processes that consume one queue of a broker of their own."""

    work = "0"

    def __init__(self, folder: Path, broker: RabbitmqServer, store: str) -> None:
        self.folder, self.broker, self.store = folder, broker, store
        self.queue = f"struck-{uuid.uuid4().hex[:8]}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = Scheduler(store)

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, APP],
                env={
                    **os.environ, "BROKER": self.broker.url, "QUEUE": self.queue, "OUT": str(self.folder / "out"),
                    "CRONSENSUS_URL": self.store, "WORK": self.work,
                },
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self.processes.append(started)
        return started

    def replace_dead(self) -> None:
        for one in list(self.processes):
            if one.poll() is not None:
                self.processes.remove(one)
                self.start()

    def publish(self, *ids: str) -> None:
        """Publish until the broker has confirmed each, also over its restart."""
        left = deque(ids)
        while left:
            try:
                with pika.BlockingConnection(pika.URLParameters(self.broker.url)) as connection:
                    channel = connection.channel()
                    channel.queue_declare(self.queue, durable=True, arguments={"x-queue-type": "quorum"})
                    channel.confirm_delivery()
                    while left:
                        properties = pika.BasicProperties(message_id=left[0], delivery_mode=2)
                        channel.basic_publish("", self.queue, left[0].encode(), properties, mandatory=True)
                        left.popleft()
            except (AMQPError, OSError):
                threading.Event().wait(0.1)

    def counts(self) -> dict[str, int]:
        """How many wait in each of the queues, of which none is with a consumer."""
        with pika.BlockingConnection(pika.URLParameters(self.broker.url)) as connection:
            channel = connection.channel()
            names = (self.queue, f"{self.queue}.failed", f"{self.queue}.held")
            return {name: channel.queue_declare(name, passive=True).method.message_count for name in names}

    def ledger(self) -> list[Occurrence]:
        found: list[Occurrence] = []
        where = OccurrenceFilter(job=f"rabbitmq:{self.queue}")
        store = self.scheduler._opened.shared()
        while page := store.occurrences(where, after=found[-1].id if found else None, limit=500, newest_first=False):
            found += page
        return found

    def begun(self) -> Counter[str]:
        out = self.folder / "out"
        lines = out.read_text().splitlines() if out.exists() else []
        return Counter(line.split()[2] for line in lines if line.startswith("begun"))

    def stop(self) -> list[int]:
        for one in self.processes:
            one.terminate()
        return [one.wait(PATIENCE) for one in self.processes]

    def close(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait(PATIENCE)
        self.scheduler._opened.close()


def wait_for(condition: Callable[[], Any], what: str, meanwhile: Callable[[], object]) -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        meanwhile()
        threading.Event().wait(0.1)
    raise AssertionError(f"{what} did not come")


@pytest.fixture
def consumers(postgres_url: str) -> Iterator[Consumers]:
    try:
        broker = RabbitmqServer()
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with scratch_folder() as folder, broker, contextlib.closing(Consumers(folder, broker, postgres_url)) as consumers:
        yield consumers


def test_of_messages_that_come_twice_to_consumers_that_are_killed_none_is_lost_or_recorded_twice(
    consumers: Consumers,
) -> None:
    dice = random.Random(os.environ.get("CHAOS_SEED", "48"))
    ids = [f"m{number}" for number in range(MESSAGES)]
    sent = ids + dice.sample(ids, MESSAGES // 10)
    dice.shuffle(sent)
    for _ in range(3):
        consumers.start()
    publishing = threading.Thread(target=consumers.publish, args=sent)
    publishing.start()
    struck = Counter[str]()
    next_kill = time.monotonic() + 2

    def strike() -> None:
        nonlocal next_kill
        consumers.replace_dead()
        if time.monotonic() < next_kill:
            return
        if struck["kills"] == 3 and not struck["restarts"]:
            consumers.broker.restart()
            struck["restarts"] += 1
        else:
            dice.choice(consumers.processes).send_signal(signal.SIGKILL)
            struck["kills"] += 1
        next_kill = time.monotonic() + 1.5

    wait_for(lambda: len(consumers.begun()) == MESSAGES, "a run of each message", strike)
    publishing.join(PATIENCE)
    consumers.replace_dead()
    wait_for(
        lambda: Counter(one.state for one in consumers.ledger()) == {State.SUCCEEDED: MESSAGES},
        "an end of each message",
        consumers.replace_dead,
    )
    # What the last ones held, or the delay queue has, comes again and is found to be done.
    wait_for(lambda: set(consumers.counts().values()) == {0}, "empty queues", lambda: None)
    ends = consumers.stop()
    assert ends.count(0) >= 2, ends  # one that has replaced a dead one just now may not listen yet
    assert consumers.counts() == dict.fromkeys(consumers.counts(), 0)
    ledger, begun = consumers.ledger(), consumers.begun()
    assert {one.key for one in ledger} == set(ids)
    assert len(ledger) == MESSAGES
    assert struck["kills"] >= 4, struck
    assert struck["restarts"] == 1
    # More than one run has only what was cut off: at most the threads of each that was killed.
    assert sum(begun.values()) - MESSAGES <= struck["kills"] * 8
    print(struck, "begun", sum(begun.values()), "crashed", sum(one.crashes for one in ledger))


def test_a_message_that_kills_its_consumer_is_put_aside_and_the_others_are_done(consumers: Consumers) -> None:
    consumers.work = "0.5"  # those beside it do not end before it kills them
    ids = [f"m{number}" for number in range(7)]  # they run beside it, each time
    consumers.publish("deadly", *ids)
    consumers.start()
    wait_for(
        lambda: len(ledger := consumers.ledger()) == 8 and all(one.state.final for one in ledger),
        "an end of all",
        consumers.replace_dead,
    )
    wait_for(lambda: consumers.counts()[f"{consumers.queue}.failed"] == 1, "a dead letter", consumers.replace_dead)
    states = {one.key: (one.state, one.crashes) for one in consumers.ledger()}
    assert states.pop("deadly") == (State.FAILED, 5)
    assert consumers.begun()["deadly"] == 5
    assert {state for state, _ in states.values()} == {State.SUCCEEDED}
