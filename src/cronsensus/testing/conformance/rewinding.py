"""A schedule that is taken back after the store's clock was: nothing runs twice, and nothing is hidden."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace

import pytest

from cronsensus.audit import audit
from cronsensus.errors import InvalidTransition, UnknownJob
from cronsensus.jobs.rewinding import rewind_job
from cronsensus.model.rewind import Rewind
from cronsensus.model.states import State
from cronsensus.planning import plan
from cronsensus.testing.conformance.fixtures import DAY, HOUR, MINUTE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import carry_out
from cronsensus.triggers import every

LONG = 100 * DAY


class Rewinding(StoreTest):
    """Hazards of taking a schedule back: a second run for one time, a verdict that is left behind."""

    def run_ahead(self, minutes: int = 60) -> None:
        """Decide by a clock that is ahead, and put it right: the job fired once, for the last of the times."""
        self.define()
        self.session(lease=LONG)
        self.clock.step(minutes * MINUTE)
        self.round()
        self.finish(self.take(lease=LONG))
        self.clock.step(-minutes * MINUTE)

    def rewind(self, **changes: object) -> bool:
        step = self.store_step()
        return self.store.rewind(replace(step, **changes), by="ann", why="chrony")  # type: ignore[arg-type]

    def store_step(self) -> Rewind:
        """Return a step that takes the job back to now, as it stands."""
        view = self.view()
        eras = self.store.history("job").eras
        return Rewind(
            job="job",
            revision=view.revision,
            watermark_seen=view.watermark,
            watermark=self.store.now(),
            next_due=minute(1),
            eras=(*eras[:-1], replace(eras[-1], since=min(eras[-1].since, self.store.now()))),
        )

    def test_a_schedule_that_was_taken_back_goes_on_now(self) -> None:
        self.run_ahead()
        assert (minute(60), minute(61)) == (self.view().watermark, self.view().next_due)
        rewind_job(self.store, "job", by="ann", why="chrony")
        assert (START, minute(1)) == (self.view().watermark, self.view().next_due)
        self.clock.advance(MINUTE)
        self.round()
        assert minute(1) == self.take(lease=LONG).scheduled_for
        [entry] = self.store.trail(target="job", limit=1)
        assert ("rewind", "ann", "chrony") == (entry.action, entry.by, entry.why)
        assert ["2026", "2026"] == [entry.details[end][:4] for end in ("from", "until")]

    def test_a_time_that_ran_while_the_clock_was_ahead_does_not_run_again(self) -> None:
        self.run_ahead(3)
        rewind_job(self.store, "job", by="ann", why="chrony")
        ran = []
        for _ in range(5):
            self.clock.advance(MINUTE)
            self.round()
            for claim in self.claim(lease=LONG):
                ran.append(claim.scheduled_for)
                self.finish(claim)
        assert [minute(1), minute(2), minute(4), minute(5)] == ran
        assert audit(self.store).ok

    def test_a_verdict_on_times_that_come_again_is_withdrawn_and_one_across_now_ends_there(self) -> None:
        self.define()
        self.session(lease=LONG)
        self.clock.advance(10 * MINUTE)
        self.clock.step(HOUR)
        self.round()
        self.clock.step(-HOUR)
        rewind_job(self.store, "job", by="ann", why="chrony")
        [left] = self.store.ranges("job")
        assert (minute(1), minute(10), 10) == (left.range.first, left.range.last, left.range.count)
        assert [left] == self.store.decided()
        assert audit(self.store).ok
        self.clock.advance(5 * MINUTE)
        self.round()
        assert [minute(10), minute(14)] == [ledger_range.range.last for ledger_range in self.store.ranges("job")]
        assert audit(self.store).ok

    def test_a_definition_made_while_the_clock_was_ahead_rules_from_now_on(self) -> None:
        self.define()
        self.session(lease=LONG)
        self.clock.step(HOUR)
        self.define(self.job(trigger=every("30s", start=START)))
        self.clock.step(-HOUR)
        rewind_job(self.store, "job", by="ann", why="chrony")
        assert START == self.store.history("job").eras[-1].since
        assert START + 30 * SECOND == self.view().next_due
        self.clock.advance(30 * SECOND)
        self.round()
        assert START + 30 * SECOND == self.take(lease=LONG).scheduled_for
        assert audit(self.store).ok

    def test_a_job_that_was_born_ahead_of_time_is_taken_back_too(self) -> None:
        self.clock.step(HOUR)
        self.define()
        self.session(lease=LONG)
        self.clock.step(-HOUR)
        rewind_job(self.store, "job", by="ann", why="chrony")
        self.clock.advance(MINUTE)
        self.round()
        assert minute(1) == self.take(lease=LONG).scheduled_for
        assert audit(self.store).ok

    def test_a_pause_that_lies_ahead_skips_no_time_that_comes_again(self) -> None:
        self.define()
        self.session(lease=LONG)
        self.clock.step(HOUR)
        self.store.pause("job", by="ann", why="deploy")
        self.clock.advance(MINUTE)
        self.store.resume("job", by="ann")
        self.round()
        self.clock.step(-HOUR)
        rewind_job(self.store, "job", by="ann", why="chrony")
        assert () == self.store.history("job").pauses
        self.clock.advance(MINUTE)
        self.round()
        assert minute(2) == self.take(lease=LONG).scheduled_for

    def test_a_step_back_that_rests_on_what_is_no_more_does_nothing(self) -> None:
        self.run_ahead()
        before = self.view()
        assert not self.rewind(watermark_seen=minute(59))
        assert not self.rewind(revision=before.revision + 1)
        assert before == self.view()
        assert self.rewind()
        assert START == self.view().watermark

    def test_a_plan_made_before_the_step_back_is_not_carried_out(self) -> None:
        self.run_ahead()
        self.clock.step(2 * HOUR)
        view = self.store.look()
        plans = [plan(job, view.now) for job in view.jobs]
        self.clock.step(-2 * HOUR)
        rewind_job(self.store, "job", by="ann", why="chrony")
        self.clock.step(2 * HOUR)
        assert [False] == carry_out(self.store, plans)

    def test_what_is_not_ahead_or_paused_or_retired_is_not_taken_back(self) -> None:
        self.define()
        with pytest.raises(InvalidTransition, match="stands where its trigger says"):
            rewind_job(self.store, "job", by="ann", why="")
        self.run_ahead()
        self.store.pause("job", by="ann", why="deploy")
        with pytest.raises(InvalidTransition, match="resume"):
            rewind_job(self.store, "job", by="ann", why="")
        assert not self.rewind()
        self.store.retire("job", by="ann", why="")
        for name in ("job", "nobody"):
            with pytest.raises(UnknownJob):
                rewind_job(self.store, name, by="ann", why="")

    def test_a_job_of_which_each_time_has_run_is_left_as_it_is(self) -> None:
        self.define()
        self.session(lease=LONG)
        for _ in range(5):
            self.clock.advance(MINUTE)
            self.round()
            self.finish(self.take(lease=LONG))
        self.clock.step(-5 * MINUTE)
        with pytest.raises(InvalidTransition, match="no time runs twice"):
            rewind_job(self.store, "job", by="ann", why="")
        assert minute(5) == self.view().watermark
        assert {State.SUCCEEDED} == {one.state for one in self.all()}
