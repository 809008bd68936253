"""What ended long ago is forgotten, however much of it there is."""

from datetime import timedelta

import pytest
import redis

from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Final, Parked
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from cronsensus.stores.values import REMEMBERED
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.timing.clock import ManualClock

DAY = timedelta(days=1)


@pytest.fixture
def raw(redis_url):
    with redis.Redis.from_url(redis_url.partition("?")[0]) as client:
        yield client


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(opening, redis_url, clock):
    return opening(redis_url, clock=clock)


def key(store, name):
    return store._keyspace.meta.removesuffix(b"meta") + name.encode()


def keys(store, raw):
    """Return what keys there are, without the space's own name."""
    space = key(store, "")
    return sorted(name.removeprefix(space).decode() for name in raw.scan_iter(match=space + b"*", count=1000))


def test_one_prune_forgets_all_sessions_that_ended_a_day_ago(store, raw, clock):
    store.open_session(a_session("s1"), lease=DAY)
    store.close_session("s1")
    [(_, ended)] = raw.zrange(key(store, "ended"), 0, -1, withscores=True)
    more = [f"x{number}" for number in range(2500)]
    raw.zadd(key(store, "ended"), dict.fromkeys(more, ended))
    raw.zadd(key(store, "sessions"), dict.fromkeys(more, 1))
    clock.advance(DAY + DAY)
    assert raw.exists(key(store, "session:s1"))
    assert store.prune() == 0
    assert (raw.zcard(key(store, "ended")), raw.zcard(key(store, "sessions"))) == (0, 0)
    assert not raw.exists(key(store, "session:s1"))


def test_a_prune_ends_where_a_job_has_as_many_that_wait_as_one_step_looks_at(store, clock, monkeypatch):
    spec = JobSpec(name="queue", function="f", policies=Policies.read({"keep": "1m"}))
    store.define_jobs([spec], release="r1")
    store.enqueue([Item(job="queue")] * 1999)
    clock.advance(120)
    store.enqueue([Item(job="queue")])  # the last at which the step looks, made too late to be over for long enough
    write, steps = store._write_script, []

    def counted(verb, *told):
        steps.append(verb)
        assert len(steps) < 5, "the same step again and again"
        return write(verb, *told)

    monkeypatch.setattr(store, "_write_script", counted)
    assert store.prune() == 0


def test_one_prune_forgets_all_entries_of_the_trail_that_are_a_year_old(store, raw, clock):
    store.define_jobs([JobSpec(name=f"job {number}", function="f") for number in range(1200)], release="r1", by="ann")
    clock.advance(REMEMBERED + DAY)
    store.prune()
    assert raw.zcard(key(store, "trail")) == 0


def test_a_retired_job_leaves_no_key(store, raw, clock):
    store.define_jobs([JobSpec(name="stays", function="f")], release="r1")
    before = keys(store, raw)
    names = {name: raw.hlen(key(store, name)) for name in ("names", "releases")}
    store.define_jobs([JobSpec(name="gone", function="f")], release="r1")
    store.define_jobs([JobSpec(name="gone", function="f", args=(1,))], release="r1")
    store.pause("gone", by="ann", why="")
    store.resume("gone", by="ann", why="")
    store.retire("gone", by="ann", why="")
    clock.advance(REMEMBERED + DAY)
    store.prune()
    assert keys(store, raw) == before
    assert {name: raw.hlen(key(store, name)) for name in names} == names


def test_a_batch_that_is_pruned_leaves_no_key(store, raw, clock):
    store.define_jobs([JobSpec(name="queue", function="f", policies=Policies.read({"keep": "1m"}))], release="r1")
    store.open_session(a_session("s1"), lease=DAY)
    take(store, "s1", 1, ["f"], lease=DAY)
    before = keys(store, raw)
    (batch,) = store.enqueue([Item(job="queue")])
    store.enqueue([Item(job="queue", key=item_key(batch.id, str(n)), parent=batch.id) for n in range(3)])
    listing, *claims = take(store, "s1", 10, ["f"], lease=DAY)
    settle(store, [End.of(listing, Parked("items", listed=3))])
    states = (State.SUCCEEDED, State.FAILED, State.SKIPPED)
    ends = [an_end(id=one.id, token=one.token, state=state) for one, state in zip(claims, states, strict=True)]
    settle(store, ends[:2])
    items = f"items:{batch.id:014d}"
    assert {f"{items}:running", f"{items}:failed", f"{items}:succeeded", "parked"} <= {*keys(store, raw)}
    settle(store, ends[2:])
    store.wake([batch.id])
    [collecting] = take(store, "s1", 10, ["f"], lease=DAY)
    settle(store, [End.of(collecting, Final(State.SUCCEEDED))])
    clock.advance(120)
    assert store.prune() == 4
    assert keys(store, raw) == before


def test_a_job_that_each_release_changes_keeps_as_many_eras_as_fit_into_its_keep(store, raw, clock):
    for release in range(100):
        store.define_jobs([JobSpec(name="queue", function="f", args=(release,))], release=f"r{release}")
        store.pause("queue", by="ann", why="")
        clock.advance(DAY)
        store.resume("queue", by="ann", why="")
        store.prune()
    job = "job:" + raw.hget(key(store, "names"), "queue").decode()
    assert raw.llen(key(store, f"{job}:eras")) <= 32
    assert raw.llen(key(store, f"{job}:pauses")) <= 31
    assert len(raw.hget(key(store, job), "eras")) < 2000


def test_releases_are_kept_for_a_year(store, raw, clock):
    for release in range(100):
        store.define_jobs([], release=f"r{release}")
        clock.advance(30 * DAY)
        store.prune()
    assert raw.hlen(key(store, "releases")) <= 15
