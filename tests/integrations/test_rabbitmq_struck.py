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
MESSAGES = int(os.environ.get("CHAOS_MESSAGES", "4000"))
"""With 20000 a run takes some minutes."""
RESTARTS = 1 if MESSAGES < 20000 else 2
KILL_EVERY = 3.0
PATIENCE = 90.0
HELD_FOR = 60
MOST_DELIVERIES = 15


class Consumers:
    """Processes that consume one queue of a broker of their own."""

    work = "0"
    room = 8

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
                    "ROOM": str(self.room),
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

    def count_successes(self, ledger: list[Occurrence]) -> dict[int, int]:
        """How many of its attempts are recorded as done, of each."""
        store = self.scheduler._opened.shared()
        found: Counter[int] = Counter()
        for start in range(0, len(ledger), 200):
            runs = store.runs(*(one.id for one in ledger[start : start + 200]))
            found.update(one.occurrence for one in runs if one.end == "succeeded")
        return dict(found)

    def count_lines(self, what: str) -> Counter[str]:
        """How often each message was ``delivered``, or ``begun``."""
        out = self.folder / "out"
        lines = out.read_text().splitlines() if out.exists() else []
        return Counter(line.split()[2] for line in lines if line.startswith(what))

    def begun(self) -> Counter[str]:
        return self.count_lines("begun")

    def has_done_all(self) -> bool:
        """Whether all that is recorded has succeeded, and nothing waits."""
        return {one.state for one in self.ledger()} == {State.SUCCEEDED} and not any(self.counts().values())

    def stop(self) -> list[int]:
        for one in self.processes:
            one.terminate()
        return [one.wait(PATIENCE) for one in self.processes]

    def close(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait(PATIENCE)
        self.scheduler._opened.close()


def wait_for(
    condition: Callable[[], Any], what: str, meanwhile: Callable[[], object], *, patience: float = PATIENCE
) -> Any:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if found := condition():
            return found
        meanwhile()
        threading.Event().wait(0.1)
    raise AssertionError(f"{what} did not come")


@pytest.fixture
def broker() -> Iterator[RabbitmqServer]:
    try:
        broker = RabbitmqServer()
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with broker:
        yield broker


@pytest.fixture
def consumers(broker: RabbitmqServer, request: pytest.FixtureRequest) -> Iterator[Consumers]:
    store = request.getfixturevalue(f"{getattr(request, 'param', 'postgres')}_url")
    with scratch_folder() as folder, contextlib.closing(Consumers(folder, broker, store)) as consumers:
        yield consumers


@pytest.mark.timeout(240 + MESSAGES / 20)
@pytest.mark.parametrize("consumers", ["postgres", "redis"], indirect=True)
def test_of_messages_that_come_twice_to_consumers_that_are_killed_none_is_lost_or_recorded_twice(
    consumers: Consumers,
) -> None:
    dice = random.Random(os.environ.get("CHAOS_SEED", "48"))
    ids = [f"m{number}" for number in range(MESSAGES)]
    sent = ids + dice.sample(ids, MESSAGES // 10)
    dice.shuffle(sent)
    for _ in range(3):
        consumers.start()
    publishing = threading.Thread(target=consumers.publish, args=(*sent,))
    began = time.monotonic()
    publishing.start()
    struck = Counter[str]()
    next_kill = began + KILL_EVERY

    def strike() -> None:
        nonlocal next_kill
        consumers.replace_dead()
        if time.monotonic() < next_kill:
            return
        dice.choice(consumers.processes).send_signal(signal.SIGKILL)
        struck["kills"] += 1
        if struck["kills"] % 2 == 0 and struck["restarts"] < RESTARTS:
            consumers.broker.restart()
            struck["restarts"] += 1
        next_kill = time.monotonic() + KILL_EVERY

    patience = PATIENCE + MESSAGES / 50
    wait_for(lambda: len(consumers.begun()) == MESSAGES, "a run of each message", strike, patience=patience)
    took = time.monotonic() - began
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
    assert consumers.count_successes(ledger) == dict.fromkeys((one.id for one in ledger), 1)
    assert struck["kills"] >= 2, struck
    assert struck["restarts"] == RESTARTS
    # More than one run has only what was cut off: at most the threads of each that was killed.
    assert sum(begun.values()) - MESSAGES <= struck["kills"] * 8
    print(
        f"{len(sent)} sent, {struck}, {took:.0f} s, delivered {sum(consumers.count_lines('delivered').values())}, "
        f"begun {sum(begun.values())}, crashes counted {sum(one.crashes for one in ledger)}"
    )


def test_a_message_that_waits_a_minute_for_its_copy_is_delivered_a_few_times(
    broker: RabbitmqServer, postgres_url: str
) -> None:
    with scratch_folder() as folder, contextlib.ExitStack() as stack:
        rooms = {}
        for room in (8, 0):  # it is held in a process, or waits in the delay queue
            (folder / str(room)).mkdir()
            consumers = stack.enter_context(contextlib.closing(Consumers(folder / str(room), broker, postgres_url)))
            consumers.work, consumers.room = str(HELD_FOR), room
            consumers.publish("long", "long")
            consumers.start()
            consumers.start()
            rooms[room] = consumers
        for consumers in rooms.values():
            wait_for(consumers.begun, "a run", lambda: None)
        for consumers in rooms.values():
            wait_for(consumers.has_done_all, "its end", lambda: None, patience=HELD_FOR + PATIENCE)
        delivered = {room: consumers.count_lines("delivered")["long"] for room, consumers in rooms.items()}
        print("delivered", delivered)
        assert all(consumers.begun() == {"long": 1} for consumers in rooms.values())
        assert delivered[8] == 2
        # The first delivery is that of the one that runs.
        assert delivered[0] - 1 <= MOST_DELIVERIES


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
