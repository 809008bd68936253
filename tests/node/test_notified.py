"""A notification that comes to a node: what it does first, and what waits until that is done."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import cast

import pytest

from cronsensus.membership.heartbeat import Heartbeat
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.node.node import Node
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import new_session, registered


class Noted:
    """What a node asks of its store, and when its heartbeat is woken, in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.within: list[float] = []

    def beat_within(self, seconds: float) -> None:
        self.order.append("heartbeat")
        self.within.append(seconds)

    def register_presence(self, session: str) -> None: ...

    def verb(self, name: str) -> nullcontext[None]:
        self.order.append(name)
        return nullcontext()


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def node(noted: Noted) -> Iterator[Node]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.define_jobs([JobSpec(name="work", function="work")], release="1")
    store.span = noted.verb
    made = Node(
        store,
        clock,
        NodeSettings(name="a", lease=timedelta(seconds=10), concurrency=5),
        registry=registered("work"),
        new_session=new_session(),
        declare=lambda _: False,
        heartbeat=cast("Heartbeat", noted),
    )
    made.round.open_session()
    made._do_round()
    noted.order.clear()
    yield made
    for executor in made._executors.values():
        executor.close()


def test_notification_is_answered_by_a_claim_before_the_session_is_renewed_for_it(node: Node, noted: Noted) -> None:
    node._store.enqueue([Item(job="work")])
    noted.order.clear()
    node._on_notification()
    node._do_round()
    # The renewal would lock the session's row, and the claim would wait for its commit.
    assert noted.order[0] == "step"
    assert noted.order[-1] == "heartbeat"


def test_notification_without_work_has_the_session_renewed_all_the_same(node: Node, noted: Noted) -> None:
    node._on_notification()
    node._do_round()
    assert noted.order[-1] == "heartbeat"


def test_claim_wakes_the_heartbeat_no_earlier_than_a_renewal_is_due(node: Node, noted: Noted) -> None:
    assert node.round.lease is not None
    node.round.lease.confirm_renewal(node.round.lease.note_request(), timedelta(seconds=10))
    node._renewer.renew(node._store)
    node._store.enqueue([Item(job="work")])
    noted.within.clear()
    node._on_notification()
    node._do_round()
    # Its thread would compete for the interpreter with the run that begins.
    assert noted.within
    assert min(noted.within) >= 0.5
