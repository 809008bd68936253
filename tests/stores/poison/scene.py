"""A store with healthy and with doomed rows, and a node that has to go on whatever becomes of the doomed ones.

Doomed are the jobs ``bad`` and ``worse`` with all that belongs to them, the sessions ``holder`` and ``gone``, the lock
``doomed`` and the release ``r0``. Healthy are the jobs ``good`` and ``queue``, the session ``dead``, which left a run
behind, and the node that is turned here.
"""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec import structs

from cronsensus import State, every
from cronsensus.errors import StoreCorrupt
from cronsensus.membership.lease import SessionLease
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.model.ending import Ending
from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, LogLine, Note, OccurrenceFilter, RunError
from cronsensus.model.plan import Plan, VerdictRange
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.model.step import Done, Step, Want
from cronsensus.node.round import Round
from cronsensus.node.settings import NodeSettings
from cronsensus.planning import plan
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import a_session, state_of
from cronsensus.testing.conformance.steps import an_end, carry_out, say, settle, take
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import RecordingExecutor, registered

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
LEASE = timedelta(seconds=10)
EVERY_MINUTE = every("1m", start=START)
DOOMED = ("bad", "worse")


def _job(name: str, *, scheduled: bool = False, **policies: Any) -> JobSpec:
    return JobSpec(
        name=name,
        function=name,
        trigger=EVERY_MINUTE if scheduled else None,
        policies=Policies.read({"keep": DAY, **policies}),
    )


JOBS = [
    _job("good", scheduled=True),
    _job("queue"),
    _job("bad", scheduled=True, concurrency=2),
    _job("worse", retries=3, concurrency=5),
]


def furnish(store: Store, clock: ManualClock) -> None:
    """Fill an empty store, two days long; at the end the clock stands just before a full minute."""
    store.migrate()
    store.define_jobs([_job("old")], release="r0")
    store.define_jobs(JOBS, release="r1")
    long = 30 * DAY
    for name in ("holder", "gone", "worker"):
        store.open_session(a_session(name), lease=long)
    assert store.lock("doomed", "somebody", ttl=long, session="holder")
    assert store.lock("doomed alone", "somebody", ttl=long)
    for job in ("bad", "good"):
        store.pause(job, by="ann", why="to have a pause")
        clock.advance(SECOND)
        store.resume(job, by="ann")
    # What is over: by a success, a failure, a retry; and times that nobody ran.
    for job in ("queue", "worse"):
        _run(store, job, "done", an_end(id=0, token=0, state=State.SUCCEEDED, result="1"))
        _run(store, job, "broken", an_end(id=0, token=0, state=State.FAILED, error=RunError(type="E", message="m")))
        _run(store, job, "again", an_end(id=0, token=0, state=State.PENDING, retry_in=100 * DAY))
    store.close_session("gone")
    clock.advance(2 * MINUTE)
    for state in store.look().jobs:
        late = VerdictRange(first=START + MINUTE, last=START + MINUTE, state=State.MISSED, reason="late", count=1)
        planned = plan(state, store.now())
        carry_out(store, [Plan(**{name: getattr(planned, name) for name in Plan.__slots__} | {"verdicts": (late,)})])
    for claim in take(store, "worker", 10, ["good"], lease=long):
        settle(store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
    clock.advance(2 * DAY - 2 * MINUTE - 3 * SECOND)
    # What is under way.
    for session, job, key in (("holder", "worse", "held"), ("dead", "queue", "left"), ("holder", "worse", "stopped")):
        if session == "dead":
            store.open_session(a_session("dead"), lease=LEASE)
        store.enqueue([Item(job=job, key=key, kwargs={"a": [1, "ü"]})])
        [claim] = take(store, session, 10, [job], lease=LEASE)
        say(store, [Note(claim.id, claim.token, (1.0, 2.0), (LogLine(store.now(), "INFO", "a line"),))])
        if key == "stopped":
            store.cancel(claim.id, by="ann", why="enough")
    store.close_session("worker")
    store.enqueue([Item(job="worse", key=key, priority=7, expires_in=DAY) for key in ("first", "second")])
    store.enqueue([Item(job="worse", key="later", delay=DAY, expires_in=DAY)])
    clock.advance(SECOND)


def _run(store: Store, job: str, key: str, outcome: End) -> None:
    session = "gone" if job == "worse" else "worker"
    store.enqueue([Item(job=job, key=key, args=(1,))])
    [claim] = take(store, session, 1, [job], lease=30 * DAY)
    say(store, [Note(claim.id, claim.token, (1.0, 2.0), (LogLine(store.now(), "INFO", "a line"),))])
    assert settle(store, [structs.replace(outcome, id=claim.id, token=claim.token)])[0].accepted


# --- a node ---------------------------------------------------------------------------------------------------------


class Node:
    """A node that is turned by hand, and whose runs end as soon as they have begun."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.ran: Counter[tuple[str, str]] = Counter()
        self._hands = RecordingExecutor()
        settings = NodeSettings(name="node", lease=LEASE, concurrency=20)
        self._keeper = SessionRenewer(
            clock,
            lease=LEASE,
            holds=lambda: bool(self.round.active_runs),
            on_renewal=self._on_renewal,
        )
        self.round = Round(
            store,
            clock,
            settings,
            registry=registered(*(spec.function for spec in JOBS)),
            executors={"thread": self._hands},
            new_session=self._session,
            declare=lambda store: False,
            on_session=self._keeper.keep_session,
        )

    def _session(self) -> SessionSpec:
        return a_session(f"node {len(self.ran)} {self.clock.monotonic()}")

    def _on_renewal(self, lease: SessionLease, renewal: Renewal, *_: object) -> None:
        self.round.active_runs.cancel_runs(renewal.cancel)

    def turn(self, rounds: int, step: timedelta = SECOND) -> None:
        """Turn the crank, so much of the store's clock at a time."""
        for _ in range(rounds):
            self.round.run_round()
            self._keeper.renew(self.store)
            while self._hands.calls:
                call = self._hands.calls.pop()
                self.ran[call.claim.job, call.claim.key] += 1
                self.round.active_runs.receive_ending(call, Ending(kind="returned"))
            self.clock.advance(step)


@contextmanager
def told_once() -> Any:
    """Gather what is logged as an error; fail if anything is said twice by one place for one reason."""

    class Gather(logging.Handler):
        def __init__(self) -> None:
            super().__init__(logging.ERROR)
            self.lines: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.lines.append(record.getMessage())

    gather, logger = Gather(), logging.getLogger("cronsensus")
    logger.addHandler(gather)
    try:
        yield gather.lines
    finally:
        logger.removeHandler(gather)
    twice = [line for line, count in Counter(gather.lines).items() if count > 1]
    assert not twice, twice


def goes_on(store: Store, clock: ManualClock) -> None:
    """Turn a node on a poisoned store, and see that all that is healthy goes on; then ask for everything there is.

    Raises:
        AssertionError: something healthy stands still, or a read fails that is not of the one doomed row.
    """
    node = Node(store, clock)
    with told_once():
        node.round.open_session()
        assert store.enqueue([Item(job="queue", key="new")])[0].created
        node.turn(8, 2 * SECOND)
        assert node.round.stats.store_errors == 0, "a round failed"
        assert node.ran["queue", "new"] == 1, node.ran
        assert node.ran["queue", "left"] == 1, node.ran
        assert any(job == "good" for job, _ in node.ran), node.ran
        before = sum(count for (job, _), count in node.ran.items() if job == "good")
        node.turn(16, 5 * SECOND)
        assert sum(count for (job, _), count in node.ran.items() if job == "good") > before, node.ran
        assert node.round.stats.sessions == 1
        _reads(store)
        old = {one.key for one in store.occurrences(OccurrenceFilter(job="queue"))}
        assert {"done", "broken"} <= old
        for _ in range(4):
            store.prune(limit=5)
        assert not {"done", "broken"} & {one.key for one in store.occurrences(OccurrenceFilter(job="queue"))}
        node.turn(2)
        assert node.round.stats.store_errors == 0, "a round failed after pruning"
        assert [node.round.run_round() for _ in range(4)][-1] > 0.01, "the node never sleeps"
        _steps(store)
        _defines(store)
        node.round.close_session()


def _steps(store: Store) -> None:
    """Say in one step what concerns all jobs, and see that the healthy part of it is done."""
    store.open_session(a_session("stepping"), lease=DAY)
    [made] = store.enqueue([Item(job="queue", key="stepped")])
    done = _step(store)
    assert made.id in {one.id for one in done.claims}
    done = _step(store, *(an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in done.claims))
    assert made.id in {one.id for one in done.settled if one.accepted}
    store.close_session("stepping")


def _step(store: Store, *outcomes: End) -> Done:
    view = store.look()
    want = Want(limit=100, functions=[spec.function for spec in JOBS], lease=DAY)
    return store.step("stepping", Step(ends=outcomes, plans=tuple(plan(job, view.now) for job in view.jobs), want=want))


def _defines(store: Store) -> None:
    """Define all jobs as before, then anew: that is also how a job is mended."""
    store.define_jobs(JOBS, release="r1", complete=True)
    store.define_jobs([replace(spec, args=("anew",)) for spec in JOBS], release="r1", complete=True)
    for job in ("good", "queue"):
        view = store.job(job)
        assert view is not None
        assert view.spec.args == ("anew",)
    store.define_jobs([spec for spec in JOBS if spec.name not in DOOMED], release="r1", complete=True)


def _reads(store: Store) -> None:
    assert {"good", "queue"} <= {view.spec.name for view in store.jobs(retired=True)}
    assert store.look(ahead=DAY).jobs
    found = store.occurrences(OccurrenceFilter(), limit=1000)
    assert {"done", "broken", "left", "new"} <= {one.key for one in found if one.job == "queue"}
    for job in ("good", "queue"):
        assert store.job(job)
        store.history(job), store.ranges(job)
        assert store.history(job).eras
        assert store.occurrences(OccurrenceFilter(job=job))
    assert state_of(store, "good")
    assert len(store.history("good").pauses) == 1
    assert len(store.ranges("good")) >= 1
    for one in found:
        if one.job == "queue":
            assert store.occurrence(one.id)
            store.runs(one.id)
            store.logs(one.id)
    assert store.runs(*(one.id for one in found))
    last = store.last_of(["good", "queue"])
    assert {one.id for one in found if one.job == "queue"} <= {one.id for one in last["queue"].glances}
    assert len(last["good"].ranges) >= 1
    assert store.ran_since(store.now() - 365 * DAY)
    assert [view for view in store.sessions(ended=True) if view.id == "dead"]
    assert store.sessions()
    store.locks()
    store.counts()
    assert [entry for entry in store.trail() if entry.target == "good"]
    assert store.trail(target="good")
    store.describe()
    store.check()
    for job in DOOMED:
        by_name: tuple[Callable[[str], object], ...] = (
            store.job, store.history, store.ranges,
        )  # fmt: skip
        for read in by_name:
            may_be_corrupt(partial(read, job))
        for one in may_be_corrupt(partial(store.occurrences, OccurrenceFilter(job=job))) or ():
            by_id: tuple[Callable[[int], object], ...] = (store.occurrence, store.runs, store.logs)
            for look in by_id:
                may_be_corrupt(partial(look, one.id))
        may_be_corrupt(partial(store.trail, target=job))


def may_be_corrupt(read: Callable[[], Any]) -> Any:
    """Read; the only error that there may be says that a row cannot be read."""
    try:
        return read()
    except StoreCorrupt as error:
        assert str(error)  # noqa: PT017
        return None
