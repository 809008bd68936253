"""A job with items: listed once, each item run once by whoever is free, and over when they are.

The tests that carry a number tell of a bug that another scheduler had, in its public list of issues.
"""

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

from cronsensus import Retry, Run, Scheduler, every
from cronsensus.audit import audit
from cronsensus.batching import pages as batch_items
from cronsensus.batching.declare import batch_by_hand
from cronsensus.batching.waking import BatchWaker
from cronsensus.errors import BatchFailed, InvalidOption, RunFailed, StoreUnavailable
from cronsensus.model.batch import shown_key
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node import waking
from cronsensus.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


def items_of(scheduler: Scheduler, batch: int) -> list[Any]:
    return scheduler.store.occurrences(OccurrenceFilter(parent=batch), limit=10_000, newest_first=False)


def states_of(scheduler: Scheduler, batch: int) -> Counter[State]:
    return Counter(one.state for one in items_of(scheduler, batch))


# --- list, run, collect -----------------------------------------------------------------------------------------------


def test_a_list_is_run_item_by_item_and_collected(url):
    scheduler, called = Scheduler(url), []

    @scheduler.job(items=lambda: (f"shop-{n}" for n in range(40)), collect=sum, name="close")
    def close(shop: str, run: Run) -> int:
        called.append((shop, run.batch))
        return len(shop)

    with scheduler:
        handle = close.trigger()
        assert handle.result("20s") == 10 * 6 + 30 * 7
        assert sorted(called) == sorted((f"shop-{n}", handle.id) for n in range(40))
        assert [shown_key(one.key) for one in items_of(scheduler, handle.id)] == [f"shop-{n}" for n in range(40)]
        assert (handle.progress().succeeded, handle.progress().open) == (40, 0)
        assert list(handle.results()) == [len(f"shop-{n}") for n in range(40)]
        assert audit(scheduler.store).ok


def test_two_nodes_share_a_list(sqlite_url):
    ran: Counter[str] = Counter()
    both = [Scheduler(sqlite_url, node=f"node-{n}", concurrency=2) for n in range(2)]
    handles = []
    for scheduler in both:

        @scheduler.job(items=range(40), name="shrink")
        def shrink(number: int, node=scheduler.node_name) -> None:
            ran[node] += 1
            time.sleep(0.02)

        handles.append(shrink)
    with both[0], both[1]:
        assert handles[0].trigger().wait("30s").state is State.SUCCEEDED
    assert sum(ran.values()) == 40
    assert min(ran.values()) >= 10, ran


def test_async_listers_items_and_collectors_run_on_the_loop(url):
    scheduler = Scheduler(url)

    async def days():
        for day in range(1, 8):
            yield date(2026, 1, day)

    async def latest(results) -> str:
        return str(max([day async for day in results]))

    @scheduler.job(items=days, collect=latest)
    async def close_day(day: date) -> str:
        return day.isoformat()

    with scheduler:
        assert close_day.trigger().result("20s") == "2026-01-07"


def test_a_coroutine_may_return_the_list(url):
    scheduler = Scheduler(url)

    async def numbers(run: Run):
        return [run.attempt, 2, 3]

    @scheduler.job(items=numbers)
    def square(number: int) -> int:
        return number**2

    with scheduler:
        handle = square.trigger()
        assert handle.wait("20s").state is State.SUCCEEDED
        assert list(handle.results()) == [1, 4, 9]


@dataclass
class Night:
    shops: int


def count_up(names: Iterable[set[str]]) -> Night:
    return Night(len(set().union(*names)))


def test_what_is_collected_comes_back_as_the_collector_names_it(url):
    """It was read by the annotation of the items' function."""
    scheduler = Scheduler(url)

    @scheduler.job(every("1h"), items=["paris", "lyon"], collect=count_up)
    def close(shop: str) -> set[str]:
        return {shop}

    @scheduler.job(after=[close])
    def report(run: Run) -> str:
        return repr(run.upstream[close].result)

    with scheduler:
        now = scheduler.store.now()
        [batch] = scheduler.backfill("close", now - timedelta(minutes=60), now)[:1]
        [after] = scheduler.backfill("report", now - timedelta(minutes=60), now)[:1]
        assert batch.result("20s") == Night(2)
        assert list(batch.results()) == [{"paris"}, {"lyon"}]

        async def results() -> list[set[str]]:
            return [result async for result in batch.aresults()]

        assert asyncio.run(results()) == [{"paris"}, {"lyon"}]
        assert after.result("20s") == "Night(shops=2)"


def test_an_item_that_asks_for_an_upstream_is_told_who_has_it(url):
    scheduler = Scheduler(url)

    @scheduler.job(every("1h"))
    def extract() -> int:
        return 7

    @scheduler.job(after=[extract], items=["a"])
    def load(_name: str, run: Run) -> None:
        run.upstream["extract"]

    with scheduler:
        now = scheduler.store.now()
        scheduler.backfill("extract", now - timedelta(minutes=60), now)
        [batch] = scheduler.backfill("load", now - timedelta(minutes=60), now)[:1]
        batch.wait("20s")
        [item] = scheduler.store.occurrences(OccurrenceFilter(parent=batch.id))
        assert item.error is not None
        assert "the lister of its batch has run.upstream" in item.error.message


def test_each_nominal_time_is_a_batch_of_its_own(url):
    scheduler, called = Scheduler(url), []

    @scheduler.job(every("1s"), items=["a", "b"])
    def tick(letter: str, run: Run) -> None:
        called.append((run.batch, letter))

    with scheduler:
        wait_until(lambda: len(called) >= 4)
    batches = {batch for batch, _ in called}
    assert len(batches) >= 2
    assert all(Counter(called)[batch, letter] <= 1 for batch in batches for letter in "ab")


def test_an_empty_list_is_a_batch_that_succeeds(url):
    scheduler = Scheduler(url)

    @scheduler.job(items=list, collect=lambda results: len(list(results)))
    def never(item: str) -> None: ...

    with scheduler:
        assert never.trigger().result("10s") == 0


def test_one_item_enqueued_by_itself_runs_alone(url):
    scheduler = Scheduler(url)

    @scheduler.job(items=["a", "b"], collect=lambda results: "all")
    def call(letter: str) -> str:
        return letter.upper()

    with scheduler:
        assert call.enqueue("z").result("10s") == "Z"


def test_items_are_an_items_own_for_policies(url):
    scheduler, beside, most = Scheduler(url, concurrency=8), [0], [0]
    lock = threading.Lock()

    @scheduler.job(items=range(12), concurrency=3, retries=1, retry_delay=0)
    def limited(number: int, run: Run) -> int:
        with lock:
            beside[0] += 1
            most[0] = max(most[0], beside[0])
        time.sleep(0.02)
        with lock:
            beside[0] -= 1
        if number == 5 and run.attempt == 1:
            raise RuntimeError("once")
        return run.attempt

    with scheduler:
        handle = limited.trigger()
        assert handle.wait("20s").state is State.SUCCEEDED
        assert sorted(handle.results()) == [1] * 11 + [2]
    assert most[0] <= 3


def test_shards_are_called_with_their_number_and_how_many_there_are(url):
    scheduler = Scheduler(url)

    @scheduler.job(shards=4)
    def sweep(run: Run) -> tuple[int, int]:
        return run.shard, run.shards

    with scheduler:
        handle = sweep.trigger()
        handle.wait("10s")
        assert sorted(handle.results()) == [(n, 4) for n in range(4)]


# --- the list ---------------------------------------------------------------------------------------------------------


def test_powerjob_905_a_lister_that_dies_half_way_is_done_again_and_no_item_twice(url, monkeypatch):
    monkeypatch.setattr(batch_items, "PAGE", 10)
    scheduler, called, listed = Scheduler(url), [], []

    def numbers():
        listed.append(1)
        for number in range(60):
            if number == 35 and len(listed) == 1:
                raise ConnectionError("page 4 did not come")
            yield number

    @scheduler.job(items=numbers, retries=1, retry_delay=0)
    def work(number: int) -> None:
        called.append(number)

    with scheduler:
        assert work.trigger().wait("20s").state is State.SUCCEEDED
    assert sorted(called) == list(range(60))
    assert len(listed) == 2


def test_powerjob_12_two_listers_at_once_make_each_item_once(url, monkeypatch):
    monkeypatch.setattr(batch_items, "PAGE", 5)
    scheduler = Scheduler(url)

    @scheduler.job()
    def work(number: int) -> None: ...

    scheduler.store.migrate()
    handle = work.enqueue_batch([])
    batch = batch_by_hand(scheduler._declared.function("work"), {}, None)

    def write() -> None:
        batch_items.write_pages(batch_items.Pages("work", handle.id, batch, scheduler.store.sibling()), range(50))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(items_of(scheduler, handle.id)) == 50
    scheduler.store.close()


def test_the_first_items_run_while_the_list_is_still_read(url, monkeypatch):
    monkeypatch.setattr(batch_items, "PAGE", 2)
    scheduler, ran = Scheduler(url), threading.Event()

    def slowly():
        yield from ("a", "b")
        assert ran.wait(20)
        yield "c"

    @scheduler.job(items=slowly)
    def work(letter: str) -> None:
        ran.set()

    with scheduler:
        assert work.trigger().wait("30s").state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: 7, "gave a int, no list of items"),
        (lambda: "paris", "gave a str, no list of items"),
        (lambda: [1, {2}], "item 2 of .* cannot be used"),
        (lambda: ["a", "b", "a"], "two items of .* have the key 'a'"),
        (lambda: iter([1 / 0]), "division"),
    ],
)
def test_a_list_that_cannot_be_used_fails_the_batch_and_says_why(url, given, words):
    scheduler = Scheduler(url)

    @scheduler.job(items=given)
    def work(item: object) -> None: ...

    with scheduler, pytest.raises(RunFailed, match=words):
        work.trigger().result("20s")


def test_the_item_that_is_one_too_many_fails_the_batch(url, monkeypatch):
    monkeypatch.setattr(batch_items, "MOST_ITEMS", 5)
    scheduler = Scheduler(url)

    @scheduler.job(items=range(6))
    def work(item: int) -> None: ...

    with scheduler, pytest.raises(RunFailed, match="more than 5 items, the most of one batch"):
        work.trigger().result("20s")


def test_items_without_a_key_of_their_own_get_one(url):
    scheduler = Scheduler(url)

    @scheduler.job(items=[{"id": 1, "n": 1}, {"id": 2, "n": 1}], item_key=lambda item: item["id"])
    def work(item: dict[str, int]) -> int:
        return item["id"]

    with scheduler:
        handle = work.trigger()
        handle.wait("10s")
        assert [shown_key(one.key) for one in items_of(scheduler, handle.id)] == ["1", "2"]


def test_a_running_item_adds_items_to_its_batch(url):
    scheduler, called = Scheduler(url), []

    @scheduler.job(items=[4])
    def tree(depth: int, run: Run) -> None:
        called.append(depth)
        if depth:
            run.add_items([depth - 1])

    with scheduler:
        handle = tree.trigger()
        assert handle.wait("20s").state is State.SUCCEEDED
    assert called == [4, 3, 2, 1, 0]


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_a_batch_that_failed_counts_what_its_items_added_among_them(url):
    scheduler = Scheduler(url)

    @scheduler.job(items=[0])
    def crawl(page: int, run: Run) -> None:
        if page:
            raise ValueError("no such page")
        run.add_items([1, 2])

    with scheduler, pytest.raises(RunFailed, match="2 of 3 items failed: 1, 2"):
        crawl.trigger().result("20s")


@pytest.mark.parametrize(("tolerate", "state"), [(None, State.FAILED), (2, State.SUCCEEDED), ("5%", State.FAILED)])
def test_a_batch_fails_with_more_failed_items_than_it_bears(url, tolerate, state):
    scheduler = Scheduler(url)

    @scheduler.job(items=range(20), tolerate=tolerate, collect=lambda results: len(list(results)))
    def work(number: int) -> int:
        if number < 2:
            raise ValueError(f"not {number}")
        return number

    with scheduler:
        ended = work.trigger().wait("20s")
    assert ended.state is state
    if state is State.FAILED:
        assert ended.error is not None
        assert ended.error.type == BatchFailed.__name__
        assert "2 of 20 items failed: 0, 1" in ended.error.message
    else:
        assert ended.result == "18"


def test_with_stop_after_the_rest_is_not_begun(url):
    scheduler, called = Scheduler(url, concurrency=1), []

    @scheduler.job(items=range(60), stop_after=3)
    def work(number: int) -> None:
        called.append(number)
        time.sleep(0.02)
        raise ValueError("no")

    with scheduler:
        handle = work.trigger()
        ended = handle.wait("20s")
        assert ended.state is State.FAILED
        assert ended.error is not None
        assert "stop_after=3" in ended.error.message
        wait_until(lambda: not handle.progress().open)
        assert handle.progress().cancelled > 30
    assert 3 <= len(called) < 30


def test_with_stop_after_no_more_is_begun_than_was_claimed_when_the_last_failed(url):
    scheduler, called = Scheduler(url, concurrency=4), []

    @scheduler.job(items=range(1000), stop_after=3)
    def work(number: int) -> None:
        called.append(number)
        raise ValueError("no")

    with scheduler:
        handle = work.trigger()
        assert handle.wait("20s").state is State.FAILED
        wait_until(lambda: not handle.progress().open)
    assert 3 <= len(called) < 30


def test_a_collector_that_fails_is_tried_again_and_the_items_are_not(url):
    scheduler, called, collected = Scheduler(url), [], []

    def collect(results):
        collected.append(1)
        if len(collected) == 1:
            raise Retry("not yet", after=0)
        return sum(results)

    @scheduler.job(items=[1, 2, 3], collect=collect, retries=2)
    def work(number: int) -> int:
        called.append(number)
        return number

    with scheduler:
        assert work.trigger().result("20s") == 6
    assert sorted(called) == [1, 2, 3]


# --- operators, overlap, wake-ups that are lost -----------------------------------------------------------------------


def test_a_batch_that_is_cancelled_begins_no_further_item(url):
    scheduler, called, begun = Scheduler(url, concurrency=2), [], threading.Event()

    @scheduler.job(items=range(30))
    def work(number: int, run: Run) -> None:
        called.append(number)
        begun.set()
        run.cancelled.wait(20)
        run.check()

    with scheduler:
        handle = work.trigger()
        assert begun.wait(20)
        wait_until(lambda: handle.look().listed is not None)
        handle.cancel(reason="wrong night")
        wait_until(lambda: not handle.progress().open)
        assert states_of(scheduler, handle.id) == {State.CANCELLED: 30}
        assert handle.look().state is State.CANCELLED
        reasons = Counter(one.reason for one in items_of(scheduler, handle.id))
        assert reasons["batch ended"] >= 26
    assert len(called) <= 4


def test_a_batch_that_is_cancelled_while_it_is_listed_leaves_nothing_open(url, monkeypatch):
    monkeypatch.setattr(batch_items, "PAGE", 2)
    scheduler, half, on = Scheduler(url), threading.Event(), threading.Event()

    def numbers():
        yield from range(4)
        half.set()
        assert on.wait(20)
        yield from range(4, 10)

    @scheduler.job(items=numbers)
    def work(number: int) -> None:
        time.sleep(0.01)

    with scheduler:
        handle = work.trigger()
        assert half.wait(20)
        scheduler.cancel(handle, reason="no")
        on.set()
        assert handle.wait("20s").state is State.CANCELLED
        wait_until(lambda: not handle.progress().open)


def test_a_batch_that_sleeps_counts_as_active_for_overlap(url):
    scheduler, release = Scheduler(url), threading.Event()

    @scheduler.job(every("1s"), items=["a"])
    def work(letter: str) -> None:
        release.wait(30)

    with scheduler:
        wait_until(lambda: any(one.range.reason == "overlap" for one in scheduler.store.ranges("work")), 20)
        release.set()
        assert len([one for one in runs_of(scheduler, "work") if one.scheduled_for]) == 1


def test_a_batch_that_is_retried_does_only_what_was_not_done(url):
    scheduler, called = Scheduler(url), []

    @scheduler.job(items=range(6), collect=sum)
    def work(number: int) -> int:
        called.append(number)
        if number in {2, 4} and called.count(number) == 1:
            raise ValueError("the first time")
        return number

    with scheduler:
        first = work.trigger()
        assert first.wait("20s").state is State.FAILED
        again = scheduler.retry(first.id)
        assert again.result("20s") == 15
        assert sorted(shown_key(one.key) for one in items_of(scheduler, again.id)) == ["2", "4"]
        assert list(first.results()) == [0, 1, 3, 5, 2, 4], "they follow retries, as its wait does"
    assert Counter(called) == {0: 1, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1}


def test_what_waits_goes_on_although_every_wake_up_is_lost(url, monkeypatch):
    monkeypatch.setattr(BatchWaker, "trigger_of_end", lambda *_: None)
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.3)
    scheduler = Scheduler(url)

    @scheduler.job(items=range(5))
    def work(number: int) -> None: ...

    with scheduler:
        assert work.trigger().wait("20s").state is State.SUCCEEDED


def test_a_node_that_knows_nothing_of_a_batch_wakes_it_when_its_waker_has_died(sqlite_url, monkeypatch):
    real = waking.Waking.request_sweep
    monkeypatch.setattr(BatchWaker, "trigger_of_end", lambda *_: None)
    monkeypatch.setattr(
        waking.Waking, "request_sweep", lambda one: None if "work" in one.wakers[0]._registry else real(one)
    )
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.3)
    runs_it, has_another = Scheduler(sqlite_url, node="a"), Scheduler(sqlite_url, node="b")

    @runs_it.job()
    def work(number: int) -> None: ...

    @has_another.job()
    def other() -> None: ...

    with has_another, runs_it:
        assert work.enqueue_batch(range(5)).wait("20s").state is State.SUCCEEDED


def test_where_nothing_is_parked_nobody_asks_what_is(url, monkeypatch):
    asked: list[float] = []
    real = waking.Waking._parked_pages

    def pages(watch):
        asked.append(time.monotonic())
        return real(watch)

    monkeypatch.setattr(waking.Waking, "_parked_pages", pages)
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.01)
    scheduler = Scheduler(url)
    go = threading.Event()

    @scheduler.job(every("100ms"))
    def tick() -> None: ...

    @scheduler.job(items=range(3))
    def work(number: int) -> None:
        go.wait(20)

    with scheduler:
        wait_until(lambda: len(runs_of(scheduler, "tick")) > 3)
        assert asked == []
        batch = work.trigger()
        wait_until(lambda: asked)
        go.set()
        assert batch.wait("20s").state is State.SUCCEEDED
        wait_until(lambda: not scheduler.store.look().parked)
        seen = len(runs_of(scheduler, "tick"))
        wait_until(lambda: len(runs_of(scheduler, "tick")) > seen + 2)
        before = len(asked)
        wait_until(lambda: len(runs_of(scheduler, "tick")) > seen + 6)
        assert len(asked) == before


# --- a store that forgets, or is away ------------------------------------------------------------------------------


def forget_two(scheduler: Scheduler, batch: int, url: str) -> None:
    """Have the store forget two items that are done, as a failover does that loses its tail."""
    wait_until(lambda: states_of(scheduler, batch)[State.SUCCEEDED] == 3)
    store = scheduler.store
    for one in items_of(scheduler, batch)[:2]:
        if isinstance(store, MemoryStore):
            store._space.delete_run(store._space.occurrences[one.id])
            continue
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)) as connection, connection:
            connection.execute("DELETE FROM cronsensus_runs WHERE occurrence_id = ?", [one.id])
            connection.execute("DELETE FROM cronsensus_occurrences WHERE id = ?", [one.id])


@pytest.mark.parametrize("on_loop", [False, True])
def test_items_that_the_store_has_forgotten_are_listed_again(url, on_loop):
    scheduler, go = Scheduler(url), threading.Event()

    async def letters():
        return list("abcd")

    @scheduler.job(items=letters if on_loop else lambda: list("abcd"), collect=sorted)
    def work(letter: str) -> str:
        if letter == "d":
            go.wait(20)
        return letter

    with scheduler:
        batch = work.trigger()
        forget_two(scheduler, batch.id, url)
        go.set()
        result: Any = batch.result("20s")
        assert result == ["a", "b", "c", "d"]
        assert len(items_of(scheduler, batch.id)) == 4
        assert audit(scheduler.store).ok


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_batch_whose_items_cannot_be_had_again_has_failed_and_says_so(url, by_hand):
    scheduler, go, lists = Scheduler(url), threading.Event(), iter(["abcd", "d"])

    def work(letter: str) -> None:
        if letter == "d":
            go.wait(20)

    options: dict[str, Any] = {} if by_hand else {"items": lambda: list(next(lists))}
    job = scheduler.job(**options)(work)
    with scheduler:
        batch = job.enqueue_batch(list("abcd")) if by_hand else job.trigger()
        forget_two(scheduler, batch.id, url)
        go.set()
        end = batch.wait("20s")
        assert end.state is State.FAILED
        assert end.error is not None
        assert "2 of 4 items are gone: the store has forgotten them" in end.error.message


def test_a_retry_whose_first_batch_was_pruned_has_failed_and_does_not_count_without_it(sqlite_url):
    scheduler, go, called = Scheduler(sqlite_url), threading.Event(), []

    @scheduler.job(items=range(4), collect=sorted)
    def work(number: int) -> int:
        called.append(number)
        if number == 3 and called.count(3) == 1:
            raise ValueError("the first time")
        if number == 3:
            go.wait(20)
        return number

    with scheduler:
        first = work.trigger()
        assert first.wait("20s").state is State.FAILED
        again = scheduler.retry(first.id)
        wait_until(lambda: called.count(3) == 2)
        wait_until(lambda: scheduler.store.prune(scheduler.store.now()))
        go.set()
        end = again.wait("20s")
        assert end.state is State.FAILED
        assert end.error is not None
        assert end.error.message.startswith("upstream unknown: pruned: batch")


class Away:
    """Has a verb of the store fail once, at a call that ``when`` picks."""

    def __init__(self, monkeypatch, scheduler: Scheduler, verb: str, when) -> None:
        real, self.times = getattr(type(scheduler.store), verb), 0

        def call(store, *args, **named):
            if not self.times and when(*args):
                self.times += 1
                raise StoreUnavailable("the server is away; it is tried again")
            return real(store, *args, **named)

        monkeypatch.setattr(type(scheduler.store), verb, call)


PHASES = {
    "listed": ("_enqueue", lambda items: items[0].parent is not None and items[0].args[0] > 3),
    "collected": ("_occurrences", lambda where, *_: where.parent is not None and where.states == (State.SUCCEEDED,)),
    "grown": ("_enqueue", lambda items: items[0].parent is not None and items[0].args[0] == 99),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_store_that_is_away_while_a_batch_is_at_work_is_no_fault_of_the_batch(url, phase, monkeypatch):
    monkeypatch.setattr(batch_items, "PAGE", 4)
    scheduler = Scheduler(url)

    @scheduler.job(items=range(8), collect=sorted)
    def work(number: int, run: Run) -> int:
        if number == 7:
            run.add_items([99])
        return number

    away = Away(monkeypatch, scheduler, *PHASES[phase])
    with scheduler:
        batch = work.trigger()
        result: Any = batch.result("20s")
        assert result == [*range(8), 99]
        assert away.times == 1
        assert audit(scheduler.store).ok


@pytest.mark.parametrize(("catches", "state"), [(False, State.SUCCEEDED), (True, State.FAILED)])
def test_what_a_job_calls_on_a_store_that_is_away_is_a_crash_unless_the_job_says_otherwise(
    url, catches, state, monkeypatch
):
    scheduler = Scheduler(url)

    @scheduler.job()
    def other() -> None: ...

    @scheduler.job()
    def work() -> None:
        try:
            other.options(key="k").enqueue()
        except StoreUnavailable as error:
            if catches:
                raise ValueError("no fan-out today") from error
            raise

    Away(monkeypatch, scheduler, "_enqueue", lambda items: items[0].key == "k")
    with scheduler:
        end = work.enqueue().wait("20s")
        assert (end.state, end.crashes) == (state, 0 if catches else 1)


# --- batches by hand --------------------------------------------------------------------------------------------------


def test_a_batch_by_hand_runs_each_item_and_has_a_handle(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    def double(number: int) -> int:
        return 2 * number

    with scheduler:
        handle = double.enqueue_batch(range(25), key="night:1")
        assert handle.wait("20s").state is State.SUCCEEDED
        assert sorted(handle.results()) == [2 * n for n in range(25)]
        same = double.enqueue_batch(range(25), key="night:1")
        assert (same.id, same.created) == (handle.id, False)
        assert len(items_of(scheduler, handle.id)) == 25
        assert audit(scheduler.store).ok


def test_a_batch_by_hand_that_cannot_be_listed_is_cancelled(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    def work(number: int) -> None: ...

    with scheduler:
        with pytest.raises(InvalidOption, match="two items of enqueue_batch have the key '1'"):
            work.enqueue_batch([1, 2, 1], key="bad")
        [batch] = scheduler.store.occurrences(OccurrenceFilter(job="work", key="bad"))
        assert batch.state is State.CANCELLED


def test_a_batch_by_hand_whose_program_died_fails_and_is_completed_by_the_same_call(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    def work(number: int) -> None: ...

    def dies():
        yield from range(3)
        raise KeyboardInterrupt

    with scheduler:
        with pytest.raises(KeyboardInterrupt):
            work.enqueue_batch(dies(), key="k")
        handle = work.enqueue_batch(range(5), key="k")
        assert handle.wait("20s").state is State.SUCCEEDED
        assert len(items_of(scheduler, handle.id)) == 5


def test_a_retried_batch_by_hand_knows_its_list_by_its_items(url):
    scheduler, called = Scheduler(url), []

    @scheduler.job()
    def work(number: int) -> int:
        called.append(number)
        if called.count(number) == 1 and number == 3:
            raise ValueError("the first time")
        return number

    with scheduler:
        first = work.enqueue_batch(range(5))
        assert first.wait("20s").state is State.FAILED
        assert scheduler.retry(first.id).wait("20s").state is State.SUCCEEDED
    assert Counter(called)[3] == 2


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"items": 7}, "give a list, or a function"),
        ({"items": [1], "args": (1,)}, "kwargs="),
        ({"tolerate": 3}, "for jobs with items"),
        ({"collect": sum}, "for jobs with items"),
        ({"items": [1], "collect": 3}, "give a function"),
        ({"items": [1], "shards": 3}, "shards=… has no items"),
        ({"shards": 0}, "a whole number from 1"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(options, words):
    scheduler = Scheduler("memory://")
    with pytest.raises(InvalidOption, match=words):

        @scheduler.job(**options)
        def work(item: int) -> None: ...


def test_a_function_without_a_parameter_for_the_item_is_refused():
    scheduler = Scheduler("memory://")
    with pytest.raises(InvalidOption, match="one item by position"):

        @scheduler.job(items=[1])
        def work() -> None: ...


def test_items_are_not_added_by_a_run_of_no_batch(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    def work(number: int, run: Run) -> None:
        run.add_items([1])

    with scheduler, pytest.raises(RunFailed, match="belongs to no batch"):
        work.enqueue(1).result("10s")


# --- helpers ----------------------------------------------------------------------------------------------------------


def wait_until(what, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def runs_of(scheduler: Scheduler, job: str) -> list[Any]:
    return scheduler.store.occurrences(OccurrenceFilter(job=job), limit=1000)


def test_hashes_are_a_set_that_grows():
    hashes, plain = batch_items.Hashes(), set()
    for value in [0, *(n * 2**40 - 10**15 for n in range(1_000)), *(hash(str(n)) for n in range(1_000)), 0, 2**40]:
        assert hashes.add_value(value) == (value not in plain)
        plain.add(value)


# --- a retry, before all of it is over --------------------------------------------------------------------------------


def test_a_retry_of_a_batch_by_hand_runs_also_what_still_ran_when_it_began(url):
    """It failed later, and was in no list: the retry succeeded without it."""
    scheduler, ran, begun = Scheduler(url, concurrency=3), Counter[str](), threading.Event()
    retried = threading.Event()

    @scheduler.job(items=list, stop_after=1)
    def shrink(name: str) -> None:
        ran[name] += 1
        if ran[name] == 1 and name == "slow":
            begun.set()
            retried.wait(20)
        if ran[name] == 1:
            begun.wait(5)
            raise ValueError(f"the first time of {name}")

    with scheduler:
        batch = shrink.enqueue_batch(["slow", "quick"], key="album")
        assert batch.wait("20s").state is State.FAILED
        again = scheduler.retry(batch.id)
        retried.set()
        assert again.wait("20s").state is State.SUCCEEDED
        assert again.progress().succeeded == 2
    assert ran == {"slow": 2, "quick": 2}
