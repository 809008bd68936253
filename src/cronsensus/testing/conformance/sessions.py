"""Sessions: a lease that ends is over for good, and all that it held goes on elsewhere."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.errors import LeaseLost
from cronsensus.model.ledger import LOST_MOMENT, STORE_EMPTIED, Loss
from cronsensus.model.occurrence import Claim
from cronsensus.model.session import SessionView
from cronsensus.model.states import Reason, State
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.testing.conformance.fixtures import (
    DAY,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    START,
    StoreTest,
    a_session,
    minute,
)
from cronsensus.testing.conformance.steps import give_back


class Sessions(StoreTest):
    """Hazards of sessions: a node that is dead and works on, and one that lives and is robbed."""

    def shown(self, session: str = "s1") -> SessionView:
        """Read a session, ended or not."""
        return next(one for one in self.store.sessions(ended=True) if one.id == session)

    def holding(self, session: str = "s1", **policies: Any) -> Claim:
        """Let a new session hold one run; return its claim."""
        self.queue(**policies)
        self.session(session)
        self.enqueue()
        return self.take(session)

    # --- opening and renewing ---------------------------------------------------------------------------------------

    def test_an_open_session_is_shown_as_it_was_described(self) -> None:
        self.clock.advance(SECOND)
        assert START + SECOND == self.store.open_session(a_session("s1", release="r7"), lease=LEASE)
        view = self.shown()
        spec = a_session("s1", release="r7")
        assert (spec.node, spec.host, spec.pid, spec.pid_started) == (
            view.node,
            view.host,
            view.pid,
            view.pid_started,
        )
        assert (spec.release, spec.version, spec.concurrency, spec.functions) == (
            view.release,
            view.version,
            view.concurrency,
            view.functions,
        )
        assert (spec.tzdata, spec.zones) == (view.tzdata, view.zones)
        assert ("alive", 0, LEASE) == (view.state, view.holds, view.expires_in)
        assert START + SECOND == view.started_at == view.renewed_at
        assert (None, None) == (view.ended_at, view.ended_why)

    def test_opening_a_session_again_only_sets_its_lease(self) -> None:
        claim = self.holding()
        self.clock.advance(9)
        assert self.store.now() == self.store.open_session(a_session("s1"), lease=LEASE)
        assert LEASE == self.shown().expires_in
        self.clock.advance(9)
        assert ["s1"] == [view.id for view in self.store.sessions(ended=True)]
        assert (START, 1) == (self.shown().started_at, self.shown().holds)
        assert self.finish(claim).accepted

    def test_a_session_that_is_over_is_never_opened_again(self) -> None:
        self.session("overdue")
        self.lease_out()
        self.session("closed")
        self.store.close_session("closed")
        for name in ("closed", "overdue"):
            with pytest.raises(LeaseLost):
                self.store.open_session(a_session(name), lease=LEASE)
        assert () == self.store.look().sessions

    def test_a_lease_lasts_as_long_as_it_was_given(self) -> None:
        self.session("short")
        self.session("long", lease=HOUR)
        self.clock.advance(9.999)
        assert ("long", "short") == self.store.look().sessions
        self.clock.advance(0.002)
        assert ("long",) == self.store.look().sessions
        assert not self.store.renew("short", lease=LEASE).alive
        assert self.store.renew("long", lease=LEASE).alive

    def test_a_renewal_sets_the_lease_anew(self) -> None:
        self.session()
        for _ in range(5):
            self.clock.advance(9)
            renewal = self.store.renew("s1", lease=LEASE)
            assert (True, {}, False) == (renewal.alive, renewal.cancel, renewal.drain)
            assert self.store.now() == renewal.now == self.shown().renewed_at
        self.lease_out()
        assert not self.store.renew("s1", lease=LEASE).alive

    def test_a_renewal_may_set_a_shorter_lease(self) -> None:
        self.session(lease=HOUR)
        assert self.store.renew("s1", lease=SECOND).alive
        self.clock.advance(2)
        assert not self.store.renew("s1", lease=HOUR).alive

    def test_a_renewal_tells_how_long_the_lease_is(self) -> None:
        self.session()
        assert HOUR == self.store.renew("s1", lease=HOUR).lease == self.shown().expires_in
        self.lease_out()
        assert LEASE == self.store.renew("s1", lease=LEASE).lease == self.shown().expires_in
        self.lease_out()
        assert timedelta(0) == self.store.renew("s1", lease=LEASE).lease

    def test_a_renewal_counts_the_renewals_of_its_session_so_a_store_that_forgot_one_is_found_out(self) -> None:
        self.session()
        self.session("s2")
        assert [1, 2, 3] == [self.store.renew("s1", lease=LEASE).beats for _ in range(3)]
        assert 1 == self.store.renew("s2", lease=LEASE).beats
        self.store.close_session("s1")
        assert [3, 0] == [self.store.renew(one, lease=LEASE).beats for one in ("s1", "never opened")]

    def test_the_identity_of_the_store_comes_with_each_renewal_and_is_the_same_for_all(self) -> None:
        self.session()
        identity = self.store.identity()
        assert identity is not None
        assert identity == self.sibling().identity()
        self.session("s2")
        for session in ("s1", "s2", "never opened"):
            assert identity.id == self.store.renew(session, lease=LEASE).store
        self.store.migrate()
        assert identity == self.store.identity()

    def test_a_loss_stands_in_the_trail(self) -> None:
        self.session()
        for since, emptied in ((START, False), (None, True)):
            self.store.note_in_trail(Loss(since, minute(1), emptied=emptied, why="a sign"), by="a node")
        second, first = self.store.trail(target="")
        assert (LOST_MOMENT, "a node", "a sign") == (first.action, first.by, first.why)
        assert (Loss(START, minute(1), emptied=False, why="").details, STORE_EMPTIED) == (first.details, second.action)
        assert ["until"] == list(second.details)

    def test_a_renewal_lists_the_runs_that_the_session_holds_with_their_tokens(self) -> None:
        self.queue()
        self.session()
        self.session("s2")
        assert () == self.store.renew("s1", lease=LEASE).held
        for key in ("a", "b", "c"):
            self.enqueue(key)
        mine, (other,) = self.claim(limit=2), self.claim("s2")
        assert tuple((one.id, one.token) for one in mine) == self.store.renew("s1", lease=LEASE).held
        assert ((other.id, other.token),) == self.store.renew("s2", lease=LEASE).held
        self.finish(mine[0])
        self.store.cancel(mine[1].id, by="test", why="test")
        renewal = self.store.renew("s1", lease=LEASE)
        assert (((mine[1].id, mine[1].token),), [mine[1].id]) == (renewal.held, list(renewal.cancel))
        give_back(self.store, [mine[1]])
        assert () == self.store.renew("s1", lease=LEASE).held

    def test_a_renewal_lists_a_run_that_was_taken_again_under_its_new_token(self) -> None:
        claim = self.holding()
        give_back(self.store, [claim])
        again = self.take()
        assert ((again.id, again.token),) == self.store.renew("s1", lease=LEASE).held
        assert again.token > claim.token

    def test_a_session_that_runs_nothing_gets_the_lease_of_an_idle_one(self) -> None:
        claim = self.holding()
        self.finish(claim)
        renewal = self.store.renew("s1", lease=LEASE, idle_lease=HOUR)
        assert (True, HOUR) == (renewal.alive, renewal.lease)
        assert HOUR == self.shown().expires_in

    def test_a_session_that_runs_something_never_gets_the_lease_of_an_idle_one(self) -> None:
        claim = self.holding()
        self.clock.advance(SECOND)
        renewal = self.store.renew("s1", lease=LEASE, idle_lease=HOUR)
        assert (True, LEASE) == (renewal.alive, renewal.lease)
        assert LEASE == self.shown().expires_in
        self.lease_out()
        assert [claim.id] == [taken.id for taken in self.store.reclaim()]

    def test_runs_of_other_sessions_do_not_shorten_a_lease(self) -> None:
        self.holding("s1")
        self.session("s2")
        assert HOUR == self.store.renew("s2", lease=LEASE, idle_lease=HOUR).lease
        assert LEASE == self.store.renew("s1", lease=LEASE, idle_lease=HOUR).lease

    def test_a_renewal_for_a_working_session_tells_what_is_to_stop_too(self) -> None:
        claim = self.holding()
        self.store.cancel(claim.id, by="ann", why="enough")
        self.store.drain("s1", by="ann", why="update")
        renewal = self.store.renew("s1", lease=LEASE, idle_lease=HOUR)
        assert (LEASE, [claim.id], True) == (renewal.lease, list(renewal.cancel), renewal.drain)

    def test_a_lease_that_ran_out_is_never_revived(self) -> None:
        self.session()
        self.lease_out()
        for _ in range(2):
            assert not self.store.renew("s1", lease=HOUR).alive
        assert () == self.store.look().sessions
        self.store.reclaim()
        assert not self.store.renew("s1", lease=HOUR).alive
        assert "dead" == self.shown().state

    def test_an_ended_or_unknown_session_cannot_be_renewed(self) -> None:
        self.session("closed")
        self.store.close_session("closed")
        self.session("presumed")
        self.store.reclaim(["presumed"])
        for name in ("closed", "presumed", "nobody"):
            assert not self.store.renew(name, lease=HOUR).alive
        assert () == self.store.look().sessions

    def test_renewing_one_session_renews_no_other(self) -> None:
        self.session("s1")
        self.session("s2")
        self.clock.advance(9)
        self.store.renew("s1", lease=LEASE)
        self.clock.advance(2)
        assert ("s1",) == self.store.look().sessions

    def test_a_renewal_tells_which_of_its_runs_are_to_stop(self) -> None:
        self.queue()
        self.session("s1")
        self.session("s2")
        self.fill(3)
        (first, _), (third,) = self.claim("s1", 2), self.claim("s2")
        self.store.cancel(first.id, by="ann", why="one")
        self.store.cancel(third.id, by="ann", why="three")
        told = self.store.renew("s1", lease=LEASE).cancel
        assert [first.id] == list(told)
        assert "one" in told[first.id]
        assert [third.id] == list(self.store.renew("s2", lease=LEASE).cancel)
        self.finish(first, State.CANCELLED)
        assert {} == self.store.renew("s1", lease=LEASE).cancel

    def test_a_renewal_tells_that_a_node_is_to_drain(self) -> None:
        self.session("s1")
        self.session("s2")
        assert self.store.drain("s1", by="ann", why="update")
        assert self.store.renew("s1", lease=LEASE).drain
        assert not self.store.renew("s2", lease=LEASE).drain
        assert "draining" == self.shown().state

    def test_only_a_live_session_can_be_asked_to_drain(self) -> None:
        self.session("overdue")
        self.lease_out()
        self.session("closed")
        self.store.close_session("closed")
        for name in ("closed", "overdue", "nobody"):
            assert not self.store.drain(name, by="ann", why="")
        assert [] == self.store.trail()

    # --- reading ----------------------------------------------------------------------------------------------------

    # --- sessions that are no nodes -----------------------------------------------------------------------------------

    def test_a_guest_takes_no_turn(self) -> None:
        self.session("node")
        self.session("no node", is_node=False)
        assert ("node",) == self.store.look().sessions
        assert {"no node": False, "node": True} == {session.id: session.is_node for session in self.store.sessions()}

    def test_a_guest_defines_nothing_that_others_wait_for(self) -> None:
        self.define(self.job("a"), self.job("b"), release="old", complete=True)
        self.define(self.job("a", args=("new",)), self.job("b"), release="new")
        self.session("no node", is_node=False, release="new")
        assert ("a",) == self.define(self.job("a"), self.job("b"), release="old").changed
        assert ("b",) == self.define(self.job("a"), release="old", complete=True).retired
        self.session("other", is_node=False, release="unheard of")
        assert () == self.define(self.job("a"), release="old", complete=True).superseded

    def test_a_guest_holds_what_it_acquired(self) -> None:
        queue = self.queue()
        self.session("no node", is_node=False, lease=HOUR)
        claim = self.acquire("no node", queue, key="once", lease=LEASE)
        assert claim is not None
        assert ["no node"] == [holder.id for holder in self.store.look().holders]
        assert self.finish(claim).accepted

    def test_a_guest_that_is_overdue_with_a_run_is_watched_and_others_are_not(self) -> None:
        queue = self.queue()
        self.session("idle", is_node=False)
        self.session("no node", is_node=False)
        self.fill(2)
        self.session("node")
        self.take("node", limit=1)
        assert self.acquire("no node", queue, key="once", lease=LEASE) is not None
        assert ["no node", "node"] == [holder.id for holder in self.store.look().holders]
        self.lease_out()
        view = self.store.look()
        assert ["no node", "node"] == [holder.id for holder in view.holders]
        assert all(holder.expires_in <= timedelta(0) for holder in view.holders)
        assert () == view.sessions
        self.store.reclaim()
        assert () == self.store.look().holders

    def test_sessions_are_read_newest_first_and_bounded(self) -> None:
        for number in range(5):
            self.session(f"s{number}", lease=HOUR)
            self.clock.advance(1)
        assert ["s4", "s3", "s2", "s1", "s0"] == [session.id for session in self.store.sessions()]
        assert ["s4", "s3"] == [session.id for session in self.store.sessions(limit=2)]

    def test_ended_sessions_are_shown_only_if_asked_for(self) -> None:
        self.session("overdue")
        self.lease_out()
        self.session("closed")
        self.store.close_session("closed")
        self.session("lives")
        assert {"overdue", "lives"} == {session.id for session in self.store.sessions()}
        assert {"overdue", "lives", "closed"} == {session.id for session in self.store.sessions(ended=True)}

    def test_the_remaining_lease_of_an_overdue_session_is_negative(self) -> None:
        self.session()
        self.clock.advance(4)
        assert 6 * SECOND == self.shown().expires_in
        self.clock.advance(10)
        assert -4 * SECOND == self.shown().expires_in

    def test_the_runs_of_a_session_are_counted(self) -> None:
        self.queue()
        self.session()
        self.fill(2)
        claims = self.claim()
        self.store.lock("name", "holder", ttl=LEASE, session="s1")
        assert 3 == self.shown().holds
        self.finish(claims[0])
        assert 2 == self.shown().holds

    # --- reclaiming -------------------------------------------------------------------------------------------------

    def test_runs_of_a_dead_session_go_back_to_pending_with_one_crash_more(self) -> None:
        claim = self.holding()
        self.lease_out()
        taken = self.sibling().reclaim()
        assert [(claim.id, "queue", claim.key, claim.token, "s1", State.PENDING)] == [
            (one.id, one.job, one.key, one.token, one.session, one.became) for one in taken
        ]
        assert taken[0].reason
        found = self.look(claim)
        assert (State.PENDING, 1, 1, 0, None) == (
            found.state,
            found.attempt,
            found.crashes,
            found.failures,
            found.session,
        )

    def test_the_run_record_says_crashed(self) -> None:
        claim = self.holding()
        self.lease_out()
        self.store.reclaim()
        run = self.runs(claim)[0]
        assert ("crashed", claim.token, "s1", self.store.now()) == (run.end, run.token, run.session, run.finished_at)

    def test_a_session_is_read_with_what_its_program_declares(self) -> None:
        declares = {"cleanup": "billing.cleanup(größe)", "charge": "billing.charge()"}
        self.store.open_session(replace(a_session("s1"), declares=declares), lease=LEASE)
        self.session("s2")
        assert {"s1": declares, "s2": {}} == {session.id: session.declares for session in self.sibling().sessions()}

    def test_a_run_taken_over_is_due_within_a_second_also_after_a_clock_set_back(self) -> None:
        claim = self.holding()
        self.lease_out()
        self.clock.step(-DAY)
        self.store.reclaim(["s1"])  # where leases run on the wall clock, the step has given it its lease back
        self.session("s2", lease=HOUR)
        self.clock.advance(MOST_AHEAD)
        again = self.take("s2")
        assert (claim.id, 2, 1) == (again.id, again.attempt, again.crashes)
        assert claim.token < again.token

    def test_a_dead_session_is_shown_as_dead_with_the_reason(self) -> None:
        self.session()
        self.lease_out()
        self.store.reclaim()
        view = self.shown()
        assert ("dead", self.store.now(), 0) == (view.state, view.ended_at, view.holds)
        assert "lease ran out" == view.ended_why

    def test_reclaiming_again_takes_nothing(self) -> None:
        claim = self.holding()
        self.lease_out()
        assert 1 == len(self.store.reclaim())
        assert [] == self.store.reclaim()
        assert [] == self.store.reclaim(["s1"])
        assert 1 == self.look(claim).crashes

    def test_the_living_are_left_alone(self) -> None:
        claim = self.holding()
        before = self.snapshot()
        assert [] == self.store.reclaim()
        assert [] == self.store.reclaim(["somebody else", "'; DROP TABLE x; --"])
        assert before == self.snapshot()
        assert self.finish(claim).accepted

    def test_several_dead_sessions_are_reclaimed_in_one_call(self) -> None:
        self.queue()
        self.fill(6)
        for name in ("s1", "s2", "s3"):
            self.session(name)
            self.claim(name, 2)
        self.lease_out()
        self.session("s4")
        taken = self.store.reclaim()
        assert {"s1": 2, "s2": 2, "s3": 2} == {
            name: sum(one.session == name for one in taken) for name in {one.session for one in taken}
        }
        assert 6 == len(self.claim("s4"))

    def test_evidence_ends_a_session_whose_lease_still_runs(self) -> None:
        claim = self.holding()
        assert [claim.id] == [taken.id for taken in self.store.reclaim(["s1"])]
        assert not self.store.renew("s1", lease=LEASE).alive
        assert ("dead", "process gone") == (self.shown().state, self.shown().ended_why)
        with pytest.raises(LeaseLost):
            self.claim()

    def test_wrong_evidence_costs_the_result_and_nothing_else(self) -> None:
        claim = self.holding()
        self.store.reclaim(["s1"])
        self.session("s2")
        again = self.take("s2")
        assert not self.finish(claim).accepted
        assert self.finish(again).accepted
        assert ["crashed", "succeeded"] == [run.end for run in self.runs(claim)]

    def test_on_crash_fail_closes_the_occurrence(self) -> None:
        claim = self.holding(on_crash="fail")
        self.lease_out()
        assert [State.FAILED] == [taken.became for taken in self.store.reclaim()]
        found = self.look(claim)
        assert (State.FAILED, 1, self.store.now()) == (found.state, found.crashes, found.finished_at)
        assert Reason.CRASHED == (found.reason or "").split(":")[0]
        assert "crashed" == self.runs(claim)[0].end
        self.session("s2")
        assert [] == self.claim("s2")

    def test_a_job_that_kills_its_process_does_not_walk_through_the_cluster(self) -> None:
        self.queue(max_crashes=3)
        made = self.enqueue()
        for number in (1, 2, 3):
            self.session(f"s{number}")
            assert number - 1 == self.take(f"s{number}").crashes
            self.lease_out()
            self.store.reclaim()
            assert number == self.look(made).crashes
        found = self.look(made)
        assert State.FAILED is found.state
        assert Reason.CRASHED == (found.reason or "").split(":")[0]
        assert ["crashed"] * 3 == [run.end for run in self.runs(made)]

    def test_failures_and_releases_are_no_crashes(self) -> None:
        claim = self.holding(max_crashes=1)
        self.finish(claim, State.PENDING)
        give_back(self.store, [self.take()])
        assert 0 == self.look(claim).crashes

    def test_a_run_asked_to_stop_is_cancelled_instead_of_run_again(self) -> None:
        claim = self.holding()
        self.store.cancel(claim.id, by="ann", why="enough")
        self.lease_out()
        assert [State.CANCELLED] == [taken.became for taken in self.store.reclaim()]
        found = self.look(claim)
        assert State.CANCELLED is found.state
        assert "enough" in (found.reason or "")

    # --- closing ----------------------------------------------------------------------------------------------------

    def test_a_closed_session_is_over_at_once(self) -> None:
        self.session(lease=HOUR)
        assert [] == self.store.close_session("s1")
        view = self.shown()
        assert ("closed", self.store.now()) == (view.state, view.ended_at)
        assert () == self.store.look().sessions
        with pytest.raises(LeaseLost):
            self.claim()

    def test_runs_of_a_closed_session_go_on_elsewhere_without_a_crash(self) -> None:
        claim = self.holding(max_crashes=1)
        taken = self.store.close_session("s1")
        assert [(claim.id, claim.token, State.PENDING)] == [(one.id, one.token, one.became) for one in taken]
        found = self.look(claim)
        assert (State.PENDING, 0, 0) == (found.state, found.crashes, found.failures)
        assert not self.finish(claim).accepted
        self.session("s2")
        again = self.take("s2")
        assert claim.id == again.id
        assert claim.token < again.token

    def test_closing_cuts_at_most_once_work_off_for_good(self) -> None:
        claim = self.holding(on_crash="fail")
        assert [State.FAILED] == [taken.became for taken in self.store.close_session("s1")]
        found = self.look(claim)
        assert (State.FAILED, 0) == (found.state, found.crashes)
        assert Reason.CRASHED == (found.reason or "").split(":")[0]

    def test_closing_cancels_what_was_asked_to_stop(self) -> None:
        claim = self.holding()
        self.store.cancel(claim.id, by="ann", why="enough")
        assert [State.CANCELLED] == [taken.became for taken in self.store.close_session("s1")]
        assert State.CANCELLED is self.look(claim).state

    def test_closing_a_closed_or_unknown_session_does_nothing(self) -> None:
        self.session()
        self.store.close_session("s1")
        before = self.snapshot()
        self.clock.advance(MINUTE)
        assert [] == self.store.close_session("s1") == self.store.close_session("nobody")
        assert [] == self.store.reclaim()
        assert before == self.snapshot()

    def test_closing_comes_too_late_for_a_session_that_was_reclaimed(self) -> None:
        claim = self.holding()
        self.lease_out()
        self.store.reclaim()
        assert [] == self.store.close_session("s1")
        assert "dead" == self.shown().state
        assert 1 == self.look(claim).crashes

    def test_runs_of_others_go_on(self) -> None:
        self.queue()
        self.session("s1")
        self.session("s2")
        self.fill(2)
        self.claim("s1", 1)
        other = self.take("s2")
        self.store.close_session("s1")
        assert self.finish(other).accepted

    def test_every_run_record_has_an_end_when_its_session_is_over(self) -> None:
        closed = self.holding("closed")
        self.store.close_session("closed")
        assert self.runs(closed)[0].end is not None
        assert timedelta(0) == (self.runs(closed)[0].finished_at or START) - self.store.now()

    # --- signs of life ----------------------------------------------------------------------------------------------

    def test_a_session_that_never_showed_a_sign_of_life_is_not_missed_and_one_that_shows_it_neither(self) -> None:
        self.holding()
        watcher, shows = self.sibling(), self.sibling()
        assert () == watcher.look().absent
        shows.register_presence("s2")
        shows.open_session(a_session("s2"), lease=LEASE)
        self.enqueue("another")
        assert self.claim("s2", store=shows)
        assert shows.renew("s2", lease=LEASE).alive
        assert [()] * 3 == [watcher.look().absent for _ in range(3)]
        assert "s1" not in watcher.signs(["s1", "s2", "nobody"])
        assert watcher.signs(["s1", "s2", "nobody"]).get("s2", True)
        shows.close()  # as a process that ends; a store that has such signs may say so from now on
        assert watcher.look().absent in {(), ("s2",)}
        assert {"s1", "s2"} == {holder.id for holder in watcher.look().holders}
