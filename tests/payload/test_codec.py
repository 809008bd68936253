"""What goes in comes out equal, or is refused with the path to it."""

import dataclasses
import enum
import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import InvalidPayload, StoreCorrupt
from cronsensus.payload.codec import DEEPEST, LARGEST, dumps, loads

text = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(leaves | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)


def same(one, other):
    """Equal and of one type all the way: ``1``, ``1.0`` and ``True`` are three values; ``0.0`` and ``-0.0`` two."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


@given(json_values)
def test_json_values_come_back_equal(value):
    assert same(loads(dumps(value)), value)


def test_a_tuple_comes_back_as_a_list():
    assert loads(dumps({"pair": (1, (2, 3))})) == {"pair": [1, [2, 3]]}


class Shade(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal(1),
        b"bytes",
        {1, 2},
        Shade.RED,
        Text("a"),
        Point(1),
        object(),
        1j,
        range(3),
        print,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_json_is_refused_with_its_path(value):
    with pytest.raises(InvalidPayload, match=r"^kwargs\.rows\[1\]\.at is a .*, which is not JSON"):
        dumps({"rows": [0, {"at": value}]}, what="kwargs")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "is nan: JSON has no such number"),
        (math.inf, "is inf"),
        (-math.inf, "is -inf"),
        (2**64, "is an integer beyond 64 bits"),
        (-(2**63) - 1, "is an integer beyond 64 bits"),
        (10**5000, "is an integer beyond 64 bits"),
        ({1: "a"}, "has the key 1: JSON keys are text"),
        ({None: "a"}, "has the key None"),
        ({Text("a"): 1}, "has the key 'a'"),
        ("\ud800", "cannot be written as JSON"),
        ({"\udfff": 1}, "cannot be written as JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_would_come_back_changed_is_refused(value, words):
    with pytest.raises(InvalidPayload, match=words):
        dumps(value)


def nested(levels):
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_the_depth_is_bounded():
    assert loads(dumps(nested(DEEPEST))) == nested(DEEPEST)
    with pytest.raises(InvalidPayload, match="nests deeper than 64 levels"):
        dumps(nested(DEEPEST + 1))


@pytest.mark.parametrize("leaf", [None, True, 1, 1.5, "a"], ids=str)
def test_a_leaf_is_no_level(leaf):
    value = nested(DEEPEST)
    innermost = value
    while innermost:
        innermost = innermost[0]
    innermost.append(leaf)
    assert loads(dumps(value)) == value


@pytest.mark.parametrize("levels", [5_000, 100_000])
def test_no_depth_exhausts_the_stack(levels):
    with pytest.raises(InvalidPayload):
        dumps(nested(levels))


def test_a_value_that_contains_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidPayload, match=r"value.*nests deeper than 64 levels"):
        dumps(value)


def test_the_size_is_bounded_in_bytes():
    assert len(dumps("a" * (LARGEST - 2))) == LARGEST
    with pytest.raises(InvalidPayload, match=r"^the result is 262,145 bytes as JSON, more than the 262,144"):
        dumps("a" * (LARGEST - 1), what="the result")
    with pytest.raises(InvalidPayload, match="12 bytes as JSON, more than the 11"):
        dumps("ééééé", largest=11)


def test_the_message_stays_short_whatever_the_keys_are():
    with pytest.raises(InvalidPayload) as refused:
        dumps({"k" * 10_000: math.nan})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("stored", ["", "{", "NaN", b"\xff", "[" * 100_000, "{'a': 1}"], ids=lambda s: repr(s)[:10])
def test_what_nobody_wrote_is_corrupt(stored):
    with pytest.raises(StoreCorrupt, match="a stored value is not JSON"):
        loads(stored)
