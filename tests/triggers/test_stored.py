"""Triggers as JSON: strict when read, canonical when written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import any_of, at, cron, every, trigger_from_json


def test_what_is_written():
    assert cron("@daily", tz="Europe/Paris").to_json() == {
        "kind": "cron",
        "expression": "0 0 * * *",
        "tz": "Europe/Paris",
        "dst": "cron",
    }
    assert every("90m", start="2026-11-20T12:00+01:00", end="2027-01-01T00:00Z", jitter=5).to_json() == {
        "kind": "every",
        "interval": "1h30m",
        "start": "2026-11-20T11:00:00Z",
        "end": "2027-01-01T00:00:00Z",
        "jitter": "5s",
    }
    assert at("2026-11-20T12:00:00.25Z").to_json() == {"kind": "at", "instant": "2026-11-20T12:00:00.250000Z"}
    assert any_of(every("5m"), at("2026-11-20T12:00Z"), jitter="1s").to_json() == {
        "kind": "any_of",
        "parts": [{"kind": "at", "instant": "2026-11-20T12:00:00Z"}, {"kind": "every", "interval": "5m"}],
        "jitter": "1s",
    }


A_PART: dict[str, Any] = {"kind": "every", "interval": "5m"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "not a JSON object"),
        ("@daily", "not a JSON object"),
        ([A_PART], "not a JSON object"),
        ({}, "kind=None is not known"),
        ({"kind": "os.system", "command": "true"}, "kind='os.system' is not known here; known are cron, every, at"),
        ({"kind": ["cron"]}, "kind=.* is not known"),
        ({"kind": "cron"}, "expression is missing"),
        ({"kind": "cron", "expression": "* * * * *", "hour": 5}, "unknown 'hour'"),
        ({"kind": "cron", "expression": 5}, "is not text"),
        ({"kind": "cron", "expression": "* * * * *", "tz": 5}, "tz=5"),
        ({"kind": "cron", "expression": "* * * * *", "tz": "../../etc/passwd"}, "tz="),
        ({"kind": "every", "interval": "5m", "tz": "UTC"}, "unknown 'tz'"),
        ({"kind": "every", "interval": {}}, "interval="),
        ({"kind": "every", "interval": 0}, "interval=0"),
        ({"kind": "at", "instant": 5}, "instant=5"),
        ({"kind": "at", "instant": "2026-11-20T12:00Z", "start": None}, "unknown 'start'"),
        ({"kind": "any_of"}, "parts is missing"),
        ({"kind": "any_of", "parts": []}, "at least one"),
        ({"kind": "any_of", "parts": A_PART}, "not a list"),
        ({"kind": "any_of", "parts": [A_PART], "kinds": 1}, "unknown 'kinds'"),
        ({"kind": "any_of", "parts": ["@daily"]}, "not a JSON object"),
        ({"kind": "any_of", "parts": [{"kind": "any_of", "parts": [A_PART]}]}, "not inside another"),
    ],
)
def test_stored_data_that_is_no_trigger_is_refused(data, says):
    with pytest.raises(InvalidTrigger, match=says):
        trigger_from_json(data)


KEYS = st.sampled_from(["kind", "expression", "tz", "dst", "start", "end", "jitter", "interval", "parts", "x"])
VALUES = st.sampled_from(["cron", "every", "at", "any_of", "* * * * *", "5m", "UTC", "2026-11-20T12:00Z", "both"])
JSON = st.recursive(
    st.one_of(VALUES, st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
)
OBJECTS = st.builds(
    lambda kind, rest: {**rest, "kind": kind},
    st.sampled_from(["cron", "every", "at", "any_of"]),
    st.dictionaries(KEYS, JSON, max_size=5),
)


@given(st.one_of(JSON, OBJECTS))
def test_any_json_gives_a_trigger_or_invalid_trigger(data):
    try:
        trigger = trigger_from_json(data)
    except InvalidTrigger:
        return
    assert trigger_from_json(json.loads(json.dumps(trigger.to_json()))) == trigger


def test_the_deepest_json_does_not_exhaust_the_stack():
    data: dict[str, Any] = A_PART
    for _ in range(100_000):
        data = {"kind": "any_of", "parts": [data]}
    with pytest.raises(InvalidTrigger):
        trigger_from_json(data)
    while data is not A_PART:  # or freeing it would
        (data,) = data.pop("parts")
