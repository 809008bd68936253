from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import LONGEST_KEY, check_key, scheduled_key

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=LONGEST_KEY)


@given(text.filter(lambda key: not key.startswith("@")))
def test_a_key_is_taken_as_it_is(key):
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    ["", "a\0b", "\ud800", "k" * 401, "@2026-01-01T00:00:00Z", "@", None, 5, b"k"],
    ids=lambda key: repr(key)[:12],
)
def test_impossible_key_is_refused(key):
    with pytest.raises(InvalidOption, match=r"^key ") as refused:
        check_key(key)
    assert len(str(refused.value)) < 200


moments = st.datetimes(datetime(2, 1, 2), datetime(9998, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - it adds it


@given(moments, moments)
def test_a_nominal_time_has_one_key_and_no_other_has_it(one, other):
    assert (scheduled_key(one) == scheduled_key(other)) == (one == other)


@given(moments)
def test_a_user_s_key_never_meets_that_of_a_nominal_time(moment):
    with pytest.raises(InvalidOption, match="belong to nominal times"):
        check_key(scheduled_key(moment))


def test_the_key_is_in_utc_whatever_the_zone():
    moment = datetime(2026, 11, 20, 13, tzinfo=UTC)
    east = moment + timedelta(0)
    assert scheduled_key(east) == "@2026-11-20T13:00:00Z"
