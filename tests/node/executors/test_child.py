"""The child seen from outside: programs that use it, and what remains when they are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PROGRAM = """
import os, subprocess, sys, threading, time
from datetime import UTC, datetime, timedelta
from cronsensus.timing.clock import SystemClock
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim
from cronsensus.model.states import Origin
from cronsensus.node.executors.base import Call
from cronsensus.node.registered import Registered
from cronsensus.node.executors.processes import ProcessExecutor
from cronsensus.run import Run

print("imported as", __name__, flush=True)

class Job:
    def __init__(self, function):
        self.function = function

@Job
def job(run: Run):
    return [__name__, os.getpid(), run.token, isinstance(sys.modules["__main__"].job, Job)]

def waits():
    below = subprocess.Popen(["sleep", "3600"])
    print("pids", os.getpid(), below.pid, flush=True)
    time.sleep(3600)

def idles():
    subprocess.Popen(["sleep", "3600"])
    print("pids", os.getpid(), flush=True)

def call(function, run_parameter=None):
    now = datetime.now(UTC)
    claim = Claim(id=1, spec=JobSpec(name="j", function="j"), key="k", origin=Origin.ENQUEUE, scheduled_for=None,
                  due_at=now, attempt=1, token=7, session="s", args=(), kwargs={}, claimed_at=now,
              created_at=now)
    run = Run(claim)
    return Call(claim, run, Registered("j", function, "process", run_parameter))

def main(what):
    done = threading.Event()
    def report(call, ending):
        print("ending", ending.kind, ending.result, ending.error and ending.error.message, flush=True)
        done.set()
    executor = ProcessExecutor(report, SystemClock())
    if what == "job":
        executor.start(call(job.function, "run"))
        done.wait()
        executor.close()
    elif what == "leave":
        executor.start(call(job.function, "run"))
        done.wait()
    else:
        executor.start(call(waits if what == "busy" else idles))
        if what == "forked":
            done.wait()
            if os.fork() == 0:  # a copy that holds our ends of all pipes
                time.sleep(3600)
            print("forked", flush=True)
        time.sleep(3600)

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("way", ["script", "relative", "module", "package"])
def test_a_job_of_the_program_itself_runs_and_its_main_body_does_not(program, way):
    package = program.parent / "package"
    package.mkdir()
    package.joinpath("__init__.py").write_text("")
    package.joinpath("__main__.py").write_text("from .other import VALUE\n" + PROGRAM)
    package.joinpath("other.py").write_text("VALUE = 7\n")
    command = {
        "script": [str(program)],
        "relative": ["program.py"],
        "module": ["-m", "program"],
        "package": ["-m", "package"],
    }
    ran = subprocess.run(
        [sys.executable, "-W", "error", *command[way], "job"],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    lines = ran.stdout.splitlines()
    assert ran.stderr == ""
    assert lines[:2] == ["imported as __main__", "imported as __cronsensus_main__"]
    assert lines[2].startswith('ending returned ["__cronsensus_main__",')
    assert lines[2].endswith(",7,true] None")


def test_a_program_that_forgets_to_close_ends_and_so_do_its_children(bench, program):
    ran = subprocess.run(
        [sys.executable, str(program), "leave"], capture_output=True, text=True, timeout=100, check=True
    )
    pid = int(ran.stdout.splitlines()[2].split(",")[1])
    bench.until(lambda: bench.is_gone(pid), "the child's end")
    assert ran.stderr == ""


@pytest.mark.parametrize("what", ["busy", "idle", "forked"])
def test_when_a_node_is_killed_its_children_and_theirs_are_gone(bench, program, what):
    node = subprocess.Popen([sys.executable, str(program), what], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    last = "forked" if what == "forked" else "pids" if what == "busy" else "ending"
    pids: list[int] = []
    while not (line := node.stdout.readline()).startswith(last):
        assert line
        pids += [int(word) for word in line.split()[1:] if line.startswith("pids")]
    pids += [int(word) for word in line.split()[1:] if line.startswith("pids")]
    import psutil

    copies = [process.pid for process in psutil.Process(node.pid).children() if process.pid not in pids]
    pids += [process.pid for pid in pids for process in psutil.Process(pid).children()]
    assert len(pids) >= 2
    node.kill()
    node.wait()
    for pid in pids:
        bench.until(lambda pid=pid: bench.is_gone(pid), "its death")
    for pid in copies:
        os.kill(pid, signal.SIGKILL)
    node.stdout.close()


def test_started_by_hand_it_says_what_it_is():
    ran = subprocess.run(
        [sys.executable, "-m", "cronsensus.node.executors.child"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 2
    assert "started by a cronsensus node" in ran.stderr
