"""What holds for every trigger, of whatever kind."""

from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from cronsensus.errors import InvalidTrigger
from cronsensus.timing.instants import from_micros
from cronsensus.triggers import Trigger, any_of, at, cron, every, trigger_from_json

TICK = timedelta(microseconds=1)
ZONES = ("UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
CRONS = (
    "* * * * *",
    "*/7 * * * *",
    "*/20 * * * * *",
    "30 2 * * *",
    "0 0,12 * * *",
    "30 1-3 * * MON-FRI",
    "0 3 L * *",
    "15 1 * 3,10 SUN",
    "0 0 1 1 *",
    "0 0 29 2 *",
    "30 2 * * SUN#2",
    "*/30 1-2 1-7 * */2",
)
INSTANTS = st.integers(45 * 365 * 86_400 * 10**6, 65 * 365 * 86_400 * 10**6).map(from_micros)
NEAR_CHANGES = st.builds(
    lambda change, offset: datetime.fromisoformat(change) + timedelta(minutes=offset),
    st.sampled_from(["2026-03-29T01:00Z", "2026-10-25T01:00Z", "2026-03-08T07:00Z", "2026-11-01T06:00Z"]),
    st.floats(-200, 200),
)
MOMENTS = st.one_of(INSTANTS, NEAR_CHANGES)
BOUNDS = st.one_of(st.none(), MOMENTS)
DURATIONS = st.timedeltas(timedelta(milliseconds=1), timedelta(days=400))
JITTERS = st.one_of(st.just(timedelta(0)), DURATIONS)


def build(make: Callable[..., Trigger], *args: object, **options: object) -> Trigger:
    try:
        return make(*args, **options)
    except InvalidTrigger as error:
        if "never fires" in str(error):  # drawn bounds between which there is nothing
            reject()
        raise


PERIODS = st.builds("{} {}".format, st.integers(1, 30), st.sampled_from(["days", "weeks", "months"]))
CRON = st.builds(
    lambda *args, every, **options: build(cron, *args, every=every if options["start"] else None, **options),
    st.sampled_from(CRONS),
    every=st.one_of(st.none(), PERIODS),
    tz=st.sampled_from(ZONES),
    dst=st.sampled_from(["cron", "both", "skip"]),
    start=BOUNDS,
    end=BOUNDS,
    jitter=JITTERS,
)
EVERY = st.builds(
    lambda *args, **options: build(every, *args, **options), DURATIONS, start=BOUNDS, end=BOUNDS, jitter=JITTERS
)
AT = st.builds(at, MOMENTS, jitter=JITTERS)
SINGLE = st.one_of(CRON, EVERY, AT)
TRIGGERS = st.one_of(SINGLE, st.lists(SINGLE, min_size=1, max_size=4).map(lambda parts: any_of(*parts)))


@given(TRIGGERS, MOMENTS)
def test_next_is_later_in_utc_and_found_from_just_before_itself(trigger, instant):
    found = trigger.next_after(instant)
    if found is None:
        return
    assert found > instant
    assert found.tzinfo is UTC
    assert type(found) is datetime
    assert trigger.next_after(found - TICK) == found
    assert trigger.next_after(instant + (found - instant) // 2) == found  # nothing lies between


@given(TRIGGERS, MOMENTS, MOMENTS)
def test_next_never_goes_back(trigger, one, other):
    earlier, later = sorted((one, other))
    first, second = trigger.next_after(earlier), trigger.next_after(later)
    assert second is None or (first is not None and first <= second)


@given(TRIGGERS, MOMENTS, st.integers(0, 60), st.timedeltas(timedelta(0), timedelta(days=2)))
def test_latest_and_count_are_what_walking_finds(trigger, after, steps, extra):
    walked: list[datetime] = []
    until = after
    for _ in range(steps):
        found = trigger.next_after(until)
        if found is None:
            break
        walked.append(found)
        until = found
    gap = trigger.next_after(until)
    until = until + extra if gap is None else min(until + extra, gap - TICK)
    assert trigger.latest_until(until, after) == (walked[-1] if walked else None)
    assert Trigger.latest_until(trigger, until, after) == (walked[-1] if walked else None)
    assert trigger.count_between(after, until, 60) == len(walked)
    assert trigger.count_between(after, until, 10**6) == len(walked)  # large enough to be counted by arithmetic
    assert trigger.count_between(after, until, len(walked)) == len(walked)
    assert trigger.count_between(after, until, len(walked) - 1) is None


@given(TRIGGERS, MOMENTS, MOMENTS)
def test_latest_and_next_agree_over_any_range(trigger, one, other):
    after, until = sorted((one, other))
    latest, first = trigger.latest_until(until, after), trigger.next_after(after)
    if latest is None:
        assert first is None or first > until
    else:
        assert after < first <= latest <= until
        assert trigger.next_after(latest - TICK) == latest
        following = trigger.next_after(latest)
        assert following is None or following > until
    assert trigger.latest_until(after, until) is None
    assert trigger.latest_until(after, after) is None
    assert trigger.count_between(until, after, 5) == 0


@given(st.sampled_from(CRONS), st.sampled_from(ZONES), MOMENTS)
def test_both_has_all_of_cron_and_cron_has_all_of_skip(expression, zone, instant):
    skip, usual, both = (cron(expression, tz=zone, dst=dst) for dst in ("skip", "cron", "both"))
    for few, many in ((skip, usual), (usual, both)):
        position = instant
        for _ in range(5):
            found = few.next_after(position)
            assert found is not None
            assert many.next_after(found - TICK) == found
            position = found


@given(TRIGGERS)
def test_json_gives_back_an_equal_trigger(trigger):
    data = trigger.to_json()
    again = trigger_from_json(data)
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert again.to_json() == data
    assert again.describe() == trigger.describe() == str(trigger)


@given(st.lists(SINGLE, min_size=1, max_size=4), st.randoms(use_true_random=False), MOMENTS)
def test_a_union_gives_what_its_parts_give_in_any_order(parts, random, instant):
    union = any_of(*parts)
    shuffled = [*parts, parts[0]]
    random.shuffle(shuffled)
    assert any_of(*shuffled) == union
    assert any_of(*shuffled).to_json() == union.to_json()
    assert union.next_after(instant) == min(
        (found for part in parts if (found := part.next_after(instant)) is not None), default=None
    )
    assert union.jitter == max(part.jitter for part in parts)


@given(TRIGGERS, st.text(), MOMENTS)
def test_a_delay_is_less_than_the_jitter_and_the_same_for_everybody(trigger, job, instant):
    delay = trigger.delay_for(job, instant)
    assert delay == trigger_from_json(trigger.to_json()).delay_for(job, instant)
    assert timedelta(0) <= delay < max(trigger.jitter, TICK)


@given(TRIGGERS)
def test_a_trigger_is_a_value(trigger):
    assert copy(trigger) == deepcopy(trigger) == trigger
    assert deepcopy(trigger).describe() == trigger.describe()
    assert {trigger: 1}[deepcopy(trigger)] == 1
    with pytest.raises(AttributeError):
        trigger.jitter = timedelta(1)
    assert not hasattr(trigger, "__dict__")


@dataclass(frozen=True, kw_only=True)
class Counted(Trigger):
    """A trigger that writes down what it is asked, and has only the searches that every trigger has."""

    trigger: Trigger
    asked: list[datetime] = field(default_factory=list)

    def next_after(self, instant: datetime) -> datetime | None:
        self.asked.append(instant)
        return self.trigger.next_after(instant)

    def describe(self) -> str:
        return self.trigger.describe()

    def to_json(self) -> dict[str, Any]:
        return self.trigger.to_json()


@pytest.mark.parametrize(
    "trigger",
    [
        every("1s"),
        every("1ms"),
        every("13d"),
        cron("0 21 * * *", tz="Europe/Paris"),
        cron("* * * * * *"),
        cron("0 0 29 2 *"),
        cron("* * * 1 *"),
        at("1996-03-01T00:00Z"),
        at("2026-11-20T11:59:59Z"),
    ],
    ids=str,
)
def test_a_gap_of_thirty_years_is_searched_in_a_few_dozen_questions(trigger):
    counted = Counted(trigger=trigger)
    until = datetime(2026, 11, 20, 12, tzinfo=UTC)
    found = counted.latest_until(until, until.replace(year=1996, month=1))
    assert found is not None
    assert trigger.next_after(found - TICK) == found
    following = trigger.next_after(found)
    assert following is None or following > until
    assert len(counted.asked) <= 60


def test_counting_stops_at_the_limit():
    counted = Counted(trigger=every("1s"))
    begin, end = datetime(1996, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    assert counted.count_between(begin, end, 100) is None
    assert len(counted.asked) == 101


def test_delays_spread_over_the_whole_jitter_and_stay_what_they_were():
    trigger = every("1h", jitter="10m")
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    delays = [trigger.delay_for(f"job {number}", noon).total_seconds() for number in range(1000)]
    assert 0 <= min(delays) < 10
    assert 590 < max(delays) < 600
    assert 280 < sum(delays) / len(delays) < 320
    assert trigger.delay_for("a", noon) != trigger.delay_for("a", noon + timedelta(hours=1))
    # A version that computed another delay would move runs of a cluster in the middle of a rolling upgrade.
    assert trigger.delay_for("send_digest", noon) == timedelta(seconds=459, microseconds=377_934)
