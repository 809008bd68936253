"""Racing: eight threads, each with a handle of its own, want the same thing in the same instant."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import contextlib
from collections import Counter

from cronsensus.errors import LeaseLost
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.planning import plan as plan_of
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import HOUR, LEASE, THREADS, StoreTest, a_session, minute, race
from cronsensus.testing.conformance.steps import an_end, carry_out, open_planner, settle, take, win_named


class Racing(StoreTest):
    """Hazards of racing: two winners, and none."""

    TURNS = 10
    """How often most races are run; fewer where each takes long."""

    def sessions_of_threads(self) -> None:
        """Open a session for each thread, named after its number."""
        for number in range(THREADS):
            self.session(f"s{number}")

    def test_nodes_that_start_together_on_an_empty_store_all_find_it_ready(self) -> None:
        handles = [self.open() for _ in range(THREADS)]
        race(handles, lambda store, _: store.migrate())
        for handle in handles:
            handle.check()
        assert [] == handles[0].migrate()
        assert ("job",) == self.define(store=handles[0]).created

    def test_definitions_put_together_are_one_job(self) -> None:
        specs = [self.job("a"), self.job("b")]
        answers = self.race(lambda store, _: store.define_jobs(specs, release="r1"))
        assert 1 == sum(answer.created == ("a", "b") for answer in answers)
        assert THREADS - 1 == sum(answer.unchanged == ("a", "b") for answer in answers)
        assert ["a", "b"] == [job.spec.name for job in self.store.jobs()]
        assert 1 == len(self.store.history("a").eras)

    def test_one_plan_is_carried_out_once(self) -> None:
        self.define(self.job(overlap="allow"))
        planner = open_planner(self.store)
        for number in range(1, 16):
            plan = self.plan(minute(number))

            def fire(store: Store, _: int, plan: Plan = plan) -> list[bool]:
                return carry_out(store, [plan], planner)

            assert [[False]] * (THREADS - 1) + [[True]] == sorted(self.race(fire))
            assert number == len(self.all())
            assert minute(number) == self.view().watermark
        assert [minute(number) for number in range(1, 16)] == self.nominal()

    def test_rounds_that_overlap_decide_every_time_once(self) -> None:
        self.define(self.job("a", overlap="allow", catch_up="all"), self.job("b", overlap="skip"))
        planner = open_planner(self.store)

        def rounds(store: Store, _: int) -> int:
            created = 0
            for _ in range(5):
                view = store.look()
                plans = [plan_of(job, view.now, most=3) for job in view.jobs]
                won = carry_out(store, plans, planner)
                created += sum(len(plan.occurrences) for plan, ok in zip(plans, won, strict=True) if ok)
            return created

        self.clock.advance(minute(20) - self.clock.now())
        created = sum(self.race(rounds))
        while self.store.look().jobs:
            created += rounds(self.store, 0)
        assert created == len(self.all())
        assert [minute(number) for number in range(1, 21)] == self.nominal("a")
        assert [minute(20)] == self.nominal("b")

    def test_a_backlog_is_claimed_once(self) -> None:
        self.queue()
        self.sessions_of_threads()
        ids = self.fill(100)

        def claim_all(store: Store, number: int) -> list[Claim]:
            claims: list[Claim] = []
            while got := take(store, f"s{number}", 3, ["queue"], lease=LEASE):
                claims += got
            return claims

        claims = [claim for got in self.race(claim_all) for claim in got]
        assert ids == sorted(claim.id for claim in claims)
        assert 100 == len({claim.token for claim in claims})
        assert {(claim.session, claim.token) for claim in claims} == {(one.session, one.token) for one in self.all()}

    def test_one_occurrence_is_claimed_once(self) -> None:
        self.queue()
        self.sessions_of_threads()
        for _ in range(15):
            self.enqueue()
            won = self.race(lambda store, number: take(store, f"s{number}", 1, ["queue"], lease=LEASE))
            assert 1 == sum(len(claims) for claims in won)

    def test_concurrency_holds_under_pressure(self) -> None:
        self.queue(concurrency=3)
        self.sessions_of_threads()
        self.fill(40)
        won = self.race(lambda store, number: take(store, f"s{number}", 2, ["queue"], lease=LEASE))
        assert 3 == sum(len(claims) for claims in won) == self.store.counts().running

    def test_the_line_of_a_schedule_holds_under_pressure(self) -> None:
        self.define(self.job(overlap="queue"))
        for number in range(THREADS):
            self.session(f"s{number}", lease=HOUR)
        self.fire(*(minute(number) for number in range(1, 11)))
        self.clock.advance(minute(11) - self.clock.now())
        for number in range(1, 11):
            won = self.race(lambda store, thread: take(store, f"s{thread}", 5, ["job"], lease=HOUR))
            claims = [claim for got in won for claim in got]
            assert [minute(number)] == [claim.scheduled_for for claim in claims]
            self.finish(claims[0])

    def test_one_name_is_acquired_once(self) -> None:
        self.queue()
        self.sessions_of_threads()
        for number in range(1, 11):

            def want(store: Store, thread: int, number: int = number) -> Claim | None:
                return win_named(store, f"s{thread}", "queue", scheduled_for=minute(number), lease=LEASE)

            won = self.race(want)
            assert 1 == sum(claim is not None for claim in won)
        assert [minute(number) for number in range(1, 11)] == self.nominal("queue")
        assert minute(10) == self.view("queue").watermark

    def test_acquiring_and_claiming_do_not_both_win(self) -> None:
        self.queue()
        self.sessions_of_threads()
        for number in range(self.TURNS):
            key = str(number)
            self.enqueue(key)

            def want(store: Store, thread: int, key: str = key) -> int:
                if thread % 2:
                    return len(take(store, f"s{thread}", 1, ["queue"], lease=LEASE))
                return int(win_named(store, f"s{thread}", "queue", key=key, lease=LEASE) is not None)

            assert 1 == sum(self.race(want))

    def test_one_key_is_enqueued_once(self) -> None:
        self.queue()
        items = [Item(job="queue", key=str(number)) for number in range(20)]
        answers = self.race(lambda store, thread: store.enqueue(items if thread % 2 else items[::-1]))
        assert {str(number): 1 for number in range(20)} == Counter(
            one.key for answer in answers for one in answer if one.created
        )
        assert 20 == len({one.id for answer in answers for one in answer}) == len(self.all())

    def test_one_run_is_finished_once(self) -> None:
        self.queue()
        self.session()
        states = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.PENDING)
        for _ in range(self.TURNS):
            made = self.enqueue()
            claim = next(one for one in self.claim() if one.id == made.id)

            def end(store: Store, thread: int, claim: Claim = claim) -> tuple[bool, State | None]:
                outcome = an_end(id=claim.id, token=claim.token, state=states[thread % 4], retry_in=HOUR)
                answer = settle(store, [outcome])[0]
                return answer.accepted, answer.state

            answers = self.race(end)
            assert {(True, self.look(made).state)} == set(answers)
            assert 1 == len(self.runs(made))
            assert self.look(made).failures == (self.look(made).state is State.PENDING)

    def test_a_dead_session_is_reclaimed_once(self) -> None:
        self.queue()
        self.fill(20)
        self.session("dead")
        claims = self.claim("dead")
        self.lease_out()
        taken = [one for got in self.race(lambda store, _: store.reclaim()) for one in got]
        assert sorted(claim.id for claim in claims) == sorted(one.id for one in taken)
        assert {1} == {one.crashes for one in self.all()}
        assert {1} == {len(self.runs(claim)) for claim in claims}

    def test_a_session_is_closed_or_reclaimed_and_not_both(self) -> None:
        self.queue()
        for number in range(self.TURNS):
            name = f"session {number}"
            self.session(name)
            self.enqueue()
            claim = self.take(name)

            def end(store: Store, thread: int, name: str = name) -> int:
                return len(store.close_session(name) if thread % 2 else store.reclaim([name]))

            assert 1 == sum(self.race(end))
            view = next(session for session in self.store.sessions(ended=True) if session.id == name)
            assert view.state in {"closed", "dead"}
            found = self.look(claim)
            assert (view.state == "dead") == (self.runs(claim)[-1].end == "crashed")
            assert not self.finish(claim).accepted
            if found.state is State.PENDING:
                self.store.cancel(claim.id, by="ann", why="")

    def test_a_result_and_a_takeover_do_not_both_win(self) -> None:
        self.queue()
        for number in range(self.TURNS):
            name = f"session {number}"
            self.session(name)
            self.enqueue()
            claim = self.take(name)

            def end(store: Store, thread: int, name: str = name, claim: Claim = claim) -> tuple[int, int]:
                if thread % 2:
                    return len(store.reclaim([name])), 0
                outcome = an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)
                return 0, int(settle(store, [outcome])[0].accepted)

            ends = self.race(end)
            taken, accepted = sum(one for one, _ in ends), sum(one for _, one in ends)
            found = self.look(claim)
            if taken:
                assert (1, 0, State.PENDING) == (taken, accepted, found.state)
                self.store.cancel(claim.id, by="ann", why="")
            else:
                assert (THREADS // 2, State.SUCCEEDED) == (accepted, found.state)
            assert 1 == len(self.runs(claim))

    def test_claim_racing_the_end_of_its_session_leaves_no_run_without_a_holder(self) -> None:
        self.queue()
        for number in range(self.TURNS):
            name = f"session {number}"
            self.session(name)
            made = self.enqueue()

            def act(store: Store, thread: int, name: str = name) -> None:
                if thread % 2:
                    store.reclaim([name])
                    return
                with contextlib.suppress(LeaseLost):
                    take(store, name, 1, ["queue"], lease=LEASE)

            self.race(act)
            # A reclaim need not wait for a claim of that session that is under way.
            self.store.reclaim([name])
            found = self.look(made)
            assert State.PENDING is found.state, "claimed for a session that is dead"
            self.store.cancel(made.id, by="ann", why="")

    def test_acquisition_racing_the_end_of_its_session_leaves_no_run_without_a_holder(self) -> None:
        self.queue()
        for number in range(self.TURNS):
            name = f"session {number}"
            self.session(name)

            def act(store: Store, thread: int, name: str = name) -> None:
                if thread % 2:
                    store.reclaim([name])
                    return
                with contextlib.suppress(LeaseLost):
                    win_named(store, name, "queue", key=f"{name} {thread}", lease=LEASE)

            self.race(act)
            # A reclaim need not wait for a transaction of that session that is under way.
            self.store.reclaim([name])
            assert [] == self.all(states=(State.RUNNING,)), "acquired for a session that is dead"

    def test_a_claim_and_a_renewal_never_leave_a_working_session_an_idle_lease(self) -> None:
        self.queue()
        for number in range(self.TURNS):
            name = f"session {number}"
            self.session(name)
            made = self.enqueue()

            def act(store: Store, thread: int, name: str = name) -> None:
                if thread % 2:
                    store.renew(name, lease=LEASE, idle_lease=HOUR)
                else:
                    take(store, name, 1, ["queue"], lease=LEASE)

            self.race(act)
            assert State.RUNNING is self.look(made).state
            assert LEASE == next(session.expires_in for session in self.store.sessions() if session.id == name)
            self.store.close_session(name)
            self.store.cancel(made.id, by="ann", why="")

    def test_one_lock_has_one_holder(self) -> None:
        for _ in range(15):
            won = self.race(lambda store, thread: store.lock("name", f"h{thread}", ttl=LEASE))
            grants = [grant for grant in won if grant is not None]
            assert 1 == len(grants)
            assert [grants[0].token] == [view.token for view in self.store.locks()]
            assert self.store.unlock(grants[0])

    def test_an_overdue_lock_goes_to_one(self) -> None:
        for _ in range(self.TURNS):
            self.store.lock("name", "old", ttl=LEASE)
            self.lease_out()
            won = self.race(lambda store, thread: store.lock("name", f"h{thread}", ttl=LEASE))
            assert 1 == sum(grant is not None for grant in won)
            self.lease_out()

    def test_a_lock_for_several_has_no_more_holders(self) -> None:
        for _ in range(self.TURNS):
            won = self.race(lambda store, thread: store.lock("name", f"h{thread}", ttl=LEASE, limit=3))
            grants = [grant for grant in won if grant is not None]
            assert len(grants) == 3
            assert 3 == len({grant.place for grant in grants}) == len({grant.token for grant in grants})
            for grant in grants:
                assert self.store.unlock(grant)

    def test_a_lock_lets_one_at_a_time_through(self) -> None:
        counted: list[int] = []
        inside = [0]

        def count(store: Store, thread: int) -> list[int]:
            tokens: list[int] = []
            while len(tokens) < 4:
                grant = store.lock("name", f"h{thread}", ttl=HOUR)
                if grant is None:
                    continue
                inside[0] += 1
                counted.append(inside[0])
                inside[0] -= 1
                tokens.append(grant.token)
                assert store.unlock(grant)
            return tokens

        tokens = [token for got in self.race(count) for token in got]
        assert {1} == set(counted)
        assert 4 * THREADS == len(counted) == len(set(tokens))

    def test_an_operator_act_happens_once(self) -> None:
        self.define()
        assert 1 == sum(self.race(lambda store, _: store.pause("job", by="ann", why="")))
        assert 1 == sum(self.race(lambda store, _: store.resume("job", by="ann")))
        assert 1 == sum(self.race(lambda store, _: store.retire("job", by="ann", why="")))
        # Who retires what is retired already says that it is meant: that stands in the trail, too.
        *retired, resumed, paused = [entry.action for entry in self.store.trail()]
        assert ({"retire"}, "resume", "pause") == (set(retired), resumed, paused)
        assert 1 == len(self.store.history("job").pauses)

    def test_one_time_is_backfilled_once(self) -> None:
        self.define()
        times = [minute(number) for number in range(-10, 0)]
        answers = self.race(lambda store, _: store.backfill("job", times, by="ann"))
        assert 10 == sum(one.created for answer in answers for one in answer) == len(self.all())

    def test_one_handle_serves_many_threads(self) -> None:
        self.queue()
        self.sessions_of_threads()

        def work(store: Store, thread: int) -> list[int]:
            store.enqueue([Item(job="queue", key=f"{thread} {number}") for number in range(5)])
            claims = take(store, f"s{thread}", 5, ["queue"], lease=LEASE)
            answers = settle(store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED) for claim in claims])
            assert all(answer.accepted for answer in answers)
            return [claim.id for claim in claims]

        done = [one for ids in race([self.store] * THREADS, work) for one in ids]
        assert len(set(done)) == len(done)
        assert (5 * THREADS, len(done)) == (len(self.all()), len(self.all(states=(State.SUCCEEDED,))))

    def test_sessions_opened_together_are_all_there(self) -> None:
        self.race(lambda store, thread: store.open_session(a_session(f"s{thread}"), lease=LEASE))
        assert tuple(f"s{number}" for number in range(THREADS)) == self.store.look().sessions

    def test_a_run_that_all_retry_is_retried_once(self) -> None:
        self.queue()
        self.session()
        self.fill(self.TURNS)
        for claim in self.claim():
            self.finish(claim, State.FAILED)
            answers = self.race(lambda store, number, of=claim.id: store.retry(of, by=f"s{number}"))  # type: ignore[misc]
            assert [True] == [answer.created for answer in answers if answer.created]
            assert 1 == len({answer.id for answer in answers})
        assert 2 * self.TURNS == len(self.all())

    def test_a_form_that_all_send_is_one_run(self) -> None:
        self.define(self.job(overlap="allow"))
        for turn in range(self.TURNS):

            def send(store: Store, number: int, key: str = f"form {turn}") -> bool:
                return store.trigger("job", by=f"s{number}", key=key).created

            assert 1 == sum(self.race(send))
        assert self.TURNS == len(self.all())

    def test_pruning_together_deletes_everything_once(self) -> None:
        self.queue()
        self.session()
        self.fill(40)
        outcomes = [an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in self.claim()]
        settle(self.store, outcomes)
        self.clock.advance(1)
        now = self.store.now()
        assert 40 == sum(self.race(lambda store, _: store.prune(now, limit=7))) + self.store.prune(now)
        assert [] == self.all()
