"""Acquiring: winning one named occurrence, for hosts where another program keeps time."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronsensus.errors import InvalidOption, LeaseLost
from cronsensus.model.acquiring import MOST_EARLY, Ask, AskNamed, NotWon
from cronsensus.model.occurrence import Claim, scheduled_key
from cronsensus.model.states import Origin, State
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, MINUTE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import give_back, win_named


class Acquiring(StoreTest):
    """Hazards of another timekeeper: every replica's crontab fires, and each says that it is the one."""

    def test_the_first_to_name_a_time_wins_it(self) -> None:
        self.queue()
        self.session("s1")
        self.session("s2")
        claim = self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE)
        assert claim is not None
        assert ("queue", scheduled_key(minute(1)), minute(1)) == (claim.job, claim.key, claim.scheduled_for)
        assert (Origin.SCHEDULE, 1, "s1", START) == (claim.origin, claim.attempt, claim.session, claim.due_at)
        assert win_named(self.sibling(), "s2", "queue", scheduled_for=minute(1), lease=LEASE) is None
        assert self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE) is None
        assert [(claim.id, State.RUNNING)] == [(one.id, one.state) for one in self.all()]

    def test_the_first_to_name_a_key_wins_it(self) -> None:
        self.queue(priority=3)
        self.session()
        claim = self.acquire("s1", "queue", key="key", lease=LEASE)
        assert claim is not None
        assert ("key", None) == (claim.key, claim.scheduled_for)
        assert 3 == self.look(claim).priority
        assert self.acquire("s1", "queue", key="key", lease=LEASE) is None
        assert self.acquire("s1", "queue", key="other", lease=LEASE) is not None

    def test_arguments_are_the_jobs_own(self) -> None:
        self.define(self.job(trigger=None, args=(1,), kwargs={"a": 2}))
        self.session()
        claim = self.acquire("s1", "job", key="key", lease=LEASE)
        assert claim is not None
        assert ((1,), {"a": 2}) == (claim.args, claim.kwargs)
        assert self.view().spec == claim.spec

    def test_an_ended_occurrence_is_not_acquired_again(self) -> None:
        self.queue()
        self.session()
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED):
            key = f"key {state}"
            claim = self.acquire("s1", "queue", key=key, lease=LEASE)
            assert claim is not None
            self.finish(claim, state)
            assert self.acquire("s1", "queue", key=key, lease=LEASE) is None

    def test_acquire_takes_a_pending_occurrence_and_makes_it_due_now(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        made = self.enqueue("key", delay=HOUR)
        enqueued = self.acquire("s1", "queue", key="key", lease=LEASE)
        assert enqueued is not None
        assert made.id == enqueued.id
        assert START == enqueued.due_at == self.look(enqueued).due_at
        assert 1 == len(self.all())
        assert [] == self.claim()

    def test_a_released_occurrence_is_acquired_again_under_a_greater_token(self) -> None:
        self.queue()
        self.session()
        first = self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE)
        assert first is not None
        give_back(self.store, [first])
        second = self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE)
        assert second is not None
        assert first.id == second.id
        assert first.token < second.token

    def test_an_acquired_run_is_finished_and_reclaimed_like_any_other(self) -> None:
        self.queue()
        self.session()
        done = self.acquire("s1", "queue", key="done", lease=LEASE)
        lost = self.acquire("s1", "queue", key="lost", lease=LEASE)
        assert done is not None
        assert lost is not None
        assert self.finish(done).accepted
        self.lease_out()
        assert [lost.id] == [taken.id for taken in self.store.reclaim()]
        self.session("s2")
        assert lost.id == self.take("s2").id

    def test_one_instant_is_one_occurrence_in_every_time_zone(self) -> None:
        self.queue()
        self.session()
        paris = minute(1).astimezone(ZoneInfo("Europe/Paris"))
        assert self.acquire("s1", "queue", scheduled_for=paris, lease=LEASE) is not None
        assert self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE) is None
        assert [minute(1)] == self.nominal("queue")

    def test_exactly_one_name_is_to_be_given(self) -> None:
        self.queue()
        self.session()
        with pytest.raises(InvalidOption):
            self.acquire("s1", "queue", lease=LEASE)
        with pytest.raises(InvalidOption):
            self.acquire("s1", "queue", scheduled_for=minute(1), key="key", lease=LEASE)
        with pytest.raises(InvalidOption):
            self.acquire("s1", "queue", scheduled_for=minute(1).replace(tzinfo=None), lease=LEASE)
        assert [] == self.all()

    def test_keys_that_are_none_are_not_acquired(self) -> None:
        self.queue()
        self.session()
        for key in ("", scheduled_key(minute(1)), "a\0b", "x" * 401):
            with pytest.raises(InvalidOption):
                self.acquire("s1", "queue", key=key, lease=LEASE)
        assert [] == self.all()

    # --- many in one step -------------------------------------------------------------------------------------------

    def _answers(self, asks: Sequence[Ask | AskNamed], by: str = "s1") -> list[Claim | NotWon]:
        return [one for [one] in self.store.acquire(by, asks, lease=LEASE)]

    def test_fifty_keys_of_several_jobs_are_won_in_one_step_and_lost_by_the_next(self) -> None:
        jobs = [self.queue(f"job {number}", concurrency=1) for number in range(5)]
        self.session("s1")
        self.session("s2")
        asks = [AskNamed(jobs[number % 5], key=f"key {number // 10}{number % 5}{number % 2}") for number in range(50)]
        assert 50 == len(set(asks))
        answers = self._answers(asks)
        claims = [answer for answer in answers if isinstance(answer, Claim)]
        assert [(ask.job, ask.key, "s1", Origin.ENQUEUE, 1) for ask in asks] == [
            (claim.job, claim.key, claim.session, claim.origin, claim.attempt) for claim in claims
        ]
        assert 50 == len({claim.token for claim in claims}) == len({claim.id for claim in claims})
        assert {claim.id: (claim.job, claim.key, State.RUNNING, claim.token) for claim in claims} == {
            one.id: (one.job, one.key, one.state, one.token) for one in self.all()
        }
        assert [NotWon.LOST] * 50 == self._answers(asks[::-1], by="s2")
        assert all(self.finish(claim).accepted for claim in claims)

    def test_each_of_many_keys_has_the_answer_of_its_own(self) -> None:
        self.queue(keep="1h")
        self.queue("empty")
        self.session(lease=DAY)
        self.finish(self._win_key("old"))
        self.clock.advance(2 * HOUR)
        self.session(lease=DAY)
        times = [self._win_time(minute(number)) for number in (1, 3)]
        for claim in times:
            self.finish(claim)
        self.clock.advance(SECOND)
        assert 3 == self.store.prune(self.store.now())
        self.finish(self._win_key("kept long enough"))
        self.clock.advance(2 * HOUR)
        self.session(lease=DAY)
        self.finish(self._win_key("done"))
        self.finish(self._win_key("failed"), State.FAILED)
        self.finish(self._win_key("waits", fingerprint="a"), State.PENDING, retry_in=MINUTE)
        cut_off = self._win_key("cut off", fingerprint="a")
        give_back(self.store, [cut_off], cut="stopped")
        running = self._win_key("running")
        asks: list[Ask | AskNamed] = [
            *(AskNamed("queue", key=key, fingerprint="b") for key in ("done", "failed", "waits", "running", "cut off")),
            *(AskNamed("queue", key=key) for key in ("kept long enough", "absent", "waits")),
            *(AskNamed(job, key="key") for job in ("empty", "nobody")),
            *(AskNamed("queue", scheduled_for=minute(number)) for number in (1, 2, 3, 500)),
            Ask("queue", (minute(5),)),
            Ask("queue", (minute(5),)),
        ]
        answers = self._answers(asks)
        won = [answer for answer in answers if isinstance(answer, Claim)]
        expected = [
            NotWon.LOST, NotWon.LOST, ("waits", 2, "b"), NotWon.LOST, ("cut off", 2, "a"),
            ("kept long enough", 1, None), ("absent", 1, None), NotWon.LOST,
            ("key", 1, None), NotWon.UNKNOWN,
            NotWon.PRUNED, NotWon.PRUNED, NotWon.PRUNED, (scheduled_key(minute(500)), 1, None),
            (scheduled_key(minute(5)), 1, None), NotWon.LOST,
        ]  # fmt: skip
        assert expected == [
            (answer.key, answer.attempt, answer.fingerprint) if isinstance(answer, Claim) else answer
            for answer in answers
        ]
        assert sorted(one.token for one in won) == [one.token for one in won]
        assert min(one.token for one in won) > running.token
        assert {one.id: (one.fingerprint, one.due_at) for one in won} == {
            one.id: (one.fingerprint, one.due_at) for one in map(self.look, won)
        }
        assert {self.store.now()} == {one.due_at for one in won if one.key != "cut off"}
        assert minute(500) == self.view("queue").watermark

    def test_of_two_asks_for_one_occurrence_the_first_wins(self) -> None:
        self.queue()
        self.session()
        named, timed = AskNamed("queue", scheduled_for=minute(0)), Ask("queue", (minute(0),))
        late = Ask("queue", (START - MINUTE,), "late")
        asks = [AskNamed("queue", key="key", fingerprint=text) for text in "ab"]
        before: list[Ask | AskNamed] = [*asks, late, AskNamed("queue", scheduled_for=START - MINUTE)]
        first, *rest = self._answers(before)
        assert isinstance(first, Claim)
        assert ("a", "a") == (first.fingerprint, self.look(first).fingerprint)
        assert [NotWon.LOST, NotWon.LATE, NotWon.LOST] == rest
        won, lost, again = self._answers([named, timed, named])
        assert isinstance(won, Claim)
        assert [NotWon.LOST] * 2 == [lost, again]
        assert 3 == len(self.all())

    def test_what_is_named_counts_against_the_times_that_compete_after_it(self) -> None:
        self.queue(concurrency=2)
        self.session()
        first, last = AskNamed("queue", key="a"), AskNamed("queue", key="b")
        answers = self._answers([first, Ask("queue", (START,)), Ask("queue", (START + MOST_EARLY,)), last])
        assert [Claim, Claim, NotWon, Claim] == [type(answer) for answer in answers]
        assert NotWon.FULL is answers[2]

    def test_one_bad_ask_in_many_and_nothing_is_done(self) -> None:
        self.queue()
        self.session()
        good = [AskNamed("queue", key=f"key {number}") for number in range(3)]
        for bad in (
            AskNamed("queue", key="a\0b"),
            AskNamed("queue"),
            AskNamed("queue", key="key", scheduled_for=START),
            AskNamed("queue", scheduled_for=START.replace(tzinfo=None)),
            AskNamed("queue", scheduled_for=START + 367 * DAY),
            AskNamed("nobody", scheduled_for=START + 367 * DAY),
        ):
            with pytest.raises(InvalidOption):
                self.store.acquire("s1", [*good, bad, *good], lease=LEASE)
        assert [] == self.all()

    def test_a_session_that_is_not_alive_wins_none_of_many(self) -> None:
        self.queue(keep="1h")
        self.session("s1", lease=DAY)
        self.finish(self._win_key("old"))
        self.clock.advance(2 * DAY)
        asks: list[Ask | AskNamed] = [
            AskNamed("queue", key="old"),
            AskNamed("queue", key="new"),
            Ask("queue", (START,)),
            Ask("queue", (), "late"),
        ]
        before = self.all()
        with pytest.raises(LeaseLost):
            self.store.acquire("s1", asks, lease=LEASE)
        assert before == self.all()
        assert START == self.view("queue").watermark

    def test_keys_asked_for_in_opposite_orders_at_the_same_instant_are_won_once(self) -> None:
        jobs = [self.queue(f"job {number}") for number in range(3)]
        for number in range(8):
            self.session(f"s{number}")
        for turn in range(8):
            asks = [AskNamed(jobs[number % 3], key=f"{turn} {number}") for number in range(50)]
            for ask in asks[::7]:
                self.enqueue(ask.key, job=ask.job, delay=HOUR)

            def want(store: Store, thread: int, asks: list[AskNamed] = asks) -> list[tuple[Claim | NotWon, ...]]:
                return store.acquire(f"s{thread}", asks if thread % 2 else asks[::-1], lease=LEASE)

            answers = [one for got in self.race(want, threads=4) for [one] in got]
            claims = [answer for answer in answers if isinstance(answer, Claim)]
            assert sorted((ask.job, str(ask.key)) for ask in asks) == sorted((claim.job, claim.key) for claim in claims)
            assert 50 == len({claim.token for claim in claims})
            assert 150 == answers.count(NotWon.LOST)

    def _win_key(self, key: str, **more: Any) -> Claim:
        claim = self.acquire("s1", "queue", key=key, lease=DAY, **more)
        assert claim is not None
        return claim

    def _win_time(self, time: datetime) -> Claim:
        claim = self.acquire("s1", "queue", scheduled_for=time, lease=DAY)
        assert claim is not None
        return claim

    # --- the watermark ----------------------------------------------------------------------------------------------

    def test_a_time_above_the_watermark_moves_that_of_a_job_without_a_trigger(self) -> None:
        self.queue()
        self.session()
        self.acquire("s1", "queue", scheduled_for=minute(5), lease=LEASE)
        assert minute(5) == self.view("queue").watermark

    def test_acquiring_passes_over_no_time_that_an_earlier_trigger_left_undecided(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.clock.advance(2 * MINUTE)
        self.define(self.job(trigger=None))
        assert self.acquire("s1", "job", scheduled_for=minute(5), lease=HOUR) is not None
        assert (START, minute(1)) == (self.view().watermark, self.view().next_due)
        assert [True] == self.round()
        assert (minute(2), None) == (self.view().watermark, self.view().next_due)
        assert self.acquire("s1", "job", scheduled_for=minute(6), lease=HOUR) is not None
        assert minute(6) == self.view().watermark

    def test_an_earlier_time_is_won_too_and_moves_nothing(self) -> None:
        self.queue()
        self.session()
        self.acquire("s1", "queue", scheduled_for=minute(5), lease=LEASE)
        assert self.acquire("s1", "queue", scheduled_for=minute(3), lease=LEASE) is not None
        assert minute(5) == self.view("queue").watermark

    def test_the_times_of_a_trigger_are_not_to_be_had(self) -> None:
        self.define()
        self.session(lease=HOUR)
        for time in (minute(0), minute(1), minute(5)):
            assert self.acquire("s1", "job", scheduled_for=time, lease=HOUR) is None
        assert [] == self.all()
        assert (START, minute(1)) == (self.view().watermark, self.view().next_due)
        self.clock.advance(3 * MINUTE)
        assert [True] == self.round()
        # Two of the three were skipped, and the third has its jitter, its overlap policy and its turn.
        for time in (minute(1), minute(3)):
            assert self.acquire("s1", "job", scheduled_for=time, lease=HOUR) is None
        assert [(minute(3), State.PENDING)] == [(one.scheduled_for, one.state) for one in self.all()]

    def test_nominal_times_of_an_earlier_trigger_are_not_acquired(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.clock.advance(2 * MINUTE)
        self.define(self.job(trigger=None))
        assert self.acquire("s1", "job", scheduled_for=minute(1), lease=HOUR) is None
        assert [True] == self.round()
        assert self.acquire("s1", "job", scheduled_for=minute(1), lease=HOUR) is None
        assert [minute(2)] == self.nominal()
        assert self.acquire("s1", "job", scheduled_for=minute(3), lease=HOUR) is not None

    def test_a_time_before_the_job_was_defined_is_won(self) -> None:
        self.clock.advance(HOUR)
        self.queue()
        self.session()
        assert self.acquire("s1", "queue", scheduled_for=minute(1), lease=LEASE) is not None

    def test_no_time_of_a_paused_job_is_won_but_what_stood_before_and_what_has_a_key(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        before = self.acquire("s1", "queue", scheduled_for=minute(1), lease=HOUR)
        assert before is not None
        give_back(self.store, [before])
        self.store.pause("queue", by="ann", why="maintenance")
        assert self.acquire("s1", "queue", scheduled_for=minute(2), lease=HOUR) is None
        assert [minute(1)] == self.nominal("queue")
        assert minute(1) == self.view("queue").watermark
        assert self.acquire("s1", "queue", scheduled_for=minute(1), lease=HOUR) is not None
        assert self.acquire("s1", "queue", key="key", lease=HOUR) is not None
        self.store.resume("queue", by="ann")
        assert self.acquire("s1", "queue", scheduled_for=minute(2), lease=HOUR) is not None

    def test_a_time_years_ahead_is_refused_and_moves_nothing(self) -> None:
        self.queue()
        self.session()
        far = datetime.fromtimestamp(START.timestamp() * 4, UTC)
        for wrong in (far, START + 366 * DAY + timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)):
            with pytest.raises(InvalidOption, match="milliseconds taken for seconds"):
                self.acquire("s1", "queue", scheduled_for=wrong, lease=LEASE)
        assert [] == self.all()
        assert START == self.view("queue").watermark
        for right in (minute(1), START + 366 * DAY):
            assert self.acquire("s1", "queue", scheduled_for=right, lease=LEASE) is not None

    def test_keys_move_no_watermark(self) -> None:
        self.queue()
        self.session()
        self.clock.advance(SECOND)
        self.acquire("s1", "queue", key="key", lease=LEASE)
        assert START == self.view("queue").watermark

    def test_acquire_at_or_below_the_pruned_horizon_is_refused(self) -> None:
        self.queue()
        self.session(lease=DAY)
        for number in (1, 3):
            claim = self.acquire("s1", "queue", scheduled_for=minute(number), lease=DAY)
            assert claim is not None
            self.finish(claim)
        self.clock.advance(HOUR)
        assert 2 == self.store.prune(self.store.now())
        for number in (0, 1, 2, 3):
            asked = AskNamed("queue", scheduled_for=minute(number))
            assert [(NotWon.PRUNED,)] == self.store.acquire("s1", [asked], lease=DAY)
        assert [] == self.all()
        above = minute(3) + timedelta(microseconds=1)
        assert self.acquire("s1", "queue", scheduled_for=above, lease=DAY) is not None

    # --- beside what else runs --------------------------------------------------------------------------------------

    def test_a_manual_run_waits_for_a_later_one_acquired_by_name_unless_they_may_overlap(self) -> None:
        for number, overlap in enumerate(("skip", "queue", "allow")):
            job = self.queue(f"job {overlap}", overlap=overlap)
            self.session(f"s{number}")
            manual = self.store.trigger(job, by="ann")
            acquired = self.acquire(f"s{number}", job, scheduled_for=minute(1), lease=LEASE)
            assert acquired is not None
            assert manual.id < acquired.id
            claimed = self.claim(f"s{number}", functions=[job])
            assert [manual.id] * (overlap == "allow") == [one.id for one in claimed], overlap
            assert self.finish(acquired).accepted
            claimed += self.claim(f"s{number}", functions=[job])
            assert [manual.id] == [one.id for one in claimed], overlap

    # --- only for the living ----------------------------------------------------------------------------------------

    def test_a_job_that_does_not_exist_is_unknown(self) -> None:
        self.queue()
        self.session()
        self.store.retire("queue", by="ann", why="")
        for name in ("queue", "nobody"):
            assert [(NotWon.UNKNOWN,)] == self.store.acquire("s1", [AskNamed(name, key="key")], lease=LEASE)
            with pytest.raises(LeaseLost):
                self.store.acquire("nobody", [AskNamed(name, key="key")], lease=LEASE)
        assert [] == self.all()

    def test_the_session_must_be_alive(self) -> None:
        self.queue()
        self.session("overdue")
        self.lease_out()
        self.session("closed")
        self.store.close_session("closed")
        for name in ("closed", "overdue", "nobody"):
            with pytest.raises(LeaseLost):
                self.acquire(name, "queue", scheduled_for=minute(1), lease=LEASE)
        assert [] == self.all()
        assert START == self.view("queue").watermark

    def test_acquiring_sets_the_lease(self) -> None:
        self.queue()
        self.session("short")
        self.session("long", lease=HOUR)
        self.clock.advance(9)
        self.acquire("short", "queue", key="a", lease=LEASE)
        self.acquire("long", "queue", key="b", lease=LEASE)
        self.clock.advance(9)
        assert self.store.renew("short", lease=LEASE).alive
        self.clock.advance(2)
        assert not self.store.renew("long", lease=MINUTE).alive
