"""What ``plan()`` has to say, by an oracle that walks every nominal time; and jobs to try it on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from cronsensus.model.job import Era, JobSpec, JobState, Policies, Stretch
from cronsensus.planning import MOST_COUNTED, ON_TIME, plan
from cronsensus.triggers import any_of, at, cron, every

T0 = datetime(2026, 3, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def seconds(count):
    return timedelta(seconds=count)


def a_job(trigger, *, watermark=T0, eras=None, pauses=(), active=0, **policies):
    return JobState(
        id=1,
        spec=JobSpec(name="job", function="job", trigger=trigger, policies=Policies.read(policies)),
        revision=7,
        watermark=watermark,
        eras=eras or (Era(T0, trigger, 1),),
        pauses=tuple(pauses),
        active=active,
    )


# --- the oracle: every nominal time by itself -------------------------------------------------------------------------


def nominals(job, until):
    """Every nominal time after the watermark and up to ``until``, with its trigger, by ``next_after`` alone."""
    found = []
    for index, era in enumerate(job.eras):
        end = min(job.eras[index + 1].since, until) if index + 1 < len(job.eras) else until
        position = job.watermark if index == 0 else max(era.since, job.watermark)
        while era.trigger is not None:
            position = era.trigger.next_after(position)
            if position is None or position > end:
                break
            found.append((position, era))
    return found


def paused(job, nominal):
    return any(pause.start <= nominal and (pause.end is None or nominal <= pause.end) for pause in job.pauses)


def expected(job, now):
    """The verdict of each nominal time, by the rules of the module's docstring; ``"run"`` for an occurrence."""
    policies = job.spec.policies
    verdicts, left = {}, []
    times = nominals(job, now)
    for nominal, era in times:
        age = now - nominal
        first_and_only = (
            nominal == era.since + MICROSECOND
            and era.trigger.next_after(nominal) is None
            and job.watermark <= era.since
            and not paused(job, nominal)
        )
        if paused(job, nominal):
            verdicts[nominal] = "skipped paused"
        elif policies.grace is not None and age > policies.grace + era.trigger.jitter:
            verdicts[nominal] = "missed late"
        elif first_and_only:
            left.append((nominal, era.trigger))
        elif age > policies.catch_up_window:
            verdicts[nominal] = "missed catch_up_window"
        elif policies.catch_up != "all" and nominal != last_live(job, times):
            verdicts[nominal] = "skipped coalesced" if policies.catch_up == "latest" else "missed catch_up=none"
        elif policies.catch_up == "none" and policies.grace is None and age > ON_TIME:
            verdicts[nominal] = "missed catch_up=none"
        else:
            left.append((nominal, era.trigger))
    kept = []
    for nominal, trigger in left:
        due = nominal + trigger.delay_for("job", nominal)
        if policies.grace is not None and now - due > policies.grace:
            verdicts[nominal] = "missed late"
        else:
            kept.append(nominal)
    created = 0
    for nominal in kept:
        # Who asks for all is not told that what was missed together overlaps itself.
        crowd = job.active if policies.catch_up == "all" else job.active + created
        brought_back = policies.catch_up == "all" and now - nominal > ON_TIME
        overlaps = {
            "skip": crowd > 0,
            "queue_one": crowd > 1,
            "cancel_previous": nominal != kept[-1],
        }.get(policies.overlap, False)
        if overlaps and not brought_back:
            verdicts[nominal] = "skipped overlap"
        else:
            verdicts[nominal] = "run"
            created += 1
    return verdicts


def last_live(job, times):
    live = [nominal for nominal, _ in times if not paused(job, nominal)]
    return live[-1] if live else None


def decided(job, made):
    """What a plan says of each nominal time; fails if it speaks twice or counts wrongly."""
    verdicts = {occurrence.scheduled_for: "run" for occurrence in made.occurrences}
    assert len(verdicts) == len(made.occurrences)
    times = [nominal for nominal, _ in nominals(job, made.watermark)]
    before = None
    for verdict in made.verdicts:
        assert verdict.first <= verdict.last
        assert before is None or before.last < verdict.first
        within = [nominal for nominal in times if verdict.first <= nominal <= verdict.last]
        assert within[0] == verdict.first
        assert within[-1] == verdict.last
        assert verdict.count == (len(within) if len(within) <= MOST_COUNTED else None)
        for nominal in within:
            assert nominal not in verdicts, "two verdicts"
            verdicts[nominal] = f"{verdict.state} {verdict.reason}"
        before = verdict
    return verdicts


def after(job, made):
    """The job as it stands when a store has carried the plan out."""
    counted = 0 if job.spec.policies.overlap == "allow" else len(made.occurrences)
    return replace(job, watermark=made.watermark, active=job.active + counted)


def in_steps(job, now, most):
    """Plan with little room, again and again, until nothing is left."""
    verdicts: dict[datetime, str] = {}
    for _ in range(1000):
        made = plan(job, now, most=most)
        if made.watermark == job.watermark:
            assert not made.occurrences
            assert not made.verdicts
            return verdicts
        assert len(made.occurrences) <= most
        said = decided(job, made)
        assert not said.keys() & verdicts.keys()
        verdicts |= said
        job = after(job, made)
    raise AssertionError("the watermark does not arrive")


# --- what may come ----------------------------------------------------------------------------------------------------

some_seconds = st.integers(0, 90).map(seconds)
some_micros = st.sampled_from([-MICROSECOND, timedelta(0), MICROSECOND])


@st.composite
def triggers(draw):
    jitter = draw(st.sampled_from([0, 0, 1, 7, 40]))
    simple = st.one_of(
        st.builds(every, st.sampled_from([1, 3, 5, 10, 25]), jitter=st.just(jitter)),
        st.builds(lambda step, end: every(step, end=T0 + end, jitter=jitter), st.sampled_from([2, 10]), some_seconds),
        st.builds(
            lambda after_start: at(T0 + after_start, jitter=jitter),
            st.builds(lambda s, m: s + m, some_seconds, some_micros),
        ),
        st.builds(cron, st.sampled_from(["*/4 * * * * *", "*/15 * * * * *", "* * * * *"]), jitter=st.just(jitter)),
    )
    if draw(st.booleans()):
        return draw(simple)
    return any_of(draw(simple), draw(simple))


@st.composite
def jobs(draw):
    bounds = sorted(draw(st.lists(some_seconds, min_size=6, max_size=6)))
    moments = [T0 + bound + draw(some_micros) for bound in bounds]
    moments = [max(T0, moment) for moment in sorted(moments)]
    eras = [Era(T0, draw(triggers()), 1)]
    for index, since in enumerate(moments[: draw(st.integers(0, 2))]):
        eras.append(Era(since, draw(st.one_of(st.none(), triggers())), index + 2))
    pauses = []
    for start, end in ((moments[0], moments[1]), (moments[2], moments[3]), (moments[4], None)):
        if draw(st.integers(0, 2)) == 0:
            pauses.append(Stretch(start, end if draw(st.integers(0, 4)) or end is None else None))
            if pauses[-1].end is None:
                break
    exact = st.builds(lambda whole, micro: max(timedelta(0), whole + micro), some_seconds, some_micros)
    policies = {
        "catch_up": draw(st.sampled_from(["none", "latest", "all"])),
        "overlap": draw(st.sampled_from(["skip", "queue_one", "queue", "cancel_previous", "allow"])),
        "catch_up_window": draw(st.one_of(exact, st.just(timedelta(days=1)))),
        "grace": draw(st.one_of(st.none(), exact)),
    }
    watermark = T0 + draw(st.one_of(st.just(timedelta(0)), some_seconds))
    last_before = [index for index, era in enumerate(eras) if era.since <= watermark][-1]
    return a_job(
        eras[-1].trigger,
        watermark=watermark,
        eras=tuple(eras[last_before:]),
        pauses=[pause for pause in pauses if pause.end is None or pause.end > watermark],
        active=draw(st.integers(0, 3)),
        **policies,
    )


moments = st.builds(lambda whole, micro: T0 + whole + micro, some_seconds, some_micros)
