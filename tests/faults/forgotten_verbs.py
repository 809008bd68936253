"""What each verb of a store is after the store forgot it: cases that are told when to go on.

A case is a generator. It prepares, and yields; the place remembers. It does what will be lost, and yields; the place
forgets, while handles and sessions live. Then it looks. All cases of a place do each part together, so that a failover
is paid once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronsensus.errors import LeaseLost, OccurrenceForgotten, StoreUnavailable
from cronsensus.jobs.handle import Handle
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobSpec, JobState, Policies
from cronsensus.model.occurrence import Claim, Enqueued, Item, Note, Settled
from cronsensus.model.plan import Plan, PlannedOccurrence
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import State
from cronsensus.opened.waits import Waits
from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance.fixtures import state_of
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, say, settle, take, win_named
from cronsensus.triggers import Trigger, every
from tests.servers.forgetting import Forgetful

LEASE = timedelta(minutes=10)
MOST_TRIES = 5
FUNCTIONS = ("queue", "send_email", "charge_card", "tick")


class Nodes:
    """Two handles on a namespace of the case's own, as two processes have them, each with a session."""

    def __init__(self, place: Forgetful, namespace: str) -> None:
        self._place, self._namespace = place, namespace
        self.a, self.b = self._open(), self._open()
        self.a.migrate()
        self.waits = Waits()
        self.mine, self.other = self.session(self.a), self.session(self.b)

    def _open(self) -> Store:
        return open_store(self._place.url, namespace=self._namespace)

    def close(self) -> None:
        """Close both handles."""
        self.a.close()
        self.b.close()

    def meet_again(self) -> None:
        """Find out that the connections were cut: a lock is not asked for again by itself."""
        for store in (self.a, self.b):
            store.now()

    def open_again(self) -> None:
        """Close both handles and open others, as processes that start again."""
        self.close()
        self.a, self.b = self._open(), self._open()

    @property
    def store(self) -> Store:
        """What a ``Handle`` asks its scheduler for."""
        return self.a

    def session(self, store: Store) -> str:
        """Open a session; return its id."""
        spec = SessionSpec(
            id=new_id(), node="n", host="h", pid=1, pid_started=1, release="r1", concurrency=9, version="0", functions=1
        )
        for _ in range(MOST_TRIES):
            with contextlib.suppress(StoreUnavailable):  # its first connection, at a server that has just begun
                store.open_session(spec, lease=LEASE)
                return spec.id
        raise AssertionError("no session can be opened")

    def define(self, store: Store, name: str, function: str = "queue", **more: Any) -> None:
        """Define a job at run time."""
        trigger: Trigger | None = more.pop("trigger", None)
        args = more.pop("args", ())
        policies = Policies.read(more)
        spec = JobSpec(
            name=name, function=function, trigger=trigger, args=args, kwargs={}, policies=policies, source="runtime"
        )
        store.define_jobs([spec], release="r1")

    def enqueue(self, key: str, store: Store | None = None, job: str = "queue") -> Enqueued:
        """Enqueue work under a key."""
        return (store or self.a).enqueue([Item(job=job, key=key)])[0]

    def claim(self, store: Store, session: str) -> Claim:
        """Claim the one thing that waits."""
        [claim] = take(store, session, 9, FUNCTIONS, lease=LEASE)
        return claim

    def claim_a(self) -> Claim:
        """Claim the one thing that waits, by the first node."""
        return self.claim(self.a, self.mine)

    def claim_b(self) -> Claim:
        """Claim the one thing that waits, by the second node."""
        return self.claim(self.b, self.other)

    def finish(self, store: Store, claim: Claim, result: str = "1", state: State = State.SUCCEEDED) -> Settled:
        """Say how a run ended."""
        outcome = an_end(id=claim.id, token=claim.token, session=claim.session, state=state, result=result)
        return settle(store, [outcome])[0]

    def state(self, store: Store, job: str) -> JobState:
        """Return what planning needs to know of a job."""
        found = state_of(store, job)
        assert found is not None
        return found

    def plan(self, store: Store, job: str, *times: datetime) -> Plan:
        """Return a plan for nominal times."""
        state = self.state(store, job)
        last = times[-1] if times else state.watermark + timedelta(microseconds=1)
        return Plan(
            job_id=state.id, job=job, revision=state.revision, watermark_seen=state.watermark, active_seen=state.active,
            occurrences=tuple(PlannedOccurrence(time, state.watermark, None) for time in times), verdicts=(),
            cancel_previous=False, watermark=last, next_due=None, definition=state.definition,
        )  # fmt: skip

    def refuses(self, store: Store, claim: Claim) -> None:
        """Assert that nothing is written under a claim that is not current."""
        before = store.occurrence(claim.id)
        assert not self.finish(store, claim, "stale").accepted
        assert give_back(store, [claim]) == [False]
        assert say(store, [Note(claim.id, claim.token, (1.0, 2.0), (), claim.session)]) == [False]
        assert store.occurrence(claim.id) == before

    def nothing_runs(self) -> None:
        """Assert that no session holds anything."""
        assert [one.id for one in self.a.sessions() if one.holds] == []


Case = Callable[[Nodes], Iterator[None]]
CASES: list[Case] = []


def case(written: Case) -> Case:
    """List a case."""
    CASES.append(written)
    return written


# --- definitions ------------------------------------------------------------------------------------------------------


@case
def defined_job(nodes: Nodes) -> Iterator[None]:
    yield
    nodes.define(nodes.a, "email:welcome", "send_email", args=["anna"])
    nodes.enqueue("1", job="email:welcome")
    nodes.finish(nodes.a, nodes.claim_a())
    assert nodes.a.job("email:welcome") is not None
    yield
    assert nodes.a.job("email:welcome") is None
    nodes.define(nodes.b, "charge:7", "charge_card", args=["bert", 100])
    nodes.enqueue("1", nodes.b, "charge:7")
    assert nodes.a.job("charge:7") is not None
    claim = nodes.claim_a()
    assert (claim.job, claim.spec.function, list(claim.args)) == ("charge:7", "charge_card", ["bert", 100])
    nodes.finish(nodes.a, claim)
    again = nodes.a.trigger("charge:7", by="test")
    found = nodes.a.occurrence(again.id)
    assert found is not None
    assert list(found.args) == ["bert", 100]


@case
def changed_trigger(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "tick", "tick", trigger=every("1h"), args=["v1"])
    nodes.state(nodes.b, "tick")
    yield
    nodes.define(nodes.a, "tick", "tick", trigger=every("1s"), args=["v2"])
    planned = nodes.plan(nodes.a, "tick")
    yield
    nodes.define(nodes.b, "tick", "tick", trigger=every("1d"), args=["v3"])
    for store in (nodes.a, nodes.b):
        state = nodes.state(store, "tick")
        assert (list(state.spec.args), state.spec.trigger) == (["v3"], every("1d"))
        assert state.eras[-1].trigger == every("1d")
    assert carry_out(nodes.a, [replace(planned, watermark_seen=nodes.state(nodes.a, "tick").watermark)]) == [False]
    assert carry_out(nodes.a, [nodes.plan(nodes.a, "tick")]) == [True]


@case
def retired_job(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    yield
    assert nodes.a.retire("queue", by="test", why="test")
    yield
    nodes.enqueue("1")
    nodes.finish(nodes.b, nodes.claim_b())
    assert nodes.a.retire("queue", by="test", why="test")


@case
def paused_job(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "tick", "tick", trigger=every("1h"))
    yield
    assert nodes.a.pause("tick", by="test", why="test")
    yield
    assert carry_out(nodes.a, [nodes.plan(nodes.a, "tick")]) == [True]
    assert nodes.a.pause("tick", by="test", why="test")
    assert state_of(nodes.a, "tick") is None


@case
def resumed_job(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "tick", "tick", trigger=every("1h"))
    nodes.a.pause("tick", by="test", why="test")
    yield
    assert nodes.a.resume("tick", by="test")
    planned = nodes.plan(nodes.a, "tick")
    yield
    assert carry_out(nodes.a, [planned]) == [False]
    assert nodes.a.resume("tick", by="test")
    assert carry_out(nodes.a, [nodes.plan(nodes.a, "tick")]) == [True]


# --- rounds -----------------------------------------------------------------------------------------------------------


@case
def fired_time(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "tick", "tick", trigger=every("1h"))
    time = nodes.state(nodes.a, "tick").watermark + timedelta(microseconds=5)
    yield
    assert carry_out(nodes.a, [nodes.plan(nodes.a, "tick", time)]) == [True]
    first = nodes.claim_a()
    assert nodes.finish(nodes.a, first).accepted
    yield
    # Decided again, once: by either node.
    plans = [nodes.plan(store, "tick", time) for store in (nodes.a, nodes.b)]
    assert [carry_out(nodes.a, plans[:1]), carry_out(nodes.b, plans[1:])] == [[True], [False]]
    second = nodes.claim_b()
    assert (second.scheduled_for, second.token > first.token) == (time, True)
    nodes.refuses(nodes.a, first)
    assert nodes.finish(nodes.b, second).accepted


@case
def claimed_run(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    yield
    lost = nodes.claim_a()
    yield
    claim = nodes.claim_b()
    assert (claim.id, claim.token > lost.token) == (lost.id, True)
    nodes.refuses(nodes.a, lost)
    assert nodes.finish(nodes.b, claim, "2").accepted
    assert nodes.a.occurrence(claim.id).result == "2"  # type: ignore[union-attr]


@case
def claimed_run_that_the_same_node_claims_again(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    yield
    lost = nodes.claim_a()
    yield
    claim = nodes.claim_a()
    assert (claim.session, claim.token > lost.token) == (lost.session, True)
    nodes.refuses(nodes.a, lost)
    assert nodes.finish(nodes.a, claim).accepted


@case
def finished_run(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    claim = nodes.claim_a()
    yield
    assert nodes.finish(nodes.a, claim, "1").accepted
    yield
    # The renewal tells the node that the store takes the run for running; it says again how the run ended.
    assert nodes.a.renew(nodes.mine, lease=LEASE).held == ((claim.id, claim.token),)
    assert nodes.finish(nodes.a, claim, "1").accepted
    assert nodes.a.occurrence(claim.id).result == "1"  # type: ignore[union-attr]


@case
def released_run(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    claim = nodes.claim_a()
    yield
    assert give_back(nodes.a, [claim]) == [True]
    lost = nodes.claim_b()
    yield
    nodes.refuses(nodes.b, lost)
    assert give_back(nodes.a, [claim]) == [True]
    again = nodes.claim_b()
    assert again.token > lost.token > claim.token
    assert nodes.finish(nodes.b, again).accepted


@case
def acquired_run(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    yield
    lost = win_named(nodes.a, nodes.mine, "queue", key="k", lease=LEASE)
    assert lost is not None
    yield
    claim = win_named(nodes.b, nodes.other, "queue", key="k", lease=LEASE)
    assert claim is not None
    assert claim.token > lost.token
    assert not nodes.finish(nodes.a, lost, "stale").accepted
    assert nodes.finish(nodes.b, claim).accepted


@case
def noted_progress(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    claim = nodes.claim_a()
    note = Note(claim.id, claim.token, (1.0, 2.0), (), claim.session)
    yield
    assert say(nodes.a, [note]) == [True]
    yield
    assert say(nodes.a, [note]) == [True]
    assert nodes.finish(nodes.a, claim).accepted


# --- sessions ---------------------------------------------------------------------------------------------------------


@case
def opened_session(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    yield
    lost = nodes.session(nodes.a)
    yield
    assert not nodes.a.renew(lost, lease=LEASE).alive
    with pytest.raises(LeaseLost):
        nodes.claim(nodes.a, lost)
    assert nodes.finish(nodes.a, nodes.claim(nodes.a, nodes.session(nodes.a))).accepted


@case
def closed_session(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    gone = nodes.session(nodes.a)
    cut_off = nodes.claim(nodes.a, gone)
    yield
    assert len(nodes.a.close_session(gone)) == 1
    lost = nodes.claim_b()
    assert nodes.finish(nodes.b, lost).accepted
    yield
    # Its process is gone, and others find that out as with any dead one.
    nodes.refuses(nodes.b, lost)
    assert [one.token for one in nodes.b.reclaim({gone})] == [cut_off.token]
    claim = nodes.claim_b()
    assert claim.token > lost.token
    assert nodes.finish(nodes.b, claim).accepted


# --- locks ------------------------------------------------------------------------------------------------------------


@case
def taken_lock(nodes: Nodes) -> Iterator[None]:
    yield
    lost = nodes.a.lock("vault", "a", ttl=LEASE, session=nodes.mine)
    assert lost is not None
    yield
    grant = nodes.b.lock("vault", "b", ttl=LEASE, session=nodes.other)
    assert grant is not None
    assert grant.token > lost.token
    assert [nodes.a.extend(lost, ttl=LEASE), nodes.a.unlock(lost)] == [False, False]
    assert [nodes.b.extend(grant, ttl=LEASE), nodes.b.unlock(grant)] == [True, True]


@case
def extended_lock(nodes: Nodes) -> Iterator[None]:
    grant = nodes.a.lock("vault", "a", ttl=LEASE)
    assert grant is not None
    yield
    assert nodes.a.extend(grant, ttl=2 * LEASE)
    yield
    assert nodes.a.locks()[0].expires_in <= LEASE
    assert nodes.a.extend(grant, ttl=2 * LEASE)
    assert nodes.a.unlock(grant)


@case
def freed_lock(nodes: Nodes) -> Iterator[None]:
    first = nodes.a.lock("vault", "a", ttl=LEASE)
    assert first is not None
    yield
    assert nodes.a.unlock(first)
    lost = nodes.b.lock("vault", "b", ttl=LEASE)
    assert lost is not None
    yield
    assert [nodes.b.extend(lost, ttl=LEASE), nodes.b.unlock(lost)] == [False, False]
    assert nodes.a.unlock(first)
    again = nodes.b.lock("vault", "b", ttl=LEASE)
    assert again is not None
    assert again.token > lost.token > first.token
    assert nodes.b.unlock(again)


# --- people and programs ----------------------------------------------------------------------------------------------


@case
def enqueued_work(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    yield
    mine = Handle.of(nodes.enqueue("order:me"), nodes)
    yield
    theirs = nodes.enqueue("order:them", nodes.b)
    nodes.finish(nodes.b, nodes.claim_b(), '"theirs"')
    with pytest.raises(OccurrenceForgotten if theirs.id == mine.id else LookupError, match="nqueue it again"):
        mine.result("60s")
    nodes.enqueue("order:me", nodes.b)
    nodes.finish(nodes.b, nodes.claim_b(), '"mine"')
    assert mine.result("60s") == "mine"


@case
def cancelled_work(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    made = nodes.enqueue("1")
    yield
    assert nodes.a.cancel(made.id, by="test", why="test") is State.CANCELLED
    yield
    assert nodes.finish(nodes.b, nodes.claim_b()).accepted


@case
def pruned_work(nodes: Nodes) -> Iterator[None]:
    nodes.define(nodes.a, "queue")
    nodes.enqueue("1")
    first = nodes.claim_a()
    nodes.finish(nodes.a, first)
    yield
    pruned = nodes.a.prune(nodes.a.now() + timedelta(days=1))
    assert pruned >= 1
    yield
    assert not nodes.enqueue("1").created
    assert nodes.a.prune(nodes.a.now() + timedelta(days=1)) >= 1
    nodes.enqueue("1")
    second = nodes.claim_b()
    assert second.token > first.token
    assert nodes.finish(nodes.b, second).accepted


# --- all at once ------------------------------------------------------------------------------------------------------


class Told:
    """One case on its way."""

    def __init__(self, written: Case, place: Forgetful, namespace: str) -> None:
        self.name = written.__name__
        self.failed: Exception | None = None
        self.nodes = Nodes(place, namespace)
        self._steps = written(self.nodes)

    def go_on(self) -> None:
        """Do the next part, unless one has failed."""
        if self.failed is None:
            try:
                with contextlib.suppress(StopIteration):
                    next(self._steps)
            except Exception as error:  # noqa: BLE001 - reported with the others
                self.failed = error
