"""Workers of Celery in real processes, on Redis: killed in a run, frozen, and given tasks that kill them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from celery import Celery, chord, signature

from cronsensus import Scheduler
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.scratch import scratch_folder
from tests.servers.fixtures import redis_client

HERE = Path(__file__).parent
PATIENCE = 60.0


class Workers:
    """Workers of celery_app on one Redis, which is broker, result backend and store."""

    def __init__(self, folder: Path, url: str, prefix: str) -> None:
        self.folder, self.url, self.prefix = folder, url, prefix
        self.started: list[subprocess.Popen[bytes]] = []
        self.broker = url.partition("?")[0].rpartition("/")[0] + "/1"
        self.environment = {
            **os.environ, "BROKER": self.broker, "BACKEND": self.broker, "PREFIX": prefix, "OUT": str(folder / "out"),
            "CRONSENSUS_URL": url, "PYTHONPATH": str(HERE), "C_FORCE_ROOT": "1",
        }  # fmt: skip
        self.app = Celery("sender", broker=self.broker, backend=self.broker, set_as_current=False)
        self.app.conf.broker_transport_options = {"global_keyprefix": f"{prefix}."}
        self.app.conf.result_backend_transport_options = {"global_keyprefix": f"{prefix}."}

    def start(self, *options: str, count: int = 1, **more: str) -> list[subprocess.Popen[bytes]]:
        first = len(self.started)
        for number in range(first, first + count):
            command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-l", "INFO", "-n", f"w{number}@h"]
            with (self.folder / f"log{number}").open("wb") as log:
                started = subprocess.Popen(
                    [*command, "--without-gossip", "--without-mingle", *(options or ("-c", "1"))],
                    env={**self.environment, **more},
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.started.append(started)
        for number in range(first, first + count):
            self.wait_for(lambda n=number: "ready." in self.log(n), "a worker that is ready")
        return self.started[first:]

    def log(self, number: int) -> str:
        return (self.folder / f"log{number}").read_text(errors="replace")

    def lines(self, what: str) -> list[list[str]]:
        out = self.folder / "out"
        found = [line.split() for line in out.read_text().splitlines()] if out.exists() else []
        return [line for line in found if line[0] == what]

    def wait_for(self, condition, what: str, patience: float = PATIENCE):
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if found := condition():
                return found
            time.sleep(0.005)
        logs = "\n".join(self.log(number)[-2000:] for number in range(len(self.started)))
        raise AssertionError(f"{what} did not come:\n{logs}")

    def send(self, task: str, *args: object, **options: object):
        return self.app.send_task(f"celery_app.{task}", args, **options)

    def kill_group(self, one: subprocess.Popen[bytes]) -> None:
        os.killpg(one.pid, signal.SIGKILL)

    def worker_of(self, pid: int) -> subprocess.Popen[bytes]:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return next(one for one in self.started if one.pid in {pid, parent})

    def runs(self, task: str):
        scheduler = Scheduler(self.url)
        try:
            return scheduler._opened.ready().occurrences(OccurrenceFilter(job=f"celery:celery_app.{task}"), limit=1000)
        finally:
            scheduler._opened.close()

    def end(self) -> None:
        for one in self.started:
            for number in (signal.SIGCONT, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, number)
            one.wait(PATIENCE)


@pytest.fixture
def workers(redis_url, redis_server_url):
    prefix = redis_url.rpartition("prefix=")[2]
    with scratch_folder() as folder:
        found = Workers(folder, redis_url, prefix)
        try:
            yield found
        finally:
            found.end()
            with redis_client(redis_server_url.rpartition("/")[0] + "/1") as client:
                for key in client.scan_iter(match=f"{prefix}*", count=1000):
                    client.unlink(key)


def test_what_a_dead_worker_ran_is_run_by_another_within_a_second(workers):
    workers.start(count=2)
    for number in range(3):
        sent = workers.send("slow", number, 1.0)
        begun = workers.wait_for(lambda n=number: [one for one in workers.lines("begin") if one[3] == str(n)], "a run")
        workers.kill_group(workers.worker_of(int(begun[0][1])))
        killed_at = time.monotonic()
        workers.wait_for(lambda n=number: len([o for o in workers.lines("begin") if o[3] == str(n)]) == 2, "a takeover")
        assert time.monotonic() - killed_at < 3.0, "Redis itself takes an hour"
        assert sent.get(timeout=PATIENCE) == number
        workers.start()
    recorded = workers.runs("slow")
    assert {(one.state, one.attempt, one.crashes) for one in recorded} == {(State.SUCCEEDED, 2, 1)}


def test_a_task_longer_than_the_visibility_timeout_runs_once(workers):
    workers.start(count=3, VISIBILITY="2")
    assert workers.send("slow", 1, 6.0).get(timeout=PATIENCE) == 1
    workers.wait_for(lambda: any("has succeeded before" in workers.log(n) for n in range(3)), "a copy that comes late")
    assert len(workers.lines("begin")) == 1
    assert sum(workers.log(n).count("comes again") for n in range(3)) < 30, "each copy has become more"


def test_what_a_killed_child_ran_is_run_again_and_a_task_that_kills_each_child_is_given_up(workers):
    workers.start()
    sent = workers.send("kills", 1)
    with pytest.raises(Exception, match="processes that ran it died"):
        sent.get(timeout=PATIENCE)
    [one] = workers.runs("kills")
    assert (one.state, one.crashes, len(workers.lines("begin"))) == (State.FAILED, 3, 3)
    assert workers.send("slow", 2, 0.1).get(timeout=PATIENCE) == 2


def test_hard_limits_and_revokes_are_recorded_by_the_main_process(workers):
    workers.start("-c", "2")
    limited = workers.send("slow", 1, 60.0, time_limit=1)
    revoked = workers.send("slow", 2, 60.0)
    workers.wait_for(lambda: len(workers.lines("begin")) == 2, "two runs")
    workers.app.control.revoke(revoked.id, terminate=True, signal="SIGKILL")
    workers.wait_for(lambda: (limited.state, revoked.state) == ("FAILURE", "REVOKED"), "the ends that Celery says")
    ended = workers.wait_for(
        lambda: (
            {one.key: one for one in workers.runs("slow")}
            if all(one.state.final for one in workers.runs("slow"))
            else None
        ),
        "the ends in the ledger",
    )
    assert (ended[limited.id].state, ended[limited.id].error.type) == (
        State.FAILED,
        "billiard.exceptions.TimeLimitExceeded",
    )
    assert (ended[revoked.id].state, ended[revoked.id].reason) == (State.CANCELLED, "revoked")
    assert len(workers.lines("begin")) == 2


def beat_runs(workers, entry="tick"):
    scheduler = Scheduler(workers.url)
    try:
        return scheduler._opened.ready().occurrences(OccurrenceFilter(job=f"beat:{entry}"), limit=100)
    finally:
        scheduler._opened.close()


def test_a_time_of_beat_is_one_run_from_its_time_to_the_end_of_its_task(workers):
    workers.start("-c", "1", "-B", EVERY="1", TICK="fails")
    workers.wait_for(lambda: len(workers.lines("tick")) >= 2, "two times")
    ended = workers.wait_for(lambda: [one for one in beat_runs(workers) if one.state.final], "an end")
    assert (ended[-1].state, ended[-1].error.message) == (State.FAILED, "as told")
    assert workers.runs("tick") == []


def test_a_time_of_beat_whose_worker_is_killed_is_run_by_another(workers):
    workers.start("-c", "1", count=2)
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_app", "beat", "--pidfile="],
        env={**workers.environment, "TICK": "slowly", "EVERY": "20"}, cwd=workers.folder, start_new_session=True,
    )  # fmt: skip
    workers.started.append(beat)
    begun = workers.wait_for(lambda: workers.lines("tick"), "a run")
    workers.kill_group(workers.worker_of(int(begun[0][1])))
    ended = workers.wait_for(lambda: [one for one in beat_runs(workers) if one.state.final], "an end")
    assert (ended[-1].state, ended[-1].crashes) == (State.SUCCEEDED, 1)


def test_one_death_leaves_alone_what_is_not_guarded_or_waits_for_its_time(workers):
    workers.start("-c", "1", count=3)
    workers.send("plain", 1, 8.0)
    workers.send("slow", 9, 0.1, countdown=600)
    workers.wait_for(lambda: workers.lines("plain"), "a run")
    busy = workers.worker_of(int(workers.lines("plain")[0][1]))
    idle = next(one for one in workers.started if one is not busy)
    workers.kill_group(idle)
    workers.wait_for(
        lambda: any("messages were given back" in workers.log(number) for number in range(3)), "a look at what it left"
    )
    assert [workers.log(number).count("0 messages were given back") for number in range(3)].count(1) == 1
    assert len(workers.lines("plain")) == 1


def test_a_hard_limit_of_what_beat_has_sent_ends_its_time(workers):
    workers.start("-c", "1", "-B", EVERY="1", TICK="hangs")
    workers.wait_for(lambda: workers.lines("tick"), "a run")
    ended = workers.wait_for(lambda: [one for one in beat_runs(workers) if one.state.final], "an end")
    assert (ended[-1].state, ended[-1].error.type) == (State.FAILED, "billiard.exceptions.TimeLimitExceeded")


def test_a_chord_has_the_right_total_although_a_worker_is_killed(workers):
    workers.start("-c", "2", count=2)
    header = [signature("celery_app.slow", args=(number, 0.05), app=workers.app) for number in range(50)]
    total = chord(header, app=workers.app)(signature("celery_app.total", app=workers.app))
    workers.wait_for(lambda: len(workers.lines("begin")) > 15, "some runs")
    workers.kill_group(workers.started[0])
    assert total.get(timeout=PATIENCE) == sum(range(50))


def test_all_of_many_tasks_are_done_although_workers_are_killed(workers):
    workers.start("-c", "2", count=2)
    sent = [workers.send("slow", number, 0.02) for number in range(300)]
    for killed in range(2):
        workers.wait_for(lambda n=killed: len(workers.lines("end")) > 60 * (n + 1), "some ends")
        workers.kill_group(workers.started[killed])
        workers.start("-c", "2")
    workers.wait_for(lambda: len({line[3] for line in workers.lines("end")}) == 300, "all ends")
    for one in sent:
        one.get(timeout=PATIENCE)
    recorded = workers.wait_for(
        lambda: (
            [one for one in workers.runs("slow") if one.state is State.SUCCEEDED]
            if len(workers.runs("slow")) == 300
            else None
        ),
        "all ends in the ledger",
    )
    assert len(recorded) == 300
    ended = Counter(line[3] for line in workers.lines("end"))
    crashes = sum(one.crashes for one in recorded)
    assert sum(ended.values()) - 300 <= crashes, "a task that no worker died in was done twice"


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_other_pools_are_guarded_too(workers, pool):
    workers.start("-c", "2", "-P", pool, count=2)
    assert workers.send("slow", 1, 0.1, task_id="same").get(timeout=PATIENCE) == 1
    assert workers.send("slow", 1, 0.1, task_id="same").get(timeout=PATIENCE) == 1
    assert len(workers.lines("begin")) == 1
    sent = workers.send("slow", 7, 1.0)
    begun = workers.wait_for(lambda: [one for one in workers.lines("begin") if one[3] == "7"], "a run")
    workers.kill_group(workers.worker_of(int(begun[0][1])))
    assert sent.get(timeout=PATIENCE) == 7


def test_a_copy_in_the_same_process_does_not_end_what_runs_there(workers):
    workers.start("-c", "4", "-P", "threads")
    first = workers.send("slow", 5, 2.0, task_id="same")
    workers.wait_for(lambda: workers.lines("begin"), "a run")
    workers.send("slow", 5, 2.0, task_id="same")
    workers.wait_for(lambda: "it runs elsewhere" in workers.log(0), "the copy")
    assert [one.state for one in workers.runs("slow")] == [State.RUNNING]
    assert first.get(timeout=PATIENCE) == 5
    [one] = workers.wait_for(lambda: [one for one in workers.runs("slow") if one.state.final], "its end")
    assert (one.state, one.result, len(workers.lines("begin"))) == (State.SUCCEEDED, "5", 1)


def test_a_worker_that_dies_with_the_last_copy_of_what_it_runs_loses_nothing(workers):
    [worker] = workers.start("-c", "2", "-P", "threads")
    sent = workers.send("slow", 5, 20.0, task_id="same")
    workers.wait_for(lambda: workers.lines("begin"), "a run")
    workers.send("slow", 5, 20.0, task_id="same")
    workers.wait_for(lambda: "comes again in 8 s" in workers.log(0), "the copy, of which each earlier one is gone")
    with redis_client(workers.broker) as client:  # as after the visibility timeout: a copy acknowledges the first one
        for tag, text in client.hgetall(f"{workers.prefix}.unacked").items():
            if b"cronsensus-copies" not in text:
                client.hdel(f"{workers.prefix}.unacked", tag)
                client.zrem(f"{workers.prefix}.unacked_index", tag)
    workers.kill_group(worker)
    workers.start()
    assert sent.get(timeout=PATIENCE) == 5
    assert len(workers.lines("begin")) == 2


def test_children_and_workers_that_end_leave_no_session_behind(workers):
    [worker] = workers.start("-c", "1", "--max-tasks-per-child", "1")
    for number in range(4):
        workers.send("slow", number, 0.0).get(timeout=PATIENCE)
    scheduler = Scheduler(workers.url)
    workers.wait_for(lambda: len(scheduler.store.sessions()) <= 2, "the end of the children's sessions")
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert scheduler.store.sessions() == []
    scheduler._opened.close()


def test_beats_in_each_worker_send_each_time_once_although_one_is_killed(workers):
    workers.start("-c", "1", "-B", count=3, EVERY="1")
    workers.wait_for(lambda: len(workers.lines("tick")) >= 3, "some times")
    workers.kill_group(workers.started[0])
    before = len(workers.lines("tick"))
    workers.wait_for(lambda: len(workers.lines("tick")) >= before + 5, "further times")
    times = [line[4] for line in workers.lines("tick")]
    assert max(Counter(times).values()) == 1
    seconds = sorted(int(time_of[17:19]) + 60 * int(time_of[14:16]) for time_of in times)
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds))), "a time is missing"
