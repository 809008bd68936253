"""What goes first: a batch or a long queue does not hold up the schedule, and nothing waits for ever."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Parked
from cronsensus.model.occurrence import Claim, Enqueued, Item
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Step, Want
from cronsensus.testing.conformance.fixtures import DAY, LEASE, SECOND, StoreTest, minute
from cronsensus.testing.conformance.steps import settle


class Ordering(StoreTest):
    """Hazards of the order of claims: work that others of its priority overtake for ever, or that overtakes them."""

    def ordered(self, limit: int = 100, *, oldest: bool = False, session: str = "s1", **more: Any) -> list[int]:
        """Claim; return the ids in the order of claims."""
        more.setdefault("functions", tuple(self._functions))
        want = Want(limit=limit, lease=LEASE, oldest=oldest, **more)
        return [claim.id for claim in self.store.step(session, Step(want=want)).claims]

    def batch_of(self, count: int) -> tuple[Claim, list[int]]:
        """Let a batch run whose items are enqueued; return it, and their ids."""
        made = self.enqueue(origin=Origin.BATCH)
        [batch] = [one for one in self.claim() if one.id == made.id]
        wanted = [
            Item(job="queue", key=item_key(batch.id, str(n)), origin=Origin.BATCH, parent=batch.id)
            for n in range(count)
        ]
        return batch, [one.id for one in self.store.enqueue(wanted)]

    def park(self, claim: Claim, then: Parked) -> None:
        """Park a claim until it is woken."""
        assert settle(self.store, [End.of(claim, then)])[0].accepted

    def of_all_kinds(self) -> dict[str, int]:
        """Have an occurrence of each kind wait, those that go first the youngest; return their ids."""
        self.queue()
        self.define(self.job(overlap="allow"))
        self.session(lease=DAY)
        made: dict[str, int] = {}
        self.clock.advance(minute(5) - self.store.now())
        _, [made["item"]] = self.batch_of(1)
        made["backfilled"] = self.store.backfill("job", [minute(1)], by="ann")[0].id
        self.clock.advance(SECOND)
        made["enqueued"] = self.enqueue().id
        self.clock.advance(SECOND)
        made["by hand"] = self.store.trigger("queue", by="ann").id
        made["startup"] = self.enqueue(origin=Origin.STARTUP).id
        self.clock.advance(SECOND)
        self.fire(minute(5), delay=3 * SECOND)
        [made["scheduled"]] = [one.id for one in self.all(job="job", origin=Origin.SCHEDULE)]
        self.clock.advance(SECOND)
        made["urgent"] = self.enqueue(priority=1).id
        return made

    def test_the_schedule_and_people_come_first_then_what_was_enqueued_then_items_and_backfill(self) -> None:
        made = self.of_all_kinds()
        wanted = ["urgent", "by hand", "startup", "scheduled", "enqueued", "item", "backfilled"]
        assert [made[kind] for kind in wanted] == self.ordered()

    def test_the_order_of_classes_holds_from_claim_to_claim(self) -> None:
        made = self.of_all_kinds()
        wanted = ["urgent", "by hand", "startup", "scheduled", "enqueued", "item", "backfilled"]
        assert [made[kind] for kind in wanted] == [one for _ in wanted for one in self.ordered(limit=1)]

    def test_without_classes_the_oldest_of_a_priority_comes_first(self) -> None:
        made = self.of_all_kinds()
        wanted = ["urgent", "item", "backfilled", "enqueued", "by hand", "startup", "scheduled"]
        assert [made[kind] for kind in wanted] == [
            *self.ordered(limit=2, oldest=True),
            *self.ordered(limit=1, oldest=True),
            *self.ordered(oldest=True),
        ]

    def test_without_classes_too_a_node_takes_only_what_it_can_run(self) -> None:
        self.queue(overlap="allow")
        self.queue("elsewhere")
        self.session(lease=DAY)
        self.enqueue(job="elsewhere", origin=Origin.BACKFILL)
        self.clock.advance(SECOND)
        oldest = [self.enqueue().id, self.enqueue(origin=Origin.BACKFILL).id]
        self.clock.advance(SECOND)
        newest = [self.enqueue(origin=Origin.BACKFILL).id, self.enqueue(origin=Origin.STARTUP).id]
        assert [*oldest, *newest] == self.ordered(oldest=True, functions=("queue",))

    def test_without_classes_much_waits_in_each(self) -> None:
        self.queue(overlap="allow")
        self.session(lease=DAY)
        ids: list[int] = []
        for _ in range(200):
            ids += [made.id for made in self.store.enqueue(_of_each_class())]
            self.clock.advance(SECOND / 100)
        assert ids == [*self.ordered(limit=40, oldest=True), *self.ordered(limit=1000, oldest=True)]

    def test_a_retry_keeps_the_class_of_what_it_repeats(self) -> None:
        self.queue()
        self.define(self.job(overlap="allow"))
        self.session(lease=DAY)
        self.clock.advance(minute(5) - self.store.now())
        self.batch_of(1)
        self.store.backfill("job", [minute(1)], by="ann")
        item, backfilled = self.claim()
        self.store.trigger("queue", by="ann")
        by_hand = self.take()
        for claim in (item, backfilled, by_hand):
            self.finish(claim, State.FAILED)
        last = [self.store.retry(claim.id, by="ann").id for claim in (item, backfilled)]
        enqueued = self.enqueue().id
        first = self.store.retry(by_hand.id, by="ann").id
        assert [first, enqueued, *last] == self.ordered()
        assert Origin.MANUAL == self.look(last[1]).origin

    def test_a_batch_whose_items_are_done_goes_first(self) -> None:
        self.queue()
        self.session(lease=DAY)
        batch, _ = self.batch_of(0)
        enqueued = self.enqueue(delay=-SECOND).id
        self.park(batch, Parked("items", 0))
        assert 1 == self.store.wake([batch.id])
        assert [batch.id, enqueued] == self.ordered()

    def test_a_batch_whose_list_was_completed_goes_first(self) -> None:
        self.queue()
        self.session(lease=DAY)
        made = self.enqueue(origin=Origin.BATCH, delay=DAY)
        enqueued = self.enqueue(delay=-SECOND).id
        assert self.store.wake([made.id], listed=0)
        assert [made.id, enqueued] == self.ordered()

    def test_what_slept_behind_other_jobs_keeps_its_class(self) -> None:
        self.queue()
        self.session(lease=DAY)
        held: Enqueued = self.enqueue(origin=Origin.BACKFILL)
        self.park(self.take(), Parked("upstreams"))
        self.clock.advance(SECOND)
        enqueued = self.enqueue().id
        assert 1 == self.store.wake([held.id])
        assert [enqueued, held.id] == self.ordered()


def _of_each_class() -> Sequence[Item]:
    return [Item(job="queue", origin=origin) for origin in (Origin.BACKFILL, Origin.STARTUP, Origin.ENQUEUE)]
