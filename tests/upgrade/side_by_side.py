"""Nodes of an earlier commit and of this one on one store: an upgrade, node by node, and a rollback. ``make upgrade``.

``CRONSENSUS_TEST_OLD`` names the earlier commits. Not collected by ``make test``: a checkout need not have a history.
"""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import State
from cronsensus.stores.sql.version import VERSION
from tests.chaos.cluster import Cluster
from tests.faults.watching import log_of
from tests.servers.fixtures import mysql_connection, with_query

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
COMMITS = os.environ.get("CRONSENSUS_TEST_OLD", "").split() or ["HEAD^"]
PATIENCE = 120.0
LEASE = 4
FROZEN = 1.5 * LEASE
MUCH = 1500
"""Orders, so many that a node reserves some."""


@dataclass
class Upgrade(Cluster):
    """Nodes named old-… and new-…, and a client for each side.

    Without ``hosts`` all are on one host; ``effects`` is a table into which a job writes in its run's transaction.
    """

    old: Path = Path()
    hosts: bool = True
    effects: str = ""
    clients: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    """Processes that were killed, or frozen past their lease."""

    def variables(self, side: str, name: str) -> dict[str, str]:
        """Return the environment of a process of one side."""
        source = self.old if side == "old" else ROOT / "src"
        told = {
            "PYTHONPATH": f"{source}{os.pathsep}{self.apps}",
            "UPGRADE_FOLDER": str(self.folder),
            "UPGRADE_URL": self.url,
            "UPGRADE_SIDE": side,
        }
        if self.effects:
            told["UPGRADE_EFFECTS"] = self.effects
        return told | ({"UPGRADE_HOST": f"host-of-{name}"} if self.hosts else {})

    def start(self, *names: str) -> None:
        """Start nodes, each with the code that its name says."""
        for name in names:
            self.environment = self.variables(name.partition("-")[0], name)
            super().start(name)

    def run(self, side: str, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Run a program of one side; what it prints is in ``NAME.out``."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRONSENSUS_")}
        with (self.folder / f"{name}.log").open("ab") as log, (self.folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                cwd=self.folder, env=environment | self.variables(side, name), start_new_session=True,
            )  # fmt: skip
        self.every_process.append(process)
        return process

    def start_client(self, side: str) -> None:
        """Start the client of a side, and a process that takes a lock and keeps it."""
        self.clients[side] = self.run(side, f"client-{side}", str(HERE / "client.py"), "work")
        self.clients[f"holder {side}"] = self.run(side, f"holder-{side}", str(HERE / "client.py"), "hold")
        self.until_client(side)
        self.until((self.folder / f"holds-{side}").exists, f"the process of {side} holds a lock")

    def rounds(self, side: str) -> int:
        """Return how many rounds a client has gone."""
        done = self.folder / f"rounds-{side}.jsonl"
        return len(done.read_bytes().splitlines()) if done.exists() else 0

    def until_client(self, *sides: str) -> None:
        """Wait until the clients have gone two more rounds."""
        goals = {side: self.rounds(side) + 2 for side in sides}
        self.until(lambda: all(self.rounds(side) >= goal for side, goal in goals.items()), f"clients {sides} work")

    def until_work(self, *names: str) -> None:
        """Wait until each node has begun something from now on."""
        self.look()
        mark = len(self.lines)

        def work() -> bool:
            for name in names:
                assert self.processes[name].poll() is None, log_of(self, name)
            self.look()
            return {line.node for line in self.lines[mark:] if line.event == "start"} >= set(names)

        self.until(work, f"{names} work")

    def kill_holder(self, side: str) -> None:
        """Kill what holds a lock, and wait until a client of each side had it."""
        holder = self.clients.pop(f"holder {side}")
        holder.kill()
        holder.wait()
        self.killed.add(holder.pid)
        begun = time.monotonic()
        (self.folder / f"take-{side}").touch()
        sides = [one for one in ("old", "new") if one in self.clients]
        self.until(lambda: all((self.folder / f"taken-{side}-{one}").exists() for one in sides), "the lock is taken")
        print(f"the lock of a killed process of {side}: taken by {sides} after {time.monotonic() - begun:.1f} s")

    def kill_in_much(self, name: str) -> None:
        """Kill a node in a long queue, where one that reserves has reserved something; wait for the takeover."""
        self.until_work(name)
        store, pid = self.store, self.processes[name].pid
        reserving = name.startswith("new")
        [session] = [one.id for one in store.sessions() if one.pid == pid]

        def reserves() -> bool:
            running = store.occurrences(OccurrenceFilter(states=(State.RUNNING,), session=session), limit=500)
            return any(one.job == "order" and one.reserved for one in running)

        def stopped() -> bool:
            if not store.pending_of(["order"]).get("order"):
                self.enqueue(MUCH)
            if (reserving and not reserves()) or not self.freeze_at_work(name, "order"):
                return False
            if not reserving or reserves():
                return True
            self.thaw(name)
            return False

        # Frozen first: between a look and the signal its runs may end, and one that holds nothing is not taken over.
        self.until(stopped, f"{name} is in the middle of much")
        self.kill(name)
        del self.processes[name]
        self.killed.add(pid)
        begun = time.monotonic()

        def why() -> str | None:
            return {one.id: one.ended_why for one in store.sessions(ended=True, limit=1000)}[session]

        self.until(why, f"{name} is taken over")
        print(f"{name}: killed, taken over by {sorted(self.processes)} after {time.monotonic() - begun:.1f} s: {why()}")

    def freeze_past_its_lease(self, name: str) -> None:
        """Stop a node for so long that the others take its runs over, and let it go on as a new session."""
        pid = self.processes[name].pid
        before = sum(one.pid == pid for one in self.store.sessions(ended=True, limit=1000))
        # One that holds nothing has a long lease.
        self.until(lambda: self.freeze_at_work(name), f"{name} is in the middle of a run")
        self.killed.add(pid)
        for _passed in self.for_seconds(FROZEN):
            self.look()
        self.thaw(name)
        self.until(
            lambda: sum(one.pid == pid for one in self.store.sessions(ended=True, limit=1000)) > before,
            f"{name} has a new session",
        )
        self.until_work(name)

    def stop_clients(self) -> dict[str, dict[str, object]]:
        """Let the clients read the results of both sides; return what each of them read."""
        (self.folder / "stop").touch()
        found: dict[str, dict[str, object]] = {}
        for side in ("old", "new"):
            assert self.clients[side].wait(PATIENCE) == 0, log_of(self, f"client-{side}")
            found[side] = json.loads((self.folder / f"client-{side}.out").read_text())
        return found

    def everything(self) -> Iterator[tuple[Occurrence, list[RunView]]]:
        """Give each occurrence with its ended attempts."""
        after: int | None = None
        while page := self.store.occurrences(OccurrenceFilter(), after=after, limit=500, newest_first=False):
            runs: dict[int, list[RunView]] = {one.id: [] for one in page}
            for run in self.store.runs(*runs):
                runs[run.occurrence].append(run)
            for one in page:
                yield one, runs[one.id]
            after = page[-1].id


@pytest.fixture(scope="module", params=COMMITS)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the library as it was at an earlier commit."""
    folder = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "archive", request.param, "src"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    source = folder / "src"
    told = subprocess.run(
        [sys.executable, "-c", "import cronsensus; print(cronsensus.__file__)"],
        env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.startswith(str(source))
    return source


@pytest.fixture(params=["sqlite", "postgres", "mysql", "redis"])
def upgrade(request: pytest.FixtureRequest, old: Path, tmp_path: Path) -> Iterator[Upgrade]:
    """Return a cluster on an empty store."""
    url = ""
    if request.param != "sqlite":
        url = request.getfixturevalue(f"{request.param}_url")
    if request.param in {"postgres", "mysql"}:
        url = with_query(url, timeout="2s")  # so long may a frozen node keep its rows locked
    cluster = Upgrade(
        tmp_path, f"{LEASE}s", "upgrade_jobs:scheduler", url, apps=HERE, patience=PATIENCE, old=old, hosts=bool(url)
    )
    if request.param != "redis":
        schema = parse_qs(urlsplit(url).query).get("schema", [""])[0]
        cluster.effects = f"{schema}.effects".lstrip(".")
        with sql_of(cluster.url) as run:
            run(f"CREATE TABLE {cluster.effects} (name VARCHAR(100))")
    yield cluster
    cluster.end_all()


def cronsensus(cluster: Upgrade, side: str, *arguments: str) -> tuple[int, str]:
    """Run a command of one side; return its exit code and what it says."""
    name = f"command-{side}"
    code = cluster.run(side, name, "-m", "cronsensus", "--url", cluster.url, *arguments).wait(PATIENCE)
    return code, (cluster.folder / f"{name}.out").read_text() + log_of(cluster, name)


def is_known(cluster: Upgrade) -> bool:
    """Tell whether the old side knows the schema of today."""
    known = cluster.old / "cronsensus" / "stores" / "sql" / "version.py"
    return cluster.url.startswith("redis") or f"VERSION = {VERSION}\n" in known.read_text()


def require_refused(cluster: Upgrade) -> bool:
    """Fail unless an old node says that it does not know the schema; ``False``: it does."""
    if is_known(cluster):
        return False
    code, said = cronsensus(cluster, "old", "run", cluster.app, "--node", "old-refused")
    assert code == 3, said
    assert f"has schema version {VERSION}, but this cronsensus knows only" in said
    return True


def require_commands(cluster: Upgrade, sides: Collection[str]) -> None:
    """Fail unless the commands of these sides show what nodes of both do."""
    for side in sides:
        for command in ("nodes list", "jobs list", "runs list", "locks list", "ledger tick", "runs show 1", "doctor"):
            code, said = cronsensus(cluster, side, *command.split())
            assert code in ({0, 1} if command == "doctor" else {0}), (side, command, said)
            assert "Traceback" not in said, (side, command, said)


def let_old_ones_in(cluster: Upgrade) -> None:
    """Forget the latest step of the schema, as docs/operations.md tells."""
    with sql_of(cluster.url) as run:
        run(f"DELETE FROM cronsensus_schema WHERE version = {VERSION}")


@contextmanager
def sql_of(url: str) -> Iterator[Callable[[str], list[Any]]]:
    """Give what runs a statement in a store."""
    with ExitStack() as closed:
        cursor: Any
        if url.startswith("sqlite"):
            path = url.removeprefix("sqlite:///").partition("?")[0]
            cursor = closed.enter_context(closing(sqlite3.connect(path, timeout=60, isolation_level=None))).cursor()
        elif url.startswith("postgresql"):
            server, _, query = url.partition("?")
            place = f"-c search_path={parse_qs(query)['schema'][0]}"
            cursor = closed.enter_context(psycopg.connect(server, autocommit=True, options=place)).cursor()
        else:
            cursor = closed.enter_context(mysql_connection(url)).cursor()

        def run(text: str) -> list[Any]:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        yield run


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("first", "second"), [("old", "new"), ("new", "old")], ids=["upgrade", "rollback"])
def test_nodes_of_two_versions_on_one_store_run_all_once_also_where_some_are_killed(upgrade, first, second):
    cluster: Upgrade = upgrade
    cluster.start(f"{first}-a", f"{first}-b")
    cluster.until_work(f"{first}-a", f"{first}-b")
    cluster.start_client(first)
    if second == "new":
        assert cronsensus(cluster, "new", "db", "upgrade")[0] == 0
        require_refused(cluster)
    elif require_refused(cluster):
        let_old_ones_in(cluster)

    cluster.start(f"{second}-a")
    cluster.until_work(f"{second}-a")
    cluster.start_client(second)
    cluster.kill_in_much(f"{second}-a")
    cluster.kill_holder(second)
    cluster.until_work(f"{first}-a", f"{first}-b")

    cluster.start(f"{second}-b", f"{second}-c")
    cluster.until_work(f"{second}-b", f"{second}-c")
    sides = {"new", "old"} if is_known(cluster) else {second}
    require_commands(cluster, sides)
    if cluster.hosts:  # of a SQLite file one frozen process may keep all others out
        cluster.freeze_past_its_lease(f"{first}-a")
        cluster.freeze_past_its_lease(f"{second}-b")
    leaving = cluster.processes.pop(f"{first}-a")
    leaving.terminate()
    assert leaving.wait(PATIENCE) == 0, log_of(cluster, f"{first}-a")
    cluster.kill_in_much(f"{first}-b")
    cluster.kill_holder(first)
    cluster.until_work(f"{second}-b", f"{second}-c")
    cluster.until_client("old", "new")

    read = cluster.stop_clients()
    until = cluster.settle()
    exits = cluster.drain()
    verdict = cluster.judge(until)

    assert exits == [0, 0]
    require_same_results(cluster, read)
    verdict.is_as_promised()
    require_counts(cluster)
    require_effects_once(cluster)
    require_quiet(cluster)
    # By the command, from the sides that know the schema as it stands.
    for side in sides:
        code, said = cronsensus(cluster, side, "audit", "--to", until.isoformat())
        assert code == 0, said


def require_same_results(cluster: Upgrade, read: dict[str, dict[str, object]]) -> None:
    """Fail unless both sides read the same of all that either enqueued, and it is right."""
    assert read["old"] == read["new"]
    assert len(read["new"]) > 20
    for what, result in read["new"].items():
        if not what.startswith("charge"):
            assert result == int(what.split(":")[1])
    charges = Counter(json.loads(line)["what"] for line in (cluster.folder / "charges.jsonl").read_text().splitlines())
    assert set(charges.values()) == {1}
    by = Counter(str(result).split()[-1] for what, result in read["new"].items() if what.startswith("charge"))
    assert min(by["old"], by["new"]) > 5, by
    print(f"{len(read['new'])} results, of them guarded calls by {dict(by)}")


def require_effects_once(cluster: Upgrade) -> None:
    """Fail unless what was written in the transaction of a run is there once for each that succeeded."""
    if not cluster.effects:
        return
    with sql_of(cluster.url) as run:
        written = Counter(row[0] for row in run(f"SELECT name FROM {cluster.effects}"))
    done = {one.key for one, _ in cluster.everything() if one.job == "effect" and one.state is State.SUCCEEDED}
    assert set(written.values()) == {1}
    assert written.keys() == done
    print(f"{len(done)} effects")


def require_counts(cluster: Upgrade) -> None:
    """Fail unless attempts, failures and crashes are counted as promised, and only of what was killed."""
    sessions = {one.id: one for one in cluster.store.sessions(ended=True, limit=5000)}
    assert {one.pid for one in sessions.values() if one.state == "dead"} <= cluster.killed, "a living one was buried"
    begun = {line.token for line in cluster.lines if line.event == "start"}
    crashed: Counter[str] = Counter()
    never: Counter[str] = Counter()
    spared: Counter[str] = Counter()
    for one, runs in cluster.everything():
        ends = Counter(run.end for run in runs)
        assert one.crashes == ends["crashed"], (one, runs)
        assert one.failures == ends["retry"], (one, runs)
        assert one.attempt <= 1 + one.failures + one.crashes + ends["released"], (one, runs)
        assert one.state is State.SUCCEEDED or (one.job == "at_most_once" and one.crashes == 1), (one, runs)
        for run in runs:
            if run.end in {"crashed", "released"} and sessions[run.session].pid in cluster.killed:
                (crashed if run.end == "crashed" else spared)[str(run.node)] += 1
                if run.end == "crashed" and run.token not in begun:
                    never[str(run.node)] += 1
            else:
                assert run.end != "crashed", (one, runs)
    print(f"counted as crashed: {dict(crashed)}, never begun of these: {dict(never)}; not counted: {dict(spared)}")
    locks = [json.loads(line) for line in (cluster.folder / "locks.jsonl").read_text().splitlines()]
    assert int((cluster.folder / "counter").read_text()) == len(locks)
    tokens = [one["token"] for one in locks]
    assert tokens == sorted(set(tokens))


def require_quiet(cluster: Upgrade) -> None:
    """Fail if a node or a client met what it has no sentence for; print what was said beside the ordinary."""
    said: Counter[str] = Counter()
    for path in sorted(cluster.folder.glob("*.log")):
        for line in path.read_text(errors="replace").splitlines():
            if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line):
                said[f"{path.stem.partition('-')[0]}: {re.sub(r'[0-9a-f]*[0-9][0-9a-f.:]*', '#', line)[:200]}"] += 1
    for line, times in said.most_common(30):
        print(f"{times:4} x {line}")
    assert "CRITICAL" not in cluster.logs
    assert "Traceback" not in cluster.logs
    assert "please report" not in cluster.logs
