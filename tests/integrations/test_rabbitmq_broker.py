"""Consumers of a broker of their own, which is in alarm, loses patience, or counts deliveries."""

import threading
import time
from collections.abc import Iterator

import pika
import pytest

from cronsensus.integrations.rabbitmq import Message, consumer
from cronsensus.model.states import State
from tests.integrations.rabbitmq_queue import PATIENCE, Ledger, Queue, running, wait_for
from tests.servers.programs import ServiceMissing
from tests.servers.rabbitmq import RabbitmqServer

IMPATIENCE = 4
"""Seconds after which the broker closes the channel of a consumer that has not acknowledged."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitmqServer]:
    try:
        made = RabbitmqServer(
            settings=[f"consumer_timeout = {IMPATIENCE * 1000}"],
            advanced="[{rabbit, [{channel_tick_interval, 1000}]}].",
        )
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.fixture
def rabbitmq_url(broker: RabbitmqServer) -> str:
    """Return the broker of these tests, for the queue and the ledger that all tests of consumers have."""
    return broker.url


def test_in_a_memory_alarm_what_succeeds_is_acknowledged_and_dead_letters_wait(
    broker: RabbitmqServer, ledger: Ledger, queue: Queue
) -> None:
    in_alarm = threading.Event()

    @consumer(ledger.scheduler(), queue.name, attempts=1, room=20)
    def charge(body: bytes, message: Message) -> None:
        in_alarm.wait(PATIENCE)
        if "bad" in (message.message_id or ""):
            raise ValueError("declined")

    def count_messages(name: str) -> int:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as watcher:  # one that has not published
            return int(watcher.channel().queue_declare(name, passive=True).method.message_count)

    good, bad = [f"good-{number}" for number in range(10)], [f"bad-{number}" for number in range(3)]
    queue.send(None, *bad, *good, body=b"")
    try:
        with running(charge, queue.url):
            queue.dead_letters(1)  # so its connection has published, and is to be blocked
            broker.control("set_vm_memory_high_watermark", "absolute", "1MB")
            in_alarm.set()
            ledger.wait_for_end(*good, *bad)
        # All that succeeded is acknowledged. The broker may have read one dead letter before it blocked the connection.
        names = (queue.name, f"{queue.name}.failed")
        left = wait_for(
            lambda: sum(counts := [count_messages(one) for one in names]) >= len(bad) and counts, "the bad ones"
        )
        assert len(bad) - 1 <= left[0] <= len(bad)
    finally:
        broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
    with running(charge, queue.url):
        letters = queue.dead_letters(sum(left))  # of the one that the broker had read there are two
    wait_for(lambda: queue.left == 0, "an empty queue")
    assert {one.message_id for one, _ in letters} <= set(bad)


def test_a_run_that_is_longer_than_the_patience_of_the_broker_runs_once(ledger: Ledger, queue: Queue) -> None:
    begun: list[str | None] = []
    goes_on = threading.Event()

    @consumer(ledger.scheduler(), queue.name)
    def charge(body: bytes, message: Message) -> None:
        begun.append(message.message_id)
        if message.message_id == "long":
            goes_on.wait(PATIENCE * 2)

    queue.send("long", body=b"")
    with running(charge, queue.url):
        wait_for(lambda: begun, "a run")
        time.sleep(IMPATIENCE * 2.5)  # the broker closes the channel and delivers it again, twice
        queue.send("other", body=b"")
        ledger.wait_for_end("other")
        goes_on.set()
        [end] = ledger.wait_for_end("long")
    assert begun == ["long", "other"]
    assert (end.state, end.attempt) == (State.SUCCEEDED, 1)
    wait_for(lambda: queue.left == 0, "an empty queue")


def test_messages_that_were_fetched_and_never_ran_are_warned_of_before_a_limit_drops_them(
    broker: RabbitmqServer, ledger: Ledger, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    broker.control("set_policy", "limited", f"^{queue.name}$", '{"delivery-limit":3}', "--apply-to", "queues")
    ids = [f"m{number}" for number in range(16)]
    queue.send(*ids, body=b"")

    def fetch_and_die(times: int) -> None:
        for _ in range(times):
            with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
                fetched = connection.channel().consume(queue.name)
                for _ in ids:
                    next(fetched)

    fetch_and_die(2)

    @consumer(ledger.scheduler(), queue.name)
    def charge(body: bytes) -> None: ...

    with running(charge, queue.url):
        ends = ledger.wait_for_end(*ids)
    assert {one.state for one in ends} == {State.SUCCEEDED}
    assert caplog.text.count("it had been fetched by consumers that went away before it ran") == 1
    queue.send(*(f"more-{id_}" for id_ in ids), body=b"")
    fetch_and_die(4)
    wait_for(lambda: queue.left == 0, "that the broker drops them all, although none has run")
