"""The example with APScheduler: two processes, and each time in one of them."""

import signal
import subprocess
import sys
from pathlib import Path

from cronsensus import Scheduler
from cronsensus.model.occurrence import OccurrenceFilter
from tests.scratch import scratch_folder

EXAMPLE = Path(__file__).parent.parent / "examples" / "keep_apscheduler.py"


def test_two_processes_of_the_example_share_the_times():
    with scratch_folder() as folder:
        url = f"sqlite:///{folder / 'example.db'}"
        started = [
            subprocess.Popen([sys.executable, str(EXAMPLE), url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        scheduler = Scheduler(url)
        store = scheduler._opened.ready()
        try:
            while sum(one.state == "succeeded" for one in store.occurrences(OccurrenceFilter(), limit=10)) < 2:
                store.wait(0.1)
        finally:
            for one in started:
                one.send_signal(signal.SIGINT)
            printed = [line for one in started for line in one.communicate(timeout=30)[0].splitlines()]
        recorded = store.occurrences(OccurrenceFilter(), limit=10)
        scheduler._opened.close()
    assert len(printed) == len(recorded) >= 2
