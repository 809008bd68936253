"""The example with three jobs in a row: a node is killed between extract and load, and each night is there once."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from cronsensus import Scheduler
from cronsensus.audit import audit
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.scratch import scratch_folder

EXAMPLE = Path(__file__).parent.parent / "examples" / "extract_load_report.py"


def test_a_node_is_killed_between_extract_and_load_and_each_night_is_loaded_once():
    with scratch_folder() as folder:
        url, sales = f"sqlite:///{folder / 'nightly.db'}", folder / "sales.db"
        command = [sys.executable, str(EXAMPLE), url, str(sales), "*/2 * * * * *"]
        nodes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        scheduler = Scheduler(url)
        store = scheduler._opened.ready()

        def succeeded(job: str) -> list[str]:
            where = OccurrenceFilter(job=job, states=(State.SUCCEEDED,))
            return [one.key for one in store.occurrences(where, limit=100)]

        try:
            wait_until(lambda: succeeded("report"))
            for _ in range(2):
                before = len(succeeded("extract"))
                wait_until(lambda before=before: len(succeeded("extract")) > before)
                killed = nodes.pop(0)
                killed.kill()
                killed.wait()
                nodes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            reported = len(succeeded("report"))
            wait_until(lambda: len(succeeded("report")) >= reported + 2)
        finally:
            for one in nodes:
                one.terminate()
            for one in nodes:
                one.wait(20)
        loaded = succeeded("load")
        with closing(sqlite3.connect(sales)) as connection:
            rows = connection.execute("SELECT run FROM night").fetchall()
        report = audit(store)
        scheduler._opened.close()
    assert len(set(rows)) == len(rows) >= len(loaded) >= 3
    assert report.ok, report


def wait_until(what, seconds: float = 40.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
