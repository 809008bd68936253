"""A consumer whose connection is lost while messages run."""

import threading
from collections.abc import Iterator

import pytest

from cronsensus.integrations.rabbitmq import Message, consumer
from cronsensus.integrations.rabbitmq.deliveries import Deliveries
from cronsensus.integrations.rabbitmq.publishing import Publisher
from cronsensus.model.states import State
from tests.integrations.rabbitmq_queue import PATIENCE, Ledger, Queue, running, wait_for
from tests.servers.proxy import Proxy


@pytest.fixture
def proxy(queue: Queue) -> Iterator[Proxy]:
    with Proxy(queue.url) as proxy:
        proxy.url = proxy.url.replace("guest@", "guest:guest@")
        yield proxy


def test_what_ends_while_there_is_no_connection_does_not_keep_later_messages_from_being_acknowledged(
    ledger: Ledger, queue: Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, is_lost = threading.Event(), threading.Event()
    forget_unbegun = Deliveries.forget_unbegun

    def forget(deliveries: Deliveries) -> None:
        forget_unbegun(deliveries)
        is_lost.set()

    monkeypatch.setattr(Deliveries, "forget_unbegun", forget)
    monkeypatch.setattr("cronsensus.integrations.rabbitmq.connection.FIRST_PAUSE", 1.0)

    @consumer(ledger.scheduler(), queue.name)
    def charge(body: bytes, message: Message) -> None:
        if message.message_id == "m1":
            begun.set()
            is_lost.wait(PATIENCE)

    ids = [f"later-{number}" for number in range(50)]  # more than are fetched without an acknowledgement
    queue.send("m1", body=b"")
    with running(charge, proxy.url):
        assert begun.wait(PATIENCE)
        proxy.cut()
        ledger.wait_for_end("m1")
        queue.send(*ids, body=b"")
        ledger.wait_for_end(*ids)
    wait_for(lambda: queue.left == 0, "an acknowledgement of each")


def test_a_message_that_fails_after_its_connection_was_lost_is_tried_again_by_its_next_delivery(
    ledger: Ledger, queue: Queue, proxy: Proxy
) -> None:
    attempts: list[bool] = []
    begun, goes_on = threading.Event(), threading.Event()

    @consumer(ledger.scheduler(), queue.name, backoff="100ms")
    def charge(body: bytes, message: Message) -> None:
        if message.message_id != "m1":
            return
        attempts.append(message.redelivered)
        if len(attempts) == 1:
            begun.set()
            goes_on.wait(PATIENCE)
            raise ValueError("declined")

    queue.send("m1", body=b"")
    with running(charge, proxy.url):
        assert begun.wait(PATIENCE)
        proxy.cut()
        queue.send("m2", body=b"")  # behind the one that comes again
        ledger.wait_for_end("m2")
        goes_on.set()
        [end] = ledger.wait_for_end("m1")
    assert (end.state, end.attempt) == (State.SUCCEEDED, 2)
    assert attempts == [False, True]
    wait_for(lambda: queue.left == 0, "an empty queue")


def test_the_connection_that_publishes_dead_letters_is_closed_when_it_is_idle_and_opened_again(
    ledger: Ledger, queue: Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    drop_connection = Publisher._drop_connection

    def drop(publisher: Publisher) -> None:
        closed.append(publisher._connection is not None)
        drop_connection(publisher)

    monkeypatch.setattr(Publisher, "_drop_connection", drop)
    monkeypatch.setattr("cronsensus.integrations.rabbitmq.publishing.IDLE_SECONDS", 0.1)

    @consumer(ledger.scheduler(), queue.name, attempts=1)
    def charge(body: bytes) -> None:
        raise ValueError("declined")

    with running(charge, proxy.url):
        queue.send("m1", body=b"")
        wait_for(lambda: closed == [True], "that it is closed")
        queue.send("m2", body=b"")
        wait_for(lambda: closed == [True, True], "that it is opened, and closed again")
        assert proxy.connections == 3
