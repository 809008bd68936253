"""Entries of an index that the row denies: nobody runs or waits for them.

Nodes of a version that does not know the sets of a batch's items leave them there; a damaged append-only file anywhere.
Redis 7.0 starts without the transaction in whose middle the file ends, but leaves the begin of it in the file; at the
next start that half is carried out after all.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from cronsensus.model.batch import item_key
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.stores.redis import RedisStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import settle, take
from cronsensus.triggers import every
from tests.stores.redis.conftest import LEASE, Opening, a_claim, queue, succeeded

HOUR = timedelta(hours=1)


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """Write beside the store."""
    with redis.Redis.from_url(redis_url.partition("?")[0]) as client:
        yield client


@pytest.fixture
def store(redis_url: str, opening: Opening) -> RedisStore:
    return opening(redis_url)


def key(store: RedisStore, name: str) -> bytes:
    return store._keyspace.meta.removesuffix(b"meta") + name.encode()


def text(number: int) -> str:
    return f"{number:014d}"


def job_named(store: RedisStore, raw: redis.Redis, name: str) -> bytes:
    """Return the key of a job."""
    found = raw.hget(key(store, "names"), name)
    assert isinstance(found, bytes)
    return key(store, "job:") + found


def over(store: RedisStore) -> int:
    """Let an occurrence run and succeed; return its number."""
    claim = a_claim(store)
    settle(store, [succeeded(claim)])
    return claim.id


def test_what_is_over_is_listed_to_no_session_and_gives_no_short_lease(store, raw):
    number = over(store)
    raw.zadd(key(store, "holds:s1"), {text(number): number})
    raw.zadd(key(store, "holding"), {"s1": 1})
    renewal = store.renew("s1", lease=LEASE, idle_lease=HOUR)
    assert (renewal.held, renewal.lease) == ((), HOUR)
    assert store.look().holders == ()


@pytest.mark.parametrize("end", ["close_session", "reclaim"])
def test_what_is_over_does_not_come_back_when_its_session_ends(store, raw, end):
    number = over(store)
    raw.zadd(key(store, "holds:s1"), {text(number): number})
    assert getattr(store, end)("s1" if end == "close_session" else ["s1"]) == []
    found = store.occurrence(number)
    assert found is not None
    assert (found.state, found.crashes) == (State.SUCCEEDED, 0)


def test_what_is_over_is_not_claimed_again_however_often_its_line_says_so(store, raw):
    number = over(store)
    raw.zadd(key(store, "line:0:000000001:w"), {text(number): 0})
    raw.zadd(key(store, "level:0"), {f"{text(number)}:000000001:w": 0})
    raw.zadd(key(store, "levels"), {"0": 0})
    raw.zadd(key(store, "pending"), {text(number): 0})
    raw.zadd(key(store, "expiring"), {text(number): 0})
    store.enqueue([Item(job="queue")])
    claims = take(store, "s1", 10, ["queue"], lease=LEASE)
    assert [claim.id for claim in claims] == [number + 1]
    assert take(store, "s1", 10, ["queue"], lease=LEASE) == []
    assert not store.look().backlog
    found = store.occurrence(number)
    assert found is not None
    assert (found.state, found.attempt) == (State.SUCCEEDED, 1)


def test_a_number_that_was_given_again_is_not_run_from_the_line_of_the_job_that_had_it(store, raw):
    """Without this the occurrence of the one job was started from the line of the other, over and over."""
    queue(store)
    queue(store, "other")
    store.open_session(a_session("s1"), lease=LEASE)
    (made,) = store.enqueue([Item(job="queue")])
    number = job_named(store, raw, "other").decode().rpartition(":")[2]
    raw.zadd(key(store, f"line:1:{number}:w"), {text(made.id): 0})
    raw.zadd(key(store, "level:1"), {f"{text(made.id)}:{number}:w": 0})
    for _ in range(5):
        for claim in take(store, "s1", 10, ["queue", "other"], lease=LEASE):
            assert claim.job == "queue"
            settle(store, [succeeded(claim)])
    assert len(store.runs(made.id)) == 1
    assert raw.zcard(key(store, f"line:1:{number}:w")) == 0


def test_what_is_over_or_gone_blocks_no_job_that_runs_one_at_a_time(store, raw):
    spec = JobSpec(name="queue", function="queue", trigger=None, policies=Policies.read({"concurrency": 1}))
    store.define_jobs([spec], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    first = store.trigger("queue", by="test")
    (claim,) = take(store, "s1", 1, ["queue"], lease=LEASE)
    settle(store, [succeeded(claim)])
    job = job_named(store, raw, "queue")
    gone = text(first.id + 7)
    for name in (text(first.id), gone):
        raw.sadd(job + b":busy", name)
        raw.hset(job + b":running", name, "s1")
        raw.zadd(job + b":serial", {name: 0})
    second = store.trigger("queue", by="test")
    claims = [one for _ in range(4) for one in take(store, "s1", 1, ["queue"], lease=LEASE)]
    assert [one.id for one in claims] == [second.id]
    assert [one.state for one in store.occurrences(OccurrenceFilter(states=(State.RUNNING,)))] == [State.RUNNING]


def a_batch(store: RedisStore, items: int) -> tuple[int, list[int]]:
    """Enqueue a batch and its items."""
    queue(store, keep="1m")
    (batch,) = store.enqueue([Item(job="queue")])
    wanted = [
        Item(job="queue", key=item_key(batch.id, str(n)), origin=Origin.BATCH, parent=batch.id) for n in range(items)
    ]
    return batch.id, [one.id for one in store.enqueue(wanted)]


def test_a_batch_does_not_wait_for_items_that_are_over_or_gone(store, raw):
    batch, items = a_batch(store, 4)
    store.open_session(a_session("s1"), lease=LEASE)
    claims = [one for one in take(store, "s1", 10, ["queue"], lease=LEASE) if one.parent]
    settle(store, [succeeded(claim) for claim in claims[:3]])
    stale = {text(number): number for number in (*items, items[-1] + 7)}
    for state in ("pending", "running"):
        raw.zadd(key(store, f"items:{text(batch)}:{state}"), stale)
    assert store.children([batch])[batch].open
    settle(store, [succeeded(claims[3])])
    found = store.children([batch], limit=10)[batch]
    assert (found.open, found.succeeded) == (0, 4)
    assert store.children([batch], limit=10)[batch] == found


def test_an_item_that_stands_in_two_sets_is_read_once(store, raw):
    batch, items = a_batch(store, 5)
    raw.zadd(key(store, f"items:{text(batch)}:running"), {text(number): number for number in items})
    where = OccurrenceFilter(parent=batch)
    assert [one.id for one in store.occurrences(where)] == items[::-1]
    assert [one.id for one in store.occurrences(where, limit=3, newest_first=False)] == items[:3]
    assert [one.id for one in store.occurrences(where, after=items[1], newest_first=False)] == items[2:]


def test_what_is_over_is_not_looked_at_as_parked_for_ever(store, raw):
    number = over(store)
    raw.zadd(key(store, "parked"), {text(number): number})
    assert store.look().parked
    assert store.parked() == []
    assert not store.look().parked


def test_a_page_with_what_cannot_be_read_is_filled_from_the_next(store: RedisStore, raw: redis.Redis) -> None:
    """Or it would be taken for the last: the audit would end there, and say that all is well."""
    store.define_jobs([JobSpec(name=f"job-{n}", function="f", trigger=every("1h")) for n in range(5)], release="r1")
    store.pause("job-1", by="somebody", why="a test")
    raw.hset(job_named(store, raw, "job-1"), "spec", "no JSON")
    entry: Any
    [entry] = raw.zrange(key(store, "trail"), -1, -1)
    raw.zadd(key(store, "trail"), {b"broken": (raw.zscore(key(store, "trail"), entry) or 0) + 1})
    ranges = job_named(store, raw, "job-3") + b":ranges"
    raw.zadd(ranges, {b"broken": 1, f"{text(2)} 0 0 1 missed - late".encode(): 2})
    raw.zadd(job_named(store, raw, "job-3") + b":lasts", {text(1): 1, text(2): 1})
    assert [job.spec.name for job in store.jobs(limit=3)] == ["job-0", "job-2", "job-3"]
    assert [one.action for one in store.trail(limit=1)] == ["pause"]
    assert [one.id for one in store.ranges("job-3", limit=1)] == [2]
