"""What subscribers are told of a scheduler, and what a subscriber cannot do to it."""

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from cronsensus import Scheduler, State, at, open_store
from cronsensus.errors import InvalidOption
from cronsensus.events import Event, PlanCarriedOut, RunEnded, RunStarted, SessionLost, StoreVerb
from cronsensus.model.occurrence import Item
from cronsensus.model.states import Origin
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import take

PATIENCE = 60.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
_names = count()


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    made = Scheduler(f"sqlite:///{tmp_path}/jobs.db", node="me", lease="5s")
    yield made
    made.stop("0s")


def on_memory() -> Scheduler:
    return Scheduler(f"memory://events-{next(_names)}", node="me")


def heard(scheduler: Scheduler, event: str | type[Event]) -> SimpleQueue[Any]:
    """Subscribe; return where the events come."""
    queue: SimpleQueue[Any] = SimpleQueue()
    scheduler.on(event, queue.put)
    return queue


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "cronsensus-events"]


# --- each event, of a real scheduler ---------------------------------------------------------------------------------


def test_a_run_that_succeeds_is_told_when_it_starts_and_when_the_store_has_its_end(scheduler):
    started, ended = heard(scheduler, "run.started"), heard(scheduler, RunEnded)
    job = scheduler.job(name="work")(lambda: 7)
    with scheduler:
        handle = job.options(key="k").enqueue()
        start, end = started.get(timeout=PATIENCE), ended.get(timeout=PATIENCE)
        assert handle.look().state is State.SUCCEEDED
        assert scheduler._part.node is not None
        session = scheduler._part.node.session
    about = {"node": "me", "job": "work", "occurrence": handle.id, "key": "k", "scheduled_for": None, "attempt": 1}
    same = about | {"token": start.token, "session": session, "origin": Origin.ENQUEUE}
    assert start == RunStarted(**same)
    assert end == RunEnded(**same, end="succeeded", seconds=end.seconds)
    assert 0 <= end.seconds < PATIENCE


def test_a_run_that_fails_is_told_as_a_retry_and_then_as_failed_with_its_error(scheduler):
    ended = heard(scheduler, "run.ended")

    def work() -> None:
        raise ValueError("no such shop")

    job = scheduler.job(name="work", retries=1, retry_delay="1ms")(work)
    with scheduler:
        job.enqueue()
        ends = [ended.get(timeout=PATIENCE) for _ in range(2)]
    assert [(end.end, end.attempt, end.error.type, end.error.message) for end in ends] == [
        ("retry", 1, "ValueError", "no such shop"),
        ("failed", 2, "ValueError", "no such shop"),
    ]


def test_a_run_that_a_stop_cuts_off_is_told_as_released(scheduler):
    started, ended = heard(scheduler, "run.started"), heard(scheduler, "run.ended")
    go = threading.Event()
    job = scheduler.job(name="work")(lambda: go.wait(PATIENCE))
    try:
        scheduler.start()
        job.enqueue()
        start = started.get(timeout=PATIENCE)
        assert scheduler.stop("0s") is False
        end = ended.get(timeout=PATIENCE)
    finally:
        go.set()
    assert (end.end, end.occurrence, end.token, end.seconds) == ("released", start.occurrence, start.token, None)


def test_a_plan_is_told_with_what_it_created(scheduler):
    plans, ended = heard(scheduler, PlanCarriedOut), heard(scheduler, "run.ended")
    scheduler.job(at(LONG_AGO), name="work")(lambda: 7)
    with scheduler:
        assert plans.get(timeout=PATIENCE) == PlanCarriedOut(node="me", job="work", created=(LONG_AGO,), verdicts=())
        assert ended.get(timeout=PATIENCE).scheduled_for == LONG_AGO


def test_a_plan_is_told_with_the_verdicts_on_what_is_not_run_and_why(scheduler):
    plans = heard(scheduler, "plan.carried_out")
    scheduler.job(at(LONG_AGO), name="work", grace="1s")(lambda: 7)
    with scheduler:
        plan = plans.get(timeout=PATIENCE)
    assert plan.created == ()
    assert [(one.first, one.state, one.reason) for one in plan.verdicts] == [(LONG_AGO, State.MISSED, "late")]


def test_a_takeover_is_told_with_the_dead_session_and_its_runs(scheduler):
    taken, ended = heard(scheduler, "takeover"), heard(scheduler, "run.ended")
    scheduler.job(name="work")(lambda: 7)
    store = scheduler.store
    store.migrate()
    [spec] = scheduler._declared.specs()
    store.define_jobs([spec], release="r1")
    store.open_session(a_session("dead"), lease=timedelta(milliseconds=200))
    store.enqueue([Item(job="work")])
    [claim] = take(store, "dead", 1, [spec.function], lease=timedelta(milliseconds=200))
    with scheduler:
        one = taken.get(timeout=PATIENCE)
        assert (one.node, one.session, one.dead_node) == ("me", "dead", "node of dead")
        assert [(run.id, run.job, run.token, run.became) for run in one.runs] == [
            (claim.id, "work", claim.token, State.PENDING)
        ]
        assert ended.get(timeout=PATIENCE).attempt == 2


def test_a_lost_session_is_told_once_with_what_it_held_and_its_runs_are_refused(scheduler):
    lost, started, ended = (heard(scheduler, name) for name in ("session.lost", "run.started", "run.ended"))
    go = threading.Event()
    job = scheduler.job(name="work", on_crash="fail")(lambda: go.wait(PATIENCE))
    other = open_store(scheduler.settings.url)
    try:
        with scheduler:
            handle = job.enqueue()
            start = started.get(timeout=PATIENCE)
            other.close_session(start.session)
            scheduler._part.node.wake()
            job.options(delay="1d").enqueue()
            one = lost.get(timeout=PATIENCE)
            assert one == SessionLost(node="me", session=start.session, runs=(handle.id,))
            go.set()
            assert ended.get(timeout=PATIENCE).end == "refused"
        assert lost.empty()
    finally:
        go.set()
        other.close()


def test_a_verb_of_the_store_is_told_with_its_time_whether_wanted_before_the_start_or_after(scheduler):
    job = scheduler.job(name="work")(lambda: 7)
    with scheduler:
        verbs = heard(scheduler, "store.verb")
        job.enqueue().result(PATIENCE)
        seen: dict[str, StoreVerb] = {}
        while not {"enqueue", "step", "occurrence"} <= seen.keys():
            one = verbs.get(timeout=PATIENCE)
            seen[one.verb] = one
        assert {(one.node, one.error) for one in seen.values()} == {("me", None)}
        assert all(0 <= one.seconds < PATIENCE for one in seen.values())
        with pytest.raises(LookupError):
            scheduler.cancel(4711, reason="test")
        while (one := verbs.get(timeout=PATIENCE)).verb != "cancel":
            pass
        assert one.error == "LookupError"
        assert scheduler.off("store.verb", verbs.put)
        assert scheduler.store.span is None


def test_a_subscriber_that_asks_the_store_is_not_told_of_that(scheduler):
    scheduler.store.migrate()
    verbs: SimpleQueue[str] = SimpleQueue()

    @scheduler.on(StoreVerb)
    def ask(event: StoreVerb) -> None:
        verbs.put(event.verb)
        scheduler.store.now()

    scheduler.store.counts()
    scheduler.store.jobs()
    assert [verbs.get(timeout=PATIENCE) for _ in range(2)] == ["counts", "jobs"]
    scheduler._bus.close(PATIENCE)
    assert verbs.empty()


def test_a_span_that_the_caller_has_set_stays():
    store = MemoryStore()
    entered = []

    def span(verb: str) -> threading.Lock:
        entered.append(verb)
        return threading.Lock()

    store.span = span
    scheduler = Scheduler(store)
    heard(scheduler, "store.verb")
    scheduler.store.now()
    assert (store.span, entered) == (span, ["now"])


# --- subscribing -----------------------------------------------------------------------------------------------------


def test_a_decorated_subscriber_stays_what_it_is_and_hears_all_kinds_until_it_is_off():
    scheduler, told = on_memory(), SimpleQueue[str]()

    @scheduler.on("*")
    def note(event: Event) -> None:
        if event.name != "store.verb":
            told.put(event.name)

    scheduler.on("run.ended", note)  # known already: still told once
    job = scheduler.job(name="work")(lambda: 7)
    with scheduler:
        job.enqueue()
        assert [told.get(timeout=PATIENCE) for _ in range(2)] == ["run.started", "run.ended"]
        assert scheduler.off("run.ended", note)
        job.enqueue()
        job.enqueue()
        assert [told.get(timeout=PATIENCE) for _ in range(2)] == ["run.started"] * 2
        assert scheduler.off("*", note)
        assert not scheduler.off("*", note)
        job.enqueue().result(PATIENCE)
    assert told.empty()


@pytest.mark.parametrize("event", ["run.endet", Event, 7, "RunEnded"])
def test_an_unknown_event_is_refused_with_those_that_there_are(event):
    with pytest.raises(InvalidOption) as refused:
        on_memory().on(event)
    known = "run.started, run.ended, takeover, plan.carried_out, session.lost, store.verb, and '*'"
    assert known in str(refused.value)
    assert ("did you mean 'run.ended'?" in str(refused.value)) == (event in {"run.endet", "RunEnded"})


def test_an_async_subscriber_is_refused_with_what_to_write():
    async def note(event: Event) -> None: ...

    with pytest.raises(InvalidOption, match=r"is async.*call_soon_threadsafe"):
        on_memory().on("run.ended", note)
    with pytest.raises(InvalidOption, match="pass a function"):
        on_memory().on("run.ended", 7)  # type: ignore[call-overload]


# --- what a subscriber cannot do -------------------------------------------------------------------------------------


def test_nobody_subscribed_starts_no_thread_and_measures_no_verb(scheduler):
    before = threads()
    job = scheduler.job(name="work")(lambda: 7)
    with scheduler:
        job.enqueue().result(PATIENCE)
        assert scheduler.store.span is None
        assert threads() == before
    assert scheduler._bus._queue.empty()


def test_a_subscriber_that_blocks_delays_no_run_and_what_overflows_is_dropped_and_counted(
    scheduler, monkeypatch, caplog
):
    monkeypatch.setattr("cronsensus.bus.MOST_WAITING", 2)
    monkeypatch.setattr("cronsensus.lifecycle.lifecycle.LAST_EVENTS", 0.05)
    inside, go = threading.Event(), threading.Event()
    told = []

    def block(event: RunEnded) -> None:
        told.append(event.key)
        inside.set()
        go.wait(PATIENCE)

    scheduler.on(RunEnded, block)
    job = scheduler.job(name="work")(lambda: 7)
    with scheduler:
        job.options(key="0").enqueue().result(PATIENCE)
        assert inside.wait(PATIENCE)
        for number in range(1, 6):
            job.options(key=str(number)).enqueue().result(PATIENCE)
    try:
        assert scheduler.events_dropped == 3
        assert threads(), "a stop waits for it for a moment only"
        lines = [one.getMessage() for one in caplog.records if one.name == "cronsensus.events"]
        assert len(lines) == 1, "once a minute at most"
        assert lines[0].startswith("1 events were dropped so far, because subscribers do not keep up; now ")
        assert lines[0].endswith("block is being called")
    finally:
        go.set()
    scheduler._bus.close(PATIENCE)
    assert told == ["0", "1", "2"]


def test_a_subscriber_that_raises_is_logged_once_and_goes_on_being_told(caplog):
    scheduler = on_memory()
    told = []

    @scheduler.on("run.ended")
    def fail(event: RunEnded) -> None:
        told.append(event.end)
        raise SystemExit("not the scheduler's")

    after = heard(scheduler, "run.ended")
    job = scheduler.job(name="work")(lambda: 7)
    with scheduler:
        for _ in range(3):
            job.enqueue().result(PATIENCE)
    assert told == ["succeeded"] * 3
    assert after.qsize() == 3
    [record] = [one for one in caplog.records if one.name == "cronsensus.events"]
    assert (record.levelno, "fail raised when it was told of run.ended" in record.getMessage()) == (logging.ERROR, True)
    assert record.exc_info is not None
    assert record.exc_info[0] is SystemExit


def test_a_stop_returns_when_subscribers_were_told_and_the_thread_has_ended():
    scheduler, told = on_memory(), []
    before = threads()
    scheduler.on(RunEnded, lambda event: told.append(event.key))
    job = scheduler.job(name="work")(lambda: 7)
    for key in ("first", "second"):
        with scheduler:
            job.options(key=key).enqueue().result(PATIENCE)
        assert told[-1] == key
        assert threads() == before


def test_a_subscriber_may_stop_its_scheduler():
    scheduler, stopped = on_memory(), threading.Event()

    @scheduler.on("run.ended")
    def leave(event: RunEnded) -> None:
        scheduler.stop("0s")
        stopped.set()

    job = scheduler.job(name="work")(lambda: 7)
    scheduler.start()
    job.enqueue()
    assert stopped.wait(PATIENCE)
    assert not scheduler.started
