"""``plan()`` against an oracle that walks every nominal time and reads the rules aloud, and at each exact boundary."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cronsensus.model.job import Era, Stretch
from cronsensus.planning import MOST_COUNTED, MOST_OCCURRENCES, ON_TIME, next_nominal, plan
from cronsensus.triggers import at, cron, every
from tests.planning_oracle import (
    MICROSECOND,
    T0,
    a_job,
    after,
    decided,
    expected,
    in_steps,
    jobs,
    moments,
    nominals,
    seconds,
)


@given(jobs(), moments)
def test_every_nominal_time_up_to_the_new_watermark_gets_the_one_verdict_that_the_rules_say(job, now):
    made = plan(job, now)
    assert decided(job, made) == expected(job, now)
    times = [nominal for nominal, _ in nominals(job, now)]
    assert made.watermark == (times[-1] if times else job.watermark)


@given(jobs(), moments)
def test_the_next_due_time_is_the_first_nominal_time_after_the_new_watermark(job, now):
    made = plan(job, now)
    later = nominals(replace(job, watermark=made.watermark), now + timedelta(hours=1))
    assert made.next_due == (later[0][0] if later else next_nominal(job.eras, made.watermark))
    assert made.next_due is None or made.next_due > now


@given(jobs(), moments)
def test_planning_again_from_the_new_watermark_gives_nothing(job, now):
    made = plan(job, now)
    again = plan(after(job, made), now)
    assert (again.occurrences, again.verdicts, again.cancel_previous) == ((), (), False)
    assert (again.watermark, again.next_due) == (made.watermark, made.next_due)


@given(jobs(), moments, st.integers(1, 7))
def test_a_plan_with_little_room_stops_the_watermark_and_the_next_ones_bring_the_same_result(job, now, most):
    policies, at_once = job.spec.policies, expected(job, now)
    if policies.catch_up == "all" and policies.overlap in {"skip", "queue_one"}:
        # What an earlier step made is active in the next one, for times that are on time.
        assume(all(now - nominal > ON_TIME for nominal in at_once))
    assert in_steps(job, now, most) == at_once


@given(jobs(), moments)
def test_neighbours_with_one_verdict_are_one_range(job, now):
    made = plan(job, now)
    times = nominals(job, now)
    triggers = {nominal: era.trigger for nominal, era in times}
    following = dict(zip([t for t, _ in times], [t for t, _ in times][1:], strict=False))
    for one, other in zip(made.verdicts, made.verdicts[1:], strict=False):
        if (one.state, one.reason) == (other.state, other.reason) and following[one.last] == other.first:
            trigger, its = triggers[one.last], triggers[other.first]
            assert trigger != its or trigger.next_after(one.last) != other.first, "only two triggers keep them apart"


@given(jobs(), moments)
def test_due_and_expiry_are_the_nominal_time_with_its_jitter_and_grace(job, now):
    triggers = {nominal: era.trigger for nominal, era in nominals(job, now)}
    for occurrence in plan(job, now).occurrences:
        delay = triggers[occurrence.scheduled_for].delay_for("job", occurrence.scheduled_for)
        assert occurrence.due_at == occurrence.scheduled_for + delay
        grace = job.spec.policies.grace
        assert occurrence.expires_at == (None if grace is None else occurrence.due_at + grace)
        assert occurrence.expires_at is None or occurrence.expires_at >= now, "created only to expire"


def test_a_plan_carries_what_it_saw():
    job = a_job(every("1m"), active=0)
    made = plan(job, T0 + seconds(60))
    assert (made.job_id, made.job, made.revision, made.watermark_seen, made.active_seen) == (1, "job", 7, T0, 0)


# --- by example, at the boundaries ------------------------------------------------------------------------------------


def said(job, now, **more):
    made = plan(job, now, **more)
    return [
        *(f"{(o.scheduled_for - T0).total_seconds():g} run" for o in made.occurrences),
        *(
            f"{(v.first - T0).total_seconds():g}-{(v.last - T0).total_seconds():g} {v.state} {v.reason} x{v.count}"
            for v in made.verdicts
        ),
    ]


def test_plan_without_due_times_is_empty():
    made = plan(a_job(every("1m")), T0 + seconds(59.999999))
    assert (made.occurrences, made.verdicts, made.watermark) == ((), (), T0)
    assert made.next_due == T0 + seconds(60)


def test_a_job_that_is_due_by_mistake_only_gets_its_next_due_time_moved():
    job = a_job(every("1m"), watermark=T0 + seconds(60))
    made = plan(job, T0 + seconds(60))
    assert (made.occurrences, made.verdicts, made.watermark) == ((), (), job.watermark)
    assert made.next_due == T0 + seconds(120)


def test_a_clock_that_was_set_back_repeats_nothing():
    job = a_job(every("1m"), watermark=T0 + seconds(600))
    made = plan(job, T0 + seconds(60))
    assert (made.occurrences, made.verdicts, made.watermark) == ((), (), job.watermark)
    assert made.next_due == T0 + seconds(660)


def test_a_nominal_time_at_this_very_microsecond_is_due():
    assert said(a_job(every("1m")), T0 + seconds(60)) == ["60 run"]


def test_a_job_without_a_trigger_owes_nothing():
    made = plan(a_job(None), T0 + timedelta(days=400))
    assert (made.occurrences, made.verdicts, made.watermark, made.next_due) == ((), (), T0, None)


def test_latest_keeps_the_last_and_coalesces_the_others():
    assert said(a_job(every("1m")), T0 + seconds(200)) == ["180 run", "60-120 skipped coalesced x2"]


def test_latest_keeps_the_last_however_late_within_the_window():
    job = a_job(every("1d"), catch_up_window="1h")
    assert said(job, T0 + timedelta(days=1, hours=1)) == ["86400 run"]
    assert said(job, T0 + timedelta(days=1, hours=1) + MICROSECOND) == ["86400-86400 missed catch_up_window x1"]


def test_none_keeps_only_what_is_found_on_time():
    job = a_job(every("1m"), catch_up="none")
    assert said(job, T0 + seconds(60) + ON_TIME) == ["60 run"]
    assert said(job, T0 + seconds(60) + ON_TIME + MICROSECOND) == ["60-60 missed catch_up=none x1"]
    assert said(job, T0 + seconds(190)) == ["180 run", "60-120 missed catch_up=none x2"]
    assert said(job, T0 + seconds(230)) == ["60-180 missed catch_up=none x3"]


def test_none_with_a_grace_counts_as_on_time_what_is_within_it():
    job = a_job(every("10m"), catch_up="none", grace="1m")
    assert said(job, T0 + seconds(660)) == ["600 run"]
    assert said(job, T0 + seconds(660) + MICROSECOND) == ["600-600 missed late x1"]


def test_all_keeps_what_lies_within_the_window():
    job = a_job(every("1m"), catch_up="all", catch_up_window="2m", overlap="queue")
    assert said(job, T0 + seconds(240)) == ["120 run", "180 run", "240 run", "60-60 missed catch_up_window x1"]


def test_grace_is_exact():
    job = a_job(every("1h"), grace="30s")
    assert said(job, T0 + seconds(3630)) == ["3600 run"]
    assert said(job, T0 + seconds(3630) + MICROSECOND) == ["3600-3600 missed late x1"]


def test_time_beyond_grace_is_late_and_not_coalesced():
    assert said(a_job(every("1m"), grace="30s"), T0 + seconds(200)) == ["180 run", "60-120 missed late x2"]


def test_grace_counts_from_the_due_time_that_jitter_makes():
    trigger = every("1h", jitter="10m")
    job = a_job(trigger, grace="30s")
    due = T0 + seconds(3600) + trigger.delay_for("job", T0 + seconds(3600))
    assert said(job, due + seconds(30)) == ["3600 run"]
    assert said(job, due + seconds(30) + MICROSECOND) == ["3600-3600 missed late x1"]


def test_a_grace_of_nothing_still_lets_run_what_is_found_at_its_very_microsecond():
    job = a_job(every("1m"), grace=0)
    assert said(job, T0 + seconds(60)) == ["60 run"]
    assert said(job, T0 + seconds(60) + MICROSECOND) == ["60-60 missed late x1"]


@pytest.mark.parametrize(
    ("overlap", "active", "outcome"),
    [
        ("skip", 0, "run"),
        ("skip", 1, "skipped"),
        ("queue_one", 0, "run"),
        ("queue_one", 1, "run"),
        ("queue_one", 2, "skipped"),
        ("queue", 9, "run"),
        ("cancel_previous", 0, "run"),
        ("cancel_previous", 2, "run and cancel"),
        ("allow", 9, "run"),
    ],
)
def test_overlap(overlap, active, outcome):
    made = plan(a_job(every("1m"), overlap=overlap, active=active), T0 + seconds(61))
    runs = "run" if made.occurrences else made.verdicts[0].state.value
    assert runs + (" and cancel" if made.cancel_previous else "") == outcome
    assert all(verdict.reason == "overlap" for verdict in made.verdicts)


def test_catch_up_all_queues_late_times_under_any_overlap():
    job = a_job(every("1m"), catch_up="all", active=1)
    assert said(job, T0 + seconds(185)) == ["60 run", "120 run", "180-180 skipped overlap x1"]


def test_catch_up_all_brings_back_all_of_a_short_downtime_too():
    assert said(a_job(every("1s"), catch_up="all"), T0 + seconds(6)) == [f"{second} run" for second in range(1, 7)]


def test_the_latest_overlaps_however_late_it_is():
    assert said(a_job(every("1m"), active=1), T0 + seconds(100)) == ["60-60 skipped overlap x1"]


@pytest.mark.parametrize("overlap", ["queue", "allow"])
def test_several_on_time_all_run_where_they_may_wait_or_overlap(overlap):
    job = a_job(every("1s"), catch_up="all", overlap=overlap, active=1)
    assert said(job, T0 + seconds(3)) == ["1 run", "2 run", "3 run"]


def test_several_that_overlap_on_time_are_one_range():
    job = a_job(every("1s"), catch_up="all", active=1)
    assert said(job, T0 + seconds(5)) == ["1-5 skipped overlap x5"]


def test_the_last_of_several_on_time_replaces_the_others():
    job = a_job(every("1s"), catch_up="all", overlap="cancel_previous", active=1)
    made = plan(job, T0 + seconds(5))
    assert said(job, T0 + seconds(5)) == ["5 run", "1-4 skipped overlap x4"]
    assert made.cancel_previous


def test_catch_up_all_cancels_nothing():
    job = a_job(every("1m"), catch_up="all", overlap="cancel_previous", active=1)
    late = plan(job, T0 + seconds(60) + ON_TIME + MICROSECOND)
    assert (len(late.occurrences), late.cancel_previous) == (1, False)
    on_time = plan(job, T0 + seconds(60) + ON_TIME)
    assert (len(on_time.occurrences), on_time.cancel_previous) == (1, True)


def test_a_paused_stretch_includes_both_of_its_ends():
    pause = Stretch(T0 + seconds(120), T0 + seconds(180))
    job = a_job(every("1m"), catch_up="all", overlap="queue", pauses=[pause])
    assert said(job, T0 + seconds(240)) == ["60 run", "240 run", "120-180 skipped paused x2"]


def test_an_open_pause_takes_everything_from_its_start():
    job = a_job(every("1m"), pauses=[Stretch(T0 + seconds(61), None)])
    assert said(job, T0 + seconds(240)) == ["60 run", "120-240 skipped paused x3"]


def test_latest_keeps_the_last_that_is_not_paused():
    job = a_job(every("1m"), pauses=[Stretch(T0 + seconds(170), T0 + seconds(250))])
    assert said(job, T0 + seconds(280)) == [
        "120 run",
        "60-60 skipped coalesced x1",
        "180-240 skipped paused x2",
    ]


def test_two_pauses_in_a_gap():
    pauses = [Stretch(T0 + seconds(60), T0 + seconds(60)), Stretch(T0 + seconds(180), T0 + seconds(200))]
    job = a_job(every("1m"), catch_up="all", overlap="allow", pauses=pauses)
    assert said(job, T0 + seconds(240)) == [
        "120 run",
        "240 run",
        "60-60 skipped paused x1",
        "180-180 skipped paused x1",
    ]


def test_each_trigger_rules_its_own_stretch_up_to_the_moment_the_next_begins():
    eras = (
        Era(T0, every("1m"), 1),
        Era(T0 + seconds(120), None, 2),
        Era(T0 + seconds(300), every("50s"), 3),
    )
    job = a_job(every("50s"), eras=eras, catch_up="all", overlap="queue")
    assert said(job, T0 + seconds(401)) == ["60 run", "120 run", "350 run", "400 run"]


def test_a_range_never_spans_two_triggers():
    eras = (Era(T0, every("1m"), 1), Era(T0 + seconds(120), every("40s"), 2))
    job = a_job(every("40s"), eras=eras)
    assert said(job, T0 + seconds(245)) == ["240 run", "60-120 skipped coalesced x2", "160-200 skipped coalesced x2"]


def test_a_range_goes_on_where_only_the_policies_changed():
    eras = (Era(T0, every("1m"), 1), Era(T0 + seconds(150), every("1m"), 2))
    assert said(a_job(every("1m"), eras=eras), T0 + seconds(245)) == ["240 run", "60-180 skipped coalesced x3"]


def test_next_nominal_passes_over_a_stretch_without_a_trigger():
    eras = (Era(T0, every("1m", end=T0), 1), Era(T0, None, 2), Era(T0 + seconds(300), every("1m"), 3))
    assert next_nominal(eras, T0) == T0 + seconds(360)
    assert next_nominal(eras[:2], T0) is None


def test_next_nominal_leaves_to_the_next_era_what_lies_after_its_beginning():
    eras = (Era(T0, every("1m"), 1), Era(T0 + seconds(90), every("1h"), 2))
    assert next_nominal(eras, T0) == T0 + seconds(60)
    assert next_nominal(eras, T0 + seconds(60)) == T0 + seconds(3600)


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
def test_a_one_off_that_was_declared_after_its_time_runs_at_once(catch_up):
    before = T0 - timedelta(days=900)
    job = a_job(
        at(before), watermark=before - MICROSECOND, eras=(Era(before - MICROSECOND, at(before), 1),), catch_up=catch_up
    )
    assert [occurrence.scheduled_for for occurrence in plan(job, T0).occurrences] == [before]


def test_a_one_off_in_the_past_is_missed_where_grace_forbids_it():
    before = T0 - timedelta(days=900)
    eras = (Era(before - MICROSECOND, at(before), 1),)
    made = plan(a_job(at(before), watermark=eras[0].since, eras=eras, grace="1d"), T0)
    assert [(verdict.state, verdict.reason) for verdict in made.verdicts] == [("missed", "late")]


def test_one_off_that_passed_in_a_downtime_follows_the_window():
    job = a_job(at(T0 + seconds(60)))
    assert said(job, T0 + timedelta(days=1, seconds=61)) == ["60-60 missed catch_up_window x1"]


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", [every("1s"), cron("* * * * * *"), every("1s", jitter="1h")], ids=str)
@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
@pytest.mark.parametrize("grace", [None, "5s"])
def test_a_year_at_one_per_second_is_decided_in_milliseconds_and_a_handful_of_ranges(trigger, catch_up, grace):
    job = a_job(trigger, catch_up=catch_up, grace=grace)
    now = T0 + timedelta(days=365)
    started = time.thread_time()  # of this thread alone: whatever else the machine does
    made = plan(job, now)
    took = time.thread_time() - started
    assert took < 5  # one by one it would be half a minute
    assert len(made.occurrences) <= MOST_OCCURRENCES
    assert made.verdicts[0].first == T0 + seconds(1)
    if catch_up != "all" or trigger.jitter == timedelta(0):
        assert len(made.verdicts) <= 4


def test_a_long_range_has_no_count():
    made = plan(a_job(every("1s")), T0 + timedelta(days=365))
    assert [verdict.count for verdict in made.verdicts] == [None, None]


@pytest.mark.parametrize(
    ("changed_after", "more", "count"),
    [
        (1, MOST_COUNTED - 1, MOST_COUNTED),
        (1, MOST_COUNTED, None),
        (1, MOST_COUNTED + 1, None),
        (MOST_COUNTED + 1, 1, None),
    ],
)
def test_two_ranges_that_become_one_are_counted_as_far_as_one_is(changed_after, more, count):
    eras = (Era(T0, every("1s"), 1), Era(T0 + seconds(changed_after), every("1s"), 2))
    # The last one is kept, and the others are one range over the change.
    made = plan(a_job(every("1s"), eras=eras), T0 + seconds(changed_after + more + 1))
    assert [(verdict.first, verdict.last, verdict.count) for verdict in made.verdicts] == [
        (T0 + seconds(1), T0 + seconds(changed_after + more), count)
    ]


def test_a_plan_creates_a_thousand_at_most_and_the_job_stays_due():
    job = a_job(every("1s"), catch_up="all", overlap="queue")
    made = plan(job, T0 + seconds(2500))
    assert len(made.occurrences) == MOST_OCCURRENCES
    assert made.watermark == T0 + seconds(1000)
    assert made.next_due == T0 + seconds(1001)


def test_time_late_by_its_own_delay_counts_against_the_bound():
    job = a_job(every("1ms", jitter="1d"), catch_up="all", overlap="queue", grace=0, catch_up_window="2d")
    made = plan(job, T0 + timedelta(hours=12))
    assert made.watermark == T0 + MOST_OCCURRENCES * timedelta(milliseconds=1)


def test_ranges_beyond_the_cut_wait_for_their_turn():
    pauses = [Stretch(T0 + seconds(70), T0 + seconds(200))]
    job = a_job(every("20s"), catch_up="all", overlap="queue", pauses=pauses)
    assert said(job, T0 + seconds(240), most=2) == ["20 run", "40 run"]
    later = replace(job, watermark=T0 + seconds(40))
    assert said(later, T0 + seconds(240), most=2) == ["60 run", "220 run", "80-200 skipped paused x7"]


def test_where_a_plan_is_cut_the_last_one_is_replaced_too():
    job = a_job(every("1s"), catch_up="all", overlap="cancel_previous")
    assert said(job, T0 + seconds(9), most=4) == ["1-4 skipped overlap x4"]


def test_plan_reads_nothing_but_its_arguments():
    job, now = a_job(every("1m"), catch_up="all"), T0 + seconds(500)
    assert plan(job, now) == plan(job, now)
