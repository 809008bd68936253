"""Servers and connections that fail, and processes that fork."""

import os
import threading
from datetime import timedelta

import pytest
import redis

from cronsensus.errors import LeaseLost, StoreError, StoreUnavailable
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import poller
from cronsensus.stores.redis import pubsub
from cronsensus.stores.redis.redis_wait_queues import RedisQueues
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import give_back, settle, take
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.stores.redis.conftest import LEASE, Opening, a_claim, queue, succeeded, wait_until

SOON = timedelta(milliseconds=50)


def heard_within(store, seconds: float = 30.0) -> threading.Event:
    """Listen on another thread as a node does: again and again, whatever fails."""
    heard, stopped = threading.Event(), threading.Event()

    def listen() -> None:
        while not heard.is_set() and not stopped.is_set():
            try:
                if store.wait(seconds):
                    heard.set()
            except StoreError:
                stopped.wait(0.02)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    return heard


# --- servers --------------------------------------------------------------------------------------------------------


def test_a_server_that_went_away_is_an_error_and_its_return_is_none(opening: Opening) -> None:
    with RedisServer(durable=True) as server:
        store = opening(server.url)
        claim = a_claim(store)
        server.kill9()
        for verb in (store.look, store.counts, lambda: settle(store, [succeeded(claim)]), store.check):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                verb()
        store.notify()
        server.start()
        # It knows neither connections nor scripts any more, but what it was told.
        assert settle(store, [succeeded(claim)])[0].accepted
        assert State.SUCCEEDED is store.occurrences(OccurrenceFilter())[0].state


def test_a_connection_whose_answer_came_too_late_is_never_used_again(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url + "?timeout=200ms")
    queue(store)
    store.enqueue([Item(job="queue", key="early")])  # the server knows the script from here on
    assert store.counts().pending == 1
    own_server.pause()
    try:
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            store.enqueue([Item(job="queue", key="late")])
    finally:
        own_server.resume()
    # The server did it after all. Had the connection been kept, the answers would be one behind from here on.
    wait_until(lambda: store.counts().pending == 2, "the late enqueue")
    again = store.enqueue([Item(job="queue", key="late")])[0]
    assert not again.created
    job = store.job("queue")
    assert job is not None
    assert job.spec.name == "queue"
    assert store.now() > job.created_at


def test_a_verb_whose_answer_was_lost_is_repeated_and_happened_once(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url + "?timeout=200ms")
    claim = a_claim(store)
    own_server.pause()
    try:
        with pytest.raises(StoreUnavailable):
            settle(store, [succeeded(claim)])
    finally:
        own_server.resume()
    assert settle(store, [succeeded(claim)])[0].accepted
    assert [run.end for run in store.runs(claim.id)] == ["succeeded"]


def test_an_exception_in_the_middle_of_an_answer_costs_the_connection(
    own_server: RedisServer, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opening(own_server.url)
    queue(store)
    read = redis.connection.Connection.read_response

    def interrupted(self, *args, **more):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(redis.connection.Connection, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.enqueue([Item(job="queue")])
    assert redis.connection.Connection.read_response is read
    assert store.now() is not None
    assert store.counts().jobs == 1


def test_a_cut_idle_connection_costs_nothing(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    queue(store)
    with redis.Redis.from_url(own_server.url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert store.enqueue([Item(job="queue")])[0].created


def test_a_lease_is_lost_by_the_servers_clock(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    queue(store)
    store.open_session(a_session("s1"), lease=SOON)
    wait_until(lambda: not store.look().sessions, "the end of the lease", 5)
    assert not store.renew("s1", lease=LEASE).alive
    with pytest.raises(LeaseLost):
        take(store, "s1", 1, ["queue"], lease=LEASE)


# --- wake-ups -------------------------------------------------------------------------------------------------------


def test_a_cut_subscription_comes_back(own_server: RedisServer, opening: Opening) -> None:
    store, other = opening(own_server.url), opening(own_server.url)
    with redis.Redis.from_url(own_server.url) as client:
        heard = heard_within(store)
        wait_until(lambda: client.pubsub_numsub(store._keyspace.channel)[0][1] == 1, "the subscription")
        before = client.client_list(_type="pubsub")[0]["id"]
        client.client_kill_filter(_type="pubsub")
        wait_until(
            lambda: [one["id"] for one in client.client_list(_type="pubsub") if one["id"] != before], "another one"
        )
        wait_until(lambda: client.pubsub_numsub(store._keyspace.channel)[0][1] == 1, "the subscription")
        other.notify()
        assert heard.wait(60)


def test_a_subscription_that_is_open_and_delivers_nothing_is_noticed_and_made_anew(
    own_server: RedisServer, opening: Opening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poller, "SILENT", 0.2)
    monkeypatch.setattr(pubsub, "ANSWER_WITHIN", 0.5)
    with Proxy(own_server.url) as proxy:
        store, other = opening(proxy.url), opening(own_server.url)
        heard = heard_within(store, 0.1)
        assert not heard.wait(1.0)  # it is asked, answers, and stays
        assert not caplog.text
        proxy.drop("down")
        wait_until(lambda: "delivers nothing; it is made anew" in caplog.text, "the warning")
        proxy.pass_on()
        other.notify()
        assert heard.wait(60)


def test_hints_survive_a_restart_of_the_server(opening: Opening) -> None:
    with RedisServer(durable=False) as server:
        store, other = opening(server.url), opening(server.url)
        heard = heard_within(store, 60.0)
        with redis.Redis.from_url(server.url) as client:
            wait_until(lambda: client.pubsub_numsub(store._keyspace.channel)[0][1] == 1, "the subscription")
        server.kill9()
        server.start()
        for _ in range(3000):
            other.notify()
            if heard.wait(0.01):
                break
        assert heard.is_set()


def test_an_own_hint_wakes_nobody(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    assert not store.wait(0.0)
    store.notify()
    assert not store.wait(0.05)


def test_without_a_server_a_wait_says_so(opening: Opening) -> None:
    store = opening("redis://127.0.0.1:1?connect_timeout=1s")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.wait(60)
    store.notify()


def test_the_line_of_a_dead_process_is_passed_over(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    grant = store.lock("name", "a", ttl=LEASE)
    assert grant is not None
    dead, lives = store.wait_queues(), store.wait_queues()
    dead.join_queue("name")
    lives.join_queue("name")
    assert isinstance(dead, RedisQueues)
    dead._subscription.close()  # as the end of its process would
    assert store.unlock(grant)
    assert lives.receive(30) == ["name"]
    with redis.Redis.from_url(own_server.url) as client:
        assert not [key for key in client.scan_iter() if b"queue" in key]
    lives.close()
    dead.close()


# --- forks ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parent_and_child_share_no_connection(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    queue(store)
    store.wait(0.0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"!"
        try:
            for number in range(200):
                assert store.enqueue([Item(job="queue", key=f"child {number}")])[0].key == f"child {number}"
            store.wait(0.0)
            # Its own subscription, beside the parent's.
            assert store._client.run_command("PUBSUB", "NUMSUB", store._keyspace.channel)[1] == 2
            store.close()
            answer = b"."
        finally:
            os.write(write, answer)
            os._exit(0)
    for number in range(200):
        assert store.enqueue([Item(job="queue", key=f"parent {number}")])[0].key == f"parent {number}"
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"."
    os.close(read)
    os.close(write)
    assert store.counts().pending == 400
    other = opening(own_server.url)
    heard = heard_within(store)
    for _ in range(3000):
        other.notify()
        if heard.wait(0.01):
            break
    assert heard.is_set()


# --- bounded --------------------------------------------------------------------------------------------------------


def test_what_was_pruned_leaves_nothing_behind(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    queue(store, retries=1)
    store.open_session(a_session("s0"), lease=LEASE)
    with redis.Redis.from_url(own_server.url) as client:

        def size() -> tuple[int, int]:
            keys = set(client.scan_iter())  # SCAN may show a key twice
            return len(keys), sum(client.memory_usage(key, samples=0) or 0 for key in keys)

        sizes = []
        for turn in range(4):
            name = f"s{turn + 1}"
            store.open_session(a_session(name), lease=LEASE)
            store.enqueue([Item(job="queue", key=f"{turn} {n}", args=("x" * 100,)) for n in range(50)])
            claims = take(store, name, 50, ["queue"], lease=LEASE)
            give_back(store, claims[:10])
            store.cancel(claims[0].id, by="ann", why="")
            settle(store, [succeeded(one) for one in claims[10:]])
            again = take(store, name, 50, ["queue"], lease=LEASE)
            settle(store, [succeeded(one) for one in again])
            grant = store.lock(f"lock {turn}", "holder", ttl=LEASE)
            assert grant is not None
            store.unlock(grant)
            store.lock(f"overdue {turn}", "holder", ttl=timedelta(microseconds=1))
            store.close_session(name)
            client.zadd(f"{{{store._keyspace.name}}}:ended", {name: 0})  # as if a day had passed
            assert store.prune(store.now()) == 50
            sizes.append(size())
    # The trail grows by an entry for each act of an operator; nothing else does.
    assert {sizes[0][0]} == {keys for keys, _ in sizes}
    assert sizes[-1][1] - sizes[0][1] < 3 * 1000


def test_an_idle_store_does_not_grow(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    a_claim(store)
    with redis.Redis.from_url(own_server.url) as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
        for _ in range(20):
            store.look()
            take(store, "s1", 5, ["queue"], lease=LEASE)
            store.reclaim()
            store.prune()
            store.counts()
            store.notify()
        assert before == {key: client.dump(key) for key in client.scan_iter()}
