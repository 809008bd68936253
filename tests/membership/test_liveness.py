"""Evidence of death must not lie: a process that this user may not see is not dead."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cronsensus.membership import liveness
from cronsensus.membership.liveness import (
    ABSENT_FOR,
    CERTAIN_AFTER,
    Absences,
    is_dead,
    is_gone,
    own_start,
    process_state,
    started_at,
)
from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.stores import boot
from cronsensus.stores.boot import host_identity
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


def test_zombie_process_is_dead():
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


def test_process_that_does_not_see_itself_judges_no_other(ended, monkeypatch):
    assert own_start() == started_at(os.getpid())
    assert is_gone(host_identity(), ended, 1)
    monkeypatch.setattr("cronsensus.membership.liveness.started_at", lambda pid: None)
    assert own_start() == 0
    assert not is_gone(host_identity(), ended, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_start_is_told_in_the_kernels_own_ticks_which_no_clock_changes():
    told = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    assert started_at(os.getpid()) == int(told)


_MAIN_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=lambda: print("works", flush=True) or sys.stdin.read()).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how it looks in Linux's /proc")
def test_a_zombie_is_not_gone_while_a_thread_of_it_is_there():
    command = [sys.executable, "-c", _MAIN_THREAD_ENDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        began = started_at(process.pid)
        assert process.stdout is not None
        assert process.stdout.readline() == b"works\n"
        stat = Path(f"/proc/{process.pid}/stat")
        deadline = time.monotonic() + 60
        while ") Z " not in stat.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert started_at(process.pid) == began
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert ") Z " in stat.read_text()
        assert started_at(process.pid) is None


def test_where_there_is_no_proc_a_zombie_is_gone_too(ended, monkeypatch):
    monkeypatch.setattr(liveness, "_LINUX", False)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = started_at(process.pid)
    assert started is not None
    assert not is_gone(host_identity(), process.pid, started)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert started_at(process.pid) is None
    process.communicate()
    assert started_at(ended) is None


def test_a_holder_that_names_no_process_is_not_dead(ended):
    session = session_of(ended, 1)
    assert is_dead(session)
    assert not is_dead(replace(session, pid=None))  # type: ignore[arg-type]


def test_just_long_enough_between_two_looks_is_enough():
    absent = replace(MemoryStore().look(), absent=("s",))
    once = Absences().update_absences(absent, 1.0, 1.0)
    assert not once.is_gone("s")
    assert once.certain_at(["s", "other"]) == 1.0 + CERTAIN_AFTER * ABSENT_FOR
    assert once.certain_at(["other"]) is None
    twice = once.update_absences(absent, 1.0 + ABSENT_FOR, 1.0 + ABSENT_FOR)
    just = replace(twice, patience=twice.asked_at - twice.absent["s"].since)
    assert just.is_gone("s")
    assert not just.is_gone("other")


# --- namespaces -------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_time_namespace(tmp_path, monkeypatch):
    """Let this process be in a time namespace with these offsets."""

    def say(offsets: str, *, of_children: bool = False) -> None:
        (tmp_path / "offsets").write_text(offsets)
        monkeypatch.setattr(boot, "_OFFSETS", tmp_path / "offsets")
        if of_children:
            monkeypatch.setattr(boot, "_namespace_of", lambda kind: f"{kind}:[1]")
        forget()

    def forget() -> None:
        boot.host_identity.cache_clear()
        boot.lease_epoch.cache_clear()

    yield say
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("name", ["monotonic", "1"])
def test_process_whose_monotonic_clock_is_moved_is_in_an_epoch_of_its_own(name, in_time_namespace):
    in_time_namespace(f"{name} -500 250000000\nboottime 0 0\n")
    assert boot.lease_epoch() == f"{boot.boot_id()}/-499.75"
    in_time_namespace("monotonic           0         0\nboottime            0         0\n")
    assert boot.lease_epoch() == boot.boot_id()


def test_start_times_as_read_in_another_time_namespace_are_not_compared(in_time_namespace):
    in_time_namespace("monotonic 0 0\nboottime 0 0\n")
    outside = host_identity()
    assert outside.count("/") == 1
    own = session_of(os.getpid(), (started_at(os.getpid()) or 0) + 7, host=outside)
    assert is_dead(own)
    in_time_namespace("monotonic 0 0\nboottime 7 0\n")
    assert host_identity() != outside
    assert not is_dead(own)


def test_process_that_cannot_tell_its_own_offset_is_in_an_epoch_of_its_own_and_trusts_no_start_time(in_time_namespace):
    outside = host_identity()
    in_time_namespace("monotonic 5 0\nboottime 5 0\n", of_children=True)
    assert boot.lease_epoch() == f"{boot.boot_id()}/time:[1]"
    assert host_identity() != outside


def test_forked_child_looks_in_which_namespaces_it_is(monkeypatch):
    outside = host_identity()
    monkeypatch.setattr(boot, "_namespace_of", lambda kind: f"{kind}:[7]")
    assert host_identity() == outside, "asked once"
    boot._in_child()
    assert host_identity() == f"{boot.boot_id()}/pid:[7]/time:[7]"
    monkeypatch.undo()
    boot._in_child()
    assert host_identity() == outside


def test_boot_that_was_only_worked_out_does_not_make_one_host_of_two(monkeypatch):
    monkeypatch.setattr(boot, "boot_id", lambda: "booted-1977")
    boot.host_identity.cache_clear()
    assert host_identity().startswith(f"{os.uname().nodename}-booted-1977/")
    monkeypatch.undo()
    boot.host_identity.cache_clear()


def test_the_kernel_says_of_a_process_that_it_runs_is_stopped_or_is_gone() -> None:
    process = subprocess.Popen(["sleep", "100"])
    try:
        started = started_at(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert process_state(host_identity(), process.pid, started) == "stopped"
        os.kill(process.pid, signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        assert process_state(host_identity(), process.pid, started) == "runs"
        assert process_state("elsewhere", process.pid, started) is None
        assert process_state(host_identity(), process.pid, 0) is None
    finally:
        process.kill()
        process.wait()
    assert process_state(host_identity(), process.pid, started) == "gone"
