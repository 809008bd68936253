"""Batches: items with a parent, what sleeps until it is woken, and the counts by which it is known that all is done."""

# ruff: noqa: D102, S101 - the name of a test is its sentence, and pytest explains plain asserts

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.errors import InvalidOption
from cronsensus.model.batch import Children, item_key
from cronsensus.model.ends import Again, End, Parked
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.plan import PlannedOccurrence, VerdictRange
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Step, Want
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import DAY, HOUR, MINUTE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import an_end, give_back, settle
from cronsensus.timing.instants import LATEST


class Batching(StoreTest):
    """What batches rest on: ``parent``, ``listed``, ``children``, ``parked``, ``wake``."""

    def batch(self, items: int = 0, **policies: Any) -> Claim:
        """Let a batch run, with its items enqueued."""
        self.queue(**policies)
        self.session()
        self.enqueue("batch", origin=Origin.BATCH)
        claim = self.take()
        if items:
            self.items(claim.id, items)
        return claim

    def items(self, batch: int, count: int, *, start: int = 0) -> list[int]:
        """Enqueue items of a batch; return their ids."""
        wanted = [
            Item(job="queue", key=item_key(batch, str(start + n)), args=(n,), origin=Origin.BATCH, parent=batch)
            for n in range(count)
        ]
        return [made.id for made in self.store.enqueue(wanted)]

    def sleep(self, claim: Claim, listed: int | None = None, store: Store | None = None) -> bool:
        """Put a batch to sleep; return whether that was accepted."""
        then = Parked("items", listed, "waits for its items")
        return settle(store or self.store, [End.of(claim, then)])[0].accepted

    def children_of(self, batch: int, limit: int = 1000) -> Children:
        """Read where a batch stands."""
        return self.store.children([batch], limit=limit)[batch]

    def test_the_last_of_a_job_are_batches_not_their_items(self) -> None:
        first = self.batch(items=3)
        self.sleep(first, listed=3)
        alone = self.enqueue("alone")
        self.enqueue("batch 2", origin=Origin.BATCH)
        [second] = [one for one in self.claim(limit=9) if one.key == "batch 2"]
        self.items(second.id, 4)
        found = self.store.last_of(["queue"], limit=5)["queue"].glances
        assert [second.id, alone.id, first.id] == [one.id for one in found]
        assert [one.listed for one in found] == [None, None, 3]
        assert [second.id] == [glance.id for glance in self.store.last_of(["queue"], limit=1)["queue"].glances]
        assert {first.id} == {one.parent for one in self.store.ran_since(START) if one.parent is not None}

    # --- items ------------------------------------------------------------------------------------------------------

    def test_items_know_their_batch_in_claims_and_reads(self) -> None:
        batch = self.batch(items=2)
        assert [(batch.id, Origin.BATCH)] * 2 == [(one.parent, one.origin) for one in self.all(parent=batch.id)]
        assert [batch.id] * 2 == [claim.parent for claim in self.claim()]
        assert batch.parent is None
        assert self.all(parent=batch.id + 987_654) == []

    def test_items_of_a_batch_are_read_by_state_and_page(self) -> None:
        batch = self.batch(items=5)
        claims = self.claim(limit=3)
        self.finish(claims[0])
        self.finish(claims[1], State.FAILED)
        done = self.all(parent=batch.id, states=(State.SUCCEEDED,))
        assert [claims[0].id] == [one.id for one in done]
        assert len(self.all(parent=batch.id, states=(State.PENDING,))) == 2
        self.enqueue("alone")
        assert len(self.all(parent=batch.id, job="queue")) == 5

    def test_an_item_that_is_enqueued_twice_is_one(self) -> None:
        batch = self.batch()
        first, again = self.items(batch.id, 3), self.items(batch.id, 3)
        assert first == again
        assert self.children_of(batch.id).open == 3

    def test_only_items_have_the_keys_of_items(self) -> None:
        self.queue()
        with pytest.raises(InvalidOption):
            self.enqueue(item_key(7, "a"))

    def test_the_retry_of_an_item_is_no_item(self) -> None:
        batch = self.batch(items=1)
        claim = self.take()
        self.finish(claim, State.FAILED)
        again = self.look(self.store.retry(claim.id, by="op"))
        assert (again.parent, again.origin, again.args) == (None, Origin.ENQUEUE, (0,))
        assert self.children_of(batch.id).failed == 1

    # --- counts -----------------------------------------------------------------------------------------------------

    def test_children_are_counted_by_state(self) -> None:
        batch = self.batch(items=7)
        claims = self.claim(limit=6)
        for claim, state in zip(claims, (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED), strict=False):
            self.finish(claim, state)
        found = self.children_of(batch.id)
        assert Children(State.RUNNING, None, 1, 2, 1, 1, 1, 1) == found
        assert (found.open, found.not_done) == (3, 2)

    def test_children_are_counted_up_to_a_limit(self) -> None:
        batch = self.batch(items=5)
        self.claim(limit=3)
        assert (self.children_of(batch.id, 2).pending, self.children_of(batch.id, 2).running) == (2, 2)
        assert self.store.children([batch.id])[batch.id].running == 1

    def test_a_batch_that_is_not_there_has_no_state(self) -> None:
        batch = self.batch(items=1)
        found = self.store.children([batch.id, batch.id + 987_654])
        assert (found[batch.id].state, found[batch.id + 987_654].state) == (State.RUNNING, None)
        assert self.store.children([]) == {}

    def test_a_takeover_leaves_the_counts_right(self) -> None:
        batch = self.batch(items=2)
        self.claim(limit=1)
        self.lease_out()
        self.store.reclaim()
        assert (self.children_of(batch.id).pending, self.children_of(batch.id).running) == (2, 0)

    # --- sleeping and waking ----------------------------------------------------------------------------------------

    def test_a_batch_sleeps_until_it_is_woken_and_then_goes_before_its_items(self) -> None:
        batch = self.batch(items=2)
        self.clock.advance(SECOND)
        assert self.sleep(batch, listed=2)
        assert self.look(batch).due_at == LATEST
        [sleeper] = self.store.parked()
        assert (sleeper.id, sleeper.job, sleeper.on, sleeper.scheduled_for) == (batch.id, "queue", "items", None)
        assert self.look(batch).is_parked
        assert sleeper.created_at == self.look(batch).created_at
        view = self.store.look()
        assert view.backlog
        assert view.next_pending in {None, LATEST}
        assert view.parked
        assert self.store.wake([batch.id]) == 1
        assert self.store.wake([batch.id]) == 0
        assert self.store.parked() == []
        assert not self.store.look().parked, "nodes ask of what is parked as long as a look shows some"
        woken, *items = self.claim()
        assert (batch.id, 2, batch.attempt) == (woken.id, woken.listed, woken.attempt)
        assert woken.created_at == sleeper.created_at
        assert self.look(batch).parked_on is None
        assert len(items) == 2
        assert woken.token > batch.token

    def test_what_sleeps_is_claimed_by_nobody(self) -> None:
        batch = self.batch()
        self.sleep(batch, listed=0)
        self.clock.advance(400 * DAY)
        self.session("s2")
        assert self.claim("s2") == []
        assert not self.store.look().backlog

    def test_sleeping_ends_failures_and_expiry(self) -> None:
        self.queue(retries=3)
        self.session()
        self.enqueue("batch", origin=Origin.BATCH, expires_in=HOUR)
        self.finish(self.take(), State.PENDING, retry_in=timedelta(0))
        claim = self.take()
        assert claim.failures == 1
        self.sleep(claim, listed=0)
        self.clock.advance(DAY)
        self.store.wake([claim.id])
        self.session("s2")
        assert self.take("s2").failures == 0

    def test_a_batch_that_sleeps_again_keeps_its_list(self) -> None:
        batch = self.batch(items=1)
        self.sleep(batch, listed=1)
        self.store.wake([batch.id])
        woken = self.claim(limit=1)[0]
        assert self.sleep(woken)
        assert self.children_of(batch.id).listed == 1

    def test_what_is_acquired_by_its_key_knows_its_list_and_its_batch(self) -> None:
        batch = self.batch()
        self.sleep(batch, listed=1)
        self.store.enqueue([Item(job="queue", key="item", parent=batch.id)])
        woken, item = (self.acquire("s1", "queue", key=key, lease=HOUR) for key in ("batch", "item"))
        assert woken is not None
        assert item is not None
        assert (woken.parent, woken.listed) == (None, 1)
        assert (item.parent, item.listed) == (batch.id, None)
        assert self.store.parked() == []
        found = self.look(batch)
        assert (woken.created_at, None) == (found.created_at, found.parked_on)
        assert not self.store.wake([batch.id]), "what runs is woken by nobody"

    def test_the_answer_to_a_sleep_is_given_again(self) -> None:
        batch = self.batch()
        assert self.sleep(batch, listed=0)
        assert self.sleep(batch, listed=0)
        self.store.wake([batch.id])
        self.take()
        assert State.RUNNING is self.look(batch).state

    def test_a_batch_under_an_old_token_does_not_sleep(self) -> None:
        batch = self.batch()
        self.lease_out()
        self.store.reclaim()
        self.session("s2")
        again = self.take("s2")
        assert not self.sleep(batch, listed=99)
        assert (self.look(again).state, self.look(again).listed) == (State.RUNNING, None)

    def test_waking_leaves_alone_what_is_awake(self) -> None:
        batch = self.batch()
        waits = self.enqueue("later", delay=HOUR)
        due = self.look(waits).due_at
        assert self.store.wake([batch.id, waits.id, waits.id + 987_654]) == 0
        assert (State.RUNNING, due) == (self.look(batch).state, self.look(waits).due_at)
        self.finish(batch)
        assert self.store.wake([batch.id]) == 0

    def test_a_batch_that_sleeps_is_cancelled_at_once(self) -> None:
        batch = self.batch()
        self.sleep(batch, listed=0)
        assert State.CANCELLED is self.store.cancel(batch.id, by="op", why="no")
        assert self.store.parked() == []
        assert self.store.wake([batch.id]) == 0
        found = self.look(batch)
        assert (found.parked_on, found.is_parked) == ("items", False), "the ledger tells what it waited for"

    def test_what_is_parked_waits_for_any_word(self) -> None:
        claim = self.batch()
        assert settle(self.store, [End.of(claim, Parked("a file", reason="waits for a file"))])[0].accepted
        assert (self.look(claim).parked_on, self.look(claim).listed) == ("a file", None)
        assert [(claim.id, "a file")] == [(one.id, one.on) for one in self.store.parked()]
        assert not self.store.wake([claim.id], listed=1)
        assert self.store.wake([claim.id]) == 1

    def test_what_is_planned_parked_is_due_never_until_it_is_woken(self) -> None:
        self.define(self.job(overlap="allow", grace="1s"))
        self.clock.advance(minute(1) - START)
        self.session()
        planned = PlannedOccurrence(minute(1), LATEST, None, "upstreams")
        made = replace(self.plan(minute(1)), occurrences=(planned,))
        want = Want(limit=5, functions=("job",), lease=HOUR)
        done = self.store.step("s1", Step(plans=(made,), want=want))
        assert (done.carried_out, done.claims) == ((True,), ())
        [one] = self.all()
        assert (one.state, one.due_at, one.parked_on, one.token) == (State.PENDING, LATEST, "upstreams", 0)
        [sleeper] = self.store.parked()
        assert (sleeper.id, sleeper.on, sleeper.scheduled_for) == (one.id, "upstreams", minute(1))
        self.clock.advance(DAY)
        self.session("s2")
        assert self.claim("s2") == [], "and it is not missed(late)"
        assert self.store.wake([one.id]) == 1
        claim = self.take("s2")
        assert (claim.due_at, claim.created_at, self.look(claim).parked_on) == (minute(1), minute(1), None)

    def test_what_is_due_never_is_parked_only_if_it_was_parked(self) -> None:
        self.queue()
        [never] = self.store.enqueue([Item(job="queue", due_at=LATEST)])
        assert self.look(never).due_at == LATEST
        assert self.store.parked() == []
        assert not self.store.look().parked
        assert self.store.wake([never.id]) == 0

    def test_sleeping_batches_come_by_pages(self) -> None:
        self.queue()
        self.session()
        self.fill(3, origin=Origin.BATCH)
        claims = self.claim()
        for claim in claims:
            self.sleep(claim, listed=0)
        ids = sorted(claim.id for claim in claims)
        assert ids[:2] == [one.id for one in self.store.parked(limit=2)]
        assert ids[2:] == [one.id for one in self.store.parked(after=ids[1])]

    def test_of_two_last_items_that_end_at_once_one_sees_none_open(self) -> None:
        batch = self.batch(items=2)
        self.sleep(batch, listed=2)
        claims = self.claim()

        def end(store: Store, number: int) -> int:
            settle(store, [an_end(id=claims[number].id, token=claims[number].token, state=State.SUCCEEDED)])
            return store.children([batch.id])[batch.id].open

        assert 0 in self.race(end, 2)

    # --- lists that are made outside of a run -----------------------------------------------------------------------

    def test_a_list_that_is_complete_wakes_its_batch_once(self) -> None:
        self.queue()
        self.session()
        batch = self.enqueue("batch", origin=Origin.BATCH, delay=HOUR)
        self.items(batch.id, 2)
        assert self.store.wake([batch.id], listed=2)
        assert not self.store.wake([batch.id], listed=3)
        assert not self.store.wake([batch.id + 987_654], listed=3)
        first = self.claim()[0]
        assert (batch.id, 2) == (first.id, first.listed)
        assert not self.store.wake([batch.id], listed=3)

    def test_the_length_of_a_list_is_that_of_one_batch(self) -> None:
        self.queue()
        batches = [self.enqueue(f"batch {n}", origin=Origin.BATCH, delay=HOUR).id for n in range(2)]
        for some in ([], batches):
            with pytest.raises(InvalidOption, match="one batch"):
                self.store.wake(some, listed=1)
        assert [self.look(batch).listed for batch in batches] == [None, None]

    # --- the end ----------------------------------------------------------------------------------------------------

    def test_items_stay_as_long_as_their_batch_is_open(self) -> None:
        batch = self.batch(items=2, keep="1h")
        self.sleep(batch, listed=2)
        for claim in self.claim():
            self.finish(claim)
        self.clock.advance(DAY)
        assert self.store.prune() == 0
        assert self.store.prune(self.store.now()) == 0
        assert self.children_of(batch.id).succeeded == 2
        self.store.wake([batch.id])
        self.session("s2")
        self.finish(self.take("s2"))
        self.clock.advance(DAY)
        assert self.store.prune() == 3
        assert Children(None) == self.children_of(batch.id)

    # --- runs that look now and then ----------------------------------------------------------------------------------

    def look_again(self, claim: Claim, note: str, store: Store | None = None) -> bool:
        """Snooze without a record; return whether that was accepted."""
        then = Again(SECOND, failed=False, reason="watches", note=note)
        return settle(store or self.store, [End.of(claim, then)])[0].accepted

    def test_a_look_leaves_its_note_and_no_record(self) -> None:
        self.queue(retries=5)
        self.session()
        self.enqueue("watch")
        self.finish(self.take(), State.PENDING, retry_in=timedelta(0))
        claim = self.take()
        assert self.look_again(claim, '"one"')
        assert self.look_again(claim, '"two"')
        assert (self.look(claim).note, self.look(claim).state) == ('"one"', State.PENDING)
        self.clock.advance(SECOND)
        again = self.take()
        assert (again.attempt, again.failures, again.note) == (claim.attempt, 0, '"one"')
        assert (self.look(again).note, self.look(again).result) == ('"one"', None)
        assert not self.look_again(claim, '"three"')
        assert self.look_again(again, '"four"')
        assert self.look(again).note == '"four"'
        assert [run.end for run in self.runs(claim)] == ["retry"]

    def test_a_note_outlives_what_is_not_another_look(self) -> None:
        self.queue(retries=5)
        self.session()
        self.enqueue("watch")
        assert self.look_again(self.take(), "here")
        self.clock.advance(SECOND)
        self.finish(self.take(), State.PENDING, retry_in=timedelta(0))
        give_back(self.store, [self.take()])
        self.clock.advance(SECOND)
        self.abandoned("s2")
        self.store.reclaim()
        self.session("s3")
        self.clock.advance(SECOND)
        claim = self.take("s3")
        assert claim.note == "here"
        self.finish(claim, State.PENDING, retry_in=timedelta(0), waiting=True)
        claim = self.take("s3")
        assert (claim.note, self.look(claim).note) == (None, None)
        assert self.look_again(claim, "there")
        self.clock.advance(SECOND)
        claim = self.take("s3")
        assert settle(self.store, [End.of(claim, Parked("items", 0))])[0].accepted
        assert self.look(claim).note is None

    def test_what_ended_badly_comes_by_time(self) -> None:
        self.queue()
        self.session()
        states = (State.FAILED, State.SUCCEEDED, State.CANCELLED, State.FAILED)
        ids = self.fill(4)
        for claim, state in zip(self.claim(), states, strict=True):
            self.clock.advance(SECOND)
            self.finish(claim, state)
        self.enqueue("late", expires_in=SECOND)
        self.clock.advance(DAY)
        self.session("s2")
        self.claim("s2")
        found = self.store.ended_badly(START)
        assert [one.id for one in found[:3]] == [ids[0], ids[2], ids[3]]
        assert [one.state for one in found] == [State.FAILED, State.CANCELLED, State.FAILED, State.MISSED]
        at = found[1].finished_at
        assert at is not None
        assert [one.id for one in self.store.ended_badly(at, limit=1)] == [ids[2]]
        assert [one.id for one in self.store.ended_badly(at, after=ids[2])] == [one.id for one in found[2:]]
        self.store.prune(self.store.now())
        assert [one.state for one in self.store.ended_badly(START)] == [State.MISSED]

    def test_ranges_of_all_jobs_come_by_number(self) -> None:
        self.define(self.job("first"), self.job("second"))
        assert self.store.decided(after=-1) == []
        self.clock.advance(5 * MINUTE)
        for job in ("first", "second"):
            verdict = VerdictRange(minute(1), minute(2), State.MISSED, "catch_up_window", 2)
            self.fire(minute(3), job=job, verdicts=[verdict])
        found = self.store.decided()
        assert [one.job for one in found] == ["first", "second"]
        assert [(one.range.first, one.range.count) for one in found] == [(minute(1), 2)] * 2
        assert self.store.decided(after=found[0].id) == found[1:]
        assert self.store.decided(limit=1) == found[:1]
        assert self.store.decided(after=-1) == found[1:]
