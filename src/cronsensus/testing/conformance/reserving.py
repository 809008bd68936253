"""Reserving: a node of a long queue claims more than it has slots for, and nothing comes of that but speed."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim, Note, Takeover
from cronsensus.model.states import State
from cronsensus.model.step import GiveBack, Step, Want
from cronsensus.testing.conformance.fixtures import LEASE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import an_end, give_back


class Reserving(StoreTest):
    """Hazards of reserving: a crash that was none, one that does not count, a place in the queue that is lost."""

    def reserve(self, limit: int, reserve: int, *, session: str = "s1", nodes: int = 1, **step: Any) -> list[Claim]:
        """Claim so many to begin and so many to wait."""
        want = Want(limit=limit, functions=tuple(self._functions), lease=LEASE, reserve=reserve, nodes=nodes)
        return list(self.store.step(session, Step(want=want, **step)).claims)

    def one_reserved(self, **policies: Any) -> Claim:
        """Define a queue, open a session, and reserve the one occurrence that waits."""
        self.queue(**policies)
        self.session()
        self.fill(1)
        [claim] = self.reserve(0, 1)
        return claim

    def ended(self, claim: Claim, state: State = State.SUCCEEDED, **more: Any) -> End:
        """Return how a claim ended."""
        return an_end(id=claim.id, token=claim.token, session=claim.session, state=state, **more)

    def test_reserved_claims_come_behind_those_that_begin_in_order(self) -> None:
        self.queue()
        self.session()
        ids = self.fill(5)
        claims = self.reserve(2, 2)
        assert ids[:4] == [claim.id for claim in claims]
        assert [False, False, True, True] == [claim.reserved for claim in claims]
        assert [False, False, True, True] == [self.look(claim).reserved for claim in claims]
        assert ids[4:] == [one.id for one in self.reserve(9, 9)]

    def test_reserved_run_is_recorded_from_when_it_began(self) -> None:
        claim = self.one_reserved()
        self.clock.advance(5)
        self.store.step("s1", Step(ends=(self.ended(claim, elapsed=2 * SECOND),)))
        [run] = self.runs(claim)
        assert (START + 3 * SECOND, START + 5 * SECOND) == (run.started_at, run.finished_at)
        assert (START + 3 * SECOND, False) == (self.look(claim).started_at, self.look(claim).reserved)

    def test_reserved_run_began_no_sooner_than_it_was_claimed(self) -> None:
        claim = self.one_reserved()
        self.store.step("s1", Step(ends=(self.ended(claim, elapsed=9 * SECOND),)))
        assert [START] == [run.started_at for run in self.runs(claim)]

    def test_reserved_run_that_failed_may_be_reserved_again(self) -> None:
        claim = self.one_reserved(retries=3)
        [again] = self.reserve(0, 9, ends=(self.ended(claim, State.PENDING, retry_in=timedelta(0)),))
        assert (claim.id, 2, 1, True) == (again.id, again.attempt, again.failures, again.reserved)

    def goes_back_without_a_crash(self, claim: Claim, taken: list[Takeover]) -> None:
        """Look at what became of a reserved claim whose session has ended."""
        assert [State.PENDING] == [one.became for one in taken]
        found = self.look(claim)
        assert (State.PENDING, 0, 1) == (found.state, found.crashes, found.attempt)
        assert not found.reserved
        assert ["released"] == [run.end for run in self.runs(claim)]

    def test_reserved_claim_whose_node_is_gone_counts_no_crash(self) -> None:
        claim = self.one_reserved(max_crashes=1)
        self.goes_back_without_a_crash(claim, self.store.reclaim(["s1"]))

    def test_reserved_claim_whose_lease_ran_out_counts_no_crash(self) -> None:
        claim = self.one_reserved(max_crashes=1)
        self.lease_out()
        self.goes_back_without_a_crash(claim, self.store.reclaim())

    def test_reserved_claim_of_a_session_closed_in_order_goes_back(self) -> None:
        claim = self.one_reserved(max_crashes=1)
        self.goes_back_without_a_crash(claim, self.store.close_session("s1"))

    def test_claim_that_was_reserved_by_a_node_that_is_gone_is_not_reserved_again(self) -> None:
        claim = self.one_reserved(max_crashes=1)
        self.store.reclaim(["s1"])
        self.session("s2")
        assert [] == self.reserve(0, 9, session="s2")
        [again] = self.reserve(1, 9, session="s2")
        assert (claim.id, 2, False) == (again.id, again.attempt, again.reserved)
        [taken] = self.store.reclaim(["s2"])
        assert (State.FAILED, 1) == (taken.became, self.look(claim).crashes)

    def test_reserved_run_that_says_it_has_begun_counts_its_crash(self) -> None:
        claim = self.one_reserved()
        self.clock.advance(5)
        said = Note(claim.id, claim.token, session="s1", ran=2 * SECOND)
        assert (True,) == self.store.step("s1", Step(notes=(said,))).noted
        found = self.look(claim)
        assert (START + 3 * SECOND, False) == (found.started_at, found.reserved)
        assert [START + 3 * SECOND] == [run.started_at for run in self.runs(claim)]
        self.store.step("s1", Step(notes=(said,)))
        assert START + 3 * SECOND == self.look(claim).started_at
        self.store.reclaim(["s1"])
        assert (State.PENDING, 1) == (self.look(claim).state, self.look(claim).crashes)

    def test_reserved_claim_given_back_is_as_if_it_had_never_been_made(self) -> None:
        claim = self.one_reserved()
        assert (True,) == self.store.step("s1", Step(give_back=(GiveBack(claim=claim),))).returned
        found = self.look(claim)
        assert (State.PENDING, 0, None) == (found.state, found.attempt, found.reason)
        [again] = self.reserve(0, 9)
        assert (claim.id, True) == (again.id, again.reserved)

    def test_reserved_claim_cut_off_by_its_node_counts_as_its_node_says(self) -> None:
        claim = self.one_reserved()
        assert [True] == give_back(self.store, [claim], cut="crashed")
        assert 1 == self.look(claim).crashes

    @pytest.mark.parametrize("policies", [{"on_crash": "fail"}, {"concurrency": 5}])
    def test_an_entry_that_cannot_be_reserved_is_not_overtaken(self, policies: dict[str, Any]) -> None:
        self.queue()
        self.queue("careful", **policies)
        self.session()
        first = self.fill(2)
        careful = self.enqueue(job="careful")
        self.clock.advance(1)
        self.fill(2)
        assert first == [one.id for one in self.reserve(1, 9)]
        claims = self.reserve(1, 9)
        assert (careful.id, False) == (claims[0].id, claims[0].reserved)
        assert [True, True] == [claim.reserved for claim in claims[1:]]

    def test_an_occurrence_that_waits_its_turn_is_not_reserved(self) -> None:
        self.define(self.job(overlap="queue"))
        self.fire(minute(1))
        self.clock.advance(minute(1) - START)
        self.session()
        assert [] == self.reserve(0, 9)
        assert [minute(1)] == [one.scheduled_for for one in self.reserve(1, 9)]

    def test_an_occurrence_with_a_crash_is_not_reserved(self) -> None:
        self.queue()
        self.session()
        self.fill(1)
        assert 1 == len(self.reserve(1, 0))
        self.store.reclaim(["s1"])
        self.session("s2")
        assert [] == self.reserve(0, 9, session="s2")

    def test_end_of_a_queue_is_reserved_in_parts(self) -> None:
        self.queue()
        self.session()
        self.fill(8)
        assert [False, False, True, True, True] == [one.reserved for one in self.reserve(2, 9, nodes=2)]
        assert 1 == len(self.reserve(0, 9, nodes=3))
        assert 2 == len(self.reserve(0, 2, nodes=2))

    def test_higher_priority_is_reserved_first(self) -> None:
        self.queue()
        self.session()
        self.fill(1)
        high = self.enqueue(priority=5)
        assert [high.id] == [one.id for one in self.reserve(0, 1)]
