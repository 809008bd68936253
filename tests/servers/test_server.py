"""A server of our own does what is done to it, and is gone afterwards whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.servers.guardian import servers_in
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.programs import ServiceMissing, program
from tests.servers.redis import RedisServer
from tests.servers.server import Server, ServerFailed

KINDS = [PostgresServer, MariadbServer, RedisServer]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)

FORGETFUL = """
import os, sys, threading
from tests.servers.{module} import {name}
server = {name}(durable=False).start()
server.pause()
print(server.folder, flush=True)
threading.Event().wait()
"""


def made(kind: Callable[[], Server]) -> Server:
    try:
        return kind()
    except ServiceMissing as missing:
        pytest.skip(str(missing))


def until(happened: Callable[[], bool], within: float = 60) -> bool:
    deadline = time.monotonic() + within
    while not happened() and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return happened()


@every_kind
def test_it_is_killed_started_again_frozen_and_thawed(kind: type[Server]) -> None:
    with made(kind) as server:
        port, pid, folder = server.port, server.pid, server.folder
        server.kill9()
        assert servers_in(folder) == []
        assert not server.answers()
        server.start()
        assert (server.port, server.is_running) == (port, True)
        assert server.pid != pid

        server.pause()
        assert {process.status() for process in servers_in(folder)} == {psutil.STATUS_STOPPED}
        server.resume()
        assert server.answers()
        server.pause()
    assert not folder.exists()
    assert servers_in(folder) == []


def test_a_mariadb_that_is_made_and_started_leaves_the_temporary_tables_of_others_alone() -> None:
    server = made(lambda: MariadbServer(durable=False))
    others = Path("/tmp") / f"#sql-temptable-{server.folder.name}.MAI"
    others.touch()
    os.chown(others, server.folder.stat().st_uid, server.folder.stat().st_gid)
    try:
        with server:
            assert others.exists()
    finally:
        others.unlink(missing_ok=True)


@every_kind
def test_it_goes_with_a_test_process_that_is_killed(kind: type[Server]) -> None:
    made(kind).end()  # is it on this machine?
    source = FORGETFUL.format(module=kind.__module__.rpartition(".")[2], name=kind.__name__)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as forgetful:
        assert forgetful.stdout
        folder = Path(forgetful.stdout.readline().strip())
        assert servers_in(folder), "it runs, frozen"
        forgetful.kill()
    assert until(lambda: not folder.exists())
    assert servers_in(folder) == []


def test_no_shared_memory_is_left_by_a_postgresql_that_was_killed() -> None:
    server = made(PostgresServer)
    with server:
        segment = server.data.joinpath("postmaster.pid").read_text().splitlines()[6].split()[1]
        server.kill9()
    assert segment not in Path("/proc/sysvipc/shm").read_text().split()


def test_a_port_that_was_taken_meanwhile_is_exchanged() -> None:
    other = made(RedisServer)
    with other:
        server = RedisServer()
        server.port = other.port
        with contextlib.closing(_Ending(server)):
            assert server.start().port != other.port


class _Ending:
    def __init__(self, server: Server) -> None:
        self.close = server.end


def test_a_server_that_cannot_start_says_why() -> None:
    server = made(lambda: RedisServer(settings={"maxmemory-policy": "nonsense"}))
    with contextlib.closing(_Ending(server)), pytest.raises(ServerFailed, match="maxmemory-policy"):
        server.start()


def test_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(ServiceMissing, match=r"service missing: no-such-server is not on .*what-to-install"):
        program("what-to-install", "no-such-server")


SUITE = """
import os, pytest
@pytest.mark.parametrize("number", range(4))
def test_uses_it(redis_url, number, tmp_path):
    with open({seen!r}, "a") as file:
        print(redis_url.partition("?")[0], os.environ["PYTEST_XDIST_WORKER"], file=file)
    if {hang}:
        import threading
        threading.Event().wait()
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a folder that the servers' users can enter, unlike pytest's own."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def inner_run(folder: Path, temporary: Path, hang: bool = False) -> tuple[list[str], dict[str, str], Path]:
    made(RedisServer).end()  # is it on this machine?
    seen = folder / "seen"
    folder.joinpath("test_suite.py").write_text(SUITE.format(seen=str(seen), hang=hang))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("CRONSENSUS_TEST_REDIS_URL", None)
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(temporary)}
    folder.joinpath("conftest.py").write_text('pytest_plugins = ["tests.servers.fixtures"]')
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", ".", "-p", "no:cacheprovider", "."]
    return command, environment, seen


def test_all_workers_of_a_run_share_one_server_which_ends_with_it(tmp_path: Path, temporary: Path) -> None:
    command, environment, seen = inner_run(tmp_path, temporary)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    addresses, workers = zip(*(line.split() for line in seen.read_text().splitlines()), strict=True)
    assert len(set(addresses)) == 1
    assert set(workers) == {"gw0", "gw1"}
    left = [path.name for path in temporary.iterdir() if path.name.startswith("cronsensus-")]
    assert left == []


@pytest.mark.timeout(600)  # a pytest of its own, in which two processes collect tests
def test_a_run_that_is_killed_leaves_no_server(tmp_path: Path, temporary: Path) -> None:
    command, environment, seen = inner_run(tmp_path, temporary, hang=True)
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as run:
        assert until(lambda: seen.exists() and len(seen.read_text().splitlines()) == 2, 300)
        servers = servers_in(temporary)
        workers = psutil.Process(run.pid).children()
        run.kill()
    assert len(servers) == 1
    assert until(lambda: not servers[0].is_running() or servers[0].status() == psutil.STATUS_ZOMBIE)
    for worker in workers:  # they hang in a test, for ever
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGKILL)
