"""What a lock promises, on every store: threads and tasks of one process."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import pytest

from cronsensus import LeaseLost, Lock, LockHeld, NotTheHolder, Scheduler, open_store
from tests.lock.places import lock_at, shortest
from tests.servers.distance import ROUND_TRIP, patience
from tests.servers.fixtures import FAR

PATIENCE = patience(60.0)
"""Seconds after which a test gives up; never waited for when all is well."""


Answer = TypeVar("Answer")


def in_thread(act: Callable[[], Answer]) -> Answer:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result(PATIENCE)


@pytest.fixture
def lock(where: str) -> Lock:
    return lock_at(where, "name")


# --- taking and freeing -----------------------------------------------------------------------------------------------


def test_a_lock_is_held_from_acquire_to_release(lock, where):
    other = lock_at(where, "name")
    assert lock.acquire()
    assert (lock.locked(), lock.owned(), other.owned()) == (True, True, False)
    assert not in_thread(lambda: other.acquire(blocking=False))
    lock.release()
    assert (lock.locked(), lock.owned()) == (False, False)
    assert in_thread(lambda: other.acquire(blocking=False))


def test_a_block_holds_the_lock_and_gives_the_lease(lock, where):
    with lock as lease:
        assert (lease.name, lease.token, lease.lost.is_set()) == ("name", lock.token, False)
        assert lock.lost is lease.lost
        assert lock.lease is lease
        lease.check()
        assert 0 < lease.expires_in <= (30 if "file:" not in where else float("inf"))
    assert lock.lease is None
    assert lease.released
    assert not lock.locked()


def test_tokens_grow_from_holder_to_holder(lock, where):
    tokens = []
    for _ in range(5):
        with lock as lease:
            tokens.append(lease.token)
        with lock_at(where, "name") as lease:
            tokens.append(lease.token)
    assert sorted(set(tokens)) == tokens


def test_a_block_that_fails_frees_the_lock(lock):
    with pytest.raises(ZeroDivisionError), lock:
        _ = 1 / 0
    assert not lock.locked()


def test_block_that_released_early_ends_without_an_error(lock):
    with lock:
        lock.release()
    with lock as lease:
        lease.release()
    assert not lock.locked()


def test_names_and_namespaces_are_locked_each_for_itself(where):
    locks = [lock_at(where, "a"), lock_at(where, "b"), lock_at(where, "a", namespace="other")]
    assert [lock.acquire(blocking=False) for lock in locks] == [True, True, True]
    for lock in locks:
        lock.release()


def test_block_that_times_out_raises_lock_held(lock, where):
    with lock:
        hasty = lock_at(where, "name", blocking_timeout="50ms")
        begun = time.monotonic()
        assert not in_thread(hasty.acquire)
        assert not in_thread(lambda: hasty.acquire(blocking_timeout=0))
        assert 0.05 <= time.monotonic() - begun < PATIENCE

        def enter() -> None:
            with hasty:
                raise AssertionError("two hold it")

        with pytest.raises(LockHeld, match=r"'name' is held by others.* within 0\.05 s.*locks list"):
            in_thread(enter)
        with pytest.raises(LockHeld):
            in_thread(lambda: lock_at(where, "name", blocking=False).__enter__())


@FAR
def test_waiter_acquires_after_the_release(lock, where):
    waits = threading.Event()

    def wait() -> float:
        other = lock_at(where, "name")
        assert not other.acquire(blocking=False)
        waits.set()
        assert other.acquire(blocking_timeout=PATIENCE)
        got_at = time.monotonic()
        other.release()
        return got_at

    with ThreadPoolExecutor(1) as pool:
        lock.acquire()
        got = pool.submit(wait)
        assert waits.wait(PATIENCE)
        released_at = time.monotonic()
        lock.release()
        assert got.result(PATIENCE) >= released_at


def test_any_number_of_threads_may_share_one_object(lock):
    inside, most, count = [0], [0], [0]

    def work() -> None:
        for _ in range(3):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                seen = count[0]
                time.sleep(0)
                count[0] = seen + 1
                inside[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result(PATIENCE)
    assert (most[0], count[0]) == (1, 24)


def test_a_lock_for_several_lets_that_many_in(url):
    lock = Lock(url, "name", limit=3)
    inside, guard, seen = [0], threading.Lock(), []
    full = threading.Event()

    def work() -> int:
        with lock as lease:
            with guard:
                inside[0] += 1
                seen.append(inside[0])
                if inside[0] == 3:
                    full.set()
            assert full.wait(PATIENCE)
            with guard:
                inside[0] -= 1
            return lease.token

    with ThreadPoolExecutor(8) as pool:
        tokens = [done.result(PATIENCE) for done in [pool.submit(work) for _ in range(8)]]
    assert max(seen) == 3
    assert len(set(tokens)) == 8
    assert not lock.locked()


def test_a_lock_for_several_is_locked_when_it_is_full(url):
    first, second = Lock(url, "name", limit=2), Lock(url, "name", limit=2)
    with first:
        assert not first.locked()
        with second:
            assert first.locked()
            assert not in_thread(lambda: first.acquire(blocking=False))


# --- lasting ----------------------------------------------------------------------------------------------------------


@FAR
def test_a_lock_is_renewed_for_as_long_as_it_is_held(timed):
    ttl = 2 + 30 * ROUND_TRIP  # seconds: far away and on a busy machine a renewal may take half a second
    lock = lock_at(timed, "name", ttl=ttl)
    with lock as lease:
        ended = time.monotonic() + 1.6 * ttl
        while time.monotonic() < ended:
            assert not lease.lost.wait(0.1)
        assert lock.owned()
        assert not in_thread(lambda: lock_at(timed, "name").acquire(blocking=False))


def test_a_lock_that_is_not_renewed_ends_and_says_so_first(timed, caplog):
    lock = lock_at(timed, "name", ttl=shortest(timed), renew=False)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    seen: list[bool] = []

    def take() -> None:
        with lock_at(timed, "name"):
            seen.append(lease.lost.is_set())

    in_thread(take)
    assert seen == [True]
    assert "is lost" not in caplog.text  # no fault: it was asked for so
    with pytest.raises(LeaseLost, match="another process may hold it"):
        lease.check()
    with pytest.raises(LeaseLost):
        lock.release()
    assert lock.acquire(blocking=False)


def test_extending_counts_from_what_is_left_or_from_now(timed):
    lock = lock_at(timed, "name", ttl="100s", renew=False)
    with lock as lease:
        before = lease.expires_in
        assert lock.extend(100)
        assert 150 < lease.expires_in <= 180 < before + 100
        assert lock.extend("50s", replace_ttl=True)
        assert 30 < lease.expires_in <= 45
        assert lock.reacquire()
        assert 70 < lease.expires_in <= 90
        assert lease.extend("1s")
        assert lease.reacquire()


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_extended_to_no_time_at_all_is_over(timed):
    lock = lock_at(timed, "name")
    lock.acquire()
    lost = lock.lost
    assert lock.extend(0, replace_ttl=True)
    assert lost.wait(PATIENCE)
    assert in_thread(lambda: lock_at(timed, "name").acquire(blocking_timeout=PATIENCE))


def test_release_and_extend_of_a_lost_lock_raise(timed):
    lock = lock_at(timed, "name", ttl=shortest(timed), renew=False)
    lock.acquire()
    old = lock.lease
    assert old is not None
    other = lock_at(timed, "name")
    taken, checked = threading.Event(), threading.Event()

    def take() -> bool:
        with other:
            taken.set()
            checked.wait(PATIENCE)
            return other.owned()

    with ThreadPoolExecutor(1) as pool:
        holds = pool.submit(take)
        assert taken.wait(PATIENCE)
        with pytest.raises(LeaseLost):
            lock.extend("1m")
        assert not lock.owned()
        with pytest.raises(LeaseLost):
            lock.release()
        checked.set()
        assert holds.result(PATIENCE)
    with pytest.raises(NotTheHolder, match="acquire"):
        lock.release()


def test_a_lock_is_not_reentrant(lock):
    with lock, pytest.raises(NotTheHolder, match="not re-entrant"):
        lock.acquire()
    with lock, pytest.raises(NotTheHolder, match="not re-entrant"), lock:
        pass


def test_release_in_another_thread_raises(lock):
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    with pytest.raises(NotTheHolder, match=r"not held by this thread; it is held by .*MainThread"):
        in_thread(lock.release)
    with pytest.raises(NotTheHolder, match="'MainThread' and can only be released"):
        in_thread(lease.release)
    with pytest.raises(NotTheHolder):
        in_thread(lambda: lock.extend("1s"))
    with pytest.raises(NotTheHolder):
        in_thread(lambda: lock.token)
    assert lock.owned()
    lock.release()


def test_release_without_acquire_raises(lock):
    for act in (lock.release, lambda: lock.extend(1), lock.reacquire, lambda: lock.token, lambda: lock.lost):
        with pytest.raises(NotTheHolder, match="acquire"):
            act()
    with lock as lease:
        pass
    with pytest.raises(NotTheHolder, match="released already"):
        lease.release()


def test_a_thread_that_ends_without_releasing_does_not_hold_the_lock_for_ever(timed, caplog):
    lock = lock_at(timed, "name", ttl="1h")  # so long that it is free only because it was freed
    in_thread(lock.acquire)
    assert lock_at(timed, "name").acquire(blocking_timeout=PATIENCE)
    assert "ended without releasing it" in caplog.text


# --- event loops ------------------------------------------------------------------------------------------------------


def test_tasks_hold_each_for_itself(lock):
    async def main() -> int:
        count = inside = 0

        async def work() -> None:
            nonlocal count, inside
            async with lock as lease:
                inside += 1
                assert inside == 1
                assert lock.token == lease.token
                seen = count
                await asyncio.sleep(0)
                count = seen + 1
                inside -= 1

        await asyncio.gather(*(work() for _ in range(24)))
        return count

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == 24


def test_async_twins_of_a_lock_do_the_same(lock):
    async def main() -> None:
        assert await lock.aacquire()
        assert await lock.aowned()
        assert await lock.alocked()
        assert await lock.aextend("10s")
        assert await lock.areacquire()
        lease = lock.lease
        assert lease is not None
        assert await lease.aowned()
        with pytest.raises(NotTheHolder, match="this task"):
            await lock.aacquire()
        other = asyncio.create_task(lock.aacquire(blocking_timeout=0.05))
        assert not await other
        await lock.arelease()
        with pytest.raises(NotTheHolder, match="not held by this task"):
            await asyncio.create_task(lock.arelease())
        assert not await lock.alocked()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_loop_goes_on_while_its_tasks_wait_even_if_they_are_many(lock):
    """More waiters than any pool has threads: the one who holds the lock must still be able to release it."""

    async def main() -> list[int]:
        done: list[int] = []
        await lock.aacquire()

        async def wait(number: int) -> None:
            async with lock:
                done.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(24)]
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not done
        await lock.arelease()
        await asyncio.gather(*tasks)
        return done

    assert sorted(asyncio.run(asyncio.wait_for(main(), PATIENCE))) == list(range(24))


def test_cancelled_waiter_leaves_nothing_behind(lock, where):
    async def main() -> None:
        for pause in (0, 0.001, 0.01, 0.05):
            await lock.aacquire()
            waiter = asyncio.create_task(lock.aacquire())
            await asyncio.sleep(pause)
            waiter.cancel()
            with suppress(asyncio.CancelledError):
                await waiter
            await lock.arelease()
            async with asyncio.timeout(PATIENCE):
                async with lock_at(where, "name"):
                    pass

    asyncio.run(main())


def test_grant_after_a_cancellation_is_given_back(lock, where):
    async def hold() -> None:
        async with lock:
            await asyncio.Event().wait()

    async def main() -> None:
        for number in range(20):
            holder = asyncio.create_task(hold())
            for _ in range(number):
                await asyncio.sleep(0)
            holder.cancel()
            with suppress(asyncio.CancelledError):
                await holder
            async with asyncio.timeout(PATIENCE), lock_at(where, "name", blocking_timeout=5):
                pass

    asyncio.run(main())


# --- by a scheduler ---------------------------------------------------------------------------------------------------


def test_a_scheduler_gives_locks_in_its_store(url):
    scheduler = Scheduler(url, node="web-1", namespace="shop")
    with scheduler.lock("reindex", ttl="5s") as lease:
        assert lease.holder.startswith("web-1/MainThread")
        assert not in_thread(lambda: Lock(url, "reindex", namespace="shop").acquire(blocking=False))
        assert [view.name for view in scheduler.store.locks()] == ["reindex"]
    scheduler.stop()


def test_broken_lock_ends_the_lease_and_is_free(url):
    with Scheduler(url) as scheduler:
        lock = scheduler.lock("name", ttl="1s")
        lock.acquire()
        lost = lock.lost
        token = lock.token
        assert scheduler.break_lock("name", reason="it hangs", by="ann") == 1
        assert scheduler.break_lock("name", reason="it hangs", by="ann") == 0
        assert in_thread(lambda: Lock(url, "name").acquire(blocking_timeout=PATIENCE))
        assert lost.wait(PATIENCE)
        with pytest.raises(LeaseLost):
            lock.release()
        assert asyncio.run(scheduler.abreak_lock("never held", reason="it hangs")) == 0
        assert token > 0


def test_locks_of_a_scheduler_outlive_its_node(url):
    scheduler = Scheduler(url)
    with scheduler.lock("reindex") as lease:
        with scheduler:
            pass
        assert lease.owned()
        assert not lease.lost.is_set()
    assert not scheduler.lock("reindex").locked()
    scheduler.stop()


def test_locks_list_shows_a_held_lock(url):
    with Lock(url, "name") as lease:
        [view] = open_store(url).locks(name="name")
        assert (view.token, view.holder) == (lease.token, lease.holder)


def test_session_of_locks_is_no_node(url):
    scheduler = Scheduler(url)
    with scheduler.lock("reindex"):
        [session] = scheduler.store.sessions()
        assert not session.is_node
        assert session.holds == 1
        assert scheduler.store.look().sessions == ()
    scheduler.stop()
