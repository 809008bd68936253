"""A probe asks the driver alone: it says what the store's own verbs say, or nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cronsensus.membership.liveness import own_start
from cronsensus.model.job import GUARDED, JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores import Store, open_store
from cronsensus.stores.boot import host_identity
from cronsensus.stores.sql.probe import Living, probe_store
from cronsensus.stores.sql.sqlite import epoch
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import take
from cronsensus.triggers import every

LEASE = timedelta(minutes=10)


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, namespace="it's")
    store.migrate()
    yield store
    store.close()


def test_living_sessions_are_those_of_the_store(url: str, store: Store):
    store.open_session(replace(a_session("one"), node="web-1:7"), lease=LEASE)
    store.open_session(a_session("two"), lease=timedelta(microseconds=1))
    store.open_session(a_session("three"), lease=LEASE)
    store.close_session("three")
    found = probe_store(url, "it's")
    assert found is not None
    assert found.living == [Living("web-1:7", "one", "alive", True, False, "host", 4711, 99)]
    store.drain("one", by="ann", why="")
    found = probe_store(url, "it's")
    assert found is not None
    assert found.living[0].state == "draining"


def test_a_session_is_full_when_it_holds_as_many_runs_as_it_has_slots(url: str, store: Store):
    store.open_session(replace(a_session("one"), concurrency=2), lease=LEASE)
    store.define_jobs([JobSpec(name="job", function="job")], release="r1")
    full = []
    for _ in range(2):
        store.enqueue([Item(job="job")])
        take(store, "one", 1, ["job"], lease=LEASE)
        found = probe_store(url, "it's")
        assert found is not None
        full.append(found.living[0].is_full)
    assert full == [False, True]


def test_jobs_other_than_guarded_functions_need_a_node(url: str, store: Store):
    store.open_session(a_session("one"), lease=LEASE)
    names = [f"{prefix}charge" for prefix in GUARDED]
    guarded = [JobSpec(name=name, function=name, source="runtime") for name in names]
    store.define_jobs(guarded, release="r1")
    found = probe_store(url, "it's")
    assert found is not None
    assert not found.needs_a_node
    store.define_jobs([*guarded, JobSpec(name="tick", function="tick", trigger=every("1h"))], release="r1")
    found = probe_store(url, "it's")
    assert found is not None
    assert found.needs_a_node


def test_where_nothing_lives_or_nothing_can_be_asked_there_is_no_answer(url: str, store: Store):
    assert probe_store(url, "it's") is None
    store.open_session(a_session("one"), lease=LEASE)
    assert probe_store(url, "another") is None
    assert probe_store("sqlite:///nowhere.db", "it's") is None
    assert probe_store("redis://localhost:1", "it's") is None
    assert not Path("nowhere.db").exists()


def test_store_of_another_schema_has_no_answer(url: str, store: Store, monkeypatch: pytest.MonkeyPatch):
    from cronsensus.stores.sql import probe as module

    store.open_session(a_session("one"), lease=LEASE)
    monkeypatch.setattr(module, "VERSION", 999)
    assert probe_store(url, "it's") is None


def test_probe_loads_no_sqlalchemy(url: str, store: Store):
    mine = replace(a_session("one"), host=host_identity(), pid=os.getpid(), pid_started=own_start())
    store.open_session(mine, lease=LEASE)
    code = (
        "import sys; from cronsensus.cli import cli; "
        "code = cli.main(['health', '--namespace', \"it's\", '--url', sys.argv[1]], standalone_mode=False); "
        "sys.exit('sqlalchemy' if 'sqlalchemy' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ok: the store answers, 1 live node\n"


def test_living_sessions_of_an_earlier_boot_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    store = open_store(url, namespace="it's")
    store.migrate()
    store.open_session(a_session("one"), lease=LEASE)
    found = probe_store(url, "it's")
    assert found is not None
    assert [one.id for one in found.living] == ["one"]
    monkeypatch.setattr(epoch, "lease_epoch", lambda: "another")
    assert probe_store(url, "it's") is None, "the store is to say who is refused, and why"
    store.close()
    found = probe_store(url, "it's")
    assert found is None
