"""A job's effects and its result in one transaction, as its author meets it: whatever happens, both once or none."""

import asyncio
import gc
import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from cronsensus import LeaseLost, Retry, Run, RunFailed, Scheduler, State, StoreUnavailable
from cronsensus.errors import InvalidPayload, UnsupportedTransaction
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.node.progress import ProgressBuffer
from cronsensus.node.run_transaction import RunTransaction
from cronsensus.stores.base import Store
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import LEASE, a_session
from cronsensus.testing.conformance.steps import take
from cronsensus.timing.clock import SystemClock

STORES: dict[str, Callable[[str], Store]] = {"sqlite": SqliteStore, "postgres": PostgresStore, "mysql": MysqlStore}
DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_names = count()


class Shop:
    """The user's own table in the store's database, and what it holds."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self.table = f"effects_{uuid.uuid4().hex[:8]}"
        self.write = text(f"INSERT INTO {self.table} (name, attempt) VALUES (:key, :attempt)")
        own = make_url(url).set(drivername=DRIVERS[kind]).difference_update_query(["schema"])
        self.engine = create_engine(own, poolclass=NullPool)
        with self.engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE {self.table} (name VARCHAR(99), attempt INTEGER)"))

    def effects(self) -> list[tuple[str, int]]:
        with self.engine.connect() as connection:
            return [(row.name, row.attempt) for row in connection.execute(text(f"SELECT * FROM {self.table}"))]

    def close(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(f"DROP TABLE {self.table}"))
        self.engine.dispose()


def effect(run: Run) -> dict[str, Any]:
    return {"key": run.key, "attempt": run.attempt}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop on SQLite."""
    made = Shop("sqlite", f"sqlite:///{tmp_path / 'shop.db'}")
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop on each of the databases."""
    sqlite = f"sqlite:///{tmp_path / 'shop.db'}"
    url = sqlite if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    made = Shop(request.param, url)
    yield made
    made.close()


@pytest.fixture(params=["postgres", "mysql"])
def any_server(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A shop on each of the servers."""
    made = Shop(request.param, request.getfixturevalue(f"{request.param}_url"))
    yield made
    made.close()


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    wanted = next((name for name in ("any_shop", "any_server") if name in request.fixturenames), "shop")
    shop = request.getfixturevalue(wanted)
    store = STORES[shop.kind](shop.url)
    scheduler = Scheduler(store, node="a")
    yield scheduler
    scheduler.stop("0s")
    store.close()


@pytest.fixture
def store(shop: Shop) -> Iterator[SqliteStore]:
    made = SqliteStore(shop.url)
    made.migrate()
    yield made
    made.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- together -------------------------------------------------------------------------------------------------------


def test_a_job_commits_its_effects_with_its_result(node, any_shop, caplog):
    shop = any_shop

    @node.job()
    def book(run: Run) -> int:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            seen: int = conn.execute(text(f"SELECT count(*) FROM {shop.table}")).scalar_one()
            assert shop.effects() == []
            return run.complete(seen + 41)

    with node:
        handle = book.options(key="one").enqueue()
        assert handle.result("60s") == 42
        runs = node.store.runs(handle.id)
    assert shop.effects() == [("one", 1)]
    assert [(run.attempt, run.end) for run in runs] == [(1, "succeeded")]
    assert warnings(caplog) == []


def test_an_async_job_does_the_same_without_blocking_its_loop(node, any_shop):
    shop = any_shop

    @node.job()
    async def book(run: Run) -> list[Any]:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        async with run.atransaction() as conn:
            wrote = await conn.execute(shop.write, effect(run))
            rows = (await conn.execute(text(f"SELECT name, attempt FROM {shop.table}"))).all()
            number = await conn.scalar(text(f"SELECT count(*) FROM {shop.table}"))
            keys = (await conn.scalars(text(f"SELECT name FROM {shop.table}"))).all()
            thread = await conn.run_sync(lambda connection: threading.current_thread().name)
            before = turns
            together = await asyncio.gather(*[conn.scalar(text("SELECT 1")) for _ in range(20)])
            assert turns > before
            run.complete([wrote.rowcount, [tuple(row) for row in rows], number, keys, sum(together)])
        turning.cancel()
        assert thread.startswith("cronsensus-transaction")
        return [wrote.rowcount, [tuple(row) for row in rows], number, keys, sum(together)]

    with node:
        assert book.options(key="one").enqueue().result("60s") == [1, [["one", 1]], 1, ["one"], 20]
    assert shop.effects() == [("one", 1)]


def test_what_an_async_job_selects_is_there_after_its_transaction(node, any_shop):
    shop = any_shop

    found: list[Any] = []

    @node.job()
    async def look(run: Run) -> None:
        async with run.atransaction() as conn:
            await conn.execute(shop.write, effect(run))
            result = await conn.execute(text(f"SELECT name FROM {shop.table}"))
        found.extend(result.scalars())

    with node:
        look.options(key="one").enqueue().result("60s")
    assert found == ["one"]


def test_an_orm_session_on_the_connection_commits_with_the_block(node, shop):
    @node.job()
    def book(run: Run) -> None:
        with run.transaction() as conn, Session(conn) as session:
            session.execute(shop.write, effect(run))
            session.commit()
            assert shop.effects() == []

    with node:
        book.options(key="one").enqueue().result("60s")
    assert shop.effects() == [("one", 1)]


def test_progress_and_log_lines_of_the_block_are_kept(node):
    @node.job()
    def book(run: Run) -> None:
        log = logging.getLogger("shop")
        log.warning("before")
        with run.transaction():
            log.warning("inside")
            run.progress(2, 3)

    with node:
        handle = book.enqueue()
        handle.result("60s")
        done = node.store.occurrence(handle.id)
        lines = [line.text for _, _, line in node.store.logs(handle.id)]
    assert lines == ["before", "inside"]
    assert done is not None
    assert done.progress == (2, 3)


# --- undone -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_an_exception_in_the_block_undoes_it_and_the_retry_does_it_once(node, any_shop, kind):
    shop = any_shop

    if kind == "thread":

        def book(run: Run) -> int:
            with run.transaction() as conn:
                conn.execute(shop.write, effect(run))
                if run.attempt == 1:
                    raise ConnectionError("the shop is away")
                return run.complete(run.attempt)
    else:

        async def book(run: Run) -> int:  # type: ignore[misc]
            async with run.atransaction() as conn:
                await conn.execute(shop.write, effect(run))
                if run.attempt == 1:
                    raise ConnectionError("the shop is away")
                return run.complete(run.attempt)

    job = node.job(retries=1, retry_delay="10ms")(book)
    with node:
        handle = job.options(key="one").enqueue()
        assert handle.result("60s") == 2
        runs = node.store.runs(handle.id)
    assert shop.effects() == [("one", 2)]
    assert [(run.attempt, run.end) for run in runs] == [(1, "retry"), (2, "succeeded")]
    assert runs[0].error is not None
    assert "the shop is away" in runs[0].error.message


def test_a_result_that_is_not_json_undoes_the_block(node, shop):
    @node.job()
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            run.complete(object())

    with node:
        ended = book.options(key="one").enqueue().wait("60s")
    assert (ended.state, ended.error.type if ended.error else "") == (State.FAILED, "InvalidPayload")
    assert shop.effects() == []
    assert issubclass(InvalidPayload, Exception)


def test_after_a_block_that_was_rolled_back_a_run_may_begin_another(node, shop):
    @node.job()
    def book(run: Run) -> int:
        for trial in range(3):
            try:
                with run.transaction() as conn:
                    conn.execute(shop.write, effect(run))
                    if trial < 2:
                        raise sqlite3.OperationalError("a deadlock, say")
                    run.complete(trial)
            except sqlite3.OperationalError:
                continue
        return 2

    with node:
        assert book.options(key="one").enqueue().result("60s") == 2
    assert shop.effects() == [("one", 1)]


def test_a_task_that_is_cancelled_in_the_middle_undoes_its_block(node, any_shop):
    shop = any_shop

    inside = threading.Event()

    @node.job()
    async def book(run: Run) -> None:
        async with run.atransaction() as conn:
            await conn.execute(shop.write, effect(run))
            inside.set()
            await asyncio.Event().wait()

    with node:
        handle = book.options(key="one").enqueue()
        assert inside.wait(60)
        node.stop("0s")
        found = node.store.occurrence(handle.id)
    assert found is not None
    assert found.state is State.PENDING
    assert shop.effects() == []


KILL = {
    "postgres": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({pid})"),
    "mysql": ("SELECT CONNECTION_ID()", "KILL {pid}"),
}
IDLE = {
    "postgres": ("SHOW idle_in_transaction_session_timeout", "1min", "SET idle_in_transaction_session_timeout = '1s'"),
    "mysql": ("SELECT @@idle_transaction_timeout", "60", "SET idle_transaction_timeout = 1"),
    # Oracle's: it does not tell idle transactions from idle connections.
    "oracle": ("SELECT @@wait_timeout", "60", "SET wait_timeout = 1"),
}


def test_a_connection_that_is_cut_off_in_the_block_undoes_it(node, any_server):
    shop = any_server

    @node.job()
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            if run.attempt == 1:
                cut(shop, conn)

    with node:
        handle = book.options(key="one").enqueue()
        handle.result("60s")
        assert [run.end for run in node.store.runs(handle.id)] == ["crashed", "succeeded"]
    assert shop.effects() == [("one", 2)]


def cut(shop: Shop, conn: Any) -> None:
    """End a connection of the server's, as a failover does."""
    who, kill = KILL[shop.kind]
    pid = conn.execute(text(who)).scalar_one()
    with shop.engine.connect() as other:
        other.execute(text(kill.format(pid=pid)))


@pytest.mark.parametrize("how", ["thread", "async", "wrapped", "after it was caught"])
def test_a_statement_that_finds_its_connection_cut_off_is_no_failure_of_the_job(node, any_server, how):
    shop = any_server

    def write(run: Run, conn: Any) -> None:
        conn.execute(shop.write, effect(run))
        if run.attempt == 1:
            cut(shop, conn)
            conn.execute(shop.write, effect(run))

    def book(run: Run) -> int:
        try:
            with run.transaction() as conn:
                try:
                    write(run, conn)
                except Exception:
                    if how != "after it was caught":
                        raise
                return run.complete(7)
        except Exception as error:
            if how == "wrapped":
                raise ValueError("the shop is away") from error
            raise

    async def abook(run: Run) -> int:
        async with run.atransaction() as conn:
            await conn.run_sync(lambda real: write(run, real))
            return run.complete(7)

    job = node.job(name="book")(abook if how == "async" else book)
    with node:
        handle = job.options(key="one").enqueue()
        assert handle.result("60s") == 7
        found = handle.look()
        assert [run.end for run in node.store.runs(handle.id)] == ["crashed", "succeeded"]
    assert found.crashes == 1
    assert shop.effects() == [("one", 2)]


def test_a_lost_connection_closes_a_job_that_must_not_run_twice(node, any_server):
    shop = any_server

    @node.job(on_crash="fail", retries=3, retry_delay="0s")
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            cut(shop, conn)

    with node:
        ended = book.options(key="one").enqueue().wait("60s")
    assert (ended.state, ended.attempt) == (State.FAILED, 1)
    assert (ended.reason or "").startswith("crashed: the store failed under it: StoreUnavailable")
    assert shop.effects() == []


def test_a_job_whose_every_block_loses_its_connection_ends_after_max_crashes(node, any_server):
    shop = any_server

    @node.job(max_crashes=2)
    def book(run: Run) -> None:
        with run.transaction() as conn:
            cut(shop, conn)

    with node:
        ended = book.options(key="one").enqueue().wait("60s")
    assert (ended.state, ended.attempt, ended.crashes) == (State.FAILED, 2, 2)


@pytest.mark.parametrize(
    "kind", ["another database", "a store error of the job's own", "it asks for a retry", "closed"]
)
def test_what_the_job_lost_itself_counts_as_its_failure(node, any_server, kind):
    shop = any_server

    @node.job()
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            if kind == "another database":
                with shop.engine.connect() as other:
                    cut(shop, other)
                    other.execute(shop.write, effect(run))
            elif kind == "a store error of the job's own":
                raise StoreUnavailable("another store is away")
            elif kind == "it asks for a retry":
                lost(run, conn)
            else:
                conn.close()

    def lost(run: Run, conn: Any) -> None:
        cut(shop, conn)
        try:
            conn.execute(shop.write, effect(run))
        except Exception:  # noqa: BLE001 - as a job might
            raise Retry("when it is back") from None

    with node:
        ended = book.options(key="one").enqueue().wait("60s")
    assert (ended.state, ended.attempt, ended.crashes) == (State.FAILED, 1, 0)
    assert shop.effects() == []


def test_a_block_that_could_not_begin_is_no_failure_of_the_job(shop):
    node = Scheduler(f"{shop.url}?busy_timeout=200ms")

    @node.job()
    def book(run: Run) -> int:
        with shop.engine.connect() as other:
            if run.attempt == 1:
                other.exec_driver_sql("BEGIN IMMEDIATE")
            with run.transaction() as conn:
                conn.execute(shop.write, effect(run))
                return run.complete(run.attempt)

    with node:
        handle = book.options(key="one").enqueue()
        assert handle.result("60s") == 2
        assert handle.look().crashes == 1
    assert shop.effects() == [("one", 2)]


def test_a_block_that_stands_still_is_ended_by_the_server(node, any_server):
    shop = any_server
    with shop.engine.connect() as connection:
        is_mariadb = getattr(connection.dialect, "is_mariadb", True)
    ask, limit, shorten = IDLE[shop.kind if is_mariadb else "oracle"]
    gone = threading.Event()

    @node.job()
    def book(run: Run) -> None:
        with run.transaction() as conn:
            assert str(conn.execute(text(ask)).scalar_one()) == limit
            conn.execute(shop.write, effect(run))
            if run.attempt == 1:
                conn.execute(text(shorten))
                conn.execute(shop.write, effect(run))
                assert not gone.wait(2.5)

    with node:
        handle = book.options(key="one").enqueue()
        handle.result("60s")
        assert [run.end for run in node.store.runs(handle.id)] == ["crashed", "succeeded"]
    assert shop.effects() == [("one", 2)]


def test_the_end_is_recorded_with_the_time_of_the_end(node, any_shop):
    @node.job()
    def book(run: Run) -> None:
        with run.transaction():
            threading.Event().wait(0.3)

    with node:
        handle = book.enqueue()
        handle.result("60s")
        [run] = node.store.runs(handle.id)
    assert (run.finished_at - run.started_at).total_seconds() >= 0.3


# --- what comes after the commit --------------------------------------------------------------------------------------


def test_what_is_raised_after_the_commit_is_logged_and_changes_nothing(node, any_shop, caplog):
    shop = any_shop

    @node.job(retries=3, retry_delay="0s")
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            run.complete("booked")
        assert run.committed
        raise ValueError("too late")

    with node:
        handle = book.options(key="one").enqueue()
        assert handle.result("60s") == "booked"
        assert handle.look().attempt == 1
    assert shop.effects() == [("one", 1)]
    said = [line for line in warnings(caplog) if "ValueError: too late" in line]
    assert len(said) == 1
    assert "recorded so" in said[0]


def test_what_is_returned_after_the_commit_is_not_recorded_and_that_is_said(node, caplog):
    @node.job()
    def book(run: Run) -> int:
        with run.transaction():
            pass
        return 7

    with node:
        assert book.enqueue().result("60s") is None
    assert len([line for line in warnings(caplog) if "run.complete()" in line]) == 1


def test_a_run_that_goes_on_too_long_after_its_commit_has_succeeded(node, any_shop, caplog):
    shop = any_shop

    @node.job(timeout="1s", retries=3)
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
        run.cancelled.wait(20)

    with node:
        handle = book.options(key="one").enqueue()
        handle.result("60s")
        assert handle.look().attempt == 1
        until = threading.Event()
        while node._part.node.round.active_runs:
            until.wait(0.01)
    assert shop.effects() == [("one", 1)]
    assert len([line for line in warnings(caplog) if "TimeoutError" in line]) == 1


def test_a_second_transaction_is_refused(node, shop):
    said: list[str] = []

    @node.job()
    def book(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            try:
                with run.transaction():
                    pass
            except UnsupportedTransaction as error:
                said.append(str(error))
        for again in (run.transaction, run.atransaction):
            try:
                if again == run.transaction:
                    with run.transaction() as conn:
                        conn.execute(shop.write, effect(run))
                else:
                    asyncio.run(enter(run))
            except UnsupportedTransaction as error:
                said.append(str(error))
        try:
            run.complete(1)
        except UnsupportedTransaction as error:
            said.append(str(error))

    async def enter(run: Run) -> None:
        async with run.atransaction():
            pass

    with node:
        book.options(key="one").enqueue().result("60s")
    assert shop.effects() == [("one", 1)]
    assert ["in one already" in said[0], "is committed" in said[1], "is committed" in said[2]] == [True] * 3
    assert "inside that block" in said[3]


# --- lost -------------------------------------------------------------------------------------------------------------


def test_a_block_longer_than_the_lease_is_undone_and_not_done_twice(shop, caplog):
    node = Scheduler(f"{shop.url}?busy_timeout=2s", lease="1s")

    @node.job()
    def book(run: Run) -> str:
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))
            if not attempts:
                attempts.append(run)
                # Nobody can renew the lease: SQLite has one writer, and it is this block.
                assert run.lease_lost.wait(60)
        return "unreachable the first time"

    attempts: list[Run] = []
    with node:
        handle = book.options(key="one").enqueue()
        ended = handle.wait("60s")
        assert attempts[0].lease_lost.is_set()
        tokens = [run.token for run in node.store.runs(handle.id)]
    assert ended.state is State.SUCCEEDED
    assert ended.token > attempts[0].token
    assert tokens == sorted(tokens)
    assert len(shop.effects()) == 1


def test_a_run_that_was_taken_over_while_it_prepared_is_told_at_the_beginning_of_its_block(any_shop):
    shop = any_shop

    lost, told = threading.Event(), threading.Event()
    said: list[str] = []
    store = STORES[shop.kind](shop.url)
    node = Scheduler(store, fast_evidence=False)

    @node.job()
    def book(run: Run) -> None:
        if run.attempt == 1:
            told.set()
            assert lost.wait(60)
            try:
                with run.transaction() as conn:
                    conn.execute(shop.write, {"key": "the old one", "attempt": 1})
            except LeaseLost as error:
                said.append(str(error))
                raise
        with run.transaction() as conn:
            conn.execute(shop.write, effect(run))

    with node:
        handle = book.options(key="one").enqueue()
        assert told.wait(60)
        # The keeper may hold the session's row just then; who takes over passes by what somebody holds.
        deadline = time.monotonic() + 20
        while not node.store.reclaim([handle.look().session or ""]):
            assert time.monotonic() < deadline, "its session cannot be ended"
            threading.Event().wait(0.01)
        lost.set()
        handle.result("60s")
    store.close()
    assert shop.effects() == [("one", 2)]
    assert "no longer current" in said[0]


class LosingAnswers:
    """A store whose commits of runs' transactions fail, before or after they are carried out; it counts as a store."""

    def __init__(self, real: SqliteStore, *, committed: bool) -> None:
        self._real = real
        self._committed = committed
        self.lost: list[int] = []

    def sibling(self) -> Any:
        other = LosingAnswers(self._real.sibling(), committed=self._committed)
        other.lost = self.lost
        return other

    @contextmanager
    def transaction(self, claim: Any) -> Iterator[Any]:
        if self.lost:
            with self._real.transaction(claim) as transaction:
                yield transaction
            return
        try:
            with self._real.transaction(claim) as transaction:
                yield transaction
                self.lost.append(claim.id)
                if not self._committed:
                    raise StoreUnavailable("it was not done, by order of this test")
        finally:
            if self.lost and self._committed:
                raise StoreUnavailable("it was done, but the answer is lost, by order of this test")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


Store.register(LosingAnswers)


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_whose_answer_is_lost_is_found_out(shop, store, committed, swallows):
    losing: Any = LosingAnswers(store, committed=committed)
    node = Scheduler(losing, node="a")
    problems: list[str] = []
    told: list[str] = []
    node.on("run.ended", lambda event: told.append(event.end))

    @node.job()
    def book(run: Run) -> None:
        try:
            with run.transaction() as conn:
                conn.execute(shop.write, effect(run))
                run.complete("booked")
        except StoreUnavailable:
            try:
                with run.transaction():
                    pass
            except UnsupportedTransaction as error:
                problems.append(str(error))
            if not swallows:
                raise

    with node:
        handle = book.options(key="one").enqueue()
        assert handle.result("60s") == "booked"
        ends = [run.end for run in node.store.runs(handle.id)]
    assert ends == (["succeeded"] if committed else ["crashed", "succeeded"])
    assert told == ends
    assert shop.effects() == [("one", 1 if committed else 2)]
    assert ["was lost" in problem for problem in problems] == [True]


# --- in the user's own transaction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["connection", "session", "driver"])
def test_the_end_may_be_written_into_a_transaction_of_the_users_own(node, shop, given, caplog):
    @node.job()
    def book(run: Run) -> None:
        if given == "connection":
            with shop.engine.begin() as conn:
                conn.execute(shop.write, effect(run))
                run.complete_in(conn, result="booked")
        elif given == "session":
            with Session(shop.engine) as session, session.begin():
                session.execute(shop.write, effect(run))
                run.complete_in(session, result="booked")
        else:
            raw = sqlite3.connect(shop.url.removeprefix("sqlite:///"))
            raw.row_factory, raw.text_factory = sqlite3.Row, bytes
            with raw:
                raw.execute(f"INSERT INTO {shop.table} VALUES (:key, :attempt)", effect(run))
                run.complete_in(raw, result="booked")
            assert raw.text_factory is bytes
            raw.close()

    with node:
        assert book.options(key="one").enqueue().result("60s") == "booked"
    assert shop.effects() == [("one", 1)]
    assert warnings(caplog) == []


def test_a_transaction_of_the_users_own_does_not_wait_for_a_node_that_waits_for_it(node, shop, tmp_path, monkeypatch):
    locked, writes, stood = threading.Event(), threading.Event(), list[float]()
    real = ProgressBuffer.open_writing

    @contextmanager
    def writing(notes: ProgressBuffer) -> Iterator[Any]:
        with real(notes) as said:
            if locked.is_set():
                writes.set()  # the step that follows waits for the lock that the job has
            yield said

    monkeypatch.setattr(ProgressBuffer, "open_writing", writing)

    @node.job()
    def other() -> None:
        assert locked.wait(60)

    @node.job()
    def book(run: Run) -> None:
        raw = sqlite3.connect(tmp_path / "shop.db", isolation_level=None, timeout=30)
        raw.execute("BEGIN IMMEDIATE")
        raw.execute(f"INSERT INTO {shop.table} VALUES (?, ?)", (run.key, run.attempt))
        run.progress(1, 2)
        locked.set()
        assert writes.wait(60)
        begun = time.monotonic()
        run.complete_in(raw, result="booked")
        stood.append(time.monotonic() - begun)
        raw.execute("COMMIT")
        raw.close()

    with node:
        waits = other.enqueue()
        assert book.options(key="one").enqueue().result("60s") == "booked"
        waits.result("60s")
    assert shop.effects() == [("one", 1)]
    assert stood[0] < 3


def test_a_rollback_of_the_users_own_lets_the_run_fail_and_be_tried_again(node, shop):
    @node.job(retries=1, retry_delay="0s")
    def book(run: Run) -> None:
        with shop.engine.begin() as conn:
            conn.execute(shop.write, effect(run))
            run.complete_in(conn, result=run.attempt)
            logging.getLogger("shop").warning("attempt %d", run.attempt)
            if run.attempt == 1:
                raise ConnectionError("no")

    with node:
        handle = book.options(key="one").enqueue()
        assert handle.result("60s") == 2
        lines = [line.text for _, _, line in node.store.logs(handle.id)]
    assert shop.effects() == [("one", 2)]
    assert lines[0] == "attempt 1"


def test_a_transaction_that_is_never_committed_is_a_failure(node, shop):
    @node.job()
    def book(run: Run) -> None:
        with shop.engine.connect() as conn:
            conn.execute(shop.write, effect(run))
            run.complete_in(conn)

    with node:
        ended = book.options(key="one").enqueue().wait("60s")
    assert (ended.state, ended.error.type if ended.error else "") == (State.FAILED, "NotCommitted")
    assert shop.effects() == []


def test_an_orm_of_async_connections_is_told_how(node):
    class AsyncSession: ...

    said: list[str] = []

    @node.job()
    def book(run: Run) -> None:
        for given in (AsyncSession(), "sqlite:///shop.db"):
            try:
                run.complete_in(given)
            except UnsupportedTransaction as error:
                said.append(str(error))

    with node:
        book.enqueue().result("60s")
    assert ["run_sync(run.complete_in)" in words for words in said] == [True, False]


# --- where there is none ----------------------------------------------------------------------------------------------


def test_a_store_without_transactions_says_which_have_them():
    with Scheduler(f"memory://transactions-{next(_names)}") as node:

        @node.job()
        def book(run: Run) -> None:
            with run.transaction():
                pass

        with pytest.raises(RunFailed, match=r"G5.*sqlite://, postgresql://"):
            book.enqueue().result("60s")


def test_a_process_of_its_own_says_what_to_use_instead(node):
    job = node.job(executor="process", name="book")(in_a_process)
    with node, pytest.raises(RunFailed, match="executor='thread'"):
        job.enqueue().result("60s")


def in_a_process(run: Run) -> None:
    with run.transaction():
        pass


# --- a task that nobody turns any more --------------------------------------------------------------------------------


def test_a_block_whose_task_is_dropped_is_rolled_back(shop, store):
    store.define_jobs([JobSpec(name="book", function="book")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    [made] = store.enqueue([Item(job="book", key="one")])
    [claim] = take(store, "s1", 1, ["book"], lease=LEASE)
    run = Run(claim, run_transaction=RunTransaction(store, claim, ProgressBuffer(SystemClock(), lambda: None)))
    loop = asyncio.new_event_loop()

    async def book() -> None:
        async with run.atransaction() as conn:
            await conn.execute(shop.write, effect(run))
            loop.stop()
            await asyncio.Event().wait()

    task = loop.create_task(book())
    loop.run_forever()
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    with store.transaction(claim) as transaction:  # waits until the other has let go of the write lock
        transaction.complete()
    assert store.occurrence(made.id).state is State.SUCCEEDED
    assert shop.effects() == []
