"""Evidence of death must not lie: a process that this user may not see is not dead."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.node.evidence import host_identity, is_dead, is_gone, own_start, started_at
from cronsensus.stores.memory import MemoryStore


def session_of(pid: int, started: int | None = None, host: str | None = None) -> SessionView:
    store = MemoryStore()
    spec = SessionSpec(
        id="s", node="a", host=host or host_identity(), pid=pid, pid_started=started or 0, release="1",
        concurrency=1, version="0",
    )  # fmt: skip
    store.open_session(spec, lease=timedelta(seconds=10))
    [view] = store.sessions()
    return view


@pytest.fixture
def ended() -> int:
    """Return the pid of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_that_is_gone_is_dead(ended):
    assert is_dead(session_of(ended, 1))


def test_a_process_that_runs_is_not_dead():
    assert not is_dead(session_of(os.getpid(), started_at(os.getpid())))


def test_a_process_that_nobody_waited_for_is_dead():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    session = session_of(process.pid, started_at(process.pid))
    assert not is_dead(session)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert is_dead(session)
    process.communicate()


def test_another_process_under_the_same_pid_is_no_sign_of_life():
    assert is_dead(session_of(os.getpid(), (started_at(os.getpid()) or 0) - 1))


def test_of_another_host_nothing_can_be_told(ended):
    assert not is_dead(session_of(ended, 1, host="elsewhere"))


def test_a_process_that_the_host_hides_from_this_user_is_not_dead(ended, monkeypatch):
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead(session_of(ended, 1))


def test_of_a_process_that_could_not_see_itself_nothing_can_be_told(ended):
    assert not is_gone(host_identity(), ended, 0)
    assert not is_gone(host_identity(), os.getpid(), 0)


def test_a_process_that_does_not_see_itself_judges_nobody(ended, monkeypatch):
    assert own_start() == started_at(os.getpid())
    assert is_gone(host_identity(), ended, 1)
    monkeypatch.setattr("cronsensus.node.evidence.started_at", lambda pid: None)
    assert own_start() == 0
    assert not is_gone(host_identity(), ended, 1)
