"""The example of a nightly batch: three processes, one of them killed, and each file in the report once."""

import contextlib
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from cronsensus import Scheduler
from cronsensus.audit import audit
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.scratch import scratch_folder

EXAMPLE = Path(__file__).parent.parent / "examples" / "nightly_checksums.py"
FILES = 240


def test_three_processes_sum_a_folder_and_one_of_them_is_killed():
    """A node dies and its items go on elsewhere (XXL-JOB #26)."""
    with scratch_folder() as place, contextlib.ExitStack() as cleared:
        folder = place / "data"
        for number in range(FILES):
            path = folder / f"{number % 7}" / f"{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([number % 256]) * 400_000)
        url = f"sqlite:///{place / 'night.db'}"
        started = [
            subprocess.Popen([sys.executable, str(EXAMPLE), str(folder), url], stderr=subprocess.DEVNULL)
            for _ in range(3)
        ]
        for one in started:
            cleared.callback(one.kill)
        scheduler = Scheduler(url)
        store = scheduler._opened.ready()
        cleared.callback(scheduler._opened.close)
        wait_until(lambda: len(store.sessions()) == 3)
        batch = scheduler.trigger("checksum")
        wait_until(lambda: store.occurrences(OccurrenceFilter(parent=batch.id, states=(State.SUCCEEDED,)), limit=1))
        running = store.occurrences(OccurrenceFilter(parent=batch.id, states=(State.RUNNING,)), limit=100)
        pids = {session.id: session.pid for session in store.sessions()}
        holder = next((pids[one.session] for one in running if one.session in pids), started[0].pid)
        killed = next(one for one in started if one.pid == holder)
        killed.kill()
        ended = batch.wait("60s")
        assert ended.state is State.SUCCEEDED, ended
        items = store.occurrences(OccurrenceFilter(parent=batch.id), limit=FILES + 1)
        assert Counter(one.state for one in items) == {State.SUCCEEDED: FILES}
        report = json.loads((place / "data.checksums.json").read_text())
        assert report == {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*.bin")
        }
        found = audit(store)
        assert found.ok, found
        for one in started:
            one.send_signal(signal.SIGTERM)
        assert [one.wait(30) for one in started if one is not killed] == [0, 0]


def wait_until(what, seconds: float = 40.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
