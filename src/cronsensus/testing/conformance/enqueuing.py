"""Enqueuing: one occurrence per key, whatever the key and however often it is repeated."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from cronsensus.errors import InvalidOption, InvalidPayload, UnknownJob
from cronsensus.model.occurrence import Enqueued, Item, scheduled_key
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import read_payload
from cronsensus.testing.conformance.fixtures import (
    DAY,
    HOSTILE_KEYS,
    HOUR,
    MINUTE,
    SECOND,
    START,
    StoreTest,
    minute,
)
from cronsensus.testing.conformance.steps import give_back
from cronsensus.timing.instants import LATEST


class Enqueuing(StoreTest):
    """Hazards of enqueuing: a caller that asks twice, and a key that is not what it looks like."""

    # --- keys -------------------------------------------------------------------------------------------------------

    def test_a_new_key_makes_an_occurrence(self) -> None:
        self.queue(priority=2)
        self.clock.advance(SECOND)
        made = self.enqueue("key")
        found = self.look(made)
        assert Enqueued(found.id, "queue", "key", created=True, state=State.PENDING) == made
        assert (Origin.ENQUEUE, State.PENDING, 2) == (found.origin, found.state, found.priority)
        assert (None, None, START + SECOND) == (found.scheduled_for, found.retry_of, found.due_at)
        assert (0, 0, None, False) == (found.attempt, found.token, found.session, found.cancel_requested)

    def test_an_existing_key_returns_the_existing_occurrence(self) -> None:
        self.queue()
        first = self.enqueue("key", args=(1,))
        before = self.snapshot()
        again = self.enqueue("key", args=(2,), delay=HOUR, priority=9)
        assert Enqueued(first.id, "queue", "key", created=False, state=State.PENDING) == again
        assert before == self.snapshot()

    def test_an_existing_key_tells_its_arguments_in_the_same_step(self) -> None:
        self.queue()
        assert self.enqueue("key", args=(1, "ä"), kwargs={"copies": 2}).payload is None
        assert self.enqueue("bare").payload is None
        self.session()
        for claim in self.claim():
            self.finish(claim, State.SUCCEEDED)
        for made in (self.enqueue("key", args=(2,)), self.enqueue("key")):
            assert ((1, "ä"), {"copies": 2}) == read_payload(made.payload)
        assert self.enqueue("bare", args=(3,)).payload == ""

    def test_of_two_items_with_one_key_the_second_is_told_the_arguments_of_the_first(self) -> None:
        self.queue()
        first, second = self.store.enqueue([Item(job="queue", key="key", args=(number,)) for number in (1, 2)])
        assert (True, False, None) == (first.created, second.created, first.payload)
        assert ((1,), {}) == read_payload(second.payload)

    def test_headers_go_along_to_each_attempt_and_are_no_arguments(self) -> None:
        self.define(self.job("queue", trigger=None, args=(7,)))
        headers = {"traceparent": "00-01", "tracestate": 'ä="1"'}
        self.store.enqueue(
            [
                Item(job="queue", key="a", headers=headers),
                Item(job="queue", key="b", args=(1,), kwargs={"copies": 2}, headers=headers),
                Item(job="queue", key="c", args=(), kwargs={}, headers=headers),
                Item(job="queue", key="d"),
            ]
        )
        expected = {
            "a": ((7,), {}, headers),
            "b": ((1,), {"copies": 2}, headers),
            "c": ((), {}, headers),
            "d": ((7,), {}, None),
        }
        self.session()
        for attempt in (1, 2):
            claims = self.claim()
            assert expected == {claim.key: (claim.args, claim.kwargs, claim.headers) for claim in claims}, attempt
            assert [one.args for one in map(self.look, claims)] == [claim.args for claim in claims]
            for claim in claims:
                self.finish(claim, State.PENDING if attempt == 1 else State.FAILED, retry_in=SECOND)
            self.clock.advance(SECOND)
        again = self.store.retry(claims[0].id, by="ann", why="")
        assert headers == self.take().headers
        assert again.created

    def test_headers_count_for_nothing_where_a_key_is_known(self) -> None:
        self.queue()
        self.enqueue("key", args=(1,), headers={"traceparent": "00-01"})
        again = self.enqueue("key", args=(1,), headers={"traceparent": "00-02"})
        assert (False, ((1,), {})) == (again.created, read_payload(again.payload))
        self.session()
        assert {"traceparent": "00-01"} == self.take().headers

    def test_an_existing_key_stands_whatever_became_of_it(self) -> None:
        self.queue()
        self.session()
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED, State.RUNNING):
            key = f"key {state}"
            made = self.enqueue(key)
            claim = self.take()
            if state is not State.RUNNING:
                self.finish(claim, state)
            assert Enqueued(made.id, "queue", key, created=False, state=state) == self.enqueue(key)

    def test_one_key_is_two_occurrences_of_two_jobs(self) -> None:
        self.queue("a")
        self.queue("b")
        first, second = self.enqueue("key", "a"), self.enqueue("key", "b")
        assert (True, True) == (first.created, second.created)
        assert first.id != second.id

    def test_a_key_left_out_is_a_new_one(self) -> None:
        self.queue()
        made = self.store.enqueue([Item(job="queue") for _ in range(20)])
        assert all(one.created and one.key for one in made)
        assert 20 == len({one.key for one in made})
        assert not self.enqueue(made[7].key).created

    def test_the_end_of_the_calendar_means_never(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        last = datetime.max.replace(tzinfo=UTC)
        never = [
            self.enqueue("max", due_at=last),
            self.enqueue("west", due_at=datetime.max.replace(tzinfo=timezone(timedelta(hours=14)))),
            self.enqueue("delay", delay=timedelta.max),
            self.enqueue("expires", due_at=last, expires_in=timedelta.max),
        ]
        assert [LATEST] * 4 == [self.look(made).due_at for made in never]
        assert LATEST == self.store.look().next_pending
        now = self.enqueue("min", due_at=datetime.min.replace(tzinfo=UTC), expires_in=timedelta.max)
        assert [now.id] == [claim.id for claim in self.claim(lease=HOUR)]
        assert self.store.look().next_pending == LATEST

    def test_a_retry_at_the_end_of_the_calendar_is_never(self) -> None:
        self.queue()
        self.session()
        self.enqueue("key")
        claim = self.take()
        assert self.finish(claim, State.PENDING, retry_in=timedelta.max).accepted
        assert LATEST == self.look(claim).due_at
        assert LATEST == self.store.look().next_pending

    def test_a_key_repeated_in_one_call_is_made_once(self) -> None:
        self.queue()
        made = self.store.enqueue([Item(job="queue", key=key) for key in ("a", "b", "a", "a")])
        assert [True, True, False, False] == [one.created for one in made]
        assert made[0].id == made[2].id == made[3].id
        assert ["a", "b"] == [one.key for one in self.all()]

    def test_hostile_keys_are_ordinary_and_different_keys(self) -> None:
        self.queue()
        keys = [*HOSTILE_KEYS, "x" * 400, "🧨" * 400]
        made = self.store.enqueue([Item(job="queue", key=key) for key in keys])
        assert [True] * len(keys) == [one.created for one in made]
        assert keys == [one.key for one in self.all()]
        for key, one in zip(keys, made, strict=True):
            assert one.id == self.enqueue(key).id
            assert [one.id] == [found.id for found in self.all(key=key)]

    def test_keys_that_are_none_are_not_enqueued(self) -> None:
        self.queue()
        bad: list[Any] = ["", "a\0b", "@", scheduled_key(minute(1)), "x" * 401, "\ud83d", 7]
        for key in bad:
            with pytest.raises(InvalidOption):
                self.store.enqueue([Item(job="queue", key="good"), Item(job="queue", key=key)])
        assert [] == self.all()

    # --- what is enqueued -------------------------------------------------------------------------------------------

    def test_arguments_left_out_are_the_jobs_own(self) -> None:
        self.define(self.job(trigger=None, args=(1, 2), kwargs={"a": 1}))
        made = [
            self.enqueue(job="job"),
            self.enqueue(job="job", args=(3,)),
            self.enqueue(job="job", kwargs={"b": 2}),
            self.enqueue(job="job", args=(), kwargs={}),
        ]
        wanted = [((1, 2), {"a": 1}), ((3,), {"a": 1}), ((1, 2), {"b": 2}), ((), {})]
        assert wanted == [(found.args, found.kwargs) for found in map(self.look, made)]

    def test_arguments_by_position_or_by_name_alone_are_arguments(self) -> None:
        self.queue()
        made = [self.enqueue(kwargs={"b": 2}), self.enqueue(args=(3,)), self.enqueue()]
        wanted: list[Any] = [((), {"b": 2}), ((3,), {}), ((), {})]
        assert wanted == [(found.args, found.kwargs) for found in map(self.look, made)]

    def test_arguments_come_back_as_they_were_given(self) -> None:
        self.queue()
        self.session()
        args: tuple[Any, ...] = (None, True, 1, -(2**63), 1.5, "ü🧨'\"\\\n\t\0;--", [1, [2, {}]], {"": None, "a b": []})
        self.enqueue(args=args, kwargs={"名前": "🧨", "'": [0]})
        claim = self.take()
        assert (args, {"名前": "🧨", "'": [0]}) == (claim.args, claim.kwargs)

    def test_changing_arguments_after_enqueue_changes_nothing(self) -> None:
        self.queue()
        self.session()
        data = [1]
        made = self.enqueue(args=(data,))
        data.append(2)
        found = self.look(made)
        assert ([1],) == found.args
        found.args[0].append(3)
        assert ([1],) == self.look(made).args
        claim = self.take()
        claim.args[0].append(4)
        give_back(self.store, [claim])
        assert ([1],) == self.take().args

    def test_a_delay_counts_from_the_clock_of_the_store(self) -> None:
        self.queue()
        self.clock.advance(SECOND)
        assert START + SECOND + MINUTE == self.look(self.enqueue(delay=MINUTE)).due_at

    def test_a_due_time_is_absolute(self) -> None:
        self.queue()
        odd = timedelta(hours=1, microseconds=7)
        assert START + odd == self.look(self.enqueue(due_at=START + odd)).due_at
        assert START - DAY == self.look(self.enqueue(due_at=START - DAY)).due_at
        with pytest.raises(InvalidOption):
            self.enqueue(due_at=START.replace(tzinfo=None))

    def test_an_expiry_counts_from_the_due_time(self) -> None:
        self.queue()
        self.session(lease=DAY)
        early = self.enqueue(due_at=START + HOUR, expires_in=MINUTE)
        late = self.enqueue(delay=HOUR, expires_in=2 * MINUTE)
        self.clock.advance(HOUR + 90 * SECOND)
        assert [late.id] == [claim.id for claim in self.claim()]
        assert State.MISSED is self.look(early).state

    def test_priority_and_origin_may_be_given(self) -> None:
        self.queue(priority=2)
        found = self.look(self.enqueue(priority=0, origin=Origin.STARTUP))
        assert (0, Origin.STARTUP) == (found.priority, found.origin)

    def test_enqueuing_leaves_the_schedule_alone(self) -> None:
        self.define()
        before = self.view()
        self.enqueue(job="job")
        assert before == self.view()

    # --- batches ----------------------------------------------------------------------------------------------------

    def test_answers_come_in_the_order_of_the_items(self) -> None:
        self.queue("a")
        self.queue("b")
        self.enqueue("2", "a")
        items = [Item(job=job, key=key) for job, key in (("b", "1"), ("a", "2"), ("a", "1"), ("b", "2"))]
        made = self.store.enqueue(items)
        assert [(item.job, item.key) for item in items] == [(one.job, one.key) for one in made]
        assert [True, False, True, True] == [one.created for one in made]

    def test_work_is_claimed_in_the_order_of_enqueuing(self) -> None:
        self.queue()
        self.session()
        ids = self.fill(30)
        assert sorted(ids) == ids
        assert ids == [claim.id for claim in self.claim()]

    def test_many_items_are_enqueued_in_one_call(self) -> None:
        self.queue()
        made = self.store.enqueue([Item(job="queue", key=str(number), args=(number,)) for number in range(3000)])
        assert 3000 == len({one.id for one in made if one.created})
        again = self.store.enqueue([Item(job="queue", key=str(number)) for number in range(3000)])
        assert [(one.id, False) for one in made] == [(one.id, one.created) for one in again]

    def test_nothing_is_enqueued_if_one_item_is_bad(self) -> None:
        self.queue()
        self.queue("retired")
        self.store.retire("retired", by="ann", why="")
        bad = [
            (UnknownJob, Item(job="nobody")),
            (UnknownJob, Item(job="retired")),
            (InvalidPayload, Item(job="queue", args=(object(),))),
            (InvalidPayload, Item(job="queue", kwargs={"a": {1, 2}})),
            (InvalidPayload, Item(job="queue", args=(float("nan"),))),
            (InvalidPayload, Item(job="queue", args=("x" * 300_000,))),
        ]
        for error, item in bad:
            with pytest.raises(error):
                self.store.enqueue([Item(job="queue", key="good"), item, Item(job="queue")])
        assert [] == self.all()

    def test_enqueuing_nothing_is_nothing(self) -> None:
        assert [] == self.store.enqueue([])
