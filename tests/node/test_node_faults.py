"""A node on a store that fails, hangs, or answers late, or whose clock is set: nothing is lost, nothing runs twice."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cronsensus import LeaseLost, Run, Scheduler, State, StoreUnavailable, every, open_store
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

_names = count()


UNTOUCHED = {"sibling", "close", "notify", "register_presence"}
"""Verbs that are carried out in any weather."""


class Weather:
    """What happens to the verbs of a store and all its siblings, by the store's ``span``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.down = False
        self.calls: Counter[str] = Counter()
        self.lose_answer_of: Counter[str] = Counter()
        self.hold: dict[str, threading.Event] = {}
        self.struck = threading.Semaphore(0)

    @contextmanager
    def span(self, verb: str) -> Iterator[None]:
        if verb in UNTOUCHED:
            yield
            return
        with self._lock:
            self.calls[verb] += 1
            lose = self.lose_answer_of[verb] > 0
            if lose:
                self.lose_answer_of[verb] -= 1
            gate = self.hold.get(verb)
        if gate is not None:
            assert gate.wait(60)
        if self.down:
            raise StoreUnavailable("the store is down, by order of this test")
        yield
        if lose:
            self.struck.release()
            raise StoreUnavailable("it was done, but the answer is lost, by order of this test")


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture(params=["memory", "sqlite"])
def stores(request, tmp_path: Path, weather: Weather):
    """Return a store that fails when told to, and a healthy handle on the same."""
    url = f"memory://faults-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    healthy = open_store(url)
    healthy.migrate()
    weathered = open_store(url)
    weathered.span = weather.span
    yield weathered, healthy
    weather.down = False
    for gate in weather.hold.values():
        gate.set()
    healthy.close()
    weathered.close()


@pytest.fixture
def nodes(stores):
    """Make schedulers that are stopped whatever happens."""
    made: list[Scheduler] = []

    def make(store: Any, **options: Any) -> Scheduler:
        made.append(Scheduler(store, **{"lease": "5s", "fast_evidence": False, **options}))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop("0s")


def _await(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what nobody announces."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.01)


# --- the store goes away and comes back ------------------------------------------------------------------------------


def test_while_the_store_is_away_nothing_starts_and_it_is_said_once(stores, nodes, weather, caplog):
    caplog.set_level(logging.INFO, "cronsensus.node")
    store, healthy = stores
    node = nodes(store, lease="60s")
    began, go_on = threading.Event(), threading.Event()

    @node.job()
    def work(what: str) -> str:
        began.set()
        go_on.wait(10)
        return what

    with node:
        first = work.enqueue("first")
        assert began.wait(60)
        weather.down = True
        healthy.notify()
        _await(lambda: node._part.node.stats.store_errors >= 1)  # what had begun before may still take what is there
        healthy.enqueue([_item("work", "second")])
        healthy.notify()
        go_on.set()
        _await(lambda: node._part.node.stats.store_errors >= 3)
        assert healthy.occurrence(first.id).state is State.RUNNING
        assert [one.state for one in _all(healthy) if one.id != first.id] == [State.PENDING]
        weather.down = False
        _await(lambda: all(one.state is State.SUCCEEDED for one in _all(healthy)))
        assert node._part.node.stats.sessions == 1
    said = [record.message for record in caplog.records if "store" in record.message]
    assert len([line for line in said if "nothing is started until it can" in line]) == 1
    assert len([line for line in said if "answers again" in line]) == 1


def test_while_the_store_is_away_it_is_asked_less_and_less_also_when_the_lease_is_gone(stores, nodes, weather):
    store, _ = stores
    node = nodes(store, lease="1s")
    began, go_on = threading.Event(), threading.Event()
    runs: list[Run] = []

    @node.job()
    def work(run: Run) -> None:
        runs.append(run)
        began.set()
        go_on.wait(15)

    with node:
        work.enqueue()
        assert began.wait(60)
        weather.down = True
        assert runs[0].lease_lost.wait(10)
        stats = node._part.node.stats
        # Its keeper asks ten times in a second: that much time passes.
        asked, errors = weather.calls["renew"], stats.store_errors
        _await(lambda: weather.calls["renew"] >= asked + 10)
        rounds = stats.store_errors - errors
        weather.down = False
        go_on.set()
    assert rounds <= 10


def _item(job: str, *args: Any):
    from cronsensus.model.occurrence import Item

    return Item(job=job, args=args, kwargs={})


def _all(store: Store):
    return store.occurrences(OccurrenceFilter(), limit=1000)


def test_nominal_times_that_pass_while_the_store_is_away_are_caught_up_each_once(stores, nodes, weather):
    store, _ = stores
    node = nodes(store, lease="60s")
    seen: list[Any] = []

    @node.job(every("50ms"), overlap="queue", catch_up="all")
    def work(run: Run) -> None:
        seen.append(run.scheduled_for)

    with node:
        _await(lambda: len(seen) >= 2)
        weather.down = True
        _await(lambda: node._part.node.stats.store_errors >= 2)
        before = len(seen)
        weather.down = False
        _await(lambda: len(seen) >= before + 5)
    assert seen == sorted(set(seen))
    assert every("50ms").count_between(seen[0], seen[-1], 10_000) == len(seen) - 1


@pytest.mark.parametrize("verb", ["step", "open_session", "look", "define_jobs", "renew"])
def test_an_answer_that_is_lost_after_the_commit_costs_nothing(stores, nodes, weather, verb):
    store, healthy = stores
    seen: list[object] = []
    node = nodes(store, lease="1s" if verb == "renew" else "5s")

    # With jitter, a job is fired at one time and claimed at another.
    @node.job(every("100ms", jitter="50ms"), overlap="queue", catch_up="all")
    def work(run: Run) -> None:
        seen.append(run.scheduled_for)
        # A claim renews the lease, too; only a run that is alone for a while needs the keeper.
        threading.Event().wait(0.5 if verb == "renew" else 0.02)

    weather.lose_answer_of[verb] = 5 if verb == "step" else 1
    if verb in {"open_session", "define_jobs"}:
        with pytest.raises(StoreUnavailable):
            node.start(wait=0)
        assert healthy.sessions() == []
        node.start()
    else:
        node.start()
    if verb not in {"open_session", "define_jobs"}:
        assert weather.struck.acquire(timeout=60)
    _await(lambda: len(seen) >= (2 if verb == "renew" else 5))
    node.stop("5s")
    rows = _all(healthy)
    assert Counter(seen) == Counter(one.scheduled_for for one in rows if one.state is State.SUCCEEDED)
    assert max(Counter(seen).values()) == 1
    assert {one.attempt for one in rows if one.state is State.SUCCEEDED} == {1}
    assert healthy.sessions() == []


def test_an_answer_to_enqueue_that_is_lost_is_asked_for_again_by_its_key(stores, nodes, weather):
    store, healthy = stores
    scheduler = nodes(store)
    job = scheduler.job(name="work")(lambda: None)
    job.options(key="the first defines the job").enqueue()
    weather.lose_answer_of["enqueue"] = 2
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            job.options(key="a").enqueue()
    assert job.options(key="a").enqueue().created is False
    assert len(_all(healthy)) == 2


def test_progress_reported_while_the_store_is_away_is_kept_for_later(stores, nodes, weather):
    store, healthy = stores
    node = nodes(store, lease="60s")
    began, go_on, said = threading.Event(), threading.Event(), threading.Event()

    @node.job()
    def work() -> None:
        logging.getLogger("shop").warning("before")
        began.set()
        go_on.wait(10)
        logging.getLogger("shop").warning("meanwhile")
        said.set()

    with node:
        handle = work.enqueue()
        assert began.wait(60)
        weather.down = True
        go_on.set()
        assert said.wait(60)
        _await(lambda: node._part.node.stats.store_errors >= 2)
        weather.down = False
        handle.wait("60s")
    assert [line.text for _, _, line in healthy.logs(handle.id)] == ["before", "meanwhile"]


# --- the lease -------------------------------------------------------------------------------------------------------


def test_a_thread_that_outlives_its_lease_is_told_and_its_result_is_refused(stores, nodes, weather):
    store, healthy = stores
    first, second = nodes(store, node="first", lease="1s"), nodes(healthy, node="second", lease="1s")
    lost, go_on, over = threading.Event(), threading.Event(), threading.Event()
    ran: list[tuple[str, int, int]] = []

    def work(run: Run) -> str:
        ran.append((run.session, run.attempt, run.token))
        if len(ran) > 1:
            return "second"
        assert run.lease_lost.wait(60)
        with pytest.raises(LeaseLost):
            run.check()
        lost.set()
        go_on.wait(10)
        over.set()
        return "first"

    jobs = [each.job()(work) for each in (first, second)]
    first.start()
    handle = jobs[0].enqueue()
    _await(lambda: ran)
    weather.hold["renew"] = threading.Event()
    second.start()
    assert lost.wait(60)
    assert handle.result("60s") == "second"
    assert healthy.runs(handle.id)[0].end == "crashed"
    assert ran[0][2] < ran[1][2]
    go_on.set()
    assert over.wait(60)
    _await(lambda: first._part.node.stats.refused == 1)
    weather.hold.pop("renew").set()
    _await(lambda: first._part.node.stats.sessions == 2)
    assert handle.look().result == '"second"'
    second.stop()
    assert jobs[0].options(key="after").enqueue().result("60s") == "second"


def test_an_async_run_whose_lease_cannot_be_renewed_is_cancelled_before_another_node_may_begin(stores, nodes, weather):
    store, healthy = stores
    first, second = nodes(store, node="first", lease="1s"), nodes(healthy, node="second", lease="1s")
    cancelled, told = threading.Event(), threading.Event()
    ran: list[str] = []

    async def work(run: Run) -> str:
        ran.append(run.session)
        if len(ran) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if run.lease_lost.is_set():
                    told.set()
                cancelled.set()
                raise
        return "second"

    jobs = [each.job()(work) for each in (first, second)]
    first.start()
    handle = jobs[0].enqueue()
    _await(lambda: ran)
    weather.hold["renew"] = threading.Event()
    second.start()
    assert cancelled.wait(60)
    assert told.is_set()
    assert handle.result("60s") == "second"
    weather.hold.pop("renew").set()
    second.stop()
    assert jobs[0].options(key="after").enqueue().result("60s") == "second"
    # The trust ended before the lease did, so the run was given back in time; it was cut off all the same.
    assert [(run.attempt, run.end) for run in healthy.runs(handle.id)] == [(1, "crashed"), (2, "succeeded")]


def test_a_session_that_others_ended_stops_its_runs_and_goes_on_as_a_new_one(stores, nodes):
    store, healthy = stores
    node = nodes(store)
    ran: list[str] = []
    stopped = threading.Event()

    @node.job()
    async def work(run: Run) -> str:
        ran.append(run.session)
        if len(ran) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return run.session

    with node:
        handle = work.enqueue()
        _await(lambda: ran)
        (taken,) = healthy.reclaim([ran[0]])
        assert taken.became is State.PENDING
        healthy.notify()
        assert stopped.wait(60)
        assert handle.result("60s") == ran[1] != ran[0]


def test_a_run_that_is_stopped_for_a_lease_that_turns_out_to_be_alive_is_not_lost(stores, nodes, weather):
    """The trust ends before the lease does. If the store answers between the two, the session lives on without them."""
    store, _ = stores
    node = nodes(store, lease="3s")
    attempts: list[int] = []

    @node.job()
    async def work(run: Run) -> str:
        attempts.append(run.attempt)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return "done"

    with node:
        handle = work.enqueue()
        _await(lambda: attempts)
        node._part.node.round.active_runs.lose_session(node._part.node.round.lease)
        assert handle.result("60s") == "done"
        assert node._part.node.stats.sessions == 1
    assert (handle.look().attempt, handle.look().crashes) == (2, 1)


def test_a_give_back_without_an_answer_is_not_called_refused(stores, nodes, weather):
    store, _ = stores
    node = nodes(store, lease="3s")
    attempts: list[int] = []

    @node.job()
    async def work(run: Run) -> str:
        attempts.append(run.attempt)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return "done"

    with node:
        handle = work.enqueue()
        _await(lambda: attempts)
        weather.lose_answer_of["step"] = 1
        node._part.node.round.active_runs.lose_session(node._part.node.round.lease)
        assert weather.struck.acquire(timeout=60)
        assert handle.result("60s") == "done"
        assert node._part.node.stats.refused == 0


def test_an_idle_session_outlives_the_short_lease(stores, nodes):
    store, healthy = stores
    node = nodes(store)
    job = node.job(name="work")(lambda: "done")
    with node:
        job.enqueue().result("60s")
        (session,) = healthy.sessions()
        _await(lambda: healthy.sessions()[0].expires_in > timedelta(seconds=100))
        assert healthy.sessions()[0].id == session.id


# --- clocks ----------------------------------------------------------------------------------------------------------


class Jumpy(SystemClock):
    """The host's clock, set ahead or back by an operator."""

    def __init__(self) -> None:
        self.by = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.by


def _count(first: datetime, last: datetime) -> int:
    return every("100ms").count_between(first - timedelta(microseconds=1), last, 10**6) or 0


@pytest.mark.parametrize("stores", ["sqlite"], indirect=True)  # not used, but for ``nodes``
@pytest.mark.parametrize("back", [False, True])
def test_a_wall_clock_that_is_set_by_an_hour_repeats_nothing_and_loses_nothing(tmp_path, nodes, back, caplog):
    caplog.set_level(logging.WARNING, "cronsensus.node")
    clock = Jumpy()
    store = open_store(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    store.migrate()
    node = nodes(store, clock=clock)
    seen: list[Any] = []

    @node.job(every("100ms"))
    def work(run: Run) -> None:
        seen.append(run.scheduled_for)

    quiet = node.job(name="quiet")(lambda: "done")
    with node:
        _await(lambda: len(seen) >= 3)
        clock.by = timedelta(hours=1)
        _await(lambda: seen[-1] > datetime.now(UTC) + timedelta(minutes=50))
        _await(lambda: len(seen) >= 6)
        if back:
            clock.by = timedelta(0)
            waiting = quiet.enqueue()
            assert waiting.result("60s") == "done"
            reached = len(seen)
            _await(lambda: any("clock was set back by" in record.message for record in caplog.records))
        _await(lambda: len(store.ranges("work")) >= 1)
        assert node._part.node.stats.sessions == 1
    assert max(Counter(seen).values()) == 1
    assert seen == sorted(seen)
    # Each nominal time has one verdict: a run, or a place in a range.
    rows = store.occurrences(OccurrenceFilter(job="work"), limit=1000)
    done = {one.scheduled_for for one in rows if one.scheduled_for is not None}
    ranges = [one.range for one in store.ranges("work")]
    counted = sum(_count(each.first, each.last) for each in ranges)
    # On a busy machine the last verdict may be a range: skipped because the last run was not over when the node left.
    # And the first may be one: what was due before the node first looked.
    first = min([*done, *(each.first for each in ranges)])
    last = max([*done, *(each.last for each in ranges)])
    assert counted + len(done) == _count(first, last)
    assert any("clock was set ahead by" in record.message for record in caplog.records)
    if back:
        assert len(seen) <= reached + 1
    store.close()
