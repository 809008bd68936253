"""What a batch does next, as a table; and how many failed items it bears."""

from decimal import Decimal

import pytest

from cronsensus.errors import InvalidOption
from cronsensus.model.batch import ITEM_PREFIX, LONGEST_ITEM_KEY, Children, Tolerance, item_key, phase, shown_key
from cronsensus.model.states import State

RUNNING = State.RUNNING


@pytest.mark.parametrize(
    ("listed", "children", "tolerance", "expected"),
    [
        (None, Children(RUNNING), Tolerance(), "list"),
        (None, Children(RUNNING, pending=5, succeeded=3), Tolerance(), "list"),
        (None, Children(RUNNING, failed=2), Tolerance(stop_after=2), "stop"),
        (0, Children(RUNNING), Tolerance(), "collect"),
        (3, Children(RUNNING, pending=1, succeeded=2), Tolerance(), "wait"),
        (3, Children(RUNNING, running=1, failed=2), Tolerance(), "wait"),
        (3, Children(RUNNING, running=1, failed=2), Tolerance(stop_after=2), "stop"),
        (3, Children(RUNNING, succeeded=2, skipped=1), Tolerance(), "collect"),
        (3, Children(RUNNING, succeeded=2, failed=1), Tolerance(), "fail"),
        (3, Children(RUNNING, succeeded=2, cancelled=1), Tolerance(), "fail"),
        (3, Children(RUNNING, succeeded=2, failed=1), Tolerance(count=1), "collect"),
        (100, Children(RUNNING, succeeded=95, failed=5), Tolerance(share=Decimal("0.05")), "collect"),
        (100, Children(RUNNING, succeeded=94, failed=6), Tolerance(share=Decimal("0.05")), "fail"),
        (100, Children(RUNNING, succeeded=71, failed=29), Tolerance.read("29%", None), "collect"),
        (19, Children(RUNNING, succeeded=18, failed=1), Tolerance(share=Decimal("0.05")), "fail"),
    ],
)
def test_what_comes_next_follows_from_what_is_recorded(listed, children, tolerance, expected):
    assert phase(listed, children, tolerance) == expected


@pytest.mark.parametrize("wrong", [-1, 1.5, "5", "x%", "101%", "nan%", True, [], "-1%"])
def test_a_tolerance_that_is_none_says_what_to_write(wrong):
    with pytest.raises(InvalidOption, match="as 3, or a share"):
        Tolerance.read(wrong, None)


@pytest.mark.parametrize("wrong", [0, -1, True, "3"])
def test_to_stop_after_no_item_makes_no_sense(wrong):
    with pytest.raises(InvalidOption, match="at least 1"):
        Tolerance.read(None, wrong)


def test_an_items_key_is_that_of_its_batch_and_can_be_read():
    key = item_key(7, "shops/paris")
    assert (key, shown_key(key)) == (f"{ITEM_PREFIX}7/shops/paris", "shops/paris")
    assert shown_key("invoice:42") == "invoice:42"


def test_a_long_key_is_cut_and_stays_its_own():
    first, second = item_key(7, "x" * 1000 + "a"), item_key(7, "x" * 1000 + "b")
    assert first != second
    assert len(first) <= LONGEST_ITEM_KEY + 20
