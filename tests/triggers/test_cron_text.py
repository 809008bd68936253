"""What cron() reads and refuses: every refusal names the field and the value, and says what to write instead."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import Trigger, cron, trigger_from_json

A_MOMENT = datetime(2026, 11, 20, 12, 34, 56, 789, tzinfo=UTC)
NAIVE = datetime(2026, 11, 20)  # noqa: DTZ001 - what users forget
MOST_SECONDS = 5.0
"""Of processor time, for reading a text and for one search. It takes a few milliseconds at most; the rest is for
slow machines and for coverage."""


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@WEEKLY", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @annually ", "0 0 1 1 *"),
        ("0 9 * jan mon-fri", "0 9 * JAN MON-FRI"),
        ("\t0  9\n* * *", "0 9 * * *"),
        ("0 30 2 * * *", "30 2 * * *"),
    ],
)
def test_ways_of_writing_the_same_are_equal(text, same):
    assert cron(text) == cron(same)
    assert hash(cron(text)) == hash(cron(same))
    assert cron(text).to_json() == cron(same).to_json()
    assert cron(text).to_json()["expression"] == same


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("60 * * * *", r"'60' is wrong in the minute field; write 0-59"),
        ("* 24 * * *", r"'24' is wrong in the hour field; write 0-23"),
        ("* * 0 * *", r"'0' is wrong in the day-of-month field; write 1-31, L"),
        ("* * * 13 *", r"'13' is wrong in the month field; write 1-12 or JAN-DEC"),
        ("* * * * 8", r"'8' is wrong in the day-of-week field; write 0-7 or SUN-SAT"),
        ("60 * * * * *", r"'60' is wrong in the second field"),
        ("1,2,x3 * * * *", r"'x3' is wrong in the minute field"),
        ("1,,2 * * * *", r"'' is wrong in the minute field"),
        (", * * * *", r"'' is wrong in the minute field"),
        ("*/0 * * * *", r"'\*/0' is wrong in the minute field"),
        ("*/x * * * *", r"'\*/x' is wrong in the minute field"),
        ("-1 * * * *", r"'-1' is wrong in the minute field"),
        ("1.5 * * * *", r"'1.5' is wrong in the minute field"),
        ("? * * * *", r"write '\*' instead of '\?'"),
        ("0 22-2 * * *", r"'22-2' is wrong in the hour field.*upwards"),
        ("0 0 * * FRI-MON", r"'FRI-MON' is wrong in the day-of-week field.*upwards"),
        ("0 0 * * FRIL", r"such as 5L"),
        ("0 0 * * MON#6", r"'MON#6' is wrong in the day-of-week field"),
        ("H H * * *", r"jitter="),
        ("* * * *", r"has 4 fields, not 5 or 6; write minute hour day-of-month month day-of-week"),
        ("", r"is empty; write"),
        (" \n ", r"is empty; write"),
        ("@reboot", r"@scheduler\.startup"),
        ("@REBOOT", r"@scheduler\.startup"),
        ("@dayly", r"write @hourly, @daily"),
        ("@daily 5", r"write @hourly, @daily"),
        ("0 0 * * \u017fun", r"plain ASCII"),
        ("\u0665 * * * *", r"plain ASCII"),
        ("1," * 200 + "1 * * * *", r"longer than 256 characters.*any_of"),
        ("0 0 30 2 *", r"never fires: in month 2 no day matches day-of-month 30; .* write L"),
        ("0 0 31 4,6,9,11 *", r"never fires"),
        ("0 0 30,31 FEB *", r"never fires"),
        ("0 0 */28 2 MON#2", r"never fires.*must match both"),
    ],
)
def test_a_bad_text_is_refused_with_what_to_write_instead(text, says):
    with pytest.raises(InvalidTrigger, match=says):
        cron(text)


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"] * 5, datetime(2026, 1, 1, tzinfo=UTC)])
def test_cron_of_another_type_than_text_is_refused(value):
    with pytest.raises(InvalidTrigger, match="is not text"):
        cron(value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dst": "twice"}, "dst='twice' is not a policy; write 'cron', 'both' or 'skip'"),
        ({"dst": []}, "dst="),
        ({"dst": None}, "dst="),
        ({"jitter": -1}, "jitter=-1: a duration cannot be negative"),
        ({"jitter": "soon"}, "jitter='soon'"),
        ({"jitter": True}, "jitter=True"),
        ({"jitter": float("inf")}, "jitter=inf"),
        pytest.param({"jitter": 10**5000}, "jitter=", id="huge"),
        ({"jitter": "200000d"}, "jitter="),
        ({"start": NAIVE}, "start=.*no time zone"),
        ({"start": "soon"}, "start='soon' is not a time"),
        ({"start": "x" * 100_000}, "start="),
        ({"end": 5}, "end=5 is not a time"),
        ({"start": datetime.min.replace(tzinfo=UTC)}, "start=.*from the year 2 to 9998"),
        ({"end": "0001-01-01T00:00+14:00"}, "end="),
        ({"start": "2026-01-02T00:00Z", "end": "2026-01-01T00:00Z"}, "never fires from start=.* until end="),
    ],
)
def test_a_bad_option_is_refused_by_name(options, says):
    with pytest.raises(InvalidTrigger, match=says):
        cron("* * * * *", **options)


def test_bounds_between_which_nothing_fires_are_refused():
    with pytest.raises(InvalidTrigger, match="never fires from start=2026-01-02T00:00:00Z until end=2026-12-31"):
        cron("0 0 1 1 *", start="2026-01-02T00:00Z", end="2026-12-31T00:00Z")
    with pytest.raises(InvalidTrigger, match="never fires"):  # always inside the gap
        cron("30 2 8-14 3 */7", tz="America/New_York", dst="skip", start="2026-01-01T00:00Z")
    cron("0 0 1 1 *", start="2026-01-01T00:00Z", end="2026-01-01T00:00Z")


def outcome(text: str) -> Trigger | None:
    """Return the trigger, or None for a refusal; both in bounded time."""
    begun = time.thread_time()
    trigger, refusal = None, ""
    try:
        trigger = cron(text, tz="America/New_York")
    except InvalidTrigger as error:
        refusal = str(error)
    assert time.thread_time() - begun < MOST_SECONDS
    assert len(refusal) < 700
    return trigger


def check(text: str) -> None:
    trigger = outcome(text)
    if trigger is None:
        return
    for instant in (A_MOMENT, datetime.min.replace(tzinfo=UTC), datetime(2099, 12, 31, tzinfo=UTC)):
        begun = time.thread_time()
        found = trigger.next_after(instant)
        assert time.thread_time() - begun < MOST_SECONDS
        assert found is not None
        assert found > instant
    assert trigger_from_json(trigger.to_json()) == trigger
    assert trigger.describe()


NUMBER = st.one_of(st.integers(0, 70), st.integers(0, 10**12)).map(str)
ATOM = st.one_of(
    st.sampled_from(["*", "L", "LW", "W", "?", "H", "MON", "sun", "Feb", "5L", "MON#2", "1#9", "", "R", "~"]), NUMBER
)
TERM = st.one_of(
    ATOM,
    st.builds("{}-{}".format, ATOM, ATOM),
    st.builds("{}/{}".format, ATOM, NUMBER),
    st.builds("{}-{}/{}".format, ATOM, ATOM, NUMBER),
    st.builds("{}#{}".format, ATOM, NUMBER),
)
FIELD = st.lists(TERM, min_size=1, max_size=6).map(",".join)
CRON_LIKE = st.lists(st.one_of(st.just("*"), FIELD), min_size=4, max_size=7).map(" ".join)


@given(st.text())
@example("@")
@example("\x00")
@example("* * * * *\x00")
@example("*" * 256)
def test_any_text_gives_a_trigger_or_invalid_trigger(text):
    check(text)


@given(CRON_LIKE)
def test_any_text_that_looks_like_cron_gives_a_trigger_or_invalid_trigger(text):
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        ",".join(["1"] * 120) + " * * * *",
        ",".join(["*/1"] * 61) + " * * * *",
        "* * * * " + ",".join(["1-7"] * 61),
        "* * * * " + ",".join(["MON#1"] * 40),
        "* * " + ",".join(["LW"] * 80) + " * *",
        "0-" + "9" * 240 + " * * * *",
        "*/" + "9" * 240 + " * * * *",
        "1" + "/1" * 120 + " * * * *",
        "1" + "-1" * 120 + " * * * *",
        "#" * 240 + " * * * *",
        "0 0 29 2 " + ",".join(["0", "MON#5"] * 20),
        "* " * 127 + "*",
        "," * 240 + " * * * *",
    ],
)
def test_a_crafted_text_costs_no_more_than_any_other(text):
    assert len(text) <= 256
    check(text)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("0 0 10-10/5 * *", "0 0 10 * *"),
        ("0 0 10-010/5 * *", "0 0 10 * *"),
        ("0 9 * * mon-MON/2", "0 9 * * MON"),
        ("0 9 * * MON-1/2", "0 9 * * MON"),
        ("0 9 1 JAN-1/3 *", "0 9 1 JAN *"),
    ],
)
def test_a_range_of_one_value_has_one_value_whatever_its_step(text, means):
    assert cron(text) == cron(means)
