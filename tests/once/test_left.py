"""A call that is cut off at any point, by a cancelled task or by a signal handler, leaves its key to others.

What its function has returned is recorded, or the call says that it does not know; no call waits for ever.
"""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cronsensus import ConfigurationError, Scheduler, State, StillRunning
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.outside import owned_claim
from tests.cancelling import CutCall, CutTask, Interrupted, each_await, each_line
from tests.servers.distance import patience

PATIENCE = patience(60.0)
_numbers = itertools.count()


@pytest.fixture
def place(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """Return a scheduler that has been used, and another process's leases would be long."""
    monkeypatch.setattr(owned_claim, "CHECK_INTERVAL", 0.05)
    made = Scheduler(url, lease="60s")
    made.once("warm", name="warm")(lambda: None)()
    yield made
    made._opened.close()


def nothing_is_left(scheduler: Scheduler) -> bool:
    claims = scheduler._opened.claims()
    running = scheduler.store.occurrences(OccurrenceFilter(states=(State.RUNNING,)))
    return not (running or claims._held or claims._acquiring_keys or claims._waits)


async def soon(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - of another thread, or another process
            await asyncio.sleep(0.005)


def before_long(condition: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE / 0.005)):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("not within the time")


def test_a_call_that_is_cancelled_at_any_await_leaves_its_key_to_others(place):
    async def scenario(cut: CutTask) -> None:
        key, ran = f"k{next(_numbers)}", []

        async def work() -> int:
            ran.append(1)
            await asyncio.sleep(0)
            return len(ran)

        place._guards.guarded.clear()
        guarded = place.once(key, name="work", wait_for=PATIENCE)(work)
        await cut(guarded())
        returned = cut.value if cut.error is None else None
        found = await guarded()
        assert found == (returned or len(ran)), "what was returned is what is recorded"
        await soon(lambda: nothing_is_left(place))

    assert each_await(scenario) >= 4


def test_a_call_that_is_cancelled_while_it_waits_for_another_leaves_nothing(place):
    """The one that has the key fails meanwhile, so the cancelled one may just have won it."""

    async def scenario(cut: CutTask) -> None:
        key, ran, go = f"w{next(_numbers)}", [], asyncio.Event()

        async def work() -> int:
            ran.append(1)
            if len(ran) == 1:
                await go.wait()
                raise ValueError("not yet")
            return len(ran)

        place._guards.guarded.clear()
        guarded = place.once(key, name="work", wait_for=PATIENCE)(work)
        first = asyncio.ensure_future(guarded())
        await soon(lambda: ran)
        asyncio.get_running_loop().call_later(0.02, go.set)
        await cut(guarded())
        with contextlib.suppress(ValueError):
            go.set()
            await first
        assert await guarded() == len(ran)
        await soon(lambda: nothing_is_left(place))

    each_await(scenario, moments=("answered",), most=60, may_be_more=True)


def test_an_effect_of_a_call_that_is_cancelled_at_any_await_is_there_once(sql_url, monkeypatch):
    from tests.once.test_once import Effects

    monkeypatch.setattr(owned_claim, "CHECK_INTERVAL", 0.05)
    effects, scheduler = Effects(sql_url), Scheduler(sql_url, lease="60s")
    scheduler.once("warm", name="warm")(lambda: None)()
    keys: list[str] = []

    async def scenario(cut: CutTask) -> None:
        keys.append(f"k{next(_numbers)}")

        async def work(conn) -> str:
            await conn.execute(effects.insert, {"what": keys[-1]})
            return keys[-1]

        scheduler._guards.guarded.clear()
        guarded = scheduler.once(keys[-1], name="work", transaction=True, wait_for=PATIENCE)(work)
        await cut(guarded())
        assert await guarded() == keys[-1]
        await soon(lambda: nothing_is_left(scheduler))

    each_await(scenario)
    assert effects.all() == sorted(keys)
    effects.drop()
    scheduler._opened.close()


class SoftTimeLimitExceeded(Exception):
    """As Celery's."""


@pytest.mark.parametrize("raises", [Interrupted, SoftTimeLimitExceeded])
def test_a_call_that_a_signal_handler_cuts_off_anywhere_leaves_its_key_to_others(local, monkeypatch, raises):
    monkeypatch.setattr(owned_claim, "CHECK_INTERVAL", 0.05)
    store_is_whole(monkeypatch)
    local.once("warm", name="warm")(lambda: None)()

    def scenario(cut: CutCall) -> None:
        key, ran = f"k{next(_numbers)}", []

        def work() -> int:
            ran.append(1)
            return len(ran)

        local._guards.guarded.clear()
        guarded = local.once(key, name="work", wait_for=PATIENCE)(work)
        cut(guarded)
        returned = cut.value if cut.error is None else None
        found = guarded()
        assert found == (returned or len(ran)), "what was returned is what is recorded"
        before_long(lambda: nothing_is_left(local))

    assert each_line(scenario, raises=raises) > 50


def store_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harness pass over the store in memory: cut off in its middle it is like a server that lost its rows."""
    from tests import cancelling

    entered = cancelling.CutCall._entered

    def outside(self, frame, event, argument):
        return None if "stores/memory" in frame.f_code.co_filename else entered(self, frame, event, argument)

    monkeypatch.setattr(cancelling.CutCall, "_entered", outside)


def test_claim_left_behind_silently_is_found_by_the_next_call(place):
    """Whatever cut it off, cut off the way out too."""
    guarded = place.once("k", name="work", wait_for=PATIENCE)(lambda: 7)
    claims = place._opened.claims()
    ask, lost = claims.store.acquire, []

    class Died(BaseException):
        pass

    def acquire(*args: Any, **kwargs: Any) -> Any:
        lost.append(ask(*args, **kwargs))
        raise Died

    claims.store.acquire = acquire
    with pytest.raises(Died):
        guarded()
    del claims.store.acquire
    assert lost[0] is not None
    assert guarded() == 7
    before_long(lambda: nothing_is_left(place))


def test_claim_left_behind_is_free_for_other_processes_within_its_lease(shared_url):
    first, second = Scheduler(shared_url, lease="2s"), Scheduler(shared_url, lease="2s")
    guarded = [one.once("k", name="work", wait_for=PATIENCE)(lambda: 7) for one in (first, second)]
    claims = first._opened.claims()
    ask = claims.store.acquire

    class Died(BaseException):
        pass

    def acquire(*args: Any, **kwargs: Any) -> Any:
        ask(*args, **kwargs)
        raise Died

    claims.store.acquire = acquire  # type: ignore[method-assign]
    with pytest.raises(Died):
        guarded[0]()
    assert guarded[1]() == 7, "the first process lives, and its renewals list what no call holds"
    for one in (first, second):
        one._opened.close()


# --- calls that wait for each other -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_calls_that_lead_back_to_a_key_that_is_held_are_told(local, is_async):
    if is_async:

        async def left(n: int) -> object:
            return await guarded[1](n)

        async def right(n: int) -> object:
            return await guarded[0](n)

        guarded = [local.once("a:{n}")(left), local.once("b:{n}")(right)]

        def call() -> object:
            return asyncio.run(guarded[0](1))
    else:

        def left(n: int) -> object:  # type: ignore[misc]
            return guarded[1](n)

        def right(n: int) -> object:  # type: ignore[misc]
            return guarded[0](n)

        guarded = [local.once("a:{n}")(left), local.once("b:{n}")(right)]

        def call() -> object:
            return guarded[0](1)

    with pytest.raises(ConfigurationError, match=r"'once:left' was called under the key 'a:1'.*through 'once:right'"):
        call()
    before_long(lambda: nothing_is_left(local))


def test_two_calls_that_wait_for_each_other_are_told(local):
    met = threading.Barrier(2)
    ran: list[str] = []

    def work(mine: str, other: str) -> object:
        ran.append(mine)
        if len(ran) > 2:
            return mine
        met.wait(PATIENCE)
        return guarded(other, mine)

    guarded = local.once("{mine}", payload=())(work)
    ended: list[object] = []

    def call(*args: str) -> None:
        try:
            ended.append(guarded(*args))
        except ConfigurationError as error:
            ended.append(error)

    threads = [threading.Thread(target=call, args=pair, daemon=True) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
        assert not thread.is_alive(), "it waits for ever"
    assert any(isinstance(one, ConfigurationError) and "neither would ever end" in str(one) for one in ended)


def test_a_call_inside_of_another_one_that_only_looks_is_not_told(local):
    @local.once("a", on_busy="skip")
    def outer() -> object:
        return inner()

    @local.once("b")
    def inner() -> object:
        return outer()

    assert outer() is None

    @local.once("c", on_busy="raise")
    def raising() -> object:
        return between()

    @local.once("d")
    def between() -> object:
        return raising()

    with pytest.raises(StillRunning):
        raising()


def test_a_child_of_a_fork_that_returns_from_a_guarded_function_records_nothing(folder):
    code = """
import os, sys
from cronsensus import Scheduler
scheduler = Scheduler(sys.argv[1])

@scheduler.once("k")
def work():
    child = os.fork()
    if child == 0:
        return "child"
    os.waitpid(child, 0)
    return "parent"

found = work()
if found == "child":
    os._exit(0)
print(found, work())
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{folder}/x.db"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.stdout == "parent parent\n", ended.stderr
