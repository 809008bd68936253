"""Competing: many nominal times in one step, within what ``concurrency`` allows, and a verdict for what nobody runs."""

# ruff: noqa: D102, D103, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import get_args

import pytest

from cronsensus.errors import InvalidOption, LeaseLost
from cronsensus.model.acquiring import MOST_EARLY, Ask, Intent, NotWon
from cronsensus.model.ends import End
from cronsensus.model.occurrence import MOST_IN_FUTURE, Claim
from cronsensus.model.states import Origin, State
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import HOUR, LEASE, MINUTE, SECOND, START, StoreTest
from cronsensus.testing.conformance.steps import an_end, give_back, settle, take

LOST, FULL, LATE, PAUSED, LEFT, UNKNOWN = (
    (one,) for one in (NotWon.LOST, NotWon.FULL, NotWon.LATE, NotWon.PAUSED, NotWon.LEFT, NotWon.UNKNOWN)
)


def moment(number: int) -> datetime:
    """Return the nominal time ``number`` hundredths of a second after the start: all of them are due."""
    return START + number * timedelta(milliseconds=10)


def ended(claim: Claim) -> End:
    return an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)


class Competing(StoreTest):
    """Hazards of replicas that name the same times at the same instant, and of work that takes longer than a period."""

    def _ask(
        self, *times: datetime, job: str = "queue", by: str = "s1", intent: Intent = "run", store: Store | None = None
    ) -> tuple[Claim | NotWon, ...]:
        [answer] = (store or self.store).acquire(by, [Ask(job, times, intent)], lease=LEASE)
        return answer

    def _won(self, *times: datetime, job: str = "queue", by: str = "s1") -> list[Claim]:
        return [one for one in self._ask(*times, job=job, by=by) if isinstance(one, Claim)]

    def _verdicts(self) -> dict[datetime | None, tuple[State, str | None]]:
        return {one.scheduled_for: (one.state, one.reason) for one in self.all()}

    def test_times_of_many_jobs_are_won_in_one_step(self) -> None:
        self.session()
        self.session("s2")
        jobs = [self.queue(f"job {number}") for number in range(20)]
        asks = [Ask(job, (moment(1),)) for job in [*jobs, "nothing"]]
        *answers, unknown = self.store.acquire("s1", asks, lease=LEASE)
        claims = [one for answer in answers for one in answer if isinstance(one, Claim)]
        assert UNKNOWN == unknown
        assert [(job, moment(1), "s1", 1, Origin.SCHEDULE, START) for job in jobs] == [
            (claim.job, claim.scheduled_for, claim.session, claim.attempt, claim.origin, claim.due_at)
            for claim in claims
        ]
        assert 20 == len({claim.token for claim in claims}) == len({claim.id for claim in claims})
        assert [LOST] * 20 == self.sibling().acquire("s2", asks[:-1], lease=LEASE)
        assert [True] * 20 == [one.accepted for one in settle(self.store, [ended(claim) for claim in claims])]
        assert {moment(1)} == {self.view(job).watermark for job in jobs}

    def test_a_full_job_has_its_time_skipped_and_says_so_once(self) -> None:
        self.queue(concurrency=1)
        self.session()
        self.session("s2")
        [running] = self._won(moment(1))
        assert FULL == self._ask(moment(2), by="s2")
        assert LOST == self._ask(moment(2)) == self._ask(moment(2), by="s2")
        assert (State.SKIPPED, "overlap") == self._verdicts()[moment(2)]
        assert moment(2) == self.view("queue").watermark
        self.finish(running)
        assert 1 == len(self._won(moment(3), by="s2"))

    def test_what_other_verbs_claimed_counts_too(self) -> None:
        self.queue(concurrency=1)
        self.session()
        self.enqueue()
        [claim] = take(self.store, "s1", 1, ["queue"], lease=LEASE)
        assert FULL == self._ask(moment(1))
        self.finish(claim)
        assert 1 == len(self._won(moment(2)))

    def test_runs_of_a_dead_session_do_not_count(self) -> None:
        self.queue(concurrency=1)
        self.session("dead")
        self.session("s1", lease=HOUR)
        assert 1 == len(self._won(moment(1), by="dead"))
        self.clock.advance(LEASE)
        assert 1 == len(self._won(moment(2)))

    def test_times_of_one_ask_need_room_for_one(self) -> None:
        self.queue(concurrency=1)
        self.session()
        group = self._won(moment(1), moment(2), moment(3))
        assert [moment(1), moment(2), moment(3)] == [one.scheduled_for for one in group]
        assert (NotWon.FULL, NotWon.FULL) == self._ask(moment(4), moment(5))
        assert (NotWon.LOST, NotWon.FULL) == self._ask(moment(5), moment(6))

    def test_asks_for_one_job_in_one_step_count_one_after_another(self) -> None:
        self.queue(concurrency=2)
        self.session()
        asks = [Ask("queue", (moment(number),)) for number in (1, 2, 3, 1)]
        first, second, *rest = self.store.acquire("s1", asks, lease=LEASE)
        assert [Claim, Claim] == [type(one) for one in (*first, *second)]
        assert [FULL, LOST] == rest
        assert 2 == self.store.counts().running

    def test_a_time_that_nobody_started_in_time_is_missed(self) -> None:
        self.queue()
        self.session()
        assert LATE == self._ask(moment(1), intent="late")
        assert LOST == self._ask(moment(1), intent="late") == self._ask(moment(1))
        assert {moment(1): (State.MISSED, "late")} == self._verdicts()
        assert moment(1) == self.view("queue").watermark
        [claim] = self._won(moment(2))
        assert LOST == self._ask(moment(2), intent="late")
        assert State.RUNNING == self.look(claim).state

    def test_a_caller_without_room_leaves_the_time_to_others(self) -> None:
        self.queue(concurrency=1)
        self.session()
        assert LEFT == self._ask(moment(1), intent="full")
        assert [] == self.all()
        assert START == self.view("queue").watermark
        assert 1 == len(self._won(moment(1)))
        assert FULL == self._ask(moment(2), intent="full")
        assert (State.SKIPPED, "overlap") == self._verdicts()[moment(2)]

    def test_a_paused_job_has_its_time_skipped(self) -> None:
        self.queue()
        self.session()
        self.store.pause("queue", by="ann", why="test")
        assert PAUSED == self._ask(moment(1))
        assert {moment(1): (State.SKIPPED, "paused")} == self._verdicts()
        self.store.resume("queue", by="ann", why="test")
        assert LOST == self._ask(moment(1))
        assert 1 == len(self._won(moment(2)))

    def test_what_waits_is_taken_when_there_is_room_and_never_skipped(self) -> None:
        self.queue(concurrency=1)
        self.session()
        [cut_off] = self._won(moment(1))
        give_back(self.store, [cut_off], cut="stopped")
        [other] = self._won(moment(2))
        assert LOST == self._ask(moment(1)) == self._ask(moment(1), intent="late")
        assert State.PENDING == self.look(cut_off).state
        self.finish(other)
        [again] = self._won(moment(1))
        assert (cut_off.id, 2) == (again.id, again.attempt)
        assert again.token > other.token > cut_off.token

    def test_what_is_given_back_unbegun_is_missed_past_its_grace_and_what_began_is_not(self) -> None:
        self.queue(grace=MINUTE, overlap="allow")
        self.session()
        self.session("s2", lease=HOUR)
        unbegun, begun = self._won(moment(1), moment(2))
        give_back(self.store, [unbegun])
        give_back(self.store, [begun], cut="stopped")
        self.clock.advance(MINUTE)
        assert State.PENDING == self.look(unbegun).state
        self.clock.advance(SECOND)
        assert [begun.id] == [one.id for one in take(self.store, "s2", 2, ["queue"], lease=LEASE)]
        assert (State.MISSED, "late") == self._verdicts()[moment(1)]

    def test_what_waits_for_a_later_moment_is_not_taken(self) -> None:
        self.queue()
        self.session()
        [claim] = self._won(moment(1))
        self.finish(claim, State.PENDING, retry_in=MINUTE)
        assert LOST == self._ask(moment(1))

    def test_a_time_is_not_granted_before_the_clock_of_the_store_says_it(self) -> None:
        self.queue(concurrency=1)
        self.queue("other")
        self.session("s1", lease=HOUR)
        time = START + MINUTE
        self.clock.advance(MINUTE - MOST_EARLY - timedelta(microseconds=1))
        for intent in get_args(Intent):
            assert (NotWon.EARLY,) == self._ask(time, intent=intent)
        assert (Claim, NotWon) == tuple(type(one) for one in self._ask(moment(1), time, job="other"))
        assert [] == self.all(job="queue")
        assert START == self.view("queue").watermark
        self.clock.advance(timedelta(microseconds=1))
        assert 1 == len(self._won(time))

    def test_a_time_that_plans_decide_is_lost_and_the_others_are_won(self) -> None:
        self.define()
        self.queue()
        self.session()
        asks = [Ask("job", (moment(1),)), Ask("queue", (moment(1),))]
        planned, mine = self.store.acquire("s1", asks, lease=LEASE)
        assert LOST == planned
        assert [Claim] == [type(one) for one in mine]

    def test_a_session_that_is_not_alive_wins_nothing(self) -> None:
        self.queue()
        with pytest.raises(LeaseLost):
            self._ask(moment(1), by="nobody")
        self.session()
        self.clock.advance(LEASE)
        with pytest.raises(LeaseLost):
            self._ask(moment(1))
        assert [] == self.all()

    def test_winning_sets_the_lease(self) -> None:
        self.queue(concurrency=1)
        self.session("s1", lease=HOUR)
        self.session("s2", lease=HOUR)
        assert 1 == len(self._won(moment(1)))
        assert FULL == self._ask(moment(2), by="s2")
        assert {"s1": LEASE, "s2": HOUR} == {session.id: session.expires_in for session in self.store.sessions()}

    def test_an_impossible_time_stops_all_of_it(self) -> None:
        self.queue()
        self.session()
        far = START + MOST_IN_FUTURE + MINUTE
        for wrong in (far, START.replace(tzinfo=None)):
            with pytest.raises(InvalidOption):
                self.store.acquire("s1", [Ask("queue", (moment(1),)), Ask("queue", (wrong,))], lease=LEASE)
        assert [] == self.all()
        assert [] == self.store.acquire("s1", [], lease=LEASE)

    def test_the_limit_holds_when_replicas_ask_at_the_same_instant(self) -> None:
        limits = {self.queue(f"limit {most}", concurrency=most): most for most in (1, 3)}
        for number in range(8):
            self.session(f"s{number}")
        for turn in range(1, 9):

            def want(store: Store, thread: int, turn: int = turn) -> list[tuple[Claim | NotWon, ...]]:
                # Each names another time of its own, besides the one that all name.
                times = (moment(10 * turn), moment(10 * turn + 1 + thread))
                asks = [Ask(job, (time,)) for time in times for job in limits]
                return store.acquire(f"s{thread}", asks if thread % 2 else asks[::-1], lease=LEASE)

            answers = [one for got in self.race(want) for answer in got for one in answer]
            claims = [one for one in answers if isinstance(one, Claim)]
            assert limits == Counter(claim.job for claim in claims)
            assert 2 * 9 - len(claims) == answers.count(NotWon.FULL)
            assert 2 * 7 == answers.count(NotWon.LOST)
            settle(self.store, [ended(claim) for claim in claims])
