"""Pruning: what is deleted can still never run again."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import pytest

from cronsensus.errors import OccurrenceTooOld
from cronsensus.model.acquiring import AskNamed, NotWon
from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Parked
from cronsensus.model.job import JobHistory
from cronsensus.model.ledger import PRUNE
from cronsensus.model.occurrence import Claim, Item, LogLine, Note
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Origin, Reason, State
from cronsensus.planning import plan as plan_of
from cronsensus.stores.values import REMEMBERED
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, MINUTE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import carry_out, say, settle
from cronsensus.timing.instants import format_instant
from cronsensus.triggers import cron, every


class Pruning(StoreTest):
    """Hazards of pruning: the proof goes, and with it the knowledge that something ran."""

    def ran(self, *numbers: int, job: str = "job") -> None:
        """Fire these minutes of a job and see each succeed."""
        self.session("runner", lease=100 * DAY)
        self.fire(*(minute(number) for number in numbers), job=job)
        self.clock.advance(minute(max(numbers)) - self.clock.now())
        for _ in numbers:
            self.finish(self.take("runner", limit=1, functions=[job], lease=100 * DAY))
        self.store.close_session("runner")

    # --- what goes --------------------------------------------------------------------------------------------------

    def test_final_occurrences_go_with_their_runs_and_logs(self) -> None:
        self.queue()
        self.session()
        self.enqueue("key")
        claim = self.take()
        say(self.store, [Note(claim.id, claim.token, None, (LogLine(START, "info", "x"),))])
        self.finish(claim)
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        assert self.store.occurrence(claim.id) is None
        assert not any([self.store.runs(claim.id), self.store.logs(claim.id), self.all()])

    def test_only_what_ended_before_the_given_time_goes(self) -> None:
        self.queue()
        self.session(lease=DAY)
        for _ in range(3):
            self.done(lease=DAY)
            self.clock.advance(MINUTE)
        assert 1 == self.store.prune(START + MINUTE)
        assert [minute(1), minute(2)] == [one.finished_at for one in self.all()]

    def test_a_prune_that_goes_by_no_keep_stands_in_the_trail_once(self) -> None:
        self.queue()
        self.session(lease=DAY)
        for _ in range(3):
            self.done(lease=DAY)
        self.clock.advance(MINUTE)
        assert 0 == self.store.prune()
        assert [] == self.store.trail()
        bound = self.store.now()
        assert [2, 1] == [self.store.prune(bound, limit=2, by="ann") for _ in range(2)]
        [entry] = self.store.trail(target="")
        assert (PRUNE, "ann", {"until": format_instant(bound)}) == (entry.action, entry.by, entry.details)

    def test_when_it_ended_counts_and_not_when_it_was_made(self) -> None:
        self.queue()
        self.enqueue()
        self.clock.advance(DAY)
        self.session()
        self.finish(self.take())
        assert 0 == self.store.prune(START + HOUR)

    def test_active_occurrences_are_never_pruned(self) -> None:
        self.queue()
        self.session(lease=1000 * DAY)
        self.fill(2)
        self.take(limit=1, lease=1000 * DAY)
        self.clock.advance(100 * DAY)
        assert 0 == self.store.prune(self.store.now()) == self.store.prune()
        assert [State.RUNNING, State.PENDING] == [one.state for one in self.all()]

    def test_rows_not_yet_prunable_are_pruned_by_a_later_call(self) -> None:
        self.queue(keep="1m")
        self.session(lease=DAY)
        self.enqueue()
        claim = self.take(lease=DAY)
        self.clock.advance(2 * MINUTE)
        assert 0 == self.store.prune()
        self.finish(claim)
        self.clock.advance(2 * MINUTE)
        assert 1 == self.store.prune()

    def test_by_default_every_job_keeps_as_long_as_it_says(self) -> None:
        self.queue("short", keep="1d")
        self.queue("long", keep="3d")
        self.session(lease=10 * DAY)
        for name in ("short", "long"):
            self.done(job=name, lease=10 * DAY)
        assert 0 == self.store.prune()
        self.clock.advance(2 * DAY)
        assert 1 == self.store.prune()
        assert ["long"] == [one.job for one in self.all()]
        self.clock.advance(2 * DAY)
        assert 1 == self.store.prune()

    def test_rows_that_had_to_stay_are_pruned_when_their_time_has_come(self) -> None:
        """A store that remembers when to look next must not miss a row that ends, or is old enough, sooner."""
        self.queue("short", keep="1m")
        self.session(lease=DAY)
        self.enqueue("slow", job="short")
        slow = self.take(limit=1, functions=["short"], lease=DAY)
        self.done(job="short", lease=DAY)
        self.clock.advance(MINUTE)
        assert 0 == self.store.prune()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune()
        self.finish(slow)
        self.clock.advance(MINUTE)
        assert 0 == self.store.prune()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune()

    def test_a_given_time_goes_over_what_jobs_say(self) -> None:
        self.queue(keep="300d")
        self.session()
        self.done()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())

    def test_verdicts_go_when_their_last_time_is_before_the_given_time(self) -> None:
        self.define()
        self.clock.advance(HOUR)
        ranges = [
            VerdictRange(minute(1), minute(2), State.SKIPPED, Reason.OVERLAP, 2),
            VerdictRange(minute(3), minute(9), State.MISSED, Reason.LATE, None),
        ]
        self.fire(verdicts=ranges)
        assert 1 == self.store.prune(minute(5))
        assert [ranges[1]] == [ledger_range.range for ledger_range in self.store.ranges("job")]
        assert minute(2) == self.view().horizon

    def test_no_call_deletes_more_than_its_limit(self) -> None:
        self.define(self.job(overlap="allow"))
        self.ran(*range(1, 8))
        self.clock.advance(HOUR)
        self.fire(verdicts=[VerdictRange(minute(8), minute(8), State.SKIPPED, Reason.OVERLAP, 1)])
        now = self.store.now()
        assert [3, 3, 2, 0] == [self.store.prune(now, limit=3) for _ in range(4)]
        assert not any([self.all(), self.store.ranges("job")])

    def test_retired_jobs_are_pruned_too_and_stay_known(self) -> None:
        self.define()
        self.ran(1)
        self.store.retire("job", by="ann", why="")
        self.clock.advance(100 * DAY)
        assert 1 == self.store.prune()
        assert (minute(1), minute(1)) == (self.view().watermark, self.view().horizon)

    def test_ended_sessions_go_after_a_day(self) -> None:
        self.session("old")
        self.store.close_session("old")
        self.clock.advance(DAY - HOUR)
        self.session("young", lease=10 * DAY)
        self.store.reclaim(["young"])
        self.session("lives", lease=10 * DAY)
        self.clock.advance(2 * HOUR)
        assert 0 == self.store.prune()
        assert {"young", "lives"} == {session.id for session in self.store.sessions(ended=True)}

    def test_runs_outlive_the_session_that_made_them(self) -> None:
        self.queue()
        self.session()
        done = self.done()
        self.store.close_session("s1")
        self.clock.advance(2 * DAY)
        self.store.prune()
        assert [] == self.store.sessions(ended=True)
        assert ("s1", "node of s1") == (self.look(done.id).session, self.runs(done.id)[0].node)

    # --- what something open needs ----------------------------------------------------------------------------------

    def failed_batch(self) -> int:
        """Let a batch fail that has done one of its two items, under a ``keep`` of an hour; return its id."""
        self.queue(keep="1h")
        self.session(lease=100 * DAY)
        batch = self.enqueue("batch", origin=Origin.BATCH)
        claim = self.take(lease=100 * DAY)
        keys = [item_key(batch.id, text) for text in "ab"]
        self.store.enqueue([Item(job="queue", key=key, origin=Origin.BATCH, parent=batch.id) for key in keys])
        for state in (State.SUCCEEDED, State.FAILED):
            self.finish(self.take(limit=1, lease=100 * DAY), state)
        self.finish(claim, State.FAILED)
        return batch.id

    def end(self, occurrence: int, state: State) -> None:
        """Let a pending occurrence run to its end."""
        claim = self.take(lease=100 * DAY)
        assert occurrence == claim.id
        self.finish(claim, state)

    def test_a_batch_is_not_pruned_with_its_items_while_its_retry_is_open(self) -> None:
        first = self.failed_batch()
        retry = self.store.retry(first, by="ann").id
        self.clock.advance(DAY)
        assert 0 == self.store.prune()
        assert [1, 1] == [self.store.children([first])[first].succeeded, self.store.children([first])[first].failed]
        self.end(retry, State.SUCCEEDED)
        assert 3 == self.store.prune()
        assert [retry] == [one.id for one in self.all()]

    def test_items_are_not_pruned_before_their_batch(self) -> None:
        self.queue(keep="1h")
        self.session(lease=100 * DAY)
        batch = self.enqueue("batch", origin=Origin.BATCH)
        claim = self.take(lease=100 * DAY)
        self.store.enqueue([Item(job="queue", key=item_key(batch.id, "a"), origin=Origin.BATCH, parent=batch.id)])
        self.finish(self.take(lease=100 * DAY))
        self.clock.advance(MINUTE)
        self.finish(claim, State.FAILED)
        self.clock.advance(HOUR - SECOND)
        assert 0 == self.store.prune() == self.store.prune(self.store.now() - HOUR)
        self.clock.advance(2 * SECOND)
        assert 2 == self.store.prune()

    def test_what_the_retry_of_a_retry_collects_is_not_pruned(self) -> None:
        first = self.failed_batch()
        second = self.store.retry(first, by="ann").id
        self.end(second, State.FAILED)
        third = self.store.retry(second, by="ann").id
        self.clock.advance(DAY)
        assert 0 == self.store.prune()
        self.end(third, State.FAILED)
        self.clock.advance(DAY)
        for _ in range(3):  # from the last of them on: one that was retried stays until its retry is gone
            self.store.prune()
        assert [] == self.all()

    def park_run(self, claim: Claim, then: Parked) -> None:
        """Park a run of the session ``waiter``."""
        parked = End(id=claim.id, token=claim.token, session="waiter", then=then)
        assert settle(self.store, [parked])[0].accepted

    def wait_for_upstreams(self) -> Claim:
        """Let a run of ``down`` wait for its upstreams; return its claim."""
        self.fire(self.clock.now(), job="down")
        claim = self.take("waiter", functions=["down"], lease=100 * DAY)
        self.park_run(claim, Parked("upstreams"))
        return claim

    def test_upstreams_are_not_pruned_by_keep_while_a_run_waits(self) -> None:
        self.define(self.job(keep="1h"), self.job("skips", keep="1h"), self.job("down", keep="10d"))
        self.ran(1)
        self.clock.advance(30 * MINUTE)
        self.fire(job="skips", verdicts=[VerdictRange(minute(31), minute(31), State.SKIPPED, Reason.OVERLAP, 1)])
        self.session("waiter", lease=100 * DAY)
        claim = self.wait_for_upstreams()
        self.clock.advance(5 * DAY)
        assert 0 == self.store.prune()
        assert 1 == self.store.wake([claim.id])
        self.finish(self.take("waiter", functions=["down"], lease=100 * DAY))
        assert (2, 0) == ((pruned := self.store.prune()), pruned.needed)

    def test_what_no_open_run_can_need_is_pruned_beside_it(self) -> None:
        self.queue(keep="1h")
        self.define(self.job(keep="1h"), self.job("down", keep="10d"))
        self.ran(1)
        self.session("waiter", lease=100 * DAY)
        self.enqueue("batch", origin=Origin.BATCH)
        batch = self.take("waiter", lease=100 * DAY)
        self.park_run(batch, Parked("items", 1))
        self.clock.advance(2 * HOUR)
        assert 1 == self.store.prune()
        self.wait_for_upstreams()
        self.enqueue("no nominal time")
        self.finish(self.take("waiter", functions=["queue"], lease=100 * DAY))
        self.clock.advance(2 * HOUR)
        assert 1 == self.store.prune()
        assert [State.PENDING, State.PENDING] == [one.state for one in self.all()]

    def test_by_a_named_time_it_is_pruned_all_the_same_and_the_answer_says_how_much(self) -> None:
        self.define(self.job(keep="1h"), self.job("down", keep="10d"))
        self.ran(1)
        first = self.failed_batch()
        self.store.retry(first, by="ann")
        self.session("waiter", lease=100 * DAY)
        self.wait_for_upstreams()
        self.enqueue("of no use")
        self.finish(self.claim(limit=9, functions=["queue"], lease=100 * DAY)[-1])
        self.clock.advance(SECOND)
        pruned = self.store.prune(self.store.now())
        assert (5, 4) == (pruned, pruned.needed)
        assert {State.PENDING, State.RUNNING} == {one.state for one in self.all()}

    # --- what a job was ---------------------------------------------------------------------------------------------

    def test_old_eras_go_with_the_times_that_they_ruled(self) -> None:
        for args in ((1,), (2,), (3,)):
            self.define(self.job("queue", trigger=None, args=args, keep="1d"))
            self.clock.advance(DAY)
        assert 0 == self.store.prune()
        left = self.store.history("queue").eras
        assert [START + DAY, START + 2 * DAY] == [era.since for era in left]
        self.clock.advance(SECOND)
        self.store.prune()
        assert left[1:] == self.store.history("queue").eras
        assert (START + 2 * DAY, START + 2 * DAY) == (self.view("queue").horizon, self.view("queue").watermark)

    def test_a_job_whose_old_eras_went_fires_at_the_times_of_the_last_one_only(self) -> None:
        self.define(self.job(trigger=None, keep="1d"))
        self.clock.advance(DAY)
        self.define(self.job(trigger=cron("0 12 1 * *"), keep="1d"))
        due = self.view().next_due
        assert due is not None
        self.clock.advance(4 * DAY)
        self.store.prune()
        assert 1 == len(self.store.history("job").eras)
        assert due == self.view().next_due
        self.clock.advance(due - self.clock.now())
        assert [True] == self.round()
        assert ([due], []) == (self.nominal(), self.store.ranges("job"))

    def test_an_era_stays_while_it_owes_something(self) -> None:
        self.define(self.job(keep="1d"))
        self.store.pause("job", by="ann", why="")
        self.clock.advance(HOUR)
        self.define(self.job(trigger=every("2m"), keep="1d"))
        self.clock.advance(10 * DAY)
        self.store.prune()
        assert [START, START + HOUR] == [era.since for era in self.store.history("job").eras]
        assert 1 == len(self.store.history("job").pauses)
        self.store.resume("job", by="ann")
        self.store.prune()
        assert [2, 1] == self.lengths("job")
        self.round()
        self.clock.advance(2 * DAY)
        self.store.prune()
        assert [START + HOUR] == [era.since for era in self.store.history("job").eras]

    def lengths(self, job: str) -> list[int]:
        """Return of how many eras and pauses the history of a job is."""
        history = self.store.history(job)
        return [len(history.eras), len(history.pauses)]

    def test_eras_and_pauses_are_kept_for_a_day_at_least(self) -> None:
        self.define(self.job(trigger=None, keep="1m"))
        self.store.pause("job", by="ann", why="")
        self.clock.advance(MINUTE)
        self.store.resume("job", by="ann")
        self.define(self.job(trigger=None, args=(1,), keep="1m"))
        self.clock.advance(DAY - SECOND)
        self.store.prune()
        self.store.prune(self.store.now())
        assert [2, 1] == self.lengths("job")
        self.clock.advance(MINUTE)
        self.store.prune()
        assert [1, 0] == self.lengths("job")

    def test_pauses_that_are_over_go_and_the_one_that_holds_stays(self) -> None:
        self.queue(keep="1d")
        for _ in range(3):
            self.store.pause("queue", by="ann", why="")
            self.clock.advance(HOUR)
            self.store.resume("queue", by="ann")
        self.store.pause("queue", by="ann", why="")
        began = self.clock.now()
        self.clock.advance(10 * DAY)
        self.store.prune()
        assert [(began, None)] == [(pause.start, pause.end) for pause in self.store.history("queue").pauses]

    # --- what is forgotten whole ------------------------------------------------------------------------------------

    def test_a_job_that_was_retired_long_ago_is_forgotten(self) -> None:
        self.define(self.job("gone"), self.job("stays"))
        self.ran(1, job="gone")
        self.store.pause("gone", by="ann", why="")
        self.store.retire("gone", by="ann", why="")
        self.clock.advance(REMEMBERED - HOUR)
        self.store.prune()
        assert self.store.job("gone") is not None
        self.clock.advance(2 * HOUR)
        self.store.prune()
        assert self.store.job("gone") is None
        assert ["stays"] == [job.spec.name for job in self.store.jobs(retired=True)]
        assert (JobHistory(), []) == (self.store.history("gone"), self.store.ranges("gone"))
        assert ("gone",) == self.define(self.job("gone")).created
        assert (1, None) == (self.view("gone").revision, self.view("gone").horizon)
        assert [self.clock.now()] == [era.since for era in self.store.history("gone").eras]

    def test_a_retired_job_stays_while_something_of_it_is_kept(self) -> None:
        self.queue(keep="1000d")
        self.session(lease=1000 * DAY)
        done = self.done(lease=1000 * DAY)
        self.store.retire("queue", by="ann", why="")
        self.clock.advance(REMEMBERED + DAY)
        self.store.prune()
        assert [self.view("queue").spec.name] == [self.look(done.id).job]
        self.clock.advance(1000 * DAY)
        self.store.prune()
        self.store.prune()
        assert self.store.job("queue") is None

    def test_a_job_that_came_back_is_not_forgotten(self) -> None:
        self.queue()
        self.store.retire("queue", by="ann", why="")
        self.clock.advance(REMEMBERED - HOUR)
        self.queue()
        self.clock.advance(DAY)
        self.store.prune()
        assert self.view("queue").retired_at is None

    def test_a_release_that_was_replaced_long_ago_is_new_when_it_comes_back(self) -> None:
        for release in ("r0", "r1", "r2"):
            self.define(release=release)
        self.clock.advance(REMEMBERED + DAY)
        self.store.prune()
        self.session(release="r1")
        assert ("job",) == self.define(self.job(args=(1,)), release="r2").superseded

    def test_a_release_that_lives_keeps_its_place_however_old_it_is(self) -> None:
        for release in ("r0", "r1", "r2"):
            self.define(release=release)
        self.session(release="r1", lease=1000 * DAY)
        self.clock.advance(REMEMBERED + DAY)
        self.store.prune()
        assert ("job",) == self.define(self.job(args=(1,)), release="r2").changed

    def test_the_last_release_is_never_forgotten(self) -> None:
        for release in ("r0", "r1"):
            self.define(release=release)
        self.clock.advance(2 * REMEMBERED)
        self.store.prune()
        self.define(self.job("other"), release="r2")
        self.session(release="r1")
        assert ("job",) == self.define(self.job(args=(1,)), release="r2").changed

    def test_the_trail_is_kept_for_a_year(self) -> None:
        self.queue()
        self.store.pause("queue", by="ann", why="old")
        self.clock.advance(REMEMBERED - HOUR)
        self.store.resume("queue", by="ann", why="young")
        self.store.prune()
        assert 2 == len(self.store.trail())
        self.clock.advance(2 * HOUR)
        self.store.prune()
        assert ["young"] == [entry.why for entry in self.store.trail()]
        assert ["young"] == [entry.why for entry in self.store.trail(target="queue")]

    # --- what can still never run again -----------------------------------------------------------------------------

    def test_the_horizon_rises_to_the_latest_nominal_time_deleted(self) -> None:
        self.define(self.job(overlap="allow"))
        assert self.view().horizon is None
        self.ran(1, 2, 3)
        self.clock.advance(SECOND)
        assert 2 == self.store.prune(self.store.now(), limit=2)
        horizon = self.view().horizon
        assert horizon in {minute(2), minute(3)}
        assert 1 == self.store.prune(self.store.now())
        assert minute(3) == self.view().horizon

    def test_the_horizon_never_sinks(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session("runner", lease=DAY)
        self.fire(minute(1), minute(2))
        self.clock.advance(2 * MINUTE)
        first, second = self.claim("runner", lease=DAY)
        self.finish(second)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        assert minute(2) == self.view().horizon
        self.finish(first)
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        assert minute(2) == self.view().horizon

    def test_work_without_a_nominal_time_raises_no_horizon(self) -> None:
        self.queue()
        self.session()
        self.done()
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        assert self.view("queue").horizon is None

    def test_the_watermark_stays_where_it_is(self) -> None:
        self.define()
        self.ran(1)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        assert (minute(1), minute(2)) == (self.view().watermark, self.view().next_due)

    def test_a_replica_that_slept_until_everything_was_pruned_repeats_nothing(self) -> None:
        self.define(self.job(overlap="allow"))
        self.clock.advance(MINUTE)
        view = self.store.look()
        asleep = [plan_of(job, view.now) for job in view.jobs]
        self.ran(1)
        self.clock.advance(100 * DAY)
        assert 1 == self.store.prune()
        assert [False] == carry_out(self.store, asleep)
        assert [] == self.all()

    def test_a_pruned_time_cannot_be_acquired_or_backfilled(self) -> None:
        self.define()
        self.ran(1, 3)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        self.session("late", lease=HOUR)
        for time in (minute(1), minute(2), minute(3)):
            named = AskNamed("job", scheduled_for=time)
            assert [(NotWon.PRUNED,)] == self.store.acquire("late", [named], lease=LEASE)
            with pytest.raises(OccurrenceTooOld):
                self.store.backfill("job", [time], by="ann")
        assert [] == self.all()

    def test_an_occurrence_backfilled_ahead_does_not_run_again_after_pruning(self) -> None:
        self.define()
        self.session(lease=DAY)
        self.store.backfill("job", [minute(2)], by="ann")
        self.finish(self.take(lease=DAY))
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        self.clock.advance(HOUR)
        self.fire(minute(1), minute(2), minute(3))
        claims = [self.take(lease=DAY)]
        self.finish(claims[0])
        claims.append(self.take(lease=DAY))
        assert [minute(1), minute(3)] == [claim.scheduled_for for claim in claims]

    def test_ids_and_tokens_of_pruned_occurrences_are_not_given_again(self) -> None:
        self.queue()
        self.session(lease=DAY)
        old = self.done()
        self.clock.advance(SECOND)
        assert 1 == self.store.prune(self.store.now())
        new = self.done()
        assert old.id < new.id
        assert old.token < new.token

    def test_a_result_for_what_was_pruned_is_refused(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.finish(claim)
        self.clock.advance(SECOND)
        self.store.prune(self.store.now())
        answer = self.finish(claim)
        assert (False, None) == (answer.accepted, answer.state)
