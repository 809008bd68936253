"""What a type checker says of a user's program: a decorated function keeps its signature, and mistakes are seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="the type checker is not part of this environment")

ROOT = Path(__file__).parent.parent

PROGRAM = """
from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, assert_type

from sqlalchemy import Connection, text

from cronsensus import (
    Handle,
    Job,
    JobDefaults,
    Lock,
    Occurrence,
    Retry,
    Run,
    Scheduler,
    State,
    Trigger,
    any_of,
    at,
    cron,
    current_run,
    every,
)
from cronsensus.jobs.calls import Call
from cronsensus.config import Settings
from cronsensus.integrations.startup_coordinator import StartupCoordinator
from cronsensus.node.async_transaction import AsyncConnection

scheduler = Scheduler("memory://", lease="5s", defaults=JobDefaults(timeout="10m", retries=2), concurrency=4)


@scheduler.job(cron("0 21 * * *", tz="Asia/Shanghai"), timeout="10m", retries=3, overlap="queue", name="digest")
def send_digest(shop: str = "a", *, copies: int = 1) -> int:
    return copies


@scheduler.job(every("5m") | at("2026-12-31T00:00:00Z"))
async def sync_orders(run: Run) -> dict[str, int]:
    run.progress(40, 100)
    if run.lease_lost.is_set():
        raise Retry(after="5m")
    return {"attempt": run.attempt}


@scheduler.job()
async def notify(run: Run, who: str, *, urgent: bool = False) -> None: ...


@scheduler.job()
def later(number: int, text: str, run: Run) -> str:
    return text


@scheduler.job()
def loose(number: object, run: Run | None = None) -> int:
    return 1


@scheduler.job()
def by_name(shop: str, *, run: Run, copies: int = 1) -> int:
    return copies


@scheduler.job()
def by_name_too(*shops: str, run: Run) -> int:
    return 1


@scheduler.job()
def only_named(*, shop: str, copies: int = 1) -> int:
    return copies


@scheduler.job()
def unlock(key: str, delay: float) -> str:
    return key


@scheduler.function(name="snapshot")
def snapshot(shop: str) -> None: ...


def operate(run: Run) -> None:
    assert_type(send_digest("a", copies=2), int)
    assert_type(send_digest.options(key="x", delay="5m").enqueue("a"), Handle[int])
    assert_type(send_digest.enqueue("a", copies=2).result("60s"), int)
    assert_type(send_digest.enqueue("a").wait("60s").state, State)
    assert_type(sync_orders.enqueue().result(), dict[str, int])
    assert_type(sync_orders.options(priority=3).enqueue().result(), dict[str, int])
    assert_type(notify.enqueue("ada", urgent=True), Handle[Coroutine[Any, Any, None]])
    assert_type(notify.options(expires="1h").enqueue("ada"), Handle[Coroutine[Any, Any, None]])
    assert_type(later.enqueue(3, "x").result(), str)
    assert_type(loose.enqueue(3), Handle[int])
    assert_type(by_name.enqueue("a", copies=2), Handle[int])
    assert_type(by_name_too.enqueue("a", "b"), Handle[int])
    assert_type(only_named.enqueue(shop="a"), Handle[int])
    assert_type(scheduler.enqueue("digest", "a").result(), Any)
    assert_type(scheduler.find(send_digest, key="k"), Handle[int] | None)
    assert_type(scheduler.find("digest", key="k"), Handle | None)
    assert_type(send_digest.trigger(), Handle[int])
    kept: Handle = send_digest.enqueue()
    assert_type(send_digest.name, str)
    assert_type(send_digest.rule, Trigger | None)
    assert_type(snapshot("a"), None)
    assert_type(scheduler.pause(send_digest, reason="x"), bool)
    assert_type(send_digest.call("a", copies=2), Call[int])
    assert_type(send_digest.options(key="x").call("a"), Call[int])
    assert_type(send_digest.enqueue_many(send_digest.call(shop) for shop in "ab"), list[Handle[int]])
    assert_type(scheduler.enqueue_many([sync_orders.call()]), list[Handle[Coroutine[Any, Any, dict[str, int]]]])
    assert_type(scheduler.enqueue_many([scheduler.call("digest", "a")]), list[Handle])
    assert_type(scheduler.options("digest", key="x").enqueue("a"), Handle)
    assert_type(unlock.options(key="k").enqueue(key="front door", delay=1.5), Handle[str])
    assert_type(scheduler.settings, Settings)
    assert_type(send_digest.next_time, datetime | None)
    assert_type(scheduler.runs(send_digest, state="failed", since="12h"), list[Occurrence])
    assert_type(current_run(), Run | None)
    scheduler.change_job("digest", trigger=None, timeout=None)
    job = scheduler.add_job(snapshot, any_of(every("1h")), name="a", args=("a",), retries=1, replace=True)
    job.enqueue()
    job.enqueue(1, anything=2)


async def operate_too(run: Run) -> None:
    assert_type(await sync_orders(run), dict[str, int])
    assert_type(await sync_orders(run=run), dict[str, int])
    assert_type(await send_digest.options(key="x").aenqueue("a"), Handle[int])
    assert_type(await (await send_digest.aenqueue("a")).aresult(), int)
    assert_type(await (await sync_orders.aenqueue()).aresult(), dict[str, int])
    assert_type(await scheduler.apause("digest", reason="x"), bool)
    assert_type(await scheduler.afind(send_digest, key="k"), Handle[int] | None)
    assert_type(await scheduler.aruns(state=["failed", State.MISSED], since=60), list[Occurrence])
    assert_type(await send_digest.anext_time(), datetime | None)
    assert_type(await scheduler.abackfill(send_digest, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"), list[Handle])
    async with scheduler as started:
        assert_type(started, Scheduler)


def takes(job: Job[[str], None]) -> None: ...


# --- guarded functions: what their callers pass, and what they get ---


@scheduler.once("charge:{order}", keep="7d")
def charge(order: int, *, amount: float = 1.0) -> dict[str, float]:
    return {"charged": amount}


@scheduler.once(lambda order: str(order), wait_for="10s")
async def ship(order: int) -> str:
    return "a"


@scheduler.once("k:{order}", on_busy="skip")
def perhaps(order: int) -> str:
    return "a"


@scheduler.once("k:{order}", on_busy="skip")
async def perhaps_async(order: int) -> str:
    return "a"


@scheduler.once("book:{order}", transaction=True)
def book(conn: Connection, order: int) -> int:
    conn.execute(text("SELECT 1"))
    return order


@scheduler.once("book:{order}", transaction=True, on_busy="skip")
async def book_async(conn: AsyncConnection, order: int) -> int:
    await conn.execute(text("SELECT 1"))
    return order


@scheduler.once_per("1h", early="1m")
def hourly(shop: str = "a") -> int:
    return 1


@scheduler.once_per(cron("0 3 * * *"))
async def nightly() -> int:
    return 1


@scheduler.startup(scope="deploy", wait=True, deploy_id="sha")
def migrate() -> None: ...


@scheduler.startup()
async def warm() -> int:
    return 1


async def guarded() -> None:
    assert_type(charge(1, amount=2.0), dict[str, float])
    assert_type(charge.function(1), Any)
    assert_type(await ship(1), str)
    assert_type(perhaps(1), str | None)
    assert_type(await perhaps_async(1), str | None)
    assert_type(book(1), int)
    assert_type(await book_async(1), int | None)
    assert_type(hourly("b"), int | None)
    assert_type(await nightly(), int | None)
    migrate()
    assert_type(await warm(), int | None)
    with scheduler.lock("a", ttl="5s", limit=3) as lease:
        assert_type(lease.token, int)
        assert_type(lease.lost.is_set(), bool)
    async with Lock("memory://", "a") as lease:
        assert_type(await lease.aextend(3), bool)
    assert_type(await Lock(["redis://a", "redis://b", "redis://c"], "a").aacquire(blocking_timeout=1), bool)
    assert_type(await StartupCoordinator("redis://a").acquire("warm", ttl="5s"), bool)
"""

MISTAKES = """
from sqlalchemy import Connection

from cronsensus import Run, Scheduler, every

scheduler = Scheduler("memory://", leese="5s")                  # 1


@scheduler.job(every("5m"), retrys=3)                           # 2
def one() -> int:
    return 1


@scheduler.job(every("5m"), overlap="sometimes")                # 3
def two(shop: str) -> None: ...


two(3)                                                          # 4
text: str = one()                                               # 5
scheduler.pause("one")                                          # 6


@scheduler.job()
async def three(run: Run, number: int) -> int:
    return number


two.enqueue(3)                                                  # 7
two.enqueue()                                                   # 8
two.enqueue("a", bogus=1)                                       # 9
two.enqueue("a", dealy="5m")                                    # 10
two.options(delay=[]).enqueue("a")                                      # 11
three.enqueue()                                                 # 12
three.enqueue("a")                                              # 13
three(1)                                                        # 14
number: str = three.enqueue(1).result()                         # 15
two.enqueue("a", key="k")                                       # 15a
two.options(key="k").enqueue(3)                                 # 15b
two.options(dealy="5m").enqueue("a")                            # 15c
two.enqueue_many([("a",)])                                      # 15d
two.enqueue_many([three.call(1)])                               # 15e
two.call(3)                                                     # 15f


async def twins() -> None:
    await two.aenqueue(3)                                       # 16
    await three.aenqueue("a")                                   # 17
    await two.options(key="k").aenqueue(3)                      # 17a


@scheduler.once("k:{order}")
def charge(order: int, *, amount: float = 1.0) -> int:
    return order


charge("a")                                                     # 18
charge(1, amout=2.0)                                            # 19
said: str = charge(1)                                           # 20


@scheduler.once("k", keepp="7d")                                # 21
def odd() -> None: ...


@scheduler.once("k", on_busy="explode")                         # 22
def busy() -> None: ...


@scheduler.once("k", transaction=True)
def book(conn: Connection, order: int) -> int:
    return order


book()                                                          # 23


@scheduler.once("k", transaction=True)                          # 24
def unbooked(order: int) -> int:
    return order


@scheduler.once_per("1h")
def hourly() -> int:
    return 1


number_of: int = hourly()                                       # 25


@scheduler.startup(scope="cluster")                             # 26
def migrate() -> None: ...


scheduler.lock("a", timeout=5)                                  # 27
"""


def check(folder: Path, text: str) -> str:
    source = folder / "program.py"
    source.write_text(text)
    cache = ROOT / ".mypy_cache" / "programs"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.fspath(cache), "--config-file", "", source.name],
        cwd=folder,
        env=os.environ | {"MYPYPATH": os.fspath(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_user_s_program_is_clean_under_strict_rules(tmp_path):
    assert check(tmp_path, PROGRAM) == "Success: no issues found in 1 source file\n"


def test_mistakes_are_seen_by_the_type_checker(tmp_path):
    said = check(tmp_path, MISTAKES)
    numbered = [number for number, line in enumerate(MISTAKES.splitlines(), 1) if "#" in line]
    seen = {int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line}
    assert seen == set(numbered), said
