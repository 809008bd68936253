"""A function runs once for each key: results, failures, and calls that come meanwhile. On every store."""

import asyncio
import copy
import inspect
import pickle
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, make_url, text

from cronsensus import (
    ConfigurationError,
    LeaseLost,
    RunFailed,
    Scheduler,
    State,
    StillRunning,
    StoreUnavailable,
    current_run,
)
from cronsensus.errors import InvalidPayload, StoreBusy, UnsupportedTransaction
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.node.async_transaction import AsyncConnection
from cronsensus.stores.sql.lending import Lending
from tests.scratch import BUSY
from tests.servers.fixtures import FAR


def test_a_repeat_gets_the_recorded_result(scheduler):
    ran = []

    @scheduler.once("charge:{order_id}")
    def charge(order_id: int, amount: float = 1.0) -> dict[str, float]:
        ran.append(order_id)
        return {"charged": amount}

    assert charge(1, 9.5) == {"charged": 9.5}
    assert charge(1, 9.5) == charge(amount=9.5, order_id=1) == {"charged": 9.5}
    assert charge(2) == charge(2, 1.0) == {"charged": 1.0}
    assert ran == [1, 2]
    seen = scheduler.store.occurrences(OccurrenceFilter(job="once:charge"))
    assert sorted((one.key, one.state) for one in seen) == [
        ("charge:1", State.SUCCEEDED),
        ("charge:2", State.SUCCEEDED),
    ]


def test_two_programs_that_guard_different_functions_under_one_name_are_told(shared_url, caplog):
    def first_call_of(module: str) -> list[str]:
        caplog.clear()

        def charge(message_id: str) -> str:
            return module

        charge.__module__, charge.__qualname__ = module, "charge"
        assert Scheduler(shared_url).once("{message_id}")(charge)("m1") == "shop.cards"
        return [one.getMessage() for one in caplog.records if "are guarded as 'charge'" in one.getMessage()]

    assert first_call_of("shop.cards") == []
    (job,) = Scheduler(shared_url).store.jobs()
    assert job.spec.guarded
    assert first_call_of("shop.cards") == []  # another replica
    assert first_call_of("cards") == []  # the same file, run as a script
    (said,) = first_call_of("shop.batteries")
    assert "shop.batteries.charge(message_id) here, and shop.cards.charge(message_id) in another program" in said
    assert len(first_call_of("shop.cards")) == 1  # each of the two says it


def test_another_process_gets_it_too(shared_url):
    for function in (lambda n: n * 2, lambda n: n * 3):
        guarded = Scheduler(shared_url).once("x:{n}", name="f")(function)
        assert guarded(21) == 42


@FAR
def test_concurrent_callers_wait_for_the_one_result(scheduler):
    running, go, ran = threading.Event(), threading.Event(), []

    @scheduler.once("k:{n}")
    def work(n: int) -> int:
        ran.append(n)
        running.set()
        assert go.wait(60)
        return len(ran)

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(work, 1) for _ in range(8)]
        assert running.wait(60)
        go.set()
        assert [call.result(20) for call in calls] == [1] * 8
    assert ran == [1]


def test_busy_key_may_be_skipped_or_raise(scheduler):
    running, go = threading.Event(), threading.Event()

    def work() -> int:
        running.set()
        assert go.wait(60)
        return 7

    first = scheduler.once("k", name="w")(work)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(first)
        assert running.wait(60)
        scheduler._guards.guarded.clear()
        assert scheduler.once("k", name="w", on_busy="skip")(work)() is None
        for decorate in (scheduler.once("k", name="w", on_busy="raise"), scheduler.once("k", name="w", wait_for=0.05)):
            scheduler._guards.guarded.clear()
            other = decorate(work)
            with pytest.raises(StillRunning, match="'once:w' is being run under the key 'k'"):
                other()
        go.set()
        assert call.result(20) == other() == 7


def test_a_failure_frees_the_key(scheduler):
    tries = []

    @scheduler.once("k")
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "done"

    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            flaky()
        waiting = scheduler.store.occurrences(OccurrenceFilter(job="once:flaky"))[0]
        assert waiting.state is State.PENDING
        assert waiting.error is not None
        assert waiting.error.type == "ValueError"
        assert not scheduler.store.look().backlog, "nodes would look again and again at what they cannot run"
    assert flaky() == flaky() == "done"
    assert [run.end for run in scheduler.store.runs(waiting.id)] == ["retry", "retry", "succeeded"]


def test_a_failure_may_keep_the_key(scheduler):
    ran = []

    @scheduler.once("k", on_error="keep")
    def bad() -> None:
        ran.append(1)
        raise ValueError("never again")

    with pytest.raises(ValueError, match="never again"):
        bad()
    with pytest.raises(RunFailed, match=r"'once:bad' is failed under the key 'k'.*ValueError: never again") as failed:
        bad()
    assert isinstance(failed.value.occurrence, Occurrence)
    assert failed.value.occurrence.state is State.FAILED
    assert ran == [1]


def test_a_result_that_is_no_json_keeps_the_key(scheduler):
    ran = []

    @scheduler.once("k")
    def odd() -> object:
        ran.append(1)
        return object()

    with pytest.raises(InvalidPayload, match="what 'once:odd' returned"):
        odd()
    with pytest.raises(RunFailed, match="InvalidPayload"):
        odd()
    assert ran == [1]


def test_async_functions(scheduler):
    ran = []

    @scheduler.once("k:{n}")
    async def work(n: int) -> int:
        ran.append(n)
        run = current_run()
        assert run is not None
        assert run.key == "k:1"
        await asyncio.sleep(0.01)
        return len(ran)

    async def main() -> list[int]:
        found = await asyncio.gather(*(work(1) for _ in range(10)))
        assert current_run() is None
        return [*found, await work(1)]

    assert inspect.iscoroutinefunction(work) or sys.version_info < (3, 12)
    assert asyncio.run(main()) == [1] * 11


def test_a_cancelled_call_frees_the_key(scheduler):
    ran, running = [], asyncio.Event()

    @scheduler.once("k")
    async def work() -> int:
        ran.append(1)
        if len(ran) == 1:
            running.set()
            await asyncio.Event().wait()
        return 7

    async def main() -> Any:
        call = asyncio.ensure_future(work())
        await running.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await work()

    assert asyncio.run(main()) == 7


def test_the_run_is_at_hand_and_gone_afterwards(scheduler):
    @scheduler.once("k")
    def work() -> int:
        run = current_run()
        assert run is not None
        assert (run.job, run.key, run.attempt) == ("once:work", "k", 1)
        run.check()
        return run.token

    assert work() > 0
    assert current_run() is None


def test_a_function_that_waits_for_itself_is_told(local):
    @local.once("k")
    def work() -> Any:
        return work()

    with pytest.raises(ConfigurationError, match="would wait for itself"):
        work()


def test_a_node_of_the_same_scheduler_leaves_it_alone(scheduler):
    @scheduler.once("k")
    def work() -> int:
        return 7

    with scheduler:
        assert work() == 7
    assert work() == 7


def test_methods(local):
    class Shop:
        ran = 0

        @local.once("order:{order}")
        def charge(self, order: int) -> int:
            self.ran += 1
            return order

    shop = Shop()
    assert [shop.charge(1), shop.charge(1), shop.ran] == [1, 1, 1]


def test_failed_key_that_is_not_asked_for_again_is_closed(local):
    @local.once("k", keep="1ms")
    def bad() -> None:
        raise ValueError("no")

    claims = local._opened.claims()
    claims._maintained_at = claims.clock.monotonic()  # or the call itself may close it, and the look below prune it
    with pytest.raises(ValueError, match=r"^no$"):
        bad()
    claims._maintained_at = -1e9
    threading.Event().wait(0.01)
    claims.maintain_store()
    seen = local.store.occurrences(OccurrenceFilter(job="once:bad"))[0]
    assert (seen.state, seen.reason) == (State.CANCELLED, "failed or cut off, and never asked for again")
    spec = local.store.job("once:bad").spec
    policies = replace(spec.policies, keep=timedelta(hours=1))  # or a slow process finds that it was kept long enough
    local.store.define_jobs([replace(spec, policies=policies)], release="r", by="test")
    with pytest.raises(ValueError, match=r"^no$"):
        bad()
    assert local.store.trail(target="once:bad", limit=1)[0].why == "asked for again"


# --- effects that commit with the key --------------------------------------------------------------------------------


class Effects:
    """A table of the user's own in the store's database."""

    def __init__(self, url: str) -> None:
        own = make_url(url).difference_update_query(["schema", "busy_timeout"])
        kind = own.drivername.partition("+")[0]
        own = own.set(drivername={"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}.get(kind, kind))
        self.engine = create_engine(own, poolclass=NullPool)
        self.table = f"effects_{uuid.uuid4().hex[:8]}"
        self.insert = text(f"INSERT INTO {self.table} VALUES (:what)")
        with self.engine.begin() as conn:
            conn.execute(text(f"CREATE TABLE {self.table} (what VARCHAR(100))"))

    def all(self) -> list[str]:
        with self.engine.begin() as conn:
            return list(conn.execute(text(f"SELECT what FROM {self.table} ORDER BY what")).scalars())

    def drop(self) -> None:
        with self.engine.begin() as conn:
            conn.execute(text(f"DROP TABLE {self.table}"))


@pytest.fixture
def effects(sql_url):
    made = Effects(sql_url)
    yield made
    made.drop()


@pytest.fixture
def shop(sql_url):
    made = Scheduler(sql_url)
    yield made
    made._opened.close()


def test_effects_commit_with_the_key(shop, effects):
    tries = []

    @shop.once("k:{n}", transaction=True)
    def work(conn: Connection, n: int) -> int:
        tries.append(n)
        conn.execute(effects.insert, {"what": f"{n}"})
        if len(tries) == 1:
            raise ValueError("undone")
        return len(tries)

    with pytest.raises(ValueError, match="undone"):
        work(1)
    assert [work(1), work(1), work(2)] == [2, 2, 3]
    assert effects.all() == ["1", "2"]


def test_effects_of_an_async_function(shop, effects):
    @shop.once("k", transaction=True)
    async def work(conn) -> int:
        await conn.execute(effects.insert, {"what": "a"})
        return 7

    async def main() -> list[int]:
        return list(await asyncio.gather(*(work() for _ in range(5))))

    assert asyncio.run(main()) == [7] * 5
    assert effects.all() == ["a"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_transaction_that_gave_way_to_another_one_is_tried_again(shop, effects, is_async):
    """A deadlock is no failure: what was written is undone, so the function runs again, even if failures keep."""
    ran = []

    def work() -> int:
        ran.append(1)
        if len(ran) < 3:
            raise StoreBusy("two transactions stood in each other's way, by order of this test")
        return len(ran)

    def write(conn: Connection) -> int:
        conn.execute(effects.insert, {"what": "a"})
        return work()

    async def awrite(conn: AsyncConnection) -> int:
        await conn.execute(effects.insert, {"what": "a"})
        return work()

    guard = shop.once("k", transaction=True, on_error="keep", name="work")
    if is_async:
        guarded = guard(awrite)
        assert [asyncio.run(guarded()), asyncio.run(guarded())] == [3, 3]
    else:
        guarded = guard(write)
        assert [guarded(), guarded()] == [3, 3]
    assert effects.all() == ["a"]
    (seen,) = shop.store.occurrences(OccurrenceFilter(job="once:work"))
    assert [run.end for run in shop.store.runs(seen.id)] == ["retry", "retry", "succeeded"]


def test_a_transaction_that_gives_way_each_time_leaves_the_key_free(shop, effects):
    ran = []

    @shop.once("k", transaction=True, on_error="keep")
    def work(conn: Connection) -> int:
        conn.execute(effects.insert, {"what": "a"})
        ran.append(1)
        if len(ran) <= 3:
            raise StoreBusy("again and again, by order of this test")
        return len(ran)

    with pytest.raises(StoreBusy, match="again and again"):
        work()
    assert effects.all() == []
    assert work() == 4


def test_a_transaction_that_the_store_could_not_begin_leaves_the_key_free(shop, effects, monkeypatch):
    """Nothing was done, so there is no failure to keep."""

    @shop.once("k", transaction=True, on_error="keep")
    def work(conn: Connection) -> int:
        conn.execute(effects.insert, {"what": "a"})
        return 1

    def away(*_: object) -> None:
        raise StoreUnavailable("the server has no connection left, by order of this test")

    with monkeypatch.context() as patch:
        patch.setattr(Lending, "lend_transaction", away)
        with pytest.raises(StoreUnavailable, match="no connection left"):
            work()
    assert work() == 1
    assert effects.all() == ["a"]


def test_transaction_of_a_run_that_was_taken_over_commits_nothing(sql_url, effects):
    """Its session is given up for dead in the middle: what it wrote is undone, and the next call does it."""
    # On SQLite a write that comes too late waits for a turn that it does not get.
    shop = Scheduler(sql_url.replace(BUSY, "busy_timeout=2s"))
    ran = []

    @shop.once("k", transaction=True)
    def work(conn: Connection) -> int:
        ran.append(1)
        if len(ran) == 1:
            run = current_run()
            assert run is not None
            # Before the first write: on SQLite no session could be ended while the block has written.
            shop.store.reclaim([run.session])
        conn.execute(effects.insert, {"what": f"{len(ran)}"})
        return len(ran)

    if shop.store.capabilities.name == "sqlite":
        # The block looked before the session ended, so its write comes too late there: it gives way, and runs again.
        assert work() == 2
    else:
        with pytest.raises(LeaseLost):
            work()
        assert work() == 2
    assert effects.all() == ["2"]
    shop._opened.close()


def test_stores_without_transactions_say_so(scheduler):
    @scheduler.once("k", transaction=True)
    def work(conn: Connection) -> int:
        assert conn is not None
        return 1

    if scheduler.store.capabilities.transactional_finish:
        assert work() == 1
    else:
        with pytest.raises(UnsupportedTransaction, match="has no transaction that a job's effects could share"):
            work()


# --- as frameworks see it ---------------------------------------------------------------------------------------------

_shop = Scheduler("memory://frameworks")


@_shop.once("charge:{order}")
def charge(order: int, *, amount: float = 1.0) -> int:
    """Charge an order."""
    return order


def test_it_looks_like_the_function_that_it_guards():
    assert (charge.__name__, charge.__module__, charge.__doc__) == ("charge", __name__, "Charge an order.")
    assert str(inspect.signature(charge)) == "(order: int, *, amount: float = 1.0) -> int"


def test_it_is_pickled_by_name_as_functions_are():
    assert pickle.loads(pickle.dumps(charge)) is charge
    assert copy.deepcopy(charge) is charge


def test_the_connection_is_no_argument_of_its_callers(local):
    @local.once("book:{order}", transaction=True)
    def book(conn: Connection, order: int) -> int:
        conn.execute(text("SELECT 1"))
        return order

    assert str(inspect.signature(book)) == "(order: int) -> int"
