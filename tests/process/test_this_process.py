"""What was made before a fork in C, or before gevent patches the process, is made anew at the start."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, time
from cronsensus import Scheduler
scheduler = Scheduler("sqlite:///jobs.db?synchronous=normal")

@scheduler.job()
def work(): return os.getpid()

@scheduler.job()
async def awaited(): return os.getpid()
"""
# As uWSGI does: no hook of Python's is called.
FORKS_IN_C = """
import ctypes
work.enqueue()
if ctypes.PyDLL(None).fork() == 0:
    with scheduler:
        assert awaited.enqueue().result("20s") == os.getpid()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
"""
# As in gunicorn -k gevent --preload.
PATCHED_LATE = """
import threading
native = threading.Lock
from gevent import monkey; monkey.patch_all()
assert threading.Lock is not native
import gevent
turns, since = [], time.monotonic()
gevent.spawn(lambda: [turns.append(gevent.sleep(0.01)) for _ in range(10_000)])
scheduler.on("run.ended", print)
with scheduler:
    for _ in range(3):
        assert work.enqueue().result("20s") == os.getpid()
        gevent.sleep(0.1)
# One every 10 ms; a thread that waits for events on a lock of the kernel's stops them for 10 seconds each time.
assert len(turns) > 4 * (time.monotonic() - since), (len(turns), time.monotonic() - since)
"""


STARTED_BEFORE_THE_PATCH = """
from cronsensus.errors import ConfigurationError
scheduler.start()
from gevent import monkey; monkey.patch_all()
try:
    Scheduler("memory://").start()
except ConfigurationError as error:
    assert "patch first" in str(error)
else:
    raise SystemExit("nothing was refused")
assert scheduler.started
os._exit(0)
"""


def ended(folder, program):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + program], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_child_that_was_forked_in_c_runs_jobs(tmp_path):
    child = ended(tmp_path, FORKS_IN_C)
    assert child.returncode == 0, child.stdout + child.stderr


def test_all_greenlets_go_on_where_gevent_has_patched_after_the_import(tmp_path):
    pytest.importorskip("gevent", reason="service missing: gevent; scripts/setup installs it")
    patched = ended(tmp_path, PATCHED_LATE)
    assert patched.returncode == 0, patched.stdout + patched.stderr


def test_a_start_is_refused_where_a_node_was_started_before_the_patch(tmp_path):
    pytest.importorskip("gevent", reason="service missing: gevent; scripts/setup installs it")
    second = ended(tmp_path, STARTED_BEFORE_THE_PATCH)
    assert second.returncode == 0, second.stdout + second.stderr
