"""Who is told of what: once, by one node, whatever dies, hangs or refuses."""

import hashlib
import hmac
import re
import subprocess
import sys
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
from cronsensus.alerts.conditions import Expected, look_at_jobs, look_at_nodes, look_at_waiting
from cronsensus.alerts.events import MOST_SEEN, Event, begin, look
from cronsensus.alerts.muting import mute, muted, unmute
from cronsensus.alerts.sending import Message
from cronsensus.alerts.watching import Alerts
from cronsensus.alerts.words import MOST_TOLD, subject, text
from cronsensus.clock import ManualClock
from cronsensus.errors import DuplicateJob, InvalidOption
from cronsensus.membership.liveness import started_at
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.boot import host_identity
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import a_session
from tests.alerts.receivers import mails, webhooks
from tests.hand_cluster import HandCluster


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watching, "EVERY", timedelta(seconds=0.2))


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


def wait_until(what, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


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
            time.sleep(0.5)
            run = jobs[0][0].enqueue(7)
            jobs[0][1].enqueue()
            wait_until(lambda: got.bodies)
            jobs[1][0].enqueue(8)
            wait_until(lambda: len(got.events) == 2)
            time.sleep(0.6)
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
        time.sleep(1)
        [watch] = scheduler.store.occurrences(OccurrenceFilter(job="cronsensus:alert:ops"))
        assert watch.state in {State.PENDING, State.RUNNING}
        assert watch.attempt <= 1
        assert len(scheduler.store.runs(watch.id)) <= 1


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
            time.sleep(0.6)
            after.enqueue("bad", 2)
            wait_until(lambda: told)
            time.sleep(0.5)
    assert [one.reason for one in told] == ["ValueError: 2"]


def test_a_missed_time_is_told_with_its_nominal_time():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("backup", "1h", catch_up_window="90m")
    mark = begin(cluster.store)
    cluster.advance(5 * 3600)
    cluster.fire()
    events, then = look(cluster.store, mark)
    missed = [one for one in events if one.event == "missed"]
    assert [(one.job, one.count) for one in missed] == [("backup", 4)] or missed[0].count in {3, 4}
    assert "backup did not run at" in text(missed, lambda _, at: at.isoformat())
    assert "more times" in text(missed, lambda _, at: at.isoformat())
    assert look(cluster.store, then)[0] == []


def test_a_run_that_failed_late_and_out_of_order_is_found_late():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("work")
    mark = begin(cluster.store)
    cluster.store.enqueue([Item(job="work") for _ in range(3)])
    claims = cluster.claim()
    cluster.advance(30)
    cluster.finish(claims[2], State.FAILED)
    events, mark = look(cluster.store, mark)
    assert [one.run for one in events] == [claims[2].id]
    cluster.finish(claims[0], State.FAILED)  # of an earlier id, in the same moment
    events, mark = look(cluster.store, mark)
    assert [one.run for one in events] == [claims[0].id]
    for _ in range(2):
        cluster.advance(300)
        events, mark = look(cluster.store, mark)
        assert events == []
    assert mark.seen == {}


def test_of_very_many_none_is_told_twice(monkeypatch):
    monkeypatch.setattr("cronsensus.alerts.events.MOST_SEEN", 3)
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.declare("work")
    mark = begin(cluster.store)
    cluster.store.enqueue([Item(job="work") for _ in range(6)])
    claims = cluster.claim()
    cluster.advance(5)
    for claim in claims:
        cluster.finish(claim, State.FAILED)  # in the moment of the look, and it may be after it
    events, mark = look(cluster.store, mark)
    assert len(events) == 6
    for seconds in (0, 1, 60, 60):
        cluster.advance(seconds)
        events, mark = look(cluster.store, mark)
        assert events == []


def test_a_node_that_is_gone_is_told(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=["node_lost"], name="ops")])
    with scheduler:
        time.sleep(0.4)
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
        time.sleep(0.3)
        batch = work.trigger_now()
        wait_until(lambda: told)
        time.sleep(0.5)
    assert [one.run for one in told] == [batch.id]


def test_a_job_that_has_not_succeeded_for_too_long_is_told_once_and_when_it_is_well_again(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECKED", timedelta(seconds=0.1))
    told: list[Event] = []
    events = ["overdue", "recovered", "failed"]
    scheduler, broken = Scheduler(url, alerts=[Alert(told.extend, on=events, name="ops")]), [True]

    @scheduler.job(overdue="700ms")
    def backup() -> None:
        if broken:
            raise OSError("disk full")

    with scheduler:
        backup.enqueue().wait("10s")
        wait_until(lambda: sorted(one.event for one in told) == ["failed", "overdue"])
        time.sleep(0.6)
        broken.clear()
        backup.enqueue().wait("10s")
        wait_until(lambda: len(told) >= 4)
    assert sorted(one.event for one in told) == ["failed", "overdue", "recovered", "recovered"]
    [overdue] = [one for one in told if one.event == "overdue"]
    assert overdue.reason == "no success for 700ms: it has never succeeded"
    well = {one.reason for one in told if one.event == "recovered"}
    assert well == {"it has succeeded again", "it has succeeded at last"}


def test_a_run_that_takes_too_long_is_told_once(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECKED", timedelta(seconds=0.1))
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on="slow", name="ops")])

    @scheduler.job(slow="300ms")
    def report() -> None:
        time.sleep(1.5)

    with scheduler:
        time.sleep(0.3)
        run = report.enqueue()
        run.wait("10s")
        time.sleep(0.3)
    assert [(one.event, one.run, one.reason) for one in told] == [("slow", run.id, "it has run for more than 300ms")]


def test_failures_in_a_row_are_told_as_one_and_its_end(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECKED", timedelta(seconds=0.1))
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=["failed", "recovered"], in_row=3, name="ops")])

    @scheduler.job()
    def sync(good: bool) -> None:
        if not good:
            raise OSError("no route")

    def run(*results: bool) -> None:
        for good in results:
            sync.enqueue(good).wait("10s")
        time.sleep(0.6)

    with scheduler:
        time.sleep(0.3)
        run(False, False, True, False, False)
        assert told == []
        run(False, False)
        run(False, True)
        wait_until(lambda: len(told) == 2)
        run(False, False, False)
        wait_until(lambda: len(told) == 3)
    assert [one.event for one in told] == ["failed", "recovered", "failed"]
    assert told[2].reason == "3 times in a row, last: OSError: no route"


def test_a_run_that_another_process_took_over_is_told_once():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.join("node-2")
    cluster.declare("work")
    mark = begin(cluster.store)
    cluster.store.enqueue([Item(job="work")])
    [claim] = cluster.claim("session-of-node-1")
    assert look(cluster.store, mark, takeovers=True)[0] == []
    cluster.store.reclaim(["session-of-node-1"])
    cluster.advance(5)
    cluster.claim("session-of-node-2")
    events, mark = look(cluster.store, mark, takeovers=True)
    found = [one for one in events if one.event == "taken_over"]
    assert [(one.job, one.run) for one in found] == [("work", claim.id)]
    for _ in range(3):  # it goes on running
        cluster.advance(100)
        events, mark = look(cluster.store, mark, takeovers=True)
        assert [one for one in events if one.event == "taken_over"] == []


def test_an_idle_node_whose_process_ended_is_told_before_its_lease_has_run_out_and_once(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    spec = replace(a_session("gone"), host=host_identity(), pid=ended.pid, pid_started=started_at(ended.pid) or 0)
    store.open_session(spec, lease=timedelta(minutes=10))
    assert look_at_nodes(store, {}, store.now()) == ([], {})
    ended.communicate()
    [event], wrong = look_at_nodes(store, {}, store.now())
    assert (event.event, event.node) == ("node_lost", "node of gone")
    assert look_at_nodes(store, wrong, store.now()) == ([], wrong)
    alerts = Alerts([], lambda: store)
    told: list[Event] = []
    mark = structs.replace(begin(store), wrong=wrong)
    store.reclaim(["gone"])
    alerts._told(Alert(told.extend, on="node_lost"), store, mark)
    assert told == []


def test_a_run_that_was_slow_and_has_ended_is_told(url, monkeypatch):
    monkeypatch.setattr(watching, "CHECKED", timedelta(seconds=2))
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on="slow", name="ops")])

    @scheduler.job(slow="100ms")
    def report(seconds: float) -> None:
        time.sleep(seconds)

    with scheduler:
        time.sleep(0.5)
        run = report.enqueue(0.4)
        report.enqueue(0).wait("10s")
        wait_until(lambda: told)
        time.sleep(2.5)
    assert [one.run for one in told] == [run.id]


def test_times_that_no_node_decides_and_work_that_waits_are_told_once_and_when_that_is_over():
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("backup", "1h")
    cluster.declare("work")
    cluster.fire()

    def seen(begun: dict[str, int]) -> tuple[list[Event], dict[str, int]]:
        now = cluster.store.now()
        return look_at_waiting(cluster.store, begun, now, stalled=True, backlog=timedelta(minutes=10))

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
    assert look_at_waiting(cluster.store, begun, now, stalled=False, backlog=timedelta(minutes=10)) == ([], begun)


def test_of_very_many_jobs_that_are_overdue_none_is_told_twice():
    cluster = HandCluster()
    names = [f"job-{number}" for number in range(1_100)]
    cluster.store.define_jobs([JobSpec(name=name, function=name, trigger=None) for name in names], release="r1")
    cluster.advance(60)
    expected = {name: Expected(within=timedelta(seconds=1)) for name in names}
    events, wrong = look_at_jobs(cluster.store, expected, {}, cluster.store.now())
    assert len(events) == len(names)
    assert look_at_jobs(cluster.store, expected, wrong, cluster.store.now()) == ([], wrong)


# --- many, muted, by mail ---------------------------------------------------------------------------------------------


def test_ten_thousand_failures_make_few_messages(sqlite_url):
    with webhooks() as got:
        scheduler = Scheduler(sqlite_url, concurrency=50, alerts=[Alert(got.url)])

        @scheduler.job()
        async def bad(number: int) -> None:
            raise ValueError(number)

        with scheduler:
            time.sleep(0.4)
            scheduler.enqueue_many(bad.call(number) for number in range(2_000))
            wait_until(lambda: scheduler.store.counts(limit=5).pending <= 1, 60)
            wait_until(lambda: len(got.bodies) >= 4 or sum(one["total"] for one in got.bodies) == 2_000, 30)
            time.sleep(0.6)
        assert 1 <= len(got.bodies) <= 4
        assert all(len(one["events"]) <= MOST_TOLD for one in got.bodies)


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


def test_many_events_are_told_in_one_line_and_the_rest_is_counted():
    from cronsensus.testing.conformance.fixtures import START

    events = [Event(key=str(n), event="failed", at=START, job=f"job-{n % 3}", run=n) for n in range(60)]
    assert subject(events) == "60 failed of 3 jobs"
    lines = text(events, lambda _, at: at.isoformat()).splitlines()
    assert len(lines) == MOST_TOLD + 1
    assert lines[-1].startswith("… and 10 more: job-")


def test_of_a_muted_job_nobody_is_told(url):
    told: list[Event] = []
    scheduler = Scheduler(url, alerts=[Alert(told.extend, name="ops")])

    @scheduler.job()
    def bad(number: int) -> None:
        raise ValueError(number)

    with scheduler:
        time.sleep(0.4)
        mute(scheduler.store, "bad", timedelta(hours=2), by="ada", why="new disk")
        assert [(one.job, one.by, one.reason) for one in muted(scheduler.store)] == [("bad", "ada", "new disk")]
        bad.enqueue(1).wait("10s")
        time.sleep(0.6)
        assert unmute(scheduler.store, "bad", by="ada", why="")
        bad.enqueue(2).wait("10s")
        wait_until(lambda: told)
    assert [one.reason for one in told] == ["ValueError: 2"]


def test_a_mute_that_cannot_be_does_not_end_the_one_that_there_is():
    store = open_store("memory://muted-too-long")
    mute(store, "bad", timedelta(hours=2), by="ada", why="new disk")
    with pytest.raises(InvalidOption, match="36525 days"):
        mute(store, "bad", timedelta(days=40_000), by="ada", why="for ever")
    assert [one.reason for one in muted(store)] == ["new disk"]


def test_what_is_still_wrong_when_its_job_is_not_muted_any_more_is_told(url):
    told: list[Event] = []
    on = ["failed", "recovered"]
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=on, in_row=2, name="ops")])

    @scheduler.job()
    def sync() -> None:
        raise OSError("no route")

    with scheduler:
        time.sleep(0.4)
        mute(scheduler.store, "sync", timedelta(hours=2), by="ada", why="new disk")
        for _ in range(3):
            sync.enqueue().wait("10s")
        time.sleep(0.6)
        assert unmute(scheduler.store, "sync", by="ada", why="")
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
            time.sleep(0.4)
            backup.trigger_now()
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
            time.sleep(0.4)
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
            time.sleep(0.4)
            bad.enqueue(1)
            wait_until(lambda: got.bodies, 30)
            time.sleep(0.6)
        assert [one["reason"] for one in got.events] == ["ValueError: 1"]


def test_a_message_that_is_sent_again_is_the_same_whatever_has_happened_since(url, monkeypatch):
    sent: list[tuple[str, list[int | None]]] = []

    def lost(target: Any, message: Message, secret: str | None) -> None:
        sent.append((message.id, [one.run for one in message.events]))
        if len(sent) == 1:
            runs.append(bad.enqueue(2).wait("10s").id)
            raise OSError("the answer is lost")

    monkeypatch.setattr(watching, "send", lost)
    scheduler = Scheduler(url, alerts=[Alert("https://x.example", name="ops")])

    @scheduler.job()
    def bad(number: int) -> None:
        raise ValueError(number)

    with scheduler:
        time.sleep(0.4)
        runs = [bad.enqueue(1).id]
        wait_until(lambda: len(sent) == 3)
    assert sent[0] == sent[1]
    assert [told for _, told in sent[1:]] == [[runs[0]], [runs[1]]]


PROGRAM = """
import sys
from datetime import timedelta
from cronsensus import Alert, Scheduler, every
from cronsensus.alerts import watching
watching.EVERY, watching.AT_MOST = timedelta(seconds=0.5), 1000
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
                time.sleep(2)
                killed = nodes.pop(0)
                killed.kill()
                killed.wait()
                nodes.append(start())
            time.sleep(2)
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
    monkeypatch.setattr(watching, "CHECKED", timedelta(seconds=0.1))
    told: list[Event] = []
    on = ["failed", "overdue", "recovered", "slow"]
    scheduler = Scheduler(url, alerts=[Alert(told.extend, on=on, name="ops")], concurrency=3)

    @scheduler.job(items=range(6), stop_after=1, overdue="1500ms", slow="400ms")
    def close(number: int) -> None:
        time.sleep(0.5 + 0.2 * number)
        if number == 0:
            raise ValueError("no shop 0")

    with scheduler:
        batch = close.trigger_now()
        batch.wait("10s")
        wait_until(lambda: len(told) >= 3)
        time.sleep(2)
    assert sorted((one.event, one.run) for one in told if one.run) == [("failed", batch.id), ("slow", batch.id)]
    assert [one.event for one in told if not one.run] == ["overdue"]


def test_what_is_slow_is_remembered_while_it_is_and_no_longer():
    store = open_store("memory://slow-and-seen")
    begun = begin(store)
    many = {f"run:{number}": begun.at for number in range(MOST_SEEN + 1)}
    slow = {"slow:1": begun.at}
    assert look(store, structs.replace(begun, seen=many | slow))[1].seen == slow
    checks = Alerts([], lambda: store, lambda: {"gone": Expected(takes=timedelta(seconds=1))})
    assert checks._conditions(Alert(print), store, structs.replace(begun, seen=slow), [])[1].seen == {}


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
    spec = JobSpec(name=watching.JOB + "ops", function=watching.JOB + "ops")
    store.define_jobs([spec], release="r1")
    clock.step(timedelta(hours=8))
    alerts.ensure(store, [spec])
    clock.step(timedelta(hours=-8))
    [asleep] = store.occurrences(OccurrenceFilter())
    alerts.ensure(store, [spec])
    [awake] = store.occurrences(OccurrenceFilter())
    assert (asleep.due_at - store.now(), awake.due_at) == (timedelta(hours=8), store.now())
