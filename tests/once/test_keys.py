"""Different calls have different keys, one call has one key, and what can be no key is refused with what to write."""

import inspect
from collections import OrderedDict, namedtuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus import PayloadMismatch
from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import LONGEST_KEY, OccurrenceFilter
from cronsensus.once.keys import Key, KeyOf

Point = namedtuple("Point", "x y")  # noqa: PYI024 - as people write them


def one(value):
    return value


def two(tenant, order):
    return [tenant, order]


def key_of(template, function, *args, **kwargs) -> Key:
    return KeyOf(template, function.__name__, inspect.signature(function))(args, kwargs)


# --- one key for each call --------------------------------------------------------------------------------------------


def test_values_that_hold_the_text_between_them_give_different_keys(scheduler):
    guarded = scheduler.once("{tenant}:{order}")(two)
    assert guarded("a:b", "c") == ["a:b", "c"]
    assert guarded("a", "b:c") == ["a", "b:c"]
    assert guarded("a:b", "c") == ["a:b", "c"]
    keys = {seen.key for seen in scheduler.store.occurrences(OccurrenceFilter(job="once:two"))}
    assert keys == {'~2:"a:b":"c"', "a:b:c"}


TEXTS = st.text(st.sampled_from('ab:"\\~2#@\0,{}ä'), min_size=1, max_size=4)


@given(
    one=st.tuples(TEXTS, TEXTS),
    other=st.tuples(TEXTS, TEXTS),
    between=st.sampled_from(["", ":", "a", "::", '"', "~2:"]),
)
def test_no_two_pairs_of_texts_have_one_key(one, other, between):
    template = "{tenant}" + between.replace("{", "{{") + "{order}"
    mine, theirs = key_of(template, two, *one), key_of(template, two, *other)
    assert (mine.text == theirs.text) == (one == other)
    assert 1 <= len(mine.text) <= LONGEST_KEY
    assert "\0" not in mine.text


@given(one=TEXTS, other=TEXTS)
def test_no_two_texts_of_a_key_function_have_one_key(one, other):
    keys = [KeyOf(lambda value: value, "f", None)((text,), {}).text for text in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


def test_keys_that_can_be_read_in_one_way_are_as_they_always_were():
    assert key_of("charge:{value}", one, 7) == Key("charge:7", "i", ("value",))
    assert key_of("{tenant}:{order}", two, "acme", "b:c").text == "acme:b:c"
    assert key_of("{value}", one, "~1").text == "~1"


@pytest.mark.parametrize("value", ["1", True, 1.0])
def test_values_that_are_spelled_alike_and_are_not_the_same_are_refused(scheduler, value):
    ran = []

    @scheduler.once("{value}", on_mismatch="return")
    def work(value):
        ran.append(value)
        return repr(value)

    number = str(value)
    spelled = {"1": 1, "True": "True", "1.0": "1.0"}[number]
    assert work(spelled) == repr(spelled)
    with pytest.raises(PayloadMismatch, match=r"value in the key is spelled as there.*write \{value!r\}"):
        work(value)
    assert ran == [spelled]


def test_values_whose_text_says_all_may_come_as_text():
    name = "0198f3a2-0000-7000-8000-000000000000"
    assert key_of("{value}", one, UUID(name)) == key_of("{value}", one, name)


def test_a_dict_has_one_key_in_whatever_order_it_was_made():
    for first, second in (
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"a": {"x": 1, "y": ()}, "b": 2}], [{"b": 2, "a": {"y": (), "x": 1}}]),
        ({"a": 1, "b": 2}, OrderedDict(b=2, a=1)),
        ({1: "a", 2: "b"}, {2: "b", 1: "a"}),
    ):
        assert key_of("d:{value}", one, first).text == key_of("d:{value}", one, second).text
    assert key_of("{value}", one, {"b": 2, "a": 1}).text == "{'a': 1, 'b': 2}"
    assert key_of("{value}", one, {"a": [1]}).text != key_of("{value}", one, {"a": (1,)}).text


def test_a_long_key_is_hashed_and_begins_as_it_reads(scheduler):
    guarded = scheduler.once("long:{value}")(one)
    first, second = "x" * 5000 + "a", "x" * 5000 + "b"
    assert [guarded(first), guarded(second), guarded(first)] == [first, second, first]
    keys = [seen.key for seen in scheduler.store.occurrences(OccurrenceFilter(job="once:one"))]
    assert len(set(keys)) == 2
    for key in keys:
        assert key.startswith("~2#")
        assert ":long:xxx" in key
        assert len(key) < LONGEST_KEY


def test_texts_that_no_store_keeps_as_keys_are_quoted(scheduler):
    guarded = scheduler.once("{value}")(one)
    for value in ("a\0b", "@2026-01-01T00:00:00Z", "~2:x", "a\nb", " ", "ü"):
        assert guarded(value) == value
    assert len(scheduler.store.occurrences(OccurrenceFilter(job="once:one"))) == 6


# --- what can be no key -----------------------------------------------------------------------------------------------


class Plain:
    """Has no text of its own."""


class Pretender:
    def __repr__(self):
        return object.__repr__(self)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "value is None here, and all such calls would be one.*write {value!r}"),
        ("", "value is an empty text here, and all such calls would be one.*write {value!r}"),
        (float("nan"), "not a number"),
        (Plain(), r"no text of its own.*as in \{value\.id\}"),
        (Pretender(), "no text of its own but its address"),
        ([Plain()], "no text of its own"),
        ({"a": [Pretender()]}, "no text of its own"),
        (Point(1, Plain()), "no text of its own"),
        (lambda: 0, "no text of its own"),
        ([print], "no text of its own"),
        ({"a", "b"}, r"is a set, which has no order.*sorted"),
        ([frozenset("ab")], "is a set"),
        ("\ud800", "half a character"),
    ],
)
def test_what_can_be_no_key_is_refused_with_what_to_write(local, value, says):
    ran: list[object] = []

    @local.once("{value}")
    def work(value: object) -> None:
        ran.append(value)

    with pytest.raises(InvalidOption, match=says):
        work(value)
    assert ran == []


def test_none_and_an_empty_text_are_keys_where_that_is_said():
    assert [key_of("{value!r}", one, value).text for value in (None, "", "None")] == ["None", "''", "'None'"]


def test_a_key_function_returns_text(local):
    async def soon(value):
        return "k"

    for function, says in (
        (lambda _: None, "returned None"),
        (lambda _: "", "an empty text"),
        (lambda _: 7, "returned 7"),
        (soon, "is an async function"),
    ):
        local._guards.guarded.clear()
        with pytest.raises(InvalidOption, match=says):
            local.once(function)(one)(1)
