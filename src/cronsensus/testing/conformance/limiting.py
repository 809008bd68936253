"""Limits of claiming: how many of a job run at a time over the cluster, and in which order."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from cronsensus.model.states import State
from cronsensus.testing.conformance.fixtures import DAY, HOUR, MINUTE, START, StoreTest, minute
from cronsensus.testing.conformance.steps import give_back


class Limiting(StoreTest):
    """Hazards of limits: one run too many, and a queue that does not move."""

    # --- concurrency ------------------------------------------------------------------------------------------------

    def test_a_job_runs_no_more_often_at_a_time_than_its_concurrency(self) -> None:
        self.queue(concurrency=3)
        self.session("s1")
        self.session("s2")
        self.fill(10)
        assert 2 == len(self.claim("s1", 2))
        assert 1 == len(self.claim("s2", 10))
        assert [] == self.claim("s1") == self.claim("s2")

    def test_the_end_of_a_run_makes_room(self) -> None:
        self.queue(concurrency=1)
        self.session()
        ids = self.fill(4)
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
            claim = self.take()
            self.finish(claim, state)
        assert ids[3] == self.take().id

    def test_concurrency_counts_each_job_for_itself(self) -> None:
        self.queue("a", concurrency=1)
        self.queue("b", concurrency=1)
        self.queue("c")
        self.session()
        for name in "abc":
            self.fill(2, name)
        assert ["a", "b", "c", "c"] == sorted(claim.job for claim in self.claim())

    def test_a_full_job_does_not_hold_back_others(self) -> None:
        self.queue("full", concurrency=1, priority=9)
        self.queue("free")
        self.session()
        self.fill(50, "full")
        made = self.enqueue(job="free")
        assert ["full"] == [claim.job for claim in self.claim(limit=1)]
        assert [made.id] == [claim.id for claim in self.claim(limit=1)]

    def test_runs_of_a_dead_session_do_not_count_against_concurrency(self) -> None:
        self.queue(concurrency=1)
        self.fill(2)
        self.session("dies")
        self.take("dies")
        self.lease_out()
        self.session("lives")
        assert 1 == len(self.claim("lives"))

    def test_concurrency_holds_for_scheduled_occurrences_too(self) -> None:
        self.define(self.job(overlap="allow", concurrency=2))
        self.session(lease=HOUR)
        self.fire(*(minute(number) for number in range(1, 5)))
        self.clock.advance(5 * MINUTE)
        assert [minute(1), minute(2)] == [claim.scheduled_for for claim in self.claim()]

    def test_a_changed_concurrency_holds_from_then_on(self) -> None:
        self.queue(concurrency=1)
        self.session()
        self.fill(5)
        assert 1 == len(self.claim())
        self.queue(concurrency=3)
        assert 2 == len(self.claim())
        self.queue()
        assert 2 == len(self.claim())

    # --- overlap: one at a time, in order ---------------------------------------------------------------------------

    def test_occurrences_of_the_schedule_run_one_at_a_time_and_in_order(self) -> None:
        for overlap in ("skip", "queue_one", "queue", "cancel_previous"):
            name = self.job(overlap, overlap=overlap).name
            self.define(self.job(name, overlap=overlap))
            self.session(name, lease=DAY)
            base = self.view(name).watermark
            times = [base + number * MINUTE for number in (1, 2, 3)]
            self.fire(*times, job=name)
            self.clock.advance(10 * MINUTE)
            for time in times:
                claim = self.take(name, functions=[name], lease=DAY)
                assert time == claim.scheduled_for
                assert [] == self.claim(name, functions=[name])
                self.finish(claim)

    def test_with_overlap_allow_they_run_beside_each_other(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session(lease=HOUR)
        self.fire(minute(1), minute(2), minute(3))
        self.clock.advance(10 * MINUTE)
        assert 3 == len(self.claim())

    def test_manual_and_backfilled_occurrences_stand_in_the_same_line(self) -> None:
        self.define(self.job(overlap="queue"))
        self.session(lease=HOUR)
        self.clock.advance(10 * MINUTE)
        ids = [self.store.trigger("job", by="ann").id]
        ids += [made.id for made in self.store.backfill("job", [minute(1)], by="ann")]
        self.fire(minute(10))
        ids.append(self.all()[-1].id)
        for wanted in ids:
            claim = self.take(lease=HOUR)
            assert wanted == claim.id
            assert [] == self.claim()
            self.finish(claim)

    def test_priority_does_not_overtake_in_this_line(self) -> None:
        self.define(self.job(overlap="queue"))
        self.session(lease=HOUR)
        self.fire(minute(1))
        self.define(self.job(overlap="queue", priority=9))
        self.fire(minute(2))
        self.clock.advance(HOUR / 2)
        assert minute(1) == self.take().scheduled_for

    def test_enqueued_work_stands_in_no_line(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fire(minute(1))
        self.clock.advance(MINUTE)
        self.take(lease=HOUR)
        self.fill(3, "job")
        assert 3 == len(self.claim())

    def test_an_occurrence_waiting_for_its_retry_holds_back_the_next(self) -> None:
        self.define(self.job(overlap="queue"))
        self.session(lease=DAY)
        self.fire(minute(1), minute(2))
        self.clock.advance(10 * MINUTE)
        self.finish(self.take(lease=DAY), State.PENDING, retry_in=HOUR)
        assert [] == self.claim()
        self.clock.advance(HOUR)
        assert minute(1) == self.take().scheduled_for

    def test_an_occurrence_that_was_taken_over_is_still_before_the_next(self) -> None:
        self.define(self.job(overlap="queue"))
        self.fire(minute(1), minute(2))
        self.clock.advance(10 * MINUTE)
        self.abandoned()
        self.session("s2")
        assert [] == self.claim("s2")
        self.store.reclaim()
        assert minute(1) == self.take("s2").scheduled_for

    def test_a_released_occurrence_is_still_before_the_next(self) -> None:
        self.define(self.job(overlap="queue"))
        self.session(lease=HOUR)
        self.fire(minute(1), minute(2))
        self.clock.advance(10 * MINUTE)
        give_back(self.store, [self.take()])
        assert minute(1) == self.take().scheduled_for

    def test_an_occurrence_that_ended_without_running_does_not_hold_back_the_next(self) -> None:
        self.define(self.job(overlap="queue"))
        self.session(lease=HOUR)
        self.fire(minute(1), minute(2))
        self.clock.advance(10 * MINUTE)
        self.store.cancel(self.all()[0].id, by="ann", why="")
        assert minute(2) == self.take().scheduled_for

    def test_an_overlap_policy_that_changed_holds_for_what_is_there_already(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session(lease=DAY)
        self.fire(minute(1), minute(2))
        self.clock.advance(10 * MINUTE)
        assert 0 == self.planned().active
        self.define(self.job(overlap="queue"))
        assert 2 == self.planned().active
        claim = self.take(lease=DAY)
        assert minute(1) == claim.scheduled_for
        self.define(self.job(overlap="allow"))
        assert 0 == self.planned().active
        assert minute(2) == self.take(lease=DAY).scheduled_for
        self.define(self.job(overlap="skip"))
        assert 2 == self.planned().active

    def test_nothing_starts_beside_what_an_older_policy_let_run(self) -> None:
        self.define(self.job(overlap="allow"))
        self.session(lease=DAY)
        self.fire(minute(1), minute(2), minute(3))
        self.clock.advance(10 * MINUTE)
        first, second = self.claim(limit=2, lease=DAY)
        self.define(self.job(overlap="queue"))
        self.finish(first)
        assert [] == self.claim()
        self.finish(second)
        assert minute(3) == self.take().scheduled_for

    def test_active_counts_what_the_overlap_policy_is_for(self) -> None:
        self.define()
        self.session(lease=HOUR)
        self.fill(2, "job")
        assert 0 == self.planned().active == self.view().active
        self.store.trigger("job", by="ann")
        self.fire(minute(1))
        self.store.backfill("job", [START], by="ann")
        assert 3 == self.planned().active == self.view().active
        claims = self.claim()
        assert 3 == len(claims)
        assert 3 == self.planned().active
        for claim in claims:
            self.finish(claim)
        assert 2 == self.planned().active
