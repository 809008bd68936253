"""``StartupCoordinator``: one worker at a time has a name, with a store, and without one."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from cronsensus import StoreUnavailable
from cronsensus.errors import InvalidDuration, InvalidOption
from cronsensus.integrations.startup_coordinator import StartupCoordinator
from cronsensus.lock import opening
from tests.cancelling import CutTask, each_await

NOWHERE = "redis://127.0.0.1:1/0"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def closed():
    yield
    opening.close_all()


async def contest(one, other):
    seen = [await one.acquire("warm"), await one.acquire("warm"), await other.acquire("warm")]
    seen += [await other.release("warm"), await one.release("warm"), await one.release("warm")]
    return [*seen, await other.acquire("warm"), await other.release("warm")]


ORDER = [True, False, False, False, True, False, True, True]


@pytest.mark.parametrize("single", [True, False])
def test_coordinator_lets_one_process_in_at_a_time(redis_url, tmp_path, single):
    one, other = (StartupCoordinator(redis_url, tmp_path, single_instance=single) for _ in range(2))
    assert asyncio.run(contest(one, other)) == ORDER


@pytest.mark.parametrize("spelling", ["none", "url", "url and folder", "environment"])
def test_files_alone_let_one_process_in_at_a_time(tmp_path, caplog, monkeypatch, spelling):
    folder = tmp_path / "locks"
    url = f"file://{folder}"
    if spelling == "environment":
        monkeypatch.setenv("TASK_LOCK_DIR", str(folder))
    elif spelling == "url":
        folder.mkdir()

    def make():
        match spelling:
            case "none":
                return StartupCoordinator(None, folder)
            case "environment":
                return StartupCoordinator(None)
            case "url":
                return StartupCoordinator(url)
            case _:
                return StartupCoordinator(url, folder)

    assert asyncio.run(contest(make(), make())) == ORDER
    assert list(folder.iterdir())
    assert caplog.text == ""


def test_files_alone_cannot_be_for_several_hosts_nor_go_on_where_they_cannot_be_locked(tmp_path):
    with pytest.raises(InvalidOption, match=r"where=None locks files of this host, .* give the URL of a store"):
        StartupCoordinator(None, tmp_path, single_instance=False)
    (tmp_path / "file").write_text("")
    for coordinator in (StartupCoordinator(None, tmp_path / "file"), StartupCoordinator(f"file://{tmp_path}/file")):
        with pytest.raises(StoreUnavailable, match=str(tmp_path / "file")):
            asyncio.run(coordinator.acquire("warm"))
        assert asyncio.run(coordinator.release("warm")) is False


def test_without_the_store_it_falls_back_on_files_and_says_so(tmp_path, caplog):
    one, other = (StartupCoordinator(NOWHERE, tmp_path / "locks") for _ in range(2))
    with caplog.at_level(logging.WARNING, "cronsensus.startup"):
        assert asyncio.run(contest(one, other)) == ORDER
    assert "only kept from other workers on this host" in caplog.text


def test_without_the_store_and_without_a_fallback(tmp_path):
    coordinator = StartupCoordinator(NOWHERE, tmp_path, fallback=None)
    with pytest.raises(StoreUnavailable):
        asyncio.run(coordinator.acquire("warm"))
    assert asyncio.run(coordinator.release("warm")) is False


def test_workers_that_see_the_store_and_those_that_do_not_keep_out_of_each_others_way(redis_url, tmp_path):
    one, other = StartupCoordinator(redis_url, tmp_path), StartupCoordinator(NOWHERE, tmp_path)
    assert asyncio.run(contest(one, other)) == ORDER


def test_coordinator_accepts_a_redis_client(redis_url, tmp_path):
    where = redis_url.partition("?")[0]
    client, aclient = redis.Redis.from_url(where), redis.asyncio.Redis.from_url(where)
    one, other = StartupCoordinator(client, tmp_path / "a"), StartupCoordinator(aclient, tmp_path / "b")
    assert asyncio.run(contest(one, other)) == ORDER
    client.close()


def test_coordinator_reads_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TASK_LOCK_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("SINGLE_INSTANCE_MODE", "false")
    coordinator = StartupCoordinator(NOWHERE)
    assert not coordinator.single_instance
    assert asyncio.run(coordinator.acquire("warm"))
    assert (tmp_path / "there").is_dir()
    assert asyncio.run(coordinator.release("warm"))
    monkeypatch.setenv("SINGLE_INSTANCE_MODE", "maybe")
    with pytest.raises(InvalidOption, match="SINGLE_INSTANCE_MODE='maybe'"):
        StartupCoordinator(NOWHERE)


def test_bad_input(tmp_path):
    for where in (7, object()):
        with pytest.raises(InvalidOption, match="no client of redis-py"):
            StartupCoordinator(where)
    with pytest.raises(InvalidOption, match="choose 'file' or None"):
        StartupCoordinator(NOWHERE, fallback="memory")
    coordinator = StartupCoordinator(NOWHERE, tmp_path)
    for name in ("", "x" * 10_000):
        with pytest.raises(InvalidOption):
            asyncio.run(coordinator.acquire(name))
    with pytest.raises((InvalidDuration, InvalidOption)):
        asyncio.run(coordinator.acquire("warm", ttl=0))
    assert asyncio.run(coordinator.acquire("warm"))
    assert asyncio.run(coordinator.release("warm"))


def test_a_relative_folder_is_the_one_where_the_coordinator_was_made(tmp_path, monkeypatch):
    pytest.importorskip("filelock")
    monkeypatch.chdir(tmp_path)
    one = StartupCoordinator(NOWHERE, lock_dir="./.locks")
    monkeypatch.chdir("/")
    other = StartupCoordinator(NOWHERE, tmp_path / ".locks")
    assert asyncio.run(contest(one, other)) == ORDER
    assert (tmp_path / ".locks").is_dir()


@pytest.mark.parametrize("kind", ["redis", "nowhere"])
def test_a_release_that_is_cancelled_at_any_await_leaves_the_name_to_others(kind, request, tmp_path, monkeypatch):
    where = NOWHERE if kind == "nowhere" else request.getfixturevalue("redis_url")
    one, other = (StartupCoordinator(where, tmp_path) for _ in range(2))

    async def scenario(cut: CutTask) -> None:
        assert await one.acquire("warm")
        await cut(one.release("warm"))
        async with asyncio.timeout(30):
            while not await other.acquire("warm"):  # noqa: ASYNC110 - a thread releases it
                await asyncio.sleep(0.01)
        assert await other.release("warm")

    each_await(scenario)


def test_an_acquire_that_is_cancelled_at_any_await_leaves_the_name_to_others(tmp_path):
    one, other = (StartupCoordinator(NOWHERE, tmp_path) for _ in range(2))

    async def scenario(cut: CutTask) -> None:
        await cut(one.acquire("warm"))
        if cut.error is None:
            assert await one.release("warm")
        async with asyncio.timeout(30):
            while not await other.acquire("warm"):  # noqa: ASYNC110 - a thread releases it
                await asyncio.sleep(0.01)
        assert await other.release("warm")

    assert each_await(scenario) >= 4


def test_coordinator_name_held_at_a_fork_is_free_after_the_parents_release(tmp_path):
    given = [sys.executable, "-m", "tests.once.forked_coordinator", str(tmp_path)]
    ended = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stdout.split() == ["False", "True", "True", "True"], ended.stderr


# --- workers that die, restart, and are recycled ----------------------------------------------------------------------


class Worker:
    """A process with a coordinator."""

    def __init__(self, where, folder, env):
        given = [sys.executable, "-m", "tests.once.coordinating", where, str(folder)]
        self.process = subprocess.Popen(
            given, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
        )
        assert self.process.stdin
        assert self.process.stdout
        self.asks, self.answers = self.process.stdin, self.process.stdout
        self.is_ready = False

    def __call__(self, verb):
        if not self.is_ready:  # now: others start meanwhile
            assert self.answers.readline() == "ready\n"
            self.is_ready = True
        self.asks.write(f"{verb} warm\n")
        self.asks.flush()
        return self.answers.readline().strip() == "True"

    def kill(self):
        self.process.kill()
        self._gone()

    def leave(self):
        """End as a worker does that is recycled: its interpreter closes everything."""
        self._gone()
        assert self.process.returncode == 0

    def _gone(self):
        with contextlib.suppress(BrokenPipeError):
            self.asks.close()
        self.process.wait(30)
        self.answers.close()


@pytest.fixture(params=["redis", "nowhere", "redis, many hosts"])
def start(request, tmp_path):
    """Return what starts a worker."""
    kind, _, many = request.param.partition(",")
    where = NOWHERE if kind == "nowhere" else request.getfixturevalue(f"{kind}_url")
    workers = []

    def make():
        workers.append(Worker(where, tmp_path / "locks", {"SINGLE_INSTANCE_MODE": "false" if many else "true"}))
        return workers[-1]

    yield make
    for worker in workers:
        worker.kill()


def test_coordinator_name_of_a_killed_worker_is_free_at_once(start):
    holder, other = start(), start()
    assert holder("acquire")
    assert not other("acquire")
    holder.kill()
    assert other("acquire")


def test_a_restart_is_not_blocked_by_what_was_left_behind(start):
    first, again = [start(), start()], [start(), start()]
    assert first[0]("acquire")
    for worker in first:
        worker.kill()
    assert [worker("acquire") for worker in again] == [True, False]


@pytest.mark.parametrize("how", ["kill", "leave"])
def test_a_recycled_worker_clears_nothing_of_a_live_sibling(start, how):
    holder, recycled, fresh = start(), start(), start()
    assert holder("acquire")
    assert not recycled("acquire")
    assert not recycled("release")
    getattr(recycled, how)()
    assert not fresh("acquire"), "the sibling lives, and what it holds was cleared"
    assert holder("release")
    assert fresh("acquire")


def test_a_worker_that_leaves_frees_what_it_held(start):
    holder, other = start(), start()
    assert holder("acquire")
    holder.leave()
    assert other("acquire")


def test_a_default_folder_that_others_may_write_in_is_not_trusted(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("TASK_LOCK_DIR", raising=False)
    folder = tmp_path / f"cronsensus-locks-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert asyncio.run(StartupCoordinator("memory://q").acquire("warm"))
    assert "not a folder of this user's alone" in caplog.text
    assert list(folder.iterdir()) == []
    with pytest.raises(StoreUnavailable):
        asyncio.run(StartupCoordinator(NOWHERE).acquire("other"))
    folder.chmod(0o700)
    assert asyncio.run(StartupCoordinator(NOWHERE).acquire("third"))
