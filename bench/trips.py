"""How often does a verb cross the network to a server, on a new connection and on one that knows it?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from bench.network import Network
from bench.options import Options
from bench.places import Places
from bench.table import Table, quantile
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.plan import Plan, PlannedOccurrence
from cronsensus.model.session import LockGrant
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.triggers import every

LEASE = timedelta(hours=1)
FUNCTIONS = ("job",)
AWAY = 5.0
"""Milliseconds; beside the server, an answer may come before all was sent, and then one trip looks like two."""
PREPARING = 3
"""Calls on a new connection, in one of which a driver may prepare statements, each in a trip of its own."""
MOST = {"postgres": (2, 3), "mysql": (4, 6)}
"""Trips that a verb may take, and a step with results, plans and claims."""


def bench(places: Places, options: Options) -> list[Table]:
    """Count the round trips of each verb, and the processor time that it takes here."""
    if places.kind not in MOST:
        return []
    times = 10 if options.quick else 40
    url = places.fresh()
    beside = open_store(url)
    beside.migrate()
    triggers = {"queue": None, "tick": every("1s")}
    beside.define_jobs(
        [JobSpec(name=name, function="job", trigger=one) for name, one in triggers.items()], release="r1"
    )
    beside.open_session(a_session("node"), lease=LEASE)
    beside.enqueue([Item(job="queue") for _ in range(100 * times)])
    network = Network(url, AWAY)
    lines: list[tuple[str, ...]] = []
    try:
        for name, prepare in VERBS.items():
            far = open_store(network.by_way(url))
            trips, seconds = zip(*_measured(network, prepare(far, beside), times), strict=True)
            far.close()
            most = MOST[places.kind][name == "step"]
            warm = quantile(list(trips[PREPARING:]), 0.5)
            spent = quantile(list(seconds[PREPARING:]), 0.5)
            lines.append((name, f"{max(trips[:PREPARING])}", f"{warm:.0f}", f"≤ {most}", f"{spent * 1e6:.0f} µs"))
    finally:
        network.close()
        beside.close()
    columns = ("verb", "trips, new connection", "trips", "goal", "processor time here")
    return [Table(f"round trips of a verb, {places.kind}", columns, lines)]


def _measured(network: Network, verb: Iterator[Callable[[], object]], times: int) -> Iterator[tuple[int, float]]:
    for _ in range(times):
        call = next(verb)
        before, begun = network.round_trips(), time.thread_time()
        call()
        spent = time.thread_time() - begun
        yield network.round_trips() - before, spent


# --- each verb: what is prepared beside the server, and what is counted -----------------------------------------------


def _look(far: Store, _: Store) -> Iterator[Callable[[], object]]:
    far.now()  # the connection is opened
    while True:
        yield far.look


def _enqueue(far: Store, _: Store) -> Iterator[Callable[[], object]]:
    far.now()
    while True:
        yield lambda: far.enqueue([Item(job="queue")])


def _take(far: Store, _: Store) -> Iterator[Callable[[], object]]:
    far.now()
    while True:
        yield lambda: take(far, "node", 20, FUNCTIONS, lease=LEASE)


def _finish(far: Store, beside: Store) -> Iterator[Callable[[], object]]:
    far.now()
    while True:
        claims = take(beside, "node", 20, FUNCTIONS, lease=LEASE)
        outcomes = [an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in claims]
        yield lambda outcomes=outcomes: settle(far, outcomes)  # type: ignore[misc]


def _plan(beside: Store, ended: int = 0) -> Plan:
    """Plan the job's next time; ``ended``: how many of it are not active any more by then."""
    [state] = beside.look(ahead=timedelta(days=1)).jobs
    time_due = state.watermark + timedelta(seconds=1)
    return Plan(
        job_id=state.id,
        job="tick",
        revision=state.revision,
        watermark_seen=state.watermark,
        active_seen=state.active - ended,
        occurrences=(PlannedOccurrence(time_due, beside.now(), None),),
        verdicts=(),
        cancel_previous=False,
        watermark=time_due,
        next_due=time_due + timedelta(seconds=1),
    )


def _step(far: Store, beside: Store) -> Iterator[Callable[[], object]]:
    far.now()
    held: Sequence[Claim] = take(beside, "node", 20, FUNCTIONS, lease=LEASE)
    while True:
        outcomes = tuple(an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in held)
        plan = _plan(beside, ended=sum(one.job == "tick" for one in held))
        step = Step(ends=outcomes, plans=(plan,), want=Want(limit=20, functions=FUNCTIONS, lease=LEASE))
        done: list[Done] = []
        yield lambda step=step, done=done: done.append(far.step("node", step))  # type: ignore[misc]
        assert done[0].carried_out == (True,)
        held = done[0].claims


def _renew(far: Store, _: Store) -> Iterator[Callable[[], object]]:
    far.now()
    while True:
        yield lambda: far.renew("node", lease=LEASE)


def _lock(far: Store, beside: Store) -> Iterator[Callable[[], object]]:
    far.now()
    while True:
        grants: list[LockGrant | None] = []
        yield lambda grants=grants: grants.append(far.lock("lock", "me", ttl=LEASE))  # type: ignore[misc]
        assert grants[0] is not None
        beside.unlock(grants[0])


def _unlock(far: Store, beside: Store) -> Iterator[Callable[[], object]]:
    far.now()
    while True:
        grant = beside.lock("another", "me", ttl=LEASE)
        yield lambda grant=grant: far.unlock(grant)  # type: ignore[misc]


VERBS: dict[str, Callable[[Store, Store], Iterator[Callable[[], object]]]] = {
    "look": _look,
    "renew": _renew,
    "enqueue": _enqueue,
    "step for work": _take,
    "finish": _finish,
    "step": _step,
    "lock": _lock,
    "unlock": _unlock,
}
