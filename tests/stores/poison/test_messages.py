"""What is published on a channel of a store ends no wait with an error, and what comes after it is heard."""

import threading
import time
from datetime import timedelta

import psycopg
import pytest

from cronsensus.stores import open_store
from cronsensus.stores.sql.postgres.postgres_wait_queues import channel_of

TEXTS = (
    b"", b":", b"1", b"1:", b":1", b"1:2:3", b"a:b", b"1:2 3", b"9" * 5000 + b":1", b"1:" + b"9" * 5000, b"1:1e9",
    b"1:9223372036854775807", b"1:-9223372036854775808", "\N{ARABIC-INDIC DIGIT ONE}:2".encode(), b"x" * 7000,
)  # fmt: skip
PATIENCE = 30
NO_TEXTS = (b"\xff", b"\xff\x00:\xed\xa0\x80", b"\0")
"""PostgreSQL takes these for an error of whoever publishes them."""


@pytest.fixture(params=["postgres", "redis"])
def store(request):
    url = request.getfixturevalue(f"{request.param}_url")
    made = open_store(url)
    made.migrate()
    yield made
    made.close()


def publish(store, queues):
    """Publish all of it on each channel that the store and its queues listen to."""
    if store.capabilities.name == "redis":
        channels = (store._keyspace.channel, queues._subscription._channel)
        received = [
            store._client.run_command("PUBLISH", channel, text) for channel in channels for text in TEXTS + NO_TEXTS
        ]
        assert all(received)
    else:
        place = store._url.schema, store.namespace
        with psycopg.connect(**dict(store._url.connection), autocommit=True) as connection:
            for channel in (store._wake_ups.channel, channel_of(*place)):
                for text in TEXTS:
                    connection.execute("SELECT pg_notify(%s, %s)", [channel, text.decode()])


def test_poison_in_a_message_ends_no_wait_and_hides_no_later_one(store):
    queues, other = store.wait_queues(), store.sibling()
    raised, told, notified, over = [], [], [], threading.Event()

    def on_another_thread(act):
        def turns():
            while not over.is_set():
                try:
                    act()
                except Exception as error:  # noqa: BLE001 - told below
                    raised.append(error)
                    over.set()

        thread = threading.Thread(target=turns, daemon=True)
        thread.start()
        return thread

    queues.join_queue("lock")
    threads = [
        on_another_thread(lambda: notified.append(store.wait(0.05))),
        on_another_thread(lambda: told.extend(queues.receive(0.05))),
    ]
    until = time.monotonic() + PATIENCE

    def wakes():
        """Whether a notification wakes the thread, once all before it was heard."""
        while not (notified and not notified[-1]) and time.monotonic() < until and not over.wait(0.01):
            pass
        before = len(notified)
        while not any(notified[before:]) and time.monotonic() < until and not over.wait(0.01):
            other.notify()
        return any(notified[before:])

    listens = wakes()
    publish(store, queues)
    wakes_still = wakes()
    grant = other.lock("lock", "ann", ttl=timedelta(minutes=1))
    assert grant is not None
    assert other.unlock(grant)
    while "lock" not in told and time.monotonic() < until and not over.wait(0.01):
        pass
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    queues.close()
    other.close()
    assert raised == []
    assert (listens, wakes_still) == (True, True)
    assert "lock" in told
