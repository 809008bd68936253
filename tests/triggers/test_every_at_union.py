"""Fixed intervals, single instants and unions."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from cronsensus.errors import InvalidOption, InvalidTrigger
from cronsensus.triggers import any_of, at, cron, every

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAIVE = datetime(2026, 11, 20)  # noqa: DTZ001 - what users forget
LONG_AGO, FAR_AHEAD = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def test_every_is_anchored_so_that_all_nodes_agree():
    assert every("5m").next_after(NOON + timedelta(seconds=1)) == NOON + timedelta(minutes=5)
    assert every("7h").next_after(NOON) == every("7h").next_after(NOON + timedelta(hours=1))
    assert every("7h").next_after(LONG_AGO) == datetime(1970, 1, 1, tzinfo=UTC)
    assert every(300) == every("5m") == every(timedelta(minutes=5)) == every("5m", start="1970-01-01T00:00:00Z")


def test_every_from_a_start_to_an_end_both_included():
    trigger = every("10s", start=NOON, end=NOON + timedelta(seconds=20))
    expected = [NOON, NOON + timedelta(seconds=10), NOON + timedelta(seconds=20)]
    assert trigger.next_after(LONG_AGO) == expected[0]
    assert trigger.next_after(NOON) == expected[1]
    assert trigger.next_after(NOON + timedelta(seconds=19)) == expected[2]
    assert trigger.next_after(expected[2]) is None
    assert trigger.latest_until(FAR_AHEAD, LONG_AGO) == expected[2]
    assert trigger.latest_until(NOON - timedelta(seconds=1), LONG_AGO) is None
    assert trigger.latest_until(FAR_AHEAD, expected[2]) is None
    assert trigger.count_between(LONG_AGO, FAR_AHEAD, 3) == 3
    assert trigger.count_between(NOON, FAR_AHEAD, 3) == 2
    assert trigger.count_between(LONG_AGO, FAR_AHEAD, 2) is None
    assert every("10s", start=NOON, end=NOON).next_after(LONG_AGO) == NOON


def test_every_keeps_microseconds():
    third = every(timedelta(microseconds=333_333), start=NOON)
    assert third.next_after(NOON + timedelta(microseconds=333_333)) == NOON + timedelta(microseconds=666_666)
    assert every("1ms").next_after(NOON + timedelta(microseconds=999)) == NOON + timedelta(milliseconds=1)


def test_every_counts_millions_without_walking():
    assert every("1ms").count_between(NOON, NOON + timedelta(days=3650), 10**12) == 3650 * 86_400_000


def test_every_ends_with_the_calendar():
    assert every("1s").next_after(FAR_AHEAD) is None
    last = every("1s").latest_until(FAR_AHEAD, LONG_AGO)
    assert last == datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert every("36600d").next_after(datetime(9990, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("interval", "says"),
    [
        (0, "interval=0 is too short"),
        ("0.5ms", "interval='0.5ms' is too short"),
        (-5, "interval=-5: a duration cannot be negative"),
        ("often", "interval='often'"),
        ("", "interval=''"),
        (None, "interval=None"),
        (True, "interval=True"),
        (float("nan"), "interval=nan"),
        (10**400, "interval="),
        pytest.param(10**5000, "interval=", id="huge"),
        (timedelta.max, "interval="),
        ("1h 5x", "interval='1h 5x'"),
    ],
)
def test_a_bad_interval_is_refused(interval, says):
    with pytest.raises(InvalidTrigger, match=says):
        every(interval)


def test_every_that_ends_before_it_starts_is_refused():
    with pytest.raises(InvalidTrigger, match=r"end=.* is before start=.* never fires"):
        every("5m", start=NOON, end=NOON - timedelta(seconds=1))


def test_at_fires_once():
    trigger = at("2026-11-20T20:00:00+08:00")
    assert trigger == at(NOON) == at(NOON.astimezone(timezone(timedelta(hours=-5))))
    assert trigger.next_after(LONG_AGO) == NOON
    assert trigger.next_after(NOON - timedelta(microseconds=1)) == NOON
    assert trigger.next_after(NOON) is None
    assert trigger.latest_until(NOON, LONG_AGO) == NOON
    assert trigger.latest_until(NOON, NOON) is None
    assert trigger.count_between(LONG_AGO, FAR_AHEAD, 5) == 1


@pytest.mark.parametrize("instant", [None, 5, "tomorrow", "2026-11-20", NAIVE, "9999-12-31T23:59Z", ""])
def test_a_bad_instant_is_refused(instant):
    with pytest.raises(InvalidTrigger, match="instant="):
        at(instant)


def test_a_naive_question_is_refused():
    for trigger in (every("5m"), at(NOON), every("5m") | at(NOON)):
        with pytest.raises(InvalidOption, match="time zone"):
            trigger.next_after(NAIVE)


def test_a_union_is_sorted_and_has_each_time_once():
    union = every("20m") | every("30m") | at(NOON + timedelta(minutes=5)) | at(NOON + timedelta(minutes=20))
    position = NOON
    for minutes in (5, 20, 30, 40, 60, 80):
        assert union.next_after(position) == NOON + timedelta(minutes=minutes)
        position = NOON + timedelta(minutes=minutes)
    assert union.count_between(NOON, position, 100) == 6
    assert union.latest_until(NOON + timedelta(minutes=59), NOON) == NOON + timedelta(minutes=40)


def test_a_union_of_one_is_that_one_and_unions_are_opened():
    assert any_of(every("5m")) == every("5m")
    assert every("5m") | every("300s") == every("5m")
    flat = any_of(every("5m"), at(NOON), cron("@daily"))
    assert any_of(any_of(cron("@daily"), every("5m")), at(NOON)) == flat
    assert any_of(at(NOON), any_of(every("5m"), flat)) == flat


def test_the_jitter_of_a_union():
    calm, wild = every("5m", jitter="3s"), at(NOON, jitter="1m")
    assert (calm | wild).jitter == timedelta(minutes=1)
    assert any_of(calm, wild, jitter="5s").jitter == timedelta(seconds=5)
    assert any_of(calm, wild, jitter=0).jitter == timedelta(0)
    assert any_of(calm, jitter="7s") == every("5m", jitter="7s")
    assert ((calm | wild) | cron("@daily")).jitter == timedelta(minutes=1)
    assert calm != every("5m")
    assert calm | wild != any_of(calm, wild, jitter=0)


def test_a_bad_union_is_refused():
    with pytest.raises(InvalidTrigger, match="at least one"):
        any_of()
    with pytest.raises(InvalidTrigger, match="argument 2 is '@daily', not a trigger"):
        any_of(every("5m"), "@daily")  # type: ignore[arg-type]
    with pytest.raises(InvalidTrigger, match="100 triggers are too many"):
        any_of(*(every(seconds) for seconds in range(1, 101)))
    with pytest.raises(InvalidTrigger, match="jitter=-1"):
        any_of(every("5m"), jitter=-1)
    with pytest.raises(TypeError):
        every("5m") | "@daily"
