"""Who is told of what: once, by one node, whatever dies, hangs or refuses."""

import hashlib
import hmac
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from email import message_from_string
from email.policy import default
from typing import Any

import pytest
from msgspec import structs

from cronsensus import Alert, Scheduler, every, open_store
from cronsensus.alerts import watching
from cronsensus.alerts.conditions import Expected, find_job_conditions, find_node_conditions, find_waiting_conditions
from cronsensus.alerts.events import MOST_SEEN, Event, read_events, read_mark
from cronsensus.alerts.message_words import MOST_EVENTS, write_subject, write_text
from cronsensus.alerts.muting import list_muted, mute_job, unmute_job
from cronsensus.alerts.sending import Message
from cronsensus.alerts.watching import Alerts
from cronsensus.errors import DuplicateJob, InvalidOption
from cronsensus.insight.work_checks import check_alerts, check_retired
from cronsensus.membership.liveness import started_at
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.boot import host_identity
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.timing.clock import ManualClock
from tests.alerts.receivers import mails, webhooks
from tests.hand_cluster import HandCluster


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watching, "SCAN_EVERY", timedelta(seconds=0.1))
    monkeypatch.setitem(watching.JOB_POLICIES, "retry_delay", "100ms")


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


def wait_until(what, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def watch_of(scheduler: Scheduler) -> Occurrence:
    """Return the run that watches for the only alert of a scheduler."""
    assert scheduler.alerts is not None
    [name] = scheduler.alerts.by_name
    [watch] = scheduler.store.occurrences(OccurrenceFilter(job=f"cronsensus:alert:{name}"))
    return watch


def wait_for_watch(scheduler: Scheduler) -> None:
    """Wait until its alert has begun to look: what happens from now on is told."""
    wait_until(lambda: watch_of(scheduler).note is not None)


def wait_for_looks(scheduler: Scheduler, times: int = 2) -> None:
    """Wait until so many looks of its alert have ended: all but the first have begun since.

    By when it looks next, which each look moves; that it runs is seen for a millisecond only.
    """
    for _ in range(times):
        before = watch_of(scheduler).due_at
        wait_until(lambda: watch_of(scheduler).due_at != before)  # noqa: B023 - called here


def test_a_receiver_that_asks_for_time_gets_the_message_no_sooner(url):
    with webhooks() as got:
        got.answers, got.retry_after = [429], "600"
        scheduler = Scheduler(url, alerts=[Alert(got.url, on=["failed"])])

        @scheduler.job(retries=0)
        def broken() -> None:
            raise ValueError("no card")

        with scheduler:
            wait_for_watch(scheduler)
            broken.trigger()
            assert got.asked.wait(20)
            wait_until(lambda: watch_of(scheduler).due_at - scheduler.store.now() > timedelta(seconds=300))
            waits = watch_of(scheduler)
            assert scheduler.alerts is not None
            # As nodes do each half minute: it waits because it was asked to, and was not left behind by a clock.
            scheduler.alerts.ensure_runs(scheduler.store, scheduler.declared.specs())
            assert (watch_of(scheduler).id, watch_of(scheduler).note) == (waits.id, waits.note)


class HandWatch:
    """An alert that looks when a test says so, at a cluster whose time the test decides."""

    def __init__(self, cluster: HandCluster, on: list[str], *, in_row: int = 1, **expected: Expected) -> None:
        self.told: list[Event] = []
        self._cluster = cluster
        self._alert = Alert(self.told.extend, on=on, in_row=in_row, name="ops")
        self._alerts = Alerts([self._alert], lambda: cluster.store, lambda: expected)
        self._mark = read_mark(cluster.store)

    def look(self, seconds: float = 10) -> None:
        """Look after so many seconds, and send what was found."""
        self._cluster.advance(seconds)
        self._mark = self._alerts.send_next(self._alert, self._cluster.store, self._mark)
        if self._mark.pending:
            self._mark = self._alerts.send_next(self._alert, self._cluster.store, self._mark)


# --- once, and what it says -------------------------------------------------------------------------------------------


def test_a_failed_run_is_told_once_by_two_nodes(url):
    with webhooks() as got:
        nodes = [
            Scheduler(url, node=f"node-{n}", alerts=[Alert(got.url, jobs="billing-*", secret="k")]) for n in range(2)
        ]
        jobs = []
        for scheduler in nodes:

            @scheduler.job(name="billing-card")
            def card(number: int) -> None:
                raise ValueError(f"no card {number}")

            @scheduler.job(name="other")
            def other() -> None:
                raise RuntimeError("nobody wants to know")

            jobs.append((card, other))
        with nodes[0], nodes[1]:
            wait_for_watch(nodes[0])
            run = jobs[0][0].enqueue(7)
            jobs[0][1].enqueue()
            wait_until(lambda: got.bodies)
            jobs[1][0].enqueue(8)
            wait_until(lambda: len(got.events) == 2)
            wait_for_looks(nodes[0])
    assert [(one["job"], one["reason"]) for one in got.events] == [
        ("billing-card", "ValueError: no card 7"),
        ("billing-card", "ValueError: no card 8"),
    ]
    first = got.bodies[0]
    assert first["text"] == f"billing-card failed: ValueError: no card 7 (cronsensus runs show {run.id})"
    assert first["subject"] == "billing-card failed"
    signature = hmac.new(b"k", got.raw[0], hashlib.sha256).hexdigest()
    assert got.headers[0]["X-Cronsensus-Signature"] == f"sha256={signature}"
    assert got.headers[0]["Idempotency-Key"] == first["id"]


def test_watching_leaves_no_runs_behind(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, name="ops")])
    with scheduler:
        wait_for_watch(scheduler)
        wait_for_looks(scheduler, 4)
        [watch] = scheduler.store.occurrences(OccurrenceFilter(job="cronsensus:alert:ops"))
        assert watch.state in {State.PENDING, State.RUNNING}
        assert watch.attempt <= 1
        assert len(scheduler.store.runs(watch.id)) <= 1


def test_watching_that_was_cancelled_comes_back_and_doctor_says_so_meanwhile(url, monkeypatch):
    monkeypatch.setattr("cronsensus.node.session.ENSURE_RUNS_EVERY", 3600.0)
    with webhooks() as hook:
        scheduler = Scheduler(url, alerts=[Alert(hook.url, name="team", on=["failed"])])

        @scheduler.job()
        def work() -> None:
            raise ValueError("no")

        with scheduler:
            wait_for_looks(scheduler)
            scheduler.store.cancel(watch_of(scheduler).id, by="op", why="by name")
            wait_until(lambda: [one.name for one in check_alerts(scheduler.store)] == ["alerts"])
            monkeypatch.setattr("cronsensus.node.session.ENSURE_RUNS_EVERY", 0.0)
            scheduler.store.notify()
            wait_until(lambda: not list(check_alerts(scheduler.store)))
            wait_for_looks(scheduler)
            work.enqueue()
            wait_until(lambda: hook.events)


def test_nothing_from_before_the_alert_is_told(url):
    def declared(alerts: list[Alert]) -> Scheduler:
        scheduler = Scheduler(url, alerts=alerts)

        @scheduler.job()
        def bad(number: int) -> None:
            raise ValueError(number)

        return scheduler

    before = declared([])
    with before:
        before.enqueue("bad", 1).wait("10s")
        told: list[Event] = []
        after = declared([Alert(told.extend, name="ops")])
        with after:
            wait_for_watch(after)
            wait_for_looks(after)
            after.enqueue("bad", 2)
            wait_until(lambda: told)
            wait_for_looks(after)
    assert [one.reason for one in told] == ["ValueError: 2"]


def test_a_missed_time_is_told_with_its_nominal_time():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("backup", "1h", catch_up_window="90m")
    mark = read_mark(cluster.store)
    cluster.advance(5 * 3600)
    cluster.fire()
    events, then = read_events(cluster.store, mark)
    missed = [one for one in events if one.event == "missed"]
    assert [(one.job, one.count) for one in missed] == [("backup", 4)] or missed[0].count in {3, 4}
    assert "backup did not run at" in write_text(missed, lambda _, at: at.isoformat())
    assert "more times" in write_text(missed, lambda _, at: at.isoformat())
    assert read_events(cluster.store, then)[0] == []


def test_a_run_that_failed_late_and_out_of_order_is_found_late():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("work")
    mark = read_mark(cluster.store)
    cluster.store.enqueue([Item(job="work") for _ in range(3)])
    claims = cluster.claim()
    cluster.advance(30)
    cluster.finish(claims[2], State.FAILED)
    events, mark = read_events(cluster.store, mark)
    assert [one.run for one in events] == [claims[2].id]
    cluster.finish(claims[0], State.FAILED)  # of an earlier id, in the same moment
    events, mark = read_events(cluster.store, mark)
    assert [one.run for one in events] == [claims[0].id]
    for _ in range(2):
        cluster.advance(300)
        events, mark = read_events(cluster.store, mark)
        assert events == []
    assert mark.seen == {}


def test_of_very_many_none_is_told_twice(monkeypatch):
    monkeypatch.setattr("cronsensus.alerts.events.MOST_SEEN", 3)
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("work")
    mark = read_mark(cluster.store)
    cluster.store.enqueue([Item(job="work") for _ in range(6)])
    claims = cluster.claim()
    cluster.advance(5)
    for claim in claims:
        cluster.finish(claim, State.FAILED)  # in the moment of the look, and it may be after it
    events, mark = read_events(cluster.store, mark)
    assert len(events) == 6
    for seconds in (0, 1, 60, 60):
        cluster.advance(seconds)
        events, mark = read_events(cluster.store, mark)
        assert events == []


def test_a_node_that_is_gone_is_told(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=["node_lost"], name="ops")])
    with scheduler:
        wait_for_watch(scheduler)
        store = scheduler.store
        store.open_session(a_session("gone"), lease=timedelta(seconds=0.2))
        wait_until(lambda: store.reclaim() is None or told)
    assert [(one.event, one.node) for one in told] == [("node_lost", "node of gone")]


def test_an_alert_of_a_batch_is_one_and_not_one_for_each_item(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, name="ops")])

    @scheduler.job(items=range(5))
    def work(number: int) -> None:
        raise ValueError(number)

    with scheduler:
        wait_for_watch(scheduler)
        batch = work.trigger()
        wait_until(lambda: told)
        wait_for_looks(scheduler)
    assert [one.run for one in told] == [batch.id]


def test_a_job_that_has_not_succeeded_for_too_long_is_told_once_and_when_it_is_well_again(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECK_EVERY", timedelta(seconds=0.1))
    told: list[Event] = []
    events = ["overdue", "recovered", "failed"]
    scheduler, broken = Scheduler(url, alerts=[Alert(told.extend, on=events, name="ops")]), [True]

    @scheduler.job(overdue="2s")
    def backup() -> None:
        if broken:
            raise OSError("disk full")

    with scheduler:
        backup.enqueue().wait("10s")
        wait_until(lambda: sorted(one.event for one in told) == ["failed", "overdue"])
        wait_for_looks(scheduler)
        broken.clear()
        backup.enqueue().wait("10s")
        wait_until(lambda: len(told) >= 4)
    assert sorted(one.event for one in told) == ["failed", "overdue", "recovered", "recovered"]
    [overdue] = [one for one in told if one.event == "overdue"]
    assert overdue.reason == "no success for 2s: it has never succeeded"
    well = {one.reason for one in told if one.event == "recovered"}
    assert well == {"it has succeeded again", "it has succeeded at last"}


def test_a_run_that_takes_too_long_is_told_once_while_it_runs_or_if_it_has_ended_since():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("report")
    watch = HandWatch(cluster, ["slow"], report=Expected(slow=timedelta(seconds=30)))
    cluster.store.enqueue([Item(job="report")])
    [long] = cluster.claim()
    watch.look(25)
    assert watch.told == []
    for _ in range(3):
        watch.look()
    cluster.finish(long)
    watch.look()
    assert [(one.event, one.run, one.reason) for one in watch.told] == [
        ("slow", long.id, "it has run for more than 30s"),
    ]  # fmt: skip
    cluster.store.enqueue([Item(job="report")])
    [ended] = cluster.claim()
    cluster.advance(40)
    cluster.finish(ended)
    cluster.store.enqueue([Item(job="report")])
    [short] = cluster.claim()
    cluster.finish(short)
    for _ in range(3):
        watch.look()
    assert [one.run for one in watch.told[1:]] == [ended.id]


def test_failures_in_a_row_are_told_as_one_and_its_end():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("sync")
    watch = HandWatch(cluster, ["failed", "recovered"], in_row=3)

    def run(*results: bool) -> list[str]:
        """Let it succeed or fail; return the events that are told of it."""
        before = len(watch.told)
        for good in results:
            cluster.store.enqueue([Item(job="sync")])
            [claim] = cluster.claim()
            cluster.advance(1)
            cluster.finish(claim) if good else cluster.fail(claim, "no route")
        watch.look()
        return [one.event for one in watch.told[before:]]

    assert run(False, False, True, False, False) == []
    assert run(False, False) == ["failed"]
    assert run(False, True) == ["recovered"]
    assert run(False, False, False) == ["failed"]
    assert watch.told[2].reason == "3 times in a row, last: OSError: no route"


def test_a_run_that_another_process_took_over_is_told_once():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.join("node-2")
    cluster.declare("work")
    mark = read_mark(cluster.store)
    cluster.store.enqueue([Item(job="work")])
    [claim] = cluster.claim("session-of-node-1")
    assert read_events(cluster.store, mark, takeovers=True)[0] == []
    cluster.store.reclaim(["session-of-node-1"])
    cluster.advance(5)
    cluster.claim("session-of-node-2")
    events, mark = read_events(cluster.store, mark, takeovers=True)
    found = [one for one in events if one.event == "taken_over"]
    assert [(one.job, one.run) for one in found] == [("work", claim.id)]
    for _ in range(3):  # it goes on running
        cluster.advance(100)
        events, mark = read_events(cluster.store, mark, takeovers=True)
        assert [one for one in events if one.event == "taken_over"] == []


def test_an_idle_node_whose_process_ended_is_told_before_its_lease_has_run_out_and_once(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    spec = replace(a_session("gone"), host=host_identity(), pid=ended.pid, pid_started=started_at(ended.pid) or 0)
    store.open_session(spec, lease=timedelta(minutes=10))
    assert find_node_conditions(store, {}, store.now()) == ([], {})
    ended.communicate()
    [event], wrong = find_node_conditions(store, {}, store.now())
    assert (event.event, event.node) == ("node_lost", "node of gone")
    assert find_node_conditions(store, wrong, store.now()) == ([], wrong)
    alerts = Alerts([], lambda: store)
    told: list[Event] = []
    mark = structs.replace(read_mark(store), open_conditions=wrong)
    store.reclaim(["gone"])
    alerts.send_next(Alert(told.extend, on="node_lost"), store, mark)
    assert told == []


def test_times_that_no_node_decides_and_work_that_waits_are_told_once_and_when_that_is_over():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("backup", "1h")
    cluster.declare("work")
    cluster.fire()

    def seen(begun: dict[str, int]) -> tuple[list[Event], dict[str, int]]:
        now = cluster.store.now()
        return find_waiting_conditions(cluster.store, begun, now, stalled=True, backlog=timedelta(minutes=10))

    assert seen({}) == ([], {})
    [made] = cluster.store.enqueue([Item(job="work")])
    cluster.advance(3600 + 120)
    events, wrong = seen({})
    assert [(one.event, one.job) for one in events] == [("stalled", "backup"), ("backlog", "work")]
    assert events[1].run == made.id
    assert seen(wrong) == ([], wrong)
    cluster.fire()
    for claim in cluster.claim():
        cluster.finish(claim, State.SUCCEEDED)
    events, wrong = seen(wrong)
    assert [(one.event, one.job) for one in events] == [("recovered", "backup"), ("recovered", "work")]
    assert wrong == {}


def test_what_another_release_looks_for_is_not_over_because_this_one_does_not():
    cluster = HandCluster()
    begun, now = {"stalled:backup": 1}, cluster.store.now()
    assert find_waiting_conditions(cluster.store, begun, now, stalled=False, backlog=timedelta(minutes=10)) == (
        [],
        begun,
    )


def test_of_very_many_jobs_that_are_overdue_none_is_told_twice():
    cluster = HandCluster()
    names = [f"job-{number}" for number in range(1_100)]
    cluster.store.define_jobs([JobSpec(name=name, function=name, trigger=None) for name in names], release="r1")
    cluster.advance(60)
    expected = {name: Expected(overdue=timedelta(seconds=1)) for name in names}
    events, wrong = find_job_conditions(cluster.store, expected, {}, cluster.store.now())
    assert len(events) == len(names)
    assert find_job_conditions(cluster.store, expected, wrong, cluster.store.now()) == ([], wrong)


# --- what a deploy has lost -------------------------------------------------------------------------------------------


def a_release(url: str, told: list[Event], *names: str, **more: Any) -> Scheduler:
    alert = Alert(told.extend, on=["overdue", "retired", "recovered"], name="ops")
    scheduler = Scheduler(url, node="node", alerts=[alert])
    for name in names:
        scheduler.job(name=name, overdue="1s" if name == "backup" else None)(lambda: None)
    return scheduler


def lost(scheduler: Scheduler) -> list[str]:
    return [one.text for one in check_retired(scheduler.store)]


def test_jobs_that_a_deploy_has_lost_are_told_once_and_of_doctor_until_somebody_says_that_it_is_meant(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECK_EVERY", timedelta(seconds=0.1))
    told: list[Event] = []
    with (first := a_release(url, told, "other", "backup", "report", "old")) as before:
        before.jobs["backup"].enqueue().wait("10s")
        wait_for_watch(first)
    second = a_release(url, told, "other")
    second.retired("old", reason="moved away")
    with second:
        wait_until(lambda: len(told) >= 2)
        assert [one.split(" since ")[0] for one in lost(second)] == [
            "no running release declares backup", "no running release declares report",
        ]  # fmt: skip
        second.remove_job("report")
        second.remove_job("backup", reason="no disk, no backup")
        assert lost(second) == []
        wait_for_looks(second)
    assert sorted((one.event, one.job, one.reason) for one in told) == [
        ("overdue", "backup", "no success for 1s: no running release declares it any more"),
        ("retired", "report", "no running release declares it any more"),
    ]


def test_a_job_that_is_lost_and_comes_back_is_told_to_be_well_when_it_has_succeeded(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECK_EVERY", timedelta(seconds=0.1))
    told: list[Event] = []
    with a_release(url, told, "other", "backup") as before:
        wait_for_watch(before)
        before.jobs["backup"].enqueue().wait("10s")
    with a_release(url, told, "other"):
        wait_until(lambda: told)
    with a_release(url, told, "other", "backup") as again:
        again.jobs["backup"].enqueue().wait("10s")
        wait_until(lambda: len(told) == 2)
    assert [(one.event, one.job) for one in told] == [("overdue", "backup"), ("recovered", "backup")]


def test_a_job_that_is_declared_cannot_be_said_to_be_gone():
    scheduler = Scheduler("memory://")
    scheduler.job(name="backup")(lambda: None)
    with pytest.raises(InvalidOption, match="take one of them out"):
        scheduler.retired("backup")
    scheduler.retired("old")
    with pytest.raises(InvalidOption, match="take one of them out"):
        scheduler.job(name="old")(lambda: None)


def test_items_that_fail_within_what_is_tolerated_are_told_once_with_their_batch(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=["failed", "items_failed"], name="ops")])

    @scheduler.job(items=range(4), tolerate="50%")
    def night(shop: int) -> None:
        if shop == 2:
            raise ValueError("no data")

    @scheduler.job(items=range(4))
    def strict(shop: int) -> None:
        night(shop)

    with scheduler:
        wait_for_watch(scheduler)
        tolerated, failed = night.trigger(), strict.trigger()
        wait_until(lambda: len(told) == 2)
        wait_for_looks(scheduler)
    assert sorted((one.event, one.job, one.run) for one in told) == [
        ("failed", "strict", failed.id), ("items_failed", "night", tolerated.id),
    ]  # fmt: skip
    [event] = [one for one in told if one.event == "items_failed"]
    assert event.reason == "1 of its 4 items failed, which tolerate= allows"


# --- many, muted, by mail ---------------------------------------------------------------------------------------------


def test_ten_thousand_failures_make_few_messages(sqlite_url):
    with webhooks() as got:
        scheduler = Scheduler(sqlite_url, concurrency=50, alerts=[Alert(got.url)])

        @scheduler.job()
        async def bad(number: int) -> None:
            raise ValueError(number)

        with scheduler:
            wait_for_watch(scheduler)
            scheduler.enqueue_many(bad.call(number) for number in range(2_000))
            wait_until(lambda: scheduler.store.counts(limit=5).pending <= 1, 60)
            wait_until(lambda: len(got.bodies) >= 4 or sum(one["total"] for one in got.bodies) == 2_000, 30)
            wait_for_looks(scheduler)
        assert 1 <= len(got.bodies) <= 4
        assert all(len(one["events"]) <= MOST_EVENTS for one in got.bodies)


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


def test_many_events_are_told_in_one_line_and_the_rest_is_counted():
    from cronsensus.testing.conformance.fixtures import START

    events = [Event(key=str(n), event="failed", at=START, job=f"job-{n % 3}", run=n) for n in range(60)]
    assert write_subject(events) == "60 failed of 3 jobs"
    lines = write_text(events, lambda _, at: at.isoformat()).splitlines()
    assert len(lines) == MOST_EVENTS + 1
    assert lines[-1].startswith("… and 10 more: job-")


def test_of_a_muted_job_nobody_is_told(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, name="ops")])

    @scheduler.job()
    def bad(number: int) -> None:
        raise ValueError(number)

    with scheduler:
        wait_for_watch(scheduler)
        mute_job(scheduler.store, "bad", timedelta(hours=2), by="ada", why="new disk")
        assert [(one.job, one.by, one.reason) for one in list_muted(scheduler.store)] == [("bad", "ada", "new disk")]
        bad.enqueue(1).wait("10s")
        wait_for_looks(scheduler)
        assert unmute_job(scheduler.store, "bad", by="ada", why="")
        bad.enqueue(2).wait("10s")
        wait_until(lambda: told)
    assert [one.reason for one in told] == ["ValueError: 2"]


def test_a_mute_that_cannot_be_does_not_end_the_one_that_there_is():
    store = open_store("memory://muted-too-long")
    mute_job(store, "bad", timedelta(hours=2), by="ada", why="new disk")
    with pytest.raises(InvalidOption, match="36525 days"):
        mute_job(store, "bad", timedelta(days=40_000), by="ada", why="for ever")
    assert [one.reason for one in list_muted(store)] == ["new disk"]


def test_what_is_still_wrong_when_its_job_is_not_muted_any_more_is_told(url):
    told: list[Event] = []
    on = ["failed", "recovered"]
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=on, in_row=2, name="ops")])

    @scheduler.job()
    def sync() -> None:
        raise OSError("no route")

    with scheduler:
        wait_for_watch(scheduler)
        mute_job(scheduler.store, "sync", timedelta(hours=2), by="ada", why="new disk")
        for _ in range(3):
            sync.enqueue().wait("10s")
        wait_for_looks(scheduler)
        assert unmute_job(scheduler.store, "sync", by="ada", why="")
        sync.enqueue().wait("10s")
        wait_until(lambda: told)
    assert [one.reason for one in told] == ["4 times in a row, last: OSError: no route"]


def test_a_message_says_why_and_links_to_the_run(url, monkeypatch):
    monkeypatch.setenv("CRONSENSUS_DASHBOARD_URL", "https://ops.example/cron/")
    with webhooks() as got:
        scheduler = Scheduler(url, alerts=[Alert(got.url)])

        @scheduler.job(every("1s"))
        def backup() -> None:
            raise OSError("disk full")

        with scheduler:
            wait_until(lambda: got.events)
    first = got.events[0]
    assert first["url"] == f"https://ops.example/cron/runs/{first['run']}"
    assert "disk full" in first["why"]


def test_a_mail_is_sent(url, monkeypatch):
    with mails() as (server, got):
        monkeypatch.setenv("CRONSENSUS_SMTP_URL", server)
        scheduler = Scheduler(url, alerts=[Alert("mailto://ops@example.org,ada@example.org")])

        @scheduler.job(every("1h"))
        def backup() -> None:
            raise OSError("disk full")

        with scheduler:
            wait_for_watch(scheduler)
            backup.trigger()
            wait_until(lambda: got)
    assert "Subject: [cronsensus] backup failed" in got[0]
    assert "To: ops@example.org, ada@example.org" in got[0]
    assert "From: jobs@example.org" in got[0]
    assert "disk full" in got[0]


# --- receivers that hang, refuse, and nodes that die ------------------------------------------------------------------


def test_a_receiver_that_hangs_holds_up_no_job(url):
    with webhooks() as got:
        got.hangs = True
        scheduler = Scheduler(url, alerts=[Alert(got.url)])

        @scheduler.job()
        def work(number: int) -> int:
            if number < 0:
                raise ValueError(number)
            return number

        with scheduler:
            wait_for_watch(scheduler)
            work.enqueue(-1)
            assert got.asked.wait(20)
            begun = time.monotonic()
            assert [work.enqueue(n).result("10s") for n in range(20)] == list(range(20))
            assert time.monotonic() - begun < 5
            got.go_on.set()
            wait_until(lambda: got.bodies)


def test_a_receiver_that_refuses_gets_it_later(url):
    with webhooks() as got:
        got.answers = [500, 503, 200]
        scheduler = Scheduler(url, alerts=[Alert(got.url)])

        @scheduler.job()
        def bad(number: int) -> None:
            raise ValueError(number)

        with scheduler:
            wait_for_watch(scheduler)
            bad.enqueue(1)
            wait_until(lambda: got.bodies, 30)
            wait_for_looks(scheduler)
        assert [one["reason"] for one in got.events] == ["ValueError: 1"]


def test_a_message_that_is_sent_again_is_the_same_whatever_has_happened_since(url, monkeypatch):
    sent: list[tuple[str, list[int | None]]] = []

    def lost(target: Any, message: Message, secret: str | None) -> None:
        sent.append((message.id, [one.run for one in message.events]))
        if len(sent) == 1:
            runs.append(bad.enqueue(2).wait("10s").id)
            raise OSError("the answer is lost")

    monkeypatch.setattr(watching, "send_message", lost)
    scheduler = Scheduler(url, alerts=[Alert("https://x.example", name="ops")])

    @scheduler.job()
    def bad(number: int) -> None:
        raise ValueError(number)

    with scheduler:
        wait_for_watch(scheduler)
        runs = [bad.enqueue(1).id]
        wait_until(lambda: len(sent) == 3)
    assert sent[0] == sent[1]
    assert [told for _, told in sent[1:]] == [[runs[0]], [runs[1]]]


def test_a_node_whose_only_slot_is_held_by_a_job_that_hangs_tells_of_it(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECK_EVERY", timedelta(seconds=0.1))
    told: list[Event] = []
    on = ["slow", "backlog"]
    scheduler = Scheduler(url, concurrency=1, alerts=[Alert(told.extend, on=on, backlog="1s", name="ops")])
    let_go = threading.Event()
    beside = []

    @scheduler.job(slow="300ms")
    def hangs() -> None:
        let_go.wait(30)

    @scheduler.job()
    def waits() -> None:
        beside.append(let_go.is_set())

    with scheduler:
        hung = hangs.enqueue()
        wait_until(lambda: hung.look().state is State.RUNNING)
        waits.enqueue()
        wait_until(lambda: {"slow", "backlog"} <= {one.event for one in told})
        let_go.set()
        wait_until(lambda: beside)
    assert {(one.event, one.job) for one in told} == {("slow", "hangs"), ("backlog", "waits")}
    assert beside == [True], "the slot was given to two runs at once"


PROGRAM = """
import sys
from datetime import timedelta
from cronsensus import Alert, Scheduler, every
from cronsensus.alerts import watching
watching.SCAN_EVERY, watching.MOST_MESSAGES = timedelta(seconds=0.5), 1000
scheduler = Scheduler(sys.argv[1], lease="3s", alerts=[Alert(sys.argv[2])])
@scheduler.job(every("1s"))
def bad():
    raise ValueError("each second")
scheduler.run()
"""


@contextmanager
def receiver(kind: str, monkeypatch) -> Iterator[tuple[str, Callable[[], dict[str, list[int]]]]]:
    """Give where to send, and a function that says what was told: runs by id of the message."""
    if kind == "http":
        with webhooks() as got:
            yield got.url, lambda: {body["id"]: [event["run"] for event in body["events"]] for body in got.bodies}
    else:
        with mails() as (server, letters):
            monkeypatch.setenv("CRONSENSUS_SMTP_URL", server)

            def told() -> dict[str, list[int]]:
                read = [message_from_string(one, policy=default) for one in letters]
                return {
                    one["Message-ID"]: [*map(int, re.findall(r"runs show (\d+)", one.get_content()))] for one in read
                }

            yield "mailto://ops@example.org", told


@pytest.mark.parametrize("kind", ["http", "smtp"])
def test_while_the_node_that_sends_is_killed_each_failure_is_told(sqlite_url, monkeypatch, kind):
    with receiver(kind, monkeypatch) as (target, told):

        def start() -> Any:
            return subprocess.Popen([sys.executable, "-c", PROGRAM, sqlite_url, target], stderr=subprocess.DEVNULL)

        nodes = [start() for _ in range(2)]
        scheduler = Scheduler(sqlite_url)
        store = scheduler._opened.ready()
        try:
            watch = OccurrenceFilter(states=(State.RUNNING, State.PENDING))
            wait_until(lambda: any(one.job.startswith("cronsensus:") for one in store.occurrences(watch)))
            for _ in range(4):
                before = len(told())
                wait_until(lambda: len(told()) > before)  # noqa: B023 - called here
                killed = nodes.pop(0)
                killed.kill()
                killed.wait()
                nodes.append(start())
            before = len(told())
            wait_until(lambda: len(told()) > before)
        finally:
            for one in nodes:
                one.terminate()
            for one in nodes:
                one.wait(20)
        failed = store.occurrences(OccurrenceFilter(job="bad", states=(State.FAILED,)), limit=100)
        scheduler._opened.close()
        runs = [run for message in told().values() for run in message]
        assert len(runs) == len(set(runs)), "an event was told in two messages"
        # The last of them may have failed when the nodes were told to stop.
        assert len(failed) > 3
        assert {one.id for one in failed[3:]} <= set(runs)


def test_a_pattern_that_fits_no_job_is_said_once(url, caplog):
    scheduler = Scheduler(url, alerts=[Alert("https://x.example", jobs="bilings-*", name="ops")])
    scheduler.job(name="billing-card")(lambda: None)
    with scheduler:
        pass
    [said] = [one.getMessage() for one in caplog.records if one.name == "cronsensus.alerts"]
    assert "alert ops is about no job" in said
    assert "billing-card" in said


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Alert(7), "give a URL"),  # type: ignore[arg-type]
        (lambda: Alert("example.org"), "give a URL"),
        (lambda: Alert("https://"), "names no host"),
        (lambda: Alert("mailto://"), "name who gets the mail"),
        (lambda: Alert("https://x.y", on=["fail"]), "failed"),
        (lambda: Alert("https://x.y", on=[]), "tells of nothing"),
        (lambda: Alert("https://x.y", name="a b"), "letters, digits"),
        (lambda: Alert("https://x.y", in_row=0), "from 1 to 50"),
        (lambda: Scheduler("memory://", alerts=["https://x.y"]), "alerts=\\[Alert"),  # type: ignore[list-item]
    ],
)
def test_what_makes_no_sense_is_refused(make, words):
    with pytest.raises(InvalidOption, match=words):
        make()


def test_alerts_come_from_the_environment_too(monkeypatch):
    monkeypatch.setenv(
        "CRONSENSUS_ALERTS",
        "https://x.y/hook on=failed,missed jobs=bill-*,mail; mailto://ops@example.org on=node_lost name=ops",
    )
    alerts = Scheduler("memory://").alerts
    assert alerts is not None
    first, second = alerts.by_name.values()
    assert (first.target, first.on, first.jobs) == ("https://x.y/hook", ("failed", "missed"), ("bill-*", "mail"))
    assert (second.name, second.on) == ("ops", ("node_lost",))
    monkeypatch.setenv("CRONSENSUS_ALERTS", "https://x.y jbs=a")
    with pytest.raises(InvalidOption, match="jobs"):
        Scheduler("memory://")


def test_two_alerts_of_one_name_are_refused():
    with pytest.raises(DuplicateJob, match="two alerts are called 'ops'"):
        Scheduler("memory://", alerts=[Alert(print, name="ops"), Alert("https://x.y", name="ops")])


def test_without_alerts_nothing_of_them_is_imported():
    program = (
        "import sys; from cronsensus import Scheduler; Scheduler('memory://'); "
        "print([module for module in sys.modules if 'alerts' in module])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- of a batch, the batch --------------------------------------------------------------------------------------------


def test_an_item_that_succeeds_does_not_make_its_job_well_nor_one_that_is_slow_its_job_slow(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECK_EVERY", timedelta(seconds=0.1))
    told: list[Event] = []
    on = ["failed", "overdue", "recovered", "slow"]
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=on, name="ops")], concurrency=3)

    @scheduler.job(items=range(6), stop_after=1, overdue="1500ms", slow="400ms")
    def close(number: int) -> None:
        time.sleep(0.5 + 0.2 * number)
        if number == 0:
            raise ValueError("no shop 0")

    with scheduler:
        batch = close.trigger()
        batch.wait("10s")
        wait_until(lambda: len(told) >= 3)
        wait_for_looks(scheduler)
    assert sorted((one.event, one.run) for one in told if one.run) == [("failed", batch.id), ("slow", batch.id)]
    assert [one.event for one in told if not one.run] == ["overdue"]


def test_what_is_slow_is_remembered_while_it_is_and_no_longer():
    store = open_store("memory://slow-and-seen")
    begun = read_mark(store)
    many = {f"run:{number}": begun.at for number in range(MOST_SEEN + 1)}
    slow = {"slow:1": begun.at}
    assert read_events(store, structs.replace(begun, seen=many | slow))[1].seen == slow
    checks = Alerts([], lambda: store, lambda: {"gone": Expected(slow=timedelta(seconds=1))})
    assert checks._read_conditions(Alert(print), store, structs.replace(begun, seen=slow), [])[1].seen == {}


def test_a_success_is_kept_for_as_long_as_it_is_asked_for():
    """Else a job that is well is overdue: nothing tells any more that it has succeeded."""
    scheduler = Scheduler("memory://")
    with pytest.raises(InvalidOption, match=r"'monthly' is overdue without a success for 31d, .* after 30d; give"):

        @scheduler.job(overdue="31d")
        def monthly() -> None: ...


def test_an_alert_goes_on_when_the_clock_of_the_store_was_set_back(tmp_path):
    told: list[Any] = []
    clock = ManualClock()
    store = MemoryStore(f"memory://{tmp_path.name}", clock=clock)
    alerts = Alerts([Alert(told.append, name="ops")], lambda: store)
    spec = JobSpec(name=watching.JOB_PREFIX + "ops", function=watching.JOB_PREFIX + "ops")
    store.define_jobs([spec], release="r1")
    clock.step(timedelta(hours=8))
    alerts.ensure_runs(store, [spec])
    clock.step(timedelta(hours=-8))
    [asleep] = store.occurrences(OccurrenceFilter())
    alerts.ensure_runs(store, [spec])
    [awake] = store.occurrences(OccurrenceFilter())
    assert (asleep.due_at - store.now(), awake.due_at) == (timedelta(hours=8), store.now())
