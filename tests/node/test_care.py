"""Whom a node takes for dead, and whom it never does: itself."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.clock import ManualClock
from cronsensus.membership.lease import SessionLease
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.node.care import HOUSEKEEPING, TIDY, Care
from cronsensus.node.settings import NodeSettings
from cronsensus.node.tally import Tally
from cronsensus.node.telling import Telling
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.scene import a_session

LEASE = timedelta(seconds=10)


class Watched(MemoryStore):
    """A store that notes who was said to be dead."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("memory://", clock=clock)
        self.buried: list[list[str]] = []

    def reclaim(self, presumed_dead=()):
        self.buried.append(sorted(presumed_dead))
        return super().reclaim(presumed_dead)


def test_a_node_takes_others_for_dead_and_never_itself():
    clock = ManualClock()
    store = Watched(clock)
    store.put_jobs([JobSpec(name="work", function="work")], release="r")
    store.enqueue([Item(job="work"), Item(job="work")])
    for session in ("mine", "other"):
        store.open_session(a_session(session), lease=LEASE)
        assert store.claim(session, 1, ["work"], lease=LEASE)
    lease = SessionLease("mine", clock)
    lease.confirm(lease.ask(), LEASE)
    # Of all sessions it is said that their processes are gone, as of one whose pid this host does not show.
    care = Care(
        store,
        clock,
        NodeSettings(name="a", lease=LEASE, concurrency=1),
        evidence=lambda _: True,
        telling=Telling(Tally()),
    )
    assert care.take_over(lease, store.look())
    assert store.buried == [["other"]]
    assert [one.id for one in store.sessions()] == ["mine"]
    assert not care.take_over(lease, store.look())
    assert store.buried == [["other"]], "the store was asked although nobody seems dead"
    clock.advance(LEASE.total_seconds())
    assert care.take_over(lease, store.look()), "its own lease ran out: then it is as any other"


class Told:
    """A store, and what the care of a node says, that only note."""

    def __init__(self) -> None:
        self.buried: list[list[str]] = []
        self.pruned = 0
        self.said: list[object] = []

    def reclaim(self, presumed_dead=()):
        self.buried.append(list(presumed_dead))
        return []

    def prune(self, *, limit):
        self.pruned += 1
        return limit if self.pruned % 2 else limit - 1

    def taken(self, *told):
        self.said.append(told)


def a_care(*, fast_evidence=True, dead=True) -> Any:
    told: Any = Told()
    clock = ManualClock()
    settings = NodeSettings(name="a", lease=LEASE, concurrency=1, fast_evidence=fast_evidence)
    return Care(told, clock, settings, evidence=lambda _: dead, telling=told), told, clock


def holders(*, overdue=False):
    """Return a look at which "other" holds a run."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.put_jobs([JobSpec(name="work", function="work")], release="r")
    store.open_session(a_session("other"), lease=LEASE)
    store.enqueue([Item(job="work")])
    assert store.claim("other", 1, ["work"], lease=LEASE)
    clock.advance(LEASE if overdue else 0)
    return store.look()


@pytest.mark.parametrize(
    ("fast", "dead", "overdue", "after", "asks"),
    [
        (True, True, False, 0, [["other"]]),
        (False, True, False, 0, []),
        (True, False, False, 0, []),
        (True, False, True, 0, [[]]),
        (True, False, False, TIDY - 1, []),
        (True, False, False, TIDY, [[]]),
        (False, True, True, 0, [[]]),
    ],
)
def test_the_store_is_asked_for_the_dead_with_a_reason_or_every_ten_minutes(fast, dead, overdue, after, asks):
    care, told, clock = a_care(fast_evidence=fast, dead=dead)
    clock.advance(after)
    lease = SessionLease("mine", clock)
    assert not care.take_over(lease, holders(overdue=overdue))
    assert told.buried == asks
    assert told.said == [([], "a", {"other": "node of other"})] * len(asks)
    if after == TIDY:
        assert not care.take_over(lease, holders())
        assert len(told.buried) == 1, "once in that time"


def test_two_looks_without_a_sign_of_life_are_evidence_too():
    care, told, clock = a_care(dead=False)
    lease = SessionLease("mine", clock)
    view = replace(holders(), absent=("other", "mine"))
    assert care.wants_look_at(lease, view) is None
    care.note(view, 1.0, 1.0)
    assert care.wants_look_at(lease, view) is not None
    assert care.wants_look_at(SessionLease("other", clock), view) is None
    assert care.wants_look_at(lease, replace(view, absent=())) is None
    care.take_over(lease, view)
    assert told.buried == []
    care.note(view, 9.0, 9.0)
    care.take_over(lease, view)
    assert told.buried == [["other"]]
    slow, _, _ = a_care(fast_evidence=False)
    slow.note(view, 1.0, 1.0)
    assert slow.wants_look_at(lease, view) is None


def test_what_is_over_is_pruned_each_hour_until_there_is_no_more():
    care, told, clock = a_care()
    clock.advance(HOUSEKEEPING)
    assert not care.prune()
    assert told.pruned == 0
    clock.advance(1)
    assert [care.prune() for _ in range(3)] == [True, False, False]
    assert told.pruned == 2
