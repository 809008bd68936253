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

from typing import assert_type

from cronsensus import (
    Handle, Job, JobDefaults, Retry, Run, Scheduler, Settings, State, Trigger, any_of, at, cron, current_run, every,
)

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


@scheduler.function(name="snapshot")
def snapshot(shop: str) -> None: ...


def operate(run: Run) -> None:
    assert_type(send_digest("a", copies=2), int)
    assert_type(send_digest.enqueue("a", key="x", delay="5m"), Handle)
    assert_type(send_digest.enqueue("a").wait("5s").state, State)
    assert_type(send_digest.name, str)
    assert_type(send_digest.trigger, Trigger | None)
    assert_type(snapshot("a"), None)
    assert_type(scheduler.pause(send_digest, reason="x"), bool)
    assert_type(scheduler.enqueue_many("digest", [("a",)]), list[Handle])
    assert_type(scheduler.settings, Settings)
    assert_type(current_run(), Run | None)
    scheduler.change_job("digest", trigger=None, timeout=None)
    job = scheduler.add_job(snapshot, any_of(every("1h")), name="a", args=("a",), retries=1)
    job.enqueue()


async def operate_too(run: Run) -> None:
    assert_type(await sync_orders(run), dict[str, int])
    assert_type(await send_digest.aenqueue("a", key="x"), Handle)
    assert_type(await scheduler.apause("digest", reason="x"), bool)
    assert_type(await scheduler.abackfill(send_digest, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"), list[Handle])
    async with scheduler as started:
        assert_type(started, Scheduler)


def takes(job: Job[[str], None]) -> None: ...
"""

MISTAKES = """
from cronsensus import Scheduler, every

scheduler = Scheduler("memory://", leese="5s")                  # 1


@scheduler.job(every("5m"), retrys=3)                           # 2
def one() -> int:
    return 1


@scheduler.job(every("5m"), overlap="sometimes")                # 3
def two(shop: str) -> None: ...


two(3)                                                          # 4
text: str = one()                                               # 5
scheduler.pause("one")                                          # 6
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
