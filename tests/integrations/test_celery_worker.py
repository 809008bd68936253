"""The guard of Celery's tasks: a message that comes twice runs once, and every other end is as without it.

The worker runs on a thread of this process, on a broker in memory; test_celery_struck.py has real ones, which die.
"""

import functools
import json
import logging
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Task, signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore, Reject
from celery.result import AsyncResult

from cronsensus import ConfigurationError, Scheduler, current_run
from cronsensus.errors import InvalidOption, StoreUnavailable
from cronsensus.integrations.celery import configure, worker, worker_process
from cronsensus.integrations.celery.messages import restore_unacked
from cronsensus.integrations.celery.naming import task_spec
from cronsensus.integrations.celery.worker_process import WORKERS, WorkerProcess, guard_of
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Again, Final
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.outside import Won
from tests.scratch import scratch_folder

PATIENCE = 30.0
KINDS = ("adds", "raises", "retries", "autoretries", "requeues", "replaces", "twice")
WITHOUT_A_RESULT = ("ignores", "rejects")


@pytest.fixture
def folder():
    with scratch_folder() as empty:
        yield empty


def wait_for(condition, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'tasks.db'}"


class Given(Task):  # type: ignore[misc]
    """A task whose call adds what no message can have."""

    def __call__(self, *args, **kwargs):
        return self.run(*args, given=object(), **kwargs)


class Tasks:
    """An app with one task of each kind, and how often each was begun."""

    adds: Any

    def __init__(self, url: str | None) -> None:
        app = self.app = Celery("kinds", broker="memory://", backend="cache+memory://", set_as_current=False)
        app.conf.task_default_queue = uuid.uuid4().hex
        app.conf.broker_transport_options = {"polling_interval": 0.02}
        if url is not None:
            configure(app, url, lease="3s")
        else:
            app.conf.task_acks_late = app.conf.task_reject_on_worker_lost = True
        self.begun: Counter[str] = Counter()
        self.runs: list[str] = []
        self._rejected = False
        for kind in (
            "adds",
            "raises",
            "retries",
            "autoretries",
            "ignores",
            "rejects",
            "requeues",
            "replaces",
            "twice",
            "opaque",
        ):
            options = {"autoretry_for": (ValueError,), "default_retry_delay": 0} if kind == "autoretries" else {}
            setattr(
                self,
                kind,
                app.task(bind=True, shared=False, name=kind, **options)(self._counted(getattr(self, f"_{kind}"))),
            )

        self.given = app.task(shared=False, name="given", base=Given, typing=False)(self._given)

    def _counted(self, body):
        @functools.wraps(body)
        def run(task, number=0):
            self.begun[task.name] += 1
            return body(task, number)

        return run

    def _adds(self, task, number):
        run = current_run()
        self.runs.append("" if run is None else run.job)
        return number + 1

    def _raises(self, task, number):
        raise LookupError("no such thing")

    def _retries(self, task, number):
        if task.request.retries < 2:
            raise task.retry(countdown=0)
        return number

    def _autoretries(self, task, number):
        if task.request.retries < 2:
            raise ValueError("once more")
        return number

    def _ignores(self, task, number):
        raise Ignore

    def _rejects(self, task, number):
        raise Reject("no", requeue=False)

    def _requeues(self, task, number):
        if not self._rejected:
            self._rejected = True
            raise Reject("not now", requeue=True)
        return number

    def _replaces(self, task, number):
        if number:
            raise task.replace(task.s(number - 1))
        return "done"

    def _twice(self, task, number):
        return number if number == 0 else task.run(number - 1)

    @staticmethod
    def _given(number, given):
        return [number, type(given).__name__]

    def _opaque(self, task, number):
        return datetime(2026, 1, number, tzinfo=UTC)  # JSON has none; Celery's own has


@contextmanager
def working(tasks: Tasks):
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    options = {"pool": "solo", "perform_ping_check": False, "shutdown_timeout": PATIENCE, "loglevel": "ERROR"}
    with start_worker(tasks.app, **options) as started:
        root.level, root.handlers = before  # a worker takes the process's log for its own
        yield
    signals.worker_shutdown.send(sender=started)  # as the command does


@pytest.fixture(scope="module")
def shared_folder():
    with scratch_folder() as empty:
        yield empty


@pytest.fixture(scope="module")
def worker_of_all(shared_folder):
    tasks = Tasks(url_in(shared_folder))
    with working(tasks):  # its end takes Celery some seconds
        yield tasks


@pytest.fixture
def guarded(worker_of_all):
    worker_of_all.begun.clear()
    worker_of_all.runs.clear()
    return worker_of_all


@pytest.fixture
def name():
    return uuid.uuid4().hex


def ledger(folder: Path, name: str):
    scheduler = Scheduler(url_in(folder))
    try:
        return scheduler._opened.ready().occurrences(OccurrenceFilter(job=f"celery:{name}"), limit=50)
    finally:
        scheduler._opened.close()


def ends_of(tasks: Tasks) -> dict[str, tuple[str, int]]:
    with working(tasks):
        sent = {kind: getattr(tasks, kind).delay(1) for kind in (*WITHOUT_A_RESULT, *KINDS)}
        expired = tasks.adds.apply_async((1,), expires=-5)
        for kind in KINDS:
            sent[kind].get(timeout=PATIENCE, interval=0.01, propagate=False)
        wait_for(lambda: expired.state == "REVOKED", "the end of what has expired")
        return {"expired": ("REVOKED", 0), **{kind: (sent[kind].state, tasks.begun[kind]) for kind in sent}}


def test_each_kind_of_end_is_the_same_as_without_the_guard(folder):
    bare, guarded = ends_of(Tasks(None)), ends_of(Tasks(url_in(folder)))
    assert guarded == bare
    assert {kind: ledger(folder, kind)[-1].state for kind in ("adds", "raises", "retries", "ignores", "rejects")} == {
        "adds": State.SUCCEEDED, "raises": State.FAILED, "retries": State.SUCCEEDED, "ignores": State.SUCCEEDED,
        "rejects": State.FAILED,
    }  # fmt: skip
    [retried] = ledger(folder, "retries")
    assert (retried.attempt, retried.failures) == (3, 2)
    [failed] = ledger(folder, "raises")
    assert (failed.error.type, failed.error.message) == ("LookupError", "no such thing")


def test_a_message_that_comes_again_is_answered_with_the_recorded_result(guarded, shared_folder, name):
    first = guarded.adds.apply_async((1,), task_id=name)
    assert first.get(timeout=PATIENCE, interval=0.01) == 2
    first.forget()
    again = guarded.adds.apply_async((1,), task_id=name)
    assert again.get(timeout=PATIENCE, interval=0.01) == 2
    assert guarded.begun["adds"] == 1
    [one] = [one for one in ledger(shared_folder, "adds") if one.key == name]
    assert (one.state, one.result) == (State.SUCCEEDED, "2")
    assert guarded.runs == ["celery:adds"], "a task sees its run"


@pytest.mark.parametrize("ignored", [False, True], ids=["with a result", "ignore_result"])
def test_a_chain_goes_on_from_the_recorded_result(guarded, shared_folder, name, ignored):
    guarded.adds.apply_async((1,), task_id=name, ignore_result=ignored)
    ended = (State.SUCCEEDED, name)
    wait_for(lambda: ended in [(one.state, one.key) for one in ledger(shared_folder, "adds")], "its end")
    tail = guarded.adds.s().set(task_id=f"{name}-tail")
    guarded.adds.apply_async((1,), task_id=name, ignore_result=ignored, link=tail)
    assert AsyncResult(f"{name}-tail", app=guarded.app).get(timeout=PATIENCE, interval=0.01) == 3


@pytest.mark.parametrize("kind", ["raises", "opaque"])
def test_a_copy_of_what_has_no_result_to_give_is_dropped(guarded, name, kind):
    task = getattr(guarded, kind)
    task.apply_async((1,), task_id=name).get(timeout=PATIENCE, interval=0.01, propagate=False)
    task.apply_async((1,), task_id=name)
    guarded.adds.delay(1).get(timeout=PATIENCE, interval=0.01)  # the copy was before it
    assert guarded.begun[kind] == 1


def test_a_copy_of_an_attempt_that_has_failed_is_left_to_the_message_of_its_retry(guarded, shared_folder, name):
    elsewhere = Scheduler(url_in(shared_folder), lease="3s")
    outside = elsewhere._opened.outside()
    spec = task_spec("adds", timedelta(days=1))
    [[won]] = outside.acquire([(spec, AskNamed(spec.name, key=name))])
    assert isinstance(won, Won)
    assert outside.settle_now(won, Again(timedelta(minutes=5), failed=True))
    guarded.adds.apply_async((1,), task_id=name)
    guarded.adds.delay(1).get(timeout=PATIENCE, interval=0.01)  # the copy was before it
    assert guarded.begun["adds"] == 1
    assert guarded.adds.apply_async((1,), task_id=name, retries=1).get(timeout=PATIENCE, interval=0.01) == 2
    outside.close()
    elsewhere._opened.close()


def test_what_runs_elsewhere_comes_again_and_is_not_lost_with_the_process_that_has_it(guarded, shared_folder, name):
    elsewhere = Scheduler(url_in(shared_folder), lease="3s")
    outside = elsewhere._opened.outside()
    spec = task_spec("adds", timedelta(days=1))
    [[won]] = outside.acquire([(spec, AskNamed(spec.name, key=name))])
    sent = guarded.adds.apply_async((1,), task_id=name)
    guarded.adds.delay(5).get(timeout=PATIENCE, interval=0.01)  # what comes behind it does not wait for it
    assert guarded.begun["adds"] == 1
    assert isinstance(won, Won)
    outside.cut_off(won)
    assert sent.get(timeout=PATIENCE, interval=0.01) == 2
    outside.close()
    elsewhere._opened.close()


def test_what_has_ended_elsewhere_meanwhile_is_not_run_here(guarded, shared_folder, name):
    elsewhere = Scheduler(url_in(shared_folder), lease="3s")
    outside = elsewhere._opened.outside()
    spec = task_spec("adds", timedelta(days=1))
    [[won]] = outside.acquire([(spec, AskNamed(spec.name, key=name))])
    sent = guarded.adds.apply_async((1,), task_id=name)
    assert isinstance(won, Won)
    assert outside.settle_now(won, Final(State.SUCCEEDED, result="77"))
    assert sent.get(timeout=PATIENCE, interval=0.01) == 77
    assert guarded.begun["adds"] == 0
    outside.close()
    elsewhere._opened.close()


def test_nothing_runs_while_the_store_is_away_and_the_message_comes_again(guarded, monkeypatch, caplog):
    guarded.adds.delay(0).get(timeout=PATIENCE, interval=0.01)
    guard = guard_of(guarded.app)
    assert guard is not None
    outside = guard._part.outside()
    acquire, away = outside.acquire, threading.Event()

    def gone(wanted):
        if away.is_set():
            return acquire(wanted)
        raise StoreUnavailable("gone")

    caplog.set_level("INFO", "cronsensus.celery")
    monkeypatch.setattr(worker, "STORE_PATIENCE", 0.0)
    monkeypatch.setattr(outside, "acquire", gone)
    sent = guarded.adds.delay(1)
    wait_for(lambda: "comes again in 1 s: the store cannot be asked: gone" in caplog.text or None, "a try")
    assert guarded.begun["adds"] == 1
    away.set()
    assert sent.get(timeout=PATIENCE, interval=0.01) == 2


def test_tasks_that_are_taken_out_or_acknowledge_too_early_are_not_guarded_and_the_second_is_said(folder, caplog):
    app = Celery("out", broker="memory://", set_as_current=False)
    configure(app, url_in(folder))

    def work():
        return 1

    out = app.task(shared=False, name="out", once=False)(work)
    early = app.task(shared=False, name="early", acks_late=False)(work)
    both = app.task(shared=False, name="both", acks_late=False, once=False)(work)
    kept = app.task(shared=False, name="kept")(work)
    app.finalize()
    wrapped = {task.name for task in (out, early, both, kept) if hasattr(task.run, "__wrapped__")}
    assert wrapped == {"kept"}
    assert caplog.text.count("acks_late=False") == 1
    assert "they are not guarded: early; leave acks_late out, or write once=False" in caplog.text
    assert not hasattr(app.tasks["celery.chord"].run, "__wrapped__")


def test_tasks_called_in_the_caller_are_not_guarded(folder):
    tasks = Tasks(url_in(folder))
    assert tasks.adds(1) == 2
    assert tasks.adds.apply((1,)).get() == 2
    assert ledger(folder, "adds") == []


def test_a_worker_that_took_over_another_does_not_keep_that_if_the_store_goes_away(folder, monkeypatch):
    app = Tasks(url_in(folder)).app
    process = WorkerProcess(app, "w@h")
    process.start()
    outside = process._part.outside()
    [[dead]] = outside.acquire([(WORKERS, AskNamed(WORKERS.name, key="other@h 1"))])
    assert isinstance(dead, Won)

    def away():
        raise StoreUnavailable("gone")

    monkeypatch.setattr(worker_process, "restore_unacked", lambda *_: 1)
    monkeypatch.setattr(outside, "now", away)
    process._take_leftover(dead)
    wait_for(lambda: len(outside._held) == 1, "its end: else this worker holds it for as long as it lives")
    process.stop()
    left = next(one for one in ledger(folder, "(workers)") if one.key == "other@h 1")
    assert (left.state, left.reason) == (State.PENDING, "not given back: gone")


def test_an_app_whose_tasks_were_used_is_configured_too_late(folder):
    app = Celery("late", broker="memory://", set_as_current=False)
    app.finalize()
    with pytest.raises(ConfigurationError, match=r"comes too late.*right after app = Celery"):
        configure(app, url_in(folder))
    configure(app, url_in(folder), worker=False)


def test_an_app_of_which_one_task_was_used_is_configured_too_late(folder):
    app = Celery("late", broker="memory://", set_as_current=False)

    def work():
        return 1

    used = app.task(shared=False, name="used")(work)
    app.task(shared=False, name="unused")(work)
    assert used.name == "used"
    assert not app.finalized
    with pytest.raises(ConfigurationError, match=r"comes too late: used were used already; .*right after app = Celery"):
        configure(app, url_in(folder))


def test_a_worker_whose_start_has_failed_stops_without_a_further_error():
    app = Celery("wrong", broker="memory://", set_as_current=False)
    configure(app, "sqlite://")
    process = WorkerProcess(app, "w@h")
    with pytest.raises(InvalidOption, match="names no file"):
        process.start()
    process.stop()


class FetchedAtOnce:
    """A Redis with messages that are fetched, and a live worker that fetches each restored one at once."""

    unacked_key, unacked_index_key = "unacked", "unacked_index"

    def __init__(self, headers: dict[str, dict[str, str]]) -> None:
        self.headers, self.index = headers, list(headers)
        self.restored: list[str] = []
        self.default_channel = self.qos = self

    @contextmanager
    def conn_or_acquire(self, client=None):
        yield self

    @contextmanager
    def pipeline(self, transaction):
        self.asked = []
        yield self

    def zrange(self, _, first, last):
        return self.index[first : last + 1]

    def hget(self, _, tag):
        self.asked.append(json.dumps([{"headers": self.headers[tag]}]))

    def execute(self):
        return self.asked

    def restore_by_tag(self, tag, client):
        assert len(self.restored) < 10, "a message is restored without end"
        self.restored.append(tag)
        self.index.remove(tag)
        self.index.append(tag)


def test_a_message_is_restored_once_although_a_live_worker_fetches_it_at_once(folder, monkeypatch):
    app = Tasks(url_in(folder)).app
    app.finalize()
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    redis = FetchedAtOnce(
        {
            "a": {"task": "adds", "id": "1"},
            "b": {"task": "adds", "id": "2"},
            "c": {"task": "adds", "id": "3", "eta": soon},
        }
    )
    monkeypatch.setattr(app, "connection_for_write", lambda: nullcontext(redis))
    restored: set[str] = set()
    assert restore_unacked(app, lambda: {"2"}, restored) == 1
    assert restore_unacked(app, set, restored) == 1
    assert redis.restored == ["a", "b"]


def test_however_much_runs_elsewhere_its_messages_are_left_alone(folder, monkeypatch):
    monkeypatch.setattr(worker_process, "PAGE", 1)
    process = WorkerProcess(Tasks(url_in(folder)).app, "w@h")
    process.start()
    spec = task_spec("adds", timedelta(days=1))
    process._part.outside().acquire([(spec, AskNamed(spec.name, key=key)) for key in "abc"])
    assert process._find_running() >= {"a", "b", "c"}
    process.stop()


def test_the_messages_of_a_dead_worker_are_searched_until_its_copies_are_due(folder, monkeypatch):
    assert sum(worker_process.LOOKS) > worker.LONGEST_COPY_DELAY
    process = WorkerProcess(Tasks(url_in(folder)).app, "w@h")
    process.start()
    outside = process._part.outside()
    [[dead]] = outside.acquire([(WORKERS, AskNamed(WORKERS.name, key="other@h 1"))])
    assert isinstance(dead, Won)
    asked: list[set[str]] = []

    def restore(_, __, restored):
        restored.add(str(len(asked)))
        asked.append(restored)
        return 1

    monkeypatch.setattr(worker_process, "restore_unacked", restore)
    monkeypatch.setattr(worker_process, "LOOKS", (0.01, 0.01))
    process._take_leftover(dead)
    wait_for(lambda: len(outside._held) == 1, "its end")
    process.stop()
    left = next(one for one in ledger(folder, "(workers)") if one.key == "other@h 1")
    assert (left.reason, len(asked)) == ("gone: 3 messages were given back", 3)


def held_elsewhere(folder: Path, task: str, name: str):
    scheduler = Scheduler(url_in(folder), lease="3s")
    outside = scheduler._opened.outside()
    spec = task_spec(task, timedelta(days=1))
    [[won]] = outside.acquire([(spec, AskNamed(spec.name, key=name))])
    assert isinstance(won, Won)
    return scheduler, outside, won


def test_a_copy_comes_before_redis_would_restore_it(guarded, shared_folder, name, monkeypatch, caplog):
    caplog.set_level("INFO", "cronsensus.celery")
    monkeypatch.setitem(guarded.app.conf.broker_transport_options, "visibility_timeout", 0.5)
    scheduler, outside, won = held_elsewhere(shared_folder, "adds", name)
    sent = guarded.adds.apply_async((1,), task_id=name)
    wait_for(lambda: f"adds[{name}] comes again in 0.25 s" in caplog.text or None, "a copy")
    outside.cut_off(won)
    assert sent.get(timeout=PATIENCE, interval=0.01) == 2
    outside.close()
    scheduler._opened.close()


def test_a_copy_has_the_arguments_of_the_message_whatever_a_call_of_the_task_makes_of_them(
    guarded, shared_folder, name, caplog
):
    caplog.set_level("INFO", "cronsensus.celery")
    scheduler, outside, won = held_elsewhere(shared_folder, "given", name)
    sent = guarded.given.apply_async((1,), task_id=name)
    wait_for(lambda: f"given[{name}] comes again" in caplog.text or None, "a copy")
    outside.cut_off(won)
    assert sent.get(timeout=PATIENCE, interval=0.01) == [1, "object"]
    outside.close()
    scheduler._opened.close()
