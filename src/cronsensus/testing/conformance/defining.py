"""Definitions: new, changed, retired and revived jobs, and which release may say so."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronsensus.errors import DuplicateJob, InvalidOption, InvalidPayload
from cronsensus.model.gate import After, Rule
from cronsensus.model.job import Era, JobSpec
from cronsensus.stores.values import DefineResult
from cronsensus.testing.conformance.fixtures import (
    DAY,
    EVERY_MINUTE,
    HOSTILE,
    HOUR,
    MINUTE,
    SECOND,
    START,
    StoreTest,
    minute,
)
from cronsensus.triggers import at, cron, every

MICROSECOND = timedelta(microseconds=1)
HOURLY = every("1h", start=START)


class Defining(StoreTest):
    """Hazards of definitions: a schedule that repeats, forgets or resurrects because of a deploy."""

    # --- new jobs ---------------------------------------------------------------------------------------------------

    def test_a_new_job_starts_after_its_registration(self) -> None:
        self.clock.advance(90)
        assert ("job",) == self.define().created
        view = self.view()
        assert START + 90 * SECOND == view.watermark == view.created_at
        assert minute(2) == view.next_due
        assert [] == self.all()

    def test_a_new_job_registered_at_a_nominal_time_starts_with_the_next(self) -> None:
        self.clock.advance(60)
        self.define()
        assert minute(2) == self.view().next_due

    def test_the_first_era_begins_at_the_watermark(self) -> None:
        self.define()
        view = self.view()
        assert (Era(START, EVERY_MINUTE, view.revision),) == self.store.history("job").eras

    def test_a_one_off_in_the_past_still_runs(self) -> None:
        self.clock.advance(HOUR)
        self.define(self.job(trigger=at(minute(1))))
        view = self.view()
        assert minute(1) - MICROSECOND == view.watermark == self.store.history("job").eras[0].since
        assert minute(1) == view.next_due
        assert ["job"] == [job.spec.name for job in self.store.look().jobs]

    def test_a_one_off_at_this_very_moment_still_runs(self) -> None:
        self.define(self.job(trigger=at(START)))
        assert START == self.view().next_due

    def test_a_one_off_to_come_runs_then(self) -> None:
        self.define(self.job(trigger=at(minute(1))))
        assert START == self.view().watermark
        assert minute(1) == self.view().next_due

    def test_of_several_times_in_the_past_only_the_last_still_runs(self) -> None:
        self.clock.advance(HOUR)
        self.define(self.job(trigger=at(minute(1)) | at(minute(3)) | at(minute(2))))
        assert minute(3) - MICROSECOND == self.view().watermark
        assert minute(3) == self.view().next_due

    def test_a_trigger_that_has_times_to_come_owes_none_of_the_past(self) -> None:
        self.clock.advance(HOUR)
        self.define(self.job(trigger=at(minute(1)) | at(minute(90))))
        assert START + HOUR == self.view().watermark
        assert minute(90) == self.view().next_due

    def test_a_job_without_a_trigger_is_never_due(self) -> None:
        self.queue()
        self.clock.advance(DAY)
        assert self.view("queue").next_due is None
        assert () == self.store.look().jobs

    # --- what comes after what --------------------------------------------------------------------------------------

    def behind(self, name: str, *upstreams: Rule) -> JobSpec:
        """Return a job that comes after others."""
        return replace(self.job(name, overlap="allow"), after=After(upstreams))

    def test_what_a_job_comes_after_stands_in_its_definition_and_in_each_era(self) -> None:
        first, second = self.behind("down", Rule("up")), self.behind("down", Rule("up", "ended"), Rule("other"))
        alone = self.job("down", overlap="allow")
        self.define(self.job("up"), first)
        assert [first] == self.store.edges() == [self.view("down").spec]
        for later in (second, alone, second):
            self.clock.advance(SECOND)
            assert ("down",) == self.define(later).changed
            assert [later] * (later is second) == self.store.edges()
        self.clock.advance(MINUTE)
        assert [second.after] == [job.spec.after for job in self.store.look().jobs if job.spec.name == "down"]
        self.clock.advance(SECOND)
        self.store.retire("down", by="ann", why="")
        assert [] == self.store.edges()
        eras = self.store.history("down").eras
        assert [first.after, second.after, None, second.after, None] == [era.after for era in eras]
        self.define(first)
        assert [first] == self.store.edges()

    def test_what_comes_after_others_is_read_by_name_in_pages(self) -> None:
        names = ["b", "a", "Z", "é", "zz"]
        self.define(self.job("up"), *(self.behind(name, Rule("up")) for name in names))
        assert sorted(names) == [spec.name for spec in self.store.edges()]
        assert sorted(names)[:2] == [spec.name for spec in self.store.edges(limit=2)]
        assert sorted(names)[2:] == [spec.name for spec in self.store.edges(after=sorted(names)[1])]

    def test_definitions_come_back_as_they_were_put(self) -> None:
        specs = [
            self.job("plain"),
            self.job("none", trigger=None),
            JobSpec(name="process", function="other.function", trigger=HOURLY, executor="process", source="runtime"),
            self.job(
                "all",
                trigger=cron("30 2 * * MON-FRI", tz="Europe/Paris", jitter="5s") | HOURLY,
                args=(1, "ü", [None, True, {"deep": [1.5]}]),
                kwargs={"名": {"a": []}, "": 0},
                overlap="queue_one",
                catch_up="all",
                catch_up_window="3h",
                grace="90s",
                on_crash="fail",
                max_crashes=7,
                retries=5,
                retry_delay="2s",
                retry_factor=1.5,
                retry_max_delay="1m",
                timeout="30s",
                concurrency=3,
                priority=-4,
                keep="2d",
            ),
        ]
        self.define(*specs)
        assert specs == [self.view(spec.name).spec for spec in specs]
        assert [spec.digest for spec in specs] == [self.view(spec.name).spec.digest for spec in specs]

    def test_changing_arguments_after_define_does_not_change_the_stored_job(self) -> None:
        kwargs: dict[str, Any] = {"list": [1]}
        self.define(self.job(kwargs=kwargs))
        kwargs["list"].append(2)
        assert {"list": [1]} == self.view().spec.kwargs

    def test_the_answer_has_every_name_once(self) -> None:
        self.define(self.job("same"), self.job("other"), self.job("gone"))
        answer = self.define(self.job("same"), self.job("other", args=(1,)), self.job("new"), complete=True)
        assert DefineResult(created=("new",), changed=("other",), unchanged=("same",), retired=("gone",)) == answer

    def test_nothing_is_defined_if_one_definition_is_bad(self) -> None:
        self.define(self.job("old"))
        before = self.snapshot()
        with pytest.raises(InvalidPayload):
            self.define(self.job("new"), self.job("old", args=(1,)), self.job("bad", args=(object(),)))
        with pytest.raises(DuplicateJob):
            self.define(self.job("new"), self.job("twice"), self.job("twice", args=(1,)))
        assert before == self.snapshot()

    def test_putting_nothing_changes_nothing(self) -> None:
        self.define()
        before = self.snapshot()
        assert DefineResult() == self.store.define_jobs([], release="r1")
        assert before == self.snapshot()

    def test_hostile_names_are_ordinary_names(self) -> None:
        names = [*HOSTILE, "x" * 200, "🧨" * 200]
        self.define(*(self.job(name, args=(name,)) for name in names))
        self.session(lease=HOUR)
        for name in names:
            assert name == self.view(name).spec.name
            assert (name,) == self.view(name).spec.args
        assert self.store.pause(names[0], by="ann", why=names[4])
        assert self.store.retire(names[-1], by="ann", why="")
        self.clock.advance(MINUTE)
        assert len(names) - 2 == len(self.store.look().jobs)
        self.round()
        assert sorted(names[1:-1]) == sorted(claim.job for claim in self.claim(functions=names))

    def test_names_that_are_none_are_not_defined(self) -> None:
        for name in ("", "a\0b", "a\nb", " a", "x" * 201):
            with pytest.raises(InvalidOption):
                self.define(self.job(name))
        assert [] == self.store.jobs(retired=True)

    # --- changed jobs -----------------------------------------------------------------------------------------------

    def test_equal_definitions_write_nothing(self) -> None:
        self.define(self.job(kwargs={"a": 1, "b": 2}))
        before = self.snapshot()
        self.clock.advance(MINUTE)
        assert ("job",) == self.define(self.job(kwargs={"b": 2, "a": 1})).unchanged
        assert ("job",) == self.define(self.job(kwargs={"a": 1, "b": 2}), release="r2", by="ann").unchanged
        assert before == self.snapshot()

    def test_a_changed_trigger_keeps_the_watermark(self) -> None:
        self.define()
        self.clock.advance(90)
        old = self.view()
        assert ("job",) == self.define(self.job(trigger=HOURLY)).changed
        new = self.view()
        assert old.watermark == new.watermark
        assert old.id == new.id
        assert old.revision < new.revision
        assert HOURLY == new.spec.trigger

    def test_the_new_trigger_holds_from_now_and_the_old_one_until_now(self) -> None:
        self.define()
        self.clock.advance(90)
        self.define(self.job(trigger=HOURLY))
        first, second = self.store.history("job").eras
        assert (START, EVERY_MINUTE) == (first.since, first.trigger)
        assert (START + 90 * SECOND, HOURLY, self.view().revision) == (second.since, second.trigger, second.revision)
        assert (first, second) == self.planned().eras
        assert minute(1) == self.view().next_due
        self.round()
        assert [minute(1)] == self.nominal()
        assert START + HOUR == self.view().next_due

    def test_an_era_that_ended_before_the_watermark_no_longer_matters_to_planning(self) -> None:
        self.define()
        self.clock.advance(MINUTE)
        self.define(self.job(trigger=HOURLY))
        self.fire(minute(1))
        assert [HOURLY] == [era.trigger for era in self.planned().eras]
        assert [EVERY_MINUTE, HOURLY] == [era.trigger for era in self.store.history("job").eras]

    def test_every_change_is_an_era_also_one_of_policies_alone(self) -> None:
        self.define()
        self.clock.advance(SECOND)
        self.define(self.job(retries=1))
        self.clock.advance(SECOND)
        self.define(self.job(retries=2))
        eras = self.store.history("job").eras
        assert [START, START + SECOND, START + 2 * SECOND] == [era.since for era in eras]
        assert sorted({era.revision for era in eras}) == [era.revision for era in eras]
        assert minute(1) == self.view().next_due

    def test_several_changes_in_one_instant_leave_the_last(self) -> None:
        self.define()
        self.define(self.job(trigger=HOURLY))
        self.define(self.job(trigger=every("2m", start=START)))
        assert minute(2) == self.view().next_due
        self.clock.advance(2 * MINUTE)
        self.round()
        assert [minute(2)] == self.nominal()

    def test_an_era_never_begins_before_the_watermark(self) -> None:
        self.define()
        self.clock.advance(MINUTE)
        self.fire(minute(1))
        self.clock.step(-HOUR)
        self.define(self.job(trigger=every("30s", start=START)))
        assert minute(1) == self.view().watermark
        assert minute(1) <= self.store.history("job").eras[-1].since
        assert minute(1) + 30 * SECOND == self.view().next_due

    def test_eras_stay_in_order_when_the_clock_steps_back(self) -> None:
        self.define()
        self.clock.advance(HOUR)
        self.define(self.job(trigger=HOURLY))
        self.clock.step(-HOUR / 2)
        self.define(self.job(trigger=EVERY_MINUTE))
        since = [era.since for era in self.store.history("job").eras]
        assert sorted(since) == since

    def test_a_change_never_makes_a_decided_time_due_again(self) -> None:
        self.define()
        self.clock.advance(3 * MINUTE)
        self.round()
        decided = self.view().watermark
        for trigger in (HOURLY, EVERY_MINUTE, None, EVERY_MINUTE, at(minute(1)), EVERY_MINUTE):
            self.define(self.job(trigger=trigger))
            assert decided == self.view().watermark
            assert (self.view().next_due or minute(4)) > decided

    def test_a_change_leaves_paused_what_is_paused(self) -> None:
        self.define()
        self.store.pause("job", by="ann", why="because")
        self.define(self.job(args=(1,)))
        assert "ann" == self.view().paused_by
        self.clock.advance(HOUR)
        assert () == self.store.look().jobs

    def under_other_rules(self, next_due: datetime) -> datetime:
        """Let a node whose zone rules are other ones fire the job of Paris; return when it is due by those of here."""
        paris = cron("0 * * * *", tz="Europe/Paris") | every("1d", start=START)
        self.define(self.job(trigger=paris))
        self.clock.advance(HOUR)
        self.fire(minute(60), next_due=next_due)
        assert next_due == self.view().next_due
        return minute(120)

    @pytest.mark.parametrize("other", [90, 150])
    def test_an_unchanged_job_is_due_as_the_zone_rules_are_at_its_definition(self, other: int) -> None:
        right = self.under_other_rules(minute(other))
        before = self.view()
        answer = self.define(before.spec, by="n1")
        assert (("job",), ("job",)) == (answer.unchanged, answer.moved)
        assert replace(before, next_due=right) == self.view()
        assert () == self.define(before.spec).moved
        self.clock.advance(HOUR - SECOND)
        assert () == self.store.look().jobs
        self.clock.advance(SECOND)
        assert ["job"] == [job.spec.name for job in self.store.look().jobs]

    def test_a_job_that_is_paused_is_due_as_the_zone_rules_are_once_it_goes_on(self) -> None:
        right = self.under_other_rules(minute(150))
        self.store.pause("job", by="ann", why="")
        self.define(self.view().spec)
        self.clock.advance(HOUR)
        assert (right, ()) == (self.view().next_due, self.store.look().jobs)
        self.store.resume("job", by="ann", why="")
        assert ["job"] == [job.spec.name for job in self.store.look().jobs]

    def test_what_a_job_owes_of_an_earlier_trigger_is_not_put_off_by_zone_rules(self) -> None:
        self.define()
        self.clock.advance(MINUTE + SECOND)
        self.define(self.job(trigger=cron("0 * * * *", tz="Europe/Paris")))
        self.define(self.view().spec)
        assert minute(1) == self.view().next_due

    def test_runs_that_go_on_see_the_end_of_a_definition_that_changed(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.define(self.job("queue", trigger=None, priority=3))
        assert self.finish(claim).accepted

    # --- rolling deploys --------------------------------------------------------------------------------------------

    def test_an_older_release_changes_nothing_while_a_newer_one_lives(self) -> None:
        self.define(self.job(args=("old",)), release="old")
        self.define(self.job(args=("new",)), release="new")
        self.session("new", release="new")
        before = self.snapshot()
        answer = self.define(self.job(args=("old",)), release="old")
        assert DefineResult(superseded=("job",)) == answer
        assert before == self.snapshot()

    def test_a_newer_release_wins_over_an_older_one_that_lives(self) -> None:
        self.define(self.job(args=("old",)), release="old")
        self.session("old", release="old")
        assert ("job",) == self.define(self.job(args=("new",)), release="new").changed

    def test_equal_definitions_of_an_older_release_are_just_unchanged(self) -> None:
        self.define(release="old")
        self.session("new", release="new")
        assert ("job",) == self.define(release="old").unchanged

    def test_after_a_rollback_the_older_release_wins_again(self) -> None:
        for end in ("closed", "expired"):
            name = self.job(end).name
            self.define(self.job(name, args=("old",)), release="old")
            self.define(self.job(name, args=("new",)), release="new")
            session = self.session(f"new {end}", release="new")
            if end == "closed":
                self.store.close_session(session)
            else:
                self.lease_out()
            assert (name,) == self.define(self.job(name, args=("old",)), release="old").changed

    def test_a_release_is_known_from_its_first_session_too(self) -> None:
        self.session("old", release="old")
        self.define(self.job(args=("new",)), release="new")
        self.session("new", release="new")
        assert ("job",) == self.define(self.job(args=("old",)), release="old").superseded

    def test_which_release_is_newer_does_not_change_when_it_is_seen_again(self) -> None:
        self.session("old", release="old")
        self.session("new", release="new")
        self.define(self.job(args=("new",)), release="new")
        self.session("old again", release="old")
        assert ("job",) == self.define(self.job(args=("old",)), release="old").superseded
        assert ("job",) == self.define(self.job(args=("newest",)), release="new").changed

    def test_runtime_jobs_follow_no_release(self) -> None:
        self.define(self.job(source="runtime"), release="old")
        self.session("new", release="new")
        self.define(self.job(source="runtime", args=(1,)), release="new")
        assert ("job",) == self.define(self.job(source="runtime", args=(2,)), release="old").changed
        assert (2,) == self.view().spec.args

    def test_a_job_retired_by_a_newer_release_stays_retired_for_an_older_one(self) -> None:
        self.define(self.job(), self.job("stays"), release="old")
        self.define(self.job("stays"), release="new", complete=True)
        self.session("new", release="new")
        assert ("job",) == self.define(self.job(), release="old").superseded
        assert self.view().retired_at is not None

    # --- complete declarations --------------------------------------------------------------------------------------

    def test_a_job_that_a_release_no_longer_declares_is_retired(self) -> None:
        self.define(self.job("a"), self.job("b"), self.job("c"))
        assert ("b", "c") == tuple(sorted(self.define(self.job("a"), complete=True).retired))
        assert ["a"] == [job.spec.name for job in self.store.jobs()]

    def test_nothing_is_retired_unless_the_declaration_is_complete(self) -> None:
        self.define(self.job("a"), self.job("b"))
        assert DefineResult(unchanged=("a",)) == self.define(self.job("a"))

    def test_runtime_jobs_are_not_retired_by_a_declaration(self) -> None:
        self.define(self.job("runtime", source="runtime"))
        assert () == self.define(self.job("code"), complete=True).retired

    def test_nothing_is_retired_while_a_session_of_another_release_lives(self) -> None:
        self.define(self.job("a"), self.job("b"), release="old")
        self.session("old", release="old")
        answer = self.define(self.job("a"), release="new", complete=True)
        assert (("b",), ()) == (answer.kept, answer.retired)
        assert self.view("b").retired_at is None
        self.lease_out()
        answer = self.define(self.job("a"), release="new", complete=True)
        assert ((), ("b",)) == (answer.kept, answer.retired)

    def test_sessions_of_the_same_release_keep_nothing(self) -> None:
        self.define(self.job("a"), self.job("b"))
        self.session()
        assert ("b",) == self.define(self.job("a"), complete=True).retired
