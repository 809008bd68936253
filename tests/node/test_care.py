"""Whom a node takes for dead, and whom it never does: itself."""

from datetime import timedelta

from cronsensus.clock import ManualClock
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.node.care import Care
from cronsensus.node.lease import SessionLease
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
    assert care.take_over(lease, store.due())
    assert store.buried == [["other"]]
    assert [one.id for one in store.sessions()] == ["mine"]
    assert not care.take_over(lease, store.due())
    assert store.buried == [["other"]], "the store was asked although nobody seems dead"
    clock.advance(LEASE.total_seconds())
    assert care.take_over(lease, store.due()), "its own lease ran out: then it is as any other"
