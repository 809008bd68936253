"""The memory store passes the suite; and what is its own: shared names, exact repetition, and cheap looks."""

import itertools
import sys
import threading
from datetime import timedelta

import pytest

from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores import Store, open_store
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance import StoreConformance
from cronsensus.testing.conformance.fixtures import LEASE, START, a_session
from cronsensus.testing.conformance.steps import give_back, take
from cronsensus.timing.clock import Clock, ManualClock, SystemClock
from cronsensus.triggers import every

names = (f"memory://test-{number}" for number in itertools.count())


class TestMemoryStore(StoreConformance):
    url = ""

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        self.url = self.url or next(names)
        return MemoryStore(self.url, namespace=namespace, clock=clock)


def a_job(name: str = "job") -> JobSpec:
    return JobSpec(name=name, function=name, trigger=every("1h", start=START))


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_store_without_a_name_is_private():
    first, second = open_store("memory://"), open_store("memory://")
    first.define_jobs([a_job()], release="r1")
    assert second.job("job") is None
    assert first.sibling().job("job") is not None


def test_handles_of_one_name_share_their_state():
    url = next(names)
    open_store(url).define_jobs([a_job()], release="r1")
    assert open_store(url).job("job") is not None
    assert open_store(next(names)).job("job") is None
    assert open_store(url, namespace="other").job("job") is None


def test_a_named_store_outlives_its_handles():
    url = next(names)
    store = open_store(url)
    store.define_jobs([a_job()], release="r1")
    store.close()
    del store
    assert open_store(url).job("job") is not None


class OtherClock(SystemClock):
    pass


def test_a_store_has_one_clock_for_all():
    url, clock = next(names), ManualClock()
    first = MemoryStore(url, clock=clock)
    assert clock.now() == MemoryStore(url, clock=clock).now() == MemoryStore(url).now() == first.now()
    with pytest.raises(InvalidOption, match="another clock"):
        MemoryStore(url, clock=ManualClock())
    with pytest.raises(InvalidOption, match="another clock"):
        MemoryStore(url, clock=OtherClock())


@pytest.mark.parametrize("url", ["memory", "memory:", "sqlite:///x.db", ""])
def test_other_urls_are_refused(url):
    with pytest.raises(InvalidOption, match="memory://name"):
        MemoryStore(url)


# --- wake-ups ---------------------------------------------------------------------------------------------------------


def test_notification_wakes_the_other_handles_of_the_namespace():
    store = MemoryStore()
    waiting = [store.sibling() for _ in range(3)]
    heard: list[bool] = []
    threads = [threading.Thread(target=lambda handle=handle: heard.append(handle.wait(60))) for handle in waiting]
    for thread in threads:
        thread.start()
    store.notify()
    for thread in threads:
        thread.join(60)
    assert heard == [True, True, True]


def test_notification_before_the_wait_counts_once():
    store = MemoryStore()
    other = store.sibling()
    store.notify()
    store.notify()
    assert other.wait(0)
    assert not other.wait(0)


def test_notify_wakes_neither_its_own_handle_nor_another_namespace():
    url = next(names)
    store, other = MemoryStore(url), MemoryStore(url, namespace="other")
    store.notify()
    assert not store.wait(0)
    assert not other.wait(0)


def test_a_closed_handle_hears_nothing():
    store = MemoryStore()
    other = store.sibling()
    other.close()
    store.notify()
    assert not other.wait(60)


# --- an oracle repeats itself -----------------------------------------------------------------------------------------


def test_the_same_calls_give_the_same_answers():
    def tell() -> list[object]:
        store = MemoryStore(clock=ManualClock(START))
        store.define_jobs([a_job()], release="r1")
        store.open_session(a_session("s1"), lease=LEASE)
        made = store.enqueue([Item(job="job") for _ in range(5)])
        claims = take(store, "s1", 3, ["job"], lease=LEASE)
        return [made, claims, give_back(store, claims[:1]), take(store, "s1", 9, ["job"], lease=LEASE), store.look()]

    assert tell() == tell()


# --- cost -------------------------------------------------------------------------------------------------------------


def calls_of_a_round(jobs: int, waiting: int) -> int:
    """Return how many Python calls it takes to look and to claim one occurrence."""
    clock = ManualClock(START)
    store = MemoryStore(clock=clock)
    store.define_jobs([a_job(str(number)) for number in range(jobs)], release="r1")
    store.enqueue([Item(job="0", delay=timedelta(hours=1)) for _ in range(waiting)])
    store.enqueue([Item(job="1") for _ in range(waiting)])
    store.open_session(a_session("s1"), lease=LEASE)
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        store.look()
        take(store, "s1", 1, ["1"], lease=LEASE)
    finally:
        sys.setprofile(None)
    return calls


def test_a_round_costs_the_same_however_much_is_not_due():
    assert calls_of_a_round(jobs=2, waiting=2) == calls_of_a_round(jobs=3000, waiting=3000)
